/*
 * Owns the reading of command-line flags as launch scripts write them: a shell
 * script is searched for words that begin with "--", each with the words
 * behind it on its line (config_words.c). A YAML file of MODEL_ARGS, as
 * Megatron-LM's own tests have, is read as YAML.
 */
#include "spec/config_words.h"

#include "json/yaml.h"

#include <string.h>

#include "base/banned.h"

/* ---- the tree ---- */

static const char *key_text(struct script *s, struct str flag)
{
    for (size_t i = flag.n; s->last_part && i > 0; i--) {
        if (flag.p[i - 1] == '.') {
            flag = (struct str){ flag.p + i, flag.n - i };
            break;
        }
    }
    char *key = arena_copy(s->arena, flag.p, flag.n);
    for (char *p = key; p != NULL && *p != '\0'; p++)
        *p = (char)(*p == '-' ? '_' : *p);
    return key;
}

static struct json *new_value(struct script *s, struct str text)
{
    struct json *v = ARENA_NEW(s->arena, struct json, 1);
    const char *copy = arena_copy(s->arena, text.p, text.n);
    if (v == NULL || copy == NULL) {
        diag_nomem(s->diag);
        return NULL;
    }
    v->kind = JSON_STRING;
    v->text = (struct str){ copy, text.n };
    return v;
}

/* A flag given twice is what was said last. */
static struct json *member_of(struct script *s, const char *key)
{
    for (struct json *v = s->root->child; v != NULL; v = v->next) {
        if (str_is(v->key, key))
            return v;
    }
    struct json *v = ARENA_NEW(s->arena, struct json, 1);
    if (v == NULL) {
        diag_nomem(s->diag);
        return NULL;
    }
    v->key = str_of(key);
    v->parent = s->root;
    if (s->last == NULL) {
        s->root->child = v;
    } else {
        s->last->next = v;
        v->index = s->last->index + 1;
    }
    s->last = v;
    return v;
}

/* Whether the script assigns it in a branch that is not the command's too. */
static bool is_assigned_aside(const struct script *s, struct str word)
{
    struct branches b = { 0, 0 };
    if (word.n == 0 || word.p[0] != '$')
        return false;
    const struct str value = script_follow(s, word, (size_t)(word.p - s->text));
    script_branch(&b, s, (size_t)(value.p - s->text));
    return b.open > s->around;
}

/* Words join by blanks: what takes several reads them again. */
static void add_word(struct script *s, struct json *v, struct str word)
{
    struct str value = script_value(s, word);
    v->branched = v->branched || is_assigned_aside(s, word);
    const char *joined = v->kind == JSON_STRING
                             ? arena_printf(s->arena, "%s %.*s", v->text.p,
                                            (int)value.n, value.p)
                             : arena_copy(s->arena, value.p, value.n);
    if (joined == NULL) {
        diag_nomem(s->diag);
        return;
    }
    if (v->kind != JSON_STRING)
        v->offset = (size_t)(word.p - s->text);
    v->kind = JSON_STRING;
    v->text = str_of(joined);
}

/* The program that a launcher starts: no value of the flag before it. */
static bool is_program(struct str word)
{
    return word.n > 3 && memcmp(word.p + word.n - 3, ".py", 3) == 0;
}

/* "$ARGS" behind a value, or what the script assigns flags to. */
static bool is_flags(const struct script *s, const struct json *v,
                     struct str word)
{
    if (word.n < 2 || word.p[0] != '$')
        return false;
    const struct str value = script_follow(s, word, (size_t)(word.p - s->text));
    return (value.n > 1 && value.p[0] == '-' && value.p[1] == '-')
           || (v->kind == JSON_STRING && value.p == word.p
               && !script_is_sum(word));
}

/* A command ends here, or its output goes elsewhere. */
static bool is_end(struct str word)
{
    static const char *const ends[] = { "&&", "||", "|", "&", ";" };
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
        if (str_is(word, ends[i]))
            return true;
    return word.n > 0
           && (word.p[0] == '>'
               || (word.n > 1 && word.p[1] == '>'
                   && (word.p[0] == '1' || word.p[0] == '2'
                       || word.p[0] == '&')));
}

static void take_flag(struct script *s)
{
    const size_t offset = s->at;
    struct str value;
    struct str flag = str_cut(script_word(s), '=', &value);
    const char *key =
        key_text(s, (struct str){ flag.p + 2, flag.n > 2 ? flag.n - 2 : 0 });
    struct json *v = key == NULL ? NULL : member_of(s, key);
    if (v == NULL)
        return;
    v->kind = JSON_BOOL;
    v->truth = true;
    v->offset = offset;
    script_branch(&s->branches, s, offset);
    v->branched = s->branches.open > s->around;
    if (value.n > 0) {
        add_word(s, v, value);
        return;
    }
    bool values = true;
    while (script_to_word(s)) {
        const size_t begin = s->at;
        struct str word = script_word(s);
        if (word.n >= 2 && word.p[0] == '-' && word.p[1] == '-') {
            s->at = begin;
            return;
        }
        if (word.n > 1 && word.p[0] == '$'
            && (word.p[1] == '@' || memchr(word.p, '[', word.n) != NULL))
            continue; /* another array of flags, read where it is written */
        if (is_end(word))
            return;
        values = values && !is_program(word) && !is_flags(s, v, word);
        if (values)
            add_word(s, v, word);
        if (s->text[s->at - 1] == ';')
            return;
    }
}

static bool is_flag(const struct script *s)
{
    return s->at + 2 < s->len && s->text[s->at] == '-'
           && s->text[s->at + 1] == '-' && script_name_byte(s->text[s->at + 2]);
}

/* NAME=(--flag ... : what is behind the parenthesis. */
static void skip_word(struct script *s)
{
    while (s->at < s->len && !script_blank(s->text[s->at])
           && s->text[s->at] != '\n') {
        s->at++;
        if (is_flag(s))
            return;
    }
}

static bool begins_line(const struct script *s)
{
    size_t i = s->at;
    while (i > 0 && (s->text[i - 1] == ' ' || s->text[i - 1] == '\t'))
        i--;
    return i == 0 || s->text[i - 1] == '\n';
}

static bool is_here(const struct script *s, const char *word)
{
    const size_t n = strlen(word);
    return s->len - s->at >= n && memcmp(s->text + s->at, word, n) == 0;
}

/* What a line shows, or compares its arguments with, starts nothing:
 * `echo "... --flag"`, and `--flag)` between case and esac. What stands behind
 * `name)` there may. */
static bool is_shown(struct script *s)
{
    if (!begins_line(s))
        return false;
    s->in_case = !is_here(s, "esac") && (s->in_case || is_here(s, "case "));
    size_t i = s->at;
    while (i < s->len
           && (script_name_byte(s->text[i]) || s->text[i] == '-'
               || s->text[i] == '|'))
        i++;
    if (s->in_case && i > s->at && i < s->len && s->text[i] == ')') {
        if (s->text[s->at] == '-')
            return true;
        s->at = i + 1;
        if (!script_to_word(s))
            return true;
    }
    return is_here(s, "echo ") || is_here(s, "printf ");
}

/* Of `deepspeed train.py` the name says how many processes. */
static void add_launcher(struct script *s)
{
    const struct config_launcher *of = &s->launcher;
    struct json *v = of->program == NULL ? NULL : member_of(s, CONFIG_LAUNCHER);
    if (v == NULL)
        return;
    v->kind = JSON_STRING;
    v->text = str_of(of->program);
    v = of->visible == 0 ? NULL : member_of(s, CONFIG_VISIBLE);
    if (v == NULL)
        return;
    v->kind = JSON_NUMBER;
    v->number = (double)of->visible;
}

/* Of several commands that start processes the last one is read, and none that
 * comes after it. */
static void skip_others(struct script *s)
{
    while (s->launched < s->launcher.n
           && (s->launched == 0 || s->earlier.to <= s->at)) {
        (void)config_next_launch(&s->earlier);
        s->launched++;
    }
    if (s->launched < s->launcher.n && s->earlier.from <= s->at)
        s->at = s->earlier.to;
    else if (s->launched > 0 && s->launched == s->launcher.n
             && s->earlier.to <= s->at)
        s->at = s->len;
}

/* The branches that the command itself is in. */
static size_t around_command(const struct script *s)
{
    struct config_launches l = s->earlier;
    struct branches b = { 0, 0 };
    for (size_t i = 0; i < s->launcher.n; i++)
        (void)config_next_launch(&l);
    script_branch(&b, s, l.from);
    return b.open;
}

static struct json *read_script(struct script *s)
{
    s->root = new_value(s, (struct str){ "", 0 });
    if (s->root == NULL)
        return NULL;
    s->root->kind = JSON_OBJECT;
    s->root->key = STR(CONFIG_DASHES);
    config_find_launcher(s->text, s->len, &s->launcher);
    s->earlier = (struct config_launches){ .text = s->text, .len = s->len };
    s->around = around_command(s);
    while (s->at < s->len && s->diag->status == MEMPLAN_OK) {
        skip_others(s);
        if (!script_to_word(s) || is_shown(s))
            script_next_line(s);
        else if (is_flag(s))
            take_flag(s);
        else
            skip_word(s);
    }
    if (s->launches)
        add_launcher(s);
    return s->diag->status == MEMPLAN_OK ? s->root : NULL;
}

/* ---- YAML ---- */

static bool has_line(const char *text, size_t len, const char *begin)
{
    size_t n = strlen(begin);
    for (size_t i = 0; i + n <= len; i++) {
        if ((i == 0 || text[i - 1] == '\n') && memcmp(text + i, begin, n) == 0)
            return true;
    }
    return false;
}

/* "--num-layers" is num_layers; what is false was not given. */
static bool name_flag(struct script *s, struct json *v)
{
    struct str key = v->key;
    while (key.n > 0 && key.p[0] == '-')
        key = (struct str){ key.p + 1, key.n - 1 };
    const char *copy = key_text(s, key);
    if (copy == NULL) {
        diag_nomem(s->diag);
        return false;
    }
    v->key = (struct str){ copy, key.n };
    if (v->kind == JSON_BOOL && !v->truth)
        v->kind = JSON_NULL;
    return true;
}

static struct json *flags_of(struct script *s, struct json *root)
{
    struct json *args = root->child;
    while (args != NULL && !str_is(args->key, "MODEL_ARGS"))
        args = args->next;
    if (args == NULL || args->kind != JSON_OBJECT)
        return root;
    for (struct json *v = args->child; v != NULL; v = v->next) {
        if (!name_flag(s, v))
            return NULL;
    }
    args->parent = NULL;
    args->key = STR(CONFIG_DASHES);
    return args;
}

/* NULL, and reported: no memory. */
static const char *name_in_section(struct script *s, const struct json *root,
                                   const struct json *v)
{
    if (v->parent == root)
        return v->key.p;
    if (str_is(v->key, "name") && str_is(v->parent->key, "optim"))
        return "optim_name";
    if (str_is(v->key, "num_layers_in_first_pipeline_stage"))
        return "decoder_first_pipeline_num_layers";
    if (str_is(v->key, "num_layers_in_last_pipeline_stage"))
        return "decoder_last_pipeline_num_layers";
    if (!str_is(v->parent->key, "peft"))
        return v->key.p;
    const char *name = arena_printf(s->arena, "peft_%s", v->key.p);
    if (name == NULL)
        diag_nomem(s->diag);
    return name;
}

/* The last name in "${a.b.NAME}", as OmegaConf writes what stands elsewhere in
 * its file; "" where it is none. */
static struct str interpolated(const struct json *v)
{
    const struct str none = { "", 0 };
    const struct str text = v->kind == JSON_STRING ? v->text : none;
    size_t from = 2;
    if (text.n < 4 || text.p[0] != '$' || text.p[1] != '{'
        || text.p[text.n - 1] != '}')
        return none;
    for (size_t i = from; i + 1 < text.n; i++) {
        if (text.p[i] == '.')
            from = i + 1;
        else if (!script_name_byte(text.p[i]))
            return none;
    }
    return (struct str){ text.p + from, text.n - 1 - from };
}

static bool is_same(struct str a, struct str b)
{
    return a.n > 0 && a.n == b.n && memcmp(a.p, b.p, a.n) == 0;
}

/* Values that are another entry's. */
static void follow(struct json *root)
{
    for (struct json *v = root->child; v != NULL; v = v->next) {
        const struct str name = interpolated(v);
        const struct json *of = root->child;
        while (
            name.n > 0 && of != NULL
            && !(of->key.n == name.n && memcmp(of->key.p, name.p, name.n) == 0))
            of = of->next;
        if (name.n == 0 || of == NULL || of == v || interpolated(of).n > 0)
            continue;
        v->kind = of->kind;
        v->truth = of->truth;
        v->number = of->number;
        v->text = of->text;
        v->child = of->child;
    }
}

/* Sections of --yaml-cfg, of NeMo's and Megatron-Bridge's files: names are the
 * flags' own, whatever they are in, but for two sections'. */
static struct json *flags_of_sections(struct script *s, struct json *root)
{
    struct json *v = root->child;
    /* NeMo and Megatron-Bridge read by OmegaConf, Megatron-LM by PyYAML */
    if (json_member(root, "language_model") == NULL
        && json_member(root, "model_parallel") == NULL)
        yaml_refuse_again(root, s->text, s->len, s->diag);
    if (s->diag->status != MEMPLAN_OK)
        return NULL;
    s->root = new_value(s, (struct str){ "", 0 });
    if (s->root == NULL)
        return NULL;
    s->root->kind = JSON_OBJECT;
    while (v != NULL) {
        struct json *next =
            v->kind == JSON_OBJECT && v->child != NULL ? v->child : v->next;
        for (struct json *up = v;
             next == NULL && up->parent != root && up->parent != NULL;
             up = up->parent)
            next = up->parent->next;
        if (v->kind != JSON_OBJECT) {
            /* no flag's: what a class has true may be said to be false */
            const enum json_kind kind =
                v->parent != root && str_is(v->parent->key, "peft") ? v->kind
                                                                    : JSON_NULL;
            if (!name_flag(s, v))
                return NULL;
            const char *name = name_in_section(s, root, v);
            struct json *flag = name == NULL ? NULL : member_of(s, name);
            if (flag == NULL)
                return NULL;
            if (flag->kind != JSON_NULL
                && is_same(interpolated(v), flag->key)) {
                v = next; /* what the entry of that name says already */
                continue;
            }
            flag->kind = kind == JSON_BOOL ? kind : v->kind;
            flag->truth = v->truth;
            flag->number = v->number;
            flag->text = v->text;
            flag->offset = v->offset;
            flag->child = v->child;
            flag->key_offset = v->key_offset;
            flag->line = v->line;
            flag->before = v->before;
        }
        v = next;
    }
    follow(s->root);
    return s->root;
}

/* A "name:" begins a line, and no "--flag" stands anywhere. */
static bool is_sections(const char *text, size_t len)
{
    bool named = false, begins = true;
    for (size_t i = 0; i < len; i++) {
        if (i + 2 < len && text[i] == '-' && text[i + 1] == '-'
            && script_name_byte(text[i + 2])
            && (i == 0 || text[i - 1] == ' ' || text[i - 1] == '\n'))
            return false;
        if (begins && text[i] == ':' && i > 0 && script_name_byte(text[i - 1])
            && i + 1 < len && (text[i + 1] == '\n' || text[i + 1] == ' '))
            named = true;
        begins = text[i] == '\n' || (begins && script_name_byte(text[i]));
    }
    return named;
}

/* `wanted`: what the caller looks for, when there is no flag at all. */
static struct json *parse(struct script s, const char *wanted)
{
    struct diag *d = s.diag;
    const char *text = s.text;
    const size_t len = s.len;
    if (memchr(text, '\0', len) != NULL) {
        diag_hint(diag_add(d, MEMPLAN_E_SYNTAX, "not a text: it has a byte 0"),
                  "give the launch script itself");
        return NULL;
    }
    const bool args = has_line(text, len, "MODEL_ARGS:");
    if (args || is_sections(text, len)) {
        struct json *root = yaml_parse(s.arena, text, len, d);
        return root == NULL ? NULL
               : args       ? flags_of(&s, root)
                            : flags_of_sections(&s, root);
    }
    struct json *root = read_script(&s);
    if (root != NULL && root->child == NULL) {
        memplan_error *e = diag_add(d, MEMPLAN_E_SYNTAX, "no flag in the file");
        diag_hint(e, "%s", wanted);
        return NULL;
    }
    return root;
}

struct json *config_parse_args(struct arena *a, const char *text, size_t len,
                               struct diag *d)
{
    return parse(
        (struct script){ .last_part = true, /* NeMo's --trainer.devices */
                         .arena = a,
                         .diag = d,
                         .text = text,
                         .len = len },
        "a launch script with --tensor-model-parallel-size 8, or YAML with "
        "MODEL_ARGS:");
}

struct json *config_parse_flags(struct arena *a, const char *text, size_t len,
                                struct diag *d)
{
    return parse(
        (struct script){
            .launches = true, .arena = a, .diag = d, .text = text, .len = len },
        "a script with --per_device_train_batch_size 4, JSON or YAML");
}

struct json *config_parse_launcher(struct arena *a, const char *text,
                                   size_t len, struct diag *d)
{
    return parse(
        (struct script){
            .launches = true, .arena = a, .diag = d, .text = text, .len = len },
        "a script that calls torchrun --nnodes 2 --nproc_per_node 8, "
        "deepspeed --num_gpus 8 or accelerate launch --num_processes 8");
}
