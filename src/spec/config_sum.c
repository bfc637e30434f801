/*
 * Owns arithmetic as a shell's $((...)) writes it, of whole numbers that are
 * not negative: + - * / % and parentheses. Knows no names: they have been
 * replaced by what they stand for.
 */
#include "spec/config_sum.h"

#include "base/banned.h"

enum { DEEP = 64 };

/* Values and operators that wait for what binds closer. */
struct sum {
    uint64_t value[DEEP];
    size_t values;
    char op[DEEP];
    size_t ops;
};

static unsigned binds(char op)
{
    return op == '(' ? 0 : op == '+' || op == '-' ? 1 : 2;
}

static bool apply(char op, uint64_t *a, uint64_t b)
{
    switch (op) {
    case '+': *a += b; return *a <= SUM_MAX;
    case '-':
        if (b > *a)
            return false;
        *a -= b;
        return true;
    case '*':
        if (b != 0 && *a > SUM_MAX / b)
            return false;
        *a *= b;
        return true;
    case '/':
    case '%':
        if (b == 0)
            return false;
        *a = op == '/' ? *a / b : *a % b;
        return true;
    }
    return false;
}

/* Does what waits and binds at least so close. */
static bool settle(struct sum *s, unsigned least)
{
    while (s->ops > 0 && binds(s->op[s->ops - 1]) >= least) {
        if (s->values < 2
            || !apply(s->op[--s->ops], &s->value[s->values - 2],
                      s->value[s->values - 1]))
            return false;
        s->values--;
    }
    return true;
}

static bool push_op(struct sum *s, char op)
{
    if (op == ')') {
        if (!settle(s, 1) || s->ops == 0)
            return false;
        s->ops--; /* its parenthesis */
        return true;
    }
    if (s->ops == DEEP || (op != '(' && !settle(s, binds(op))))
        return false;
    s->op[s->ops++] = op;
    return true;
}

static bool push_number(struct sum *s, struct str text, size_t *at)
{
    uint64_t n = 0;
    for (; *at < text.n && text.p[*at] >= '0' && text.p[*at] <= '9'; ++*at) {
        n = n * 10 + (uint64_t)(text.p[*at] - '0');
        if (n > SUM_MAX)
            return false;
    }
    if (s->values == DEEP)
        return false;
    s->value[s->values++] = n;
    return true;
}

bool sum_of(struct str text, uint64_t *out)
{
    struct sum s = { .values = 0 };
    bool wants_value = true;
    for (size_t i = 0; i < text.n;) {
        const char c = text.p[i];
        if (c == ' ' || c == '\t') {
            i++;
            continue;
        }
        const bool digit = c >= '0' && c <= '9';
        const bool op =
            c == '+' || c == '-' || c == '*' || c == '/' || c == '%';
        if ((digit || c == '(') != wants_value
            || (!digit && !op && c != '(' && c != ')'))
            return false;
        if (digit ? !push_number(&s, text, &i) : !push_op(&s, text.p[i++]))
            return false;
        wants_value = op || c == '(';
    }
    for (size_t i = 0; i < s.ops; i++) {
        if (s.op[i] == '(')
            return false;
    }
    if (wants_value || !settle(&s, 1) || s.values != 1)
        return false;
    *out = s.value[0];
    return true;
}
