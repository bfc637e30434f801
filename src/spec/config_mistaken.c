/*
 * Owns what names that are not a dialect's may have been meant as: an entry of
 * nearly that name, or, where most are another program's, that one's file.
 * Knows no dialect.
 */
#include "spec/config.h"

#include <limits.h>
#include <string.h>

#include "base/banned.h"

/* An entry of a table, or the object that some are in. */
static bool has_entry(const struct config_table *t, struct str name)
{
    for (size_t i = 0; i < t->rows; i++) {
        const char *path = t->row[i].path;
        const size_t n = strcspn(path, ".");
        if (name.n == n && memcmp(name.p, path, n) == 0)
            return true;
    }
    return false;
}

static size_t known_entries(const struct config_table *t,
                            const struct json *root)
{
    size_t n = 0;
    for (const struct json *v = root->child; v != NULL; v = v->next)
        n += has_entry(t, v->key);
    return n;
}

/* Launchers' flags stand beside those of any program. */
static bool is_own(const struct config *c)
{
    return c->root->parent != NULL || str_is(c->root->key, CONFIG_DASHES);
}

static bool other_program(struct config *c, const char *dialect)
{
    memplan_error *e = config_bad(c, c->root, MEMPLAN_E_SCHEMA,
                                  "these are entries of another program's "
                                  "file");
    diag_hint(e, "give it as --%s FILE", dialect);
    return true;
}

bool config_mistaken(struct config *c)
{
    size_t all = 0;
    for (const struct json *v = c->root->child; v != NULL; v = v->next)
        all++;
    const size_t known = known_entries(c->table, c->root);
    /* accelerate launch has flags of the same names as its file's entries */
    if (!is_own(c) && c->table != &config_accelerate
        && json_member(c->root, "distributed_type") != NULL)
        return other_program(c, "accelerate");
    if (is_own(c) || 2 * known > all)
        return false;
    const struct config_dialect *best = NULL;
    size_t most = known;
    for (size_t i = 0; config_dialect(i) != NULL; i++) {
        const struct config_dialect *of = config_dialect(i);
        const size_t n = known_entries(of->table, c->root);
        if (n > most && !(of->table->flags && of->parse == config_parse_args)) {
            most = n;
            best = of;
        }
    }
    return best != NULL && other_program(c, best->name);
}

bool config_near(const struct config_table *t, const char *path,
                 char near[CONFIG_PATH_MAX])
{
    const char *dot = strrchr(path, '.');
    const size_t folder = dot != NULL ? (size_t)(dot - path) + 1 : 0;
    const struct str name = str_of(path + folder);
    struct str best = { "", 0 };
    unsigned least = UINT_MAX;
    for (size_t i = 0; i < t->rows; i++) {
        const char *other = t->row[i].path;
        if (strncmp(other, path, folder) != 0)
            continue;
        const struct str beside = { other + folder,
                                    strcspn(other + folder, ".") };
        const unsigned far = str_distance(name, beside);
        if (far < least) {
            least = far;
            best = beside;
        }
    }
    str_format(near, CONFIG_PATH_MAX, "%.*s%.*s", (int)folder, path,
               (int)best.n, best.p);
    return best.n > 0 && str_near(name, best, least);
}
