/*
 * Owns the dialect of DeepSpeed's hostfile: a host a line and how many GPUs it
 * has, of which the launching line may take some. Refuses to know who starts
 * what there. [deepspeed/launcher/runner.py, 0.19.8: _parse_hostfile,
 * parse_resource_filter, apply_num_nodes_and_gpus]
 */
#include "spec/config.h"

#include "base/unit.h"

#include <inttypes.h>
#include <string.h>

#include "base/banned.h"

enum { SLOTS_MAX = 1024, WORD_BITS = 64 };

static const struct config_row rows[] = {
    { "hosts", CONFIG_LATER, KEY_COUNT, "", WRITE_NEVER },
};

/* ---- the text ---- */

/* Digits alone; false where they make no number, or a large one. */
static bool read_digits(struct str word, uint64_t *out)
{
    *out = 0;
    for (size_t i = 0; i < word.n; i++) {
        if (word.p[i] < '0' || word.p[i] > '9' || *out > SLOTS_MAX)
            return false;
        *out = *out * 10 + (uint64_t)(word.p[i] - '0');
    }
    return word.n > 0 && *out <= SLOTS_MAX;
}

static bool is_gap(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static struct str take_word(struct str *line)
{
    while (line->n > 0 && is_gap(line->p[0]))
        *line = (struct str){ line->p + 1, line->n - 1 };
    struct str word = { line->p, 0 };
    while (word.n < line->n && !is_gap(word.p[word.n]))
        word.n++;
    *line = (struct str){ line->p + word.n, line->n - word.n };
    return word;
}

struct reading {
    struct arena *arena;
    struct diag *d;
    const char *text;
    size_t len;
    struct json *hosts, *last;
};

static struct json *new_json(struct reading *r, enum json_kind kind, size_t at)
{
    struct json *v = ARENA_NEW(r->arena, struct json, 1);
    if (v == NULL) {
        diag_nomem(r->d);
        return NULL;
    }
    v->kind = kind;
    v->offset = at;
    return v;
}

static memplan_error *bad_line(struct reading *r, memplan_status status,
                               const struct json *v, const char *what)
{
    memplan_error *e = diag_add(r->d, status, "%s", what);
    json_locate(e, r->text, r->len, v);
    return e;
}

/* Hosts are told apart as they are written. */
static bool is_same(struct str a, struct str b)
{
    return a.n == b.n && memcmp(a.p, b.p, a.n) == 0;
}

static bool is_there(const struct json *hosts, struct str host)
{
    for (const struct json *v = hosts->child; v != NULL; v = v->next)
        if (is_same(v->key, host))
            return true;
    return false;
}

/* "worker-1 slots=8": what stands behind that is passed over. */
static void read_line(struct reading *r, struct str line)
{
    struct str count;
    const struct str host = take_word(&line);
    if (host.n == 0 || host.p[0] == '#')
        return;
    struct json *v = new_json(r, JSON_NUMBER, (size_t)(host.p - r->text));
    const char *name = arena_copy(r->arena, host.p, host.n);
    if (v == NULL || name == NULL) {
        diag_nomem(r->d);
        return;
    }
    uint64_t slots = 0;
    const struct str key = str_cut(take_word(&line), '=', &count);
    if (!str_is(key, "slots") || !read_digits(count, &slots)) {
        diag_hint(
            bad_line(r, MEMPLAN_E_SYNTAX, v, "no host and its number of GPUs"),
            "such as: %.40s slots=8", name);
        return;
    }
    v->key = (struct str){ name, host.n };
    if (is_there(r->hosts, v->key)) {
        diag_hint(
            bad_line(r, MEMPLAN_E_CONFLICT, v, "this host is there already"),
            "a host has one line, with all of its slots");
        return;
    }
    v->number = (double)slots;
    v->parent = r->hosts;
    if (r->last == NULL)
        r->hosts->child = v;
    else
        r->last->next = v;
    r->last = v;
}

struct json *config_parse_hostfile(struct arena *a, const char *text,
                                   size_t len, struct diag *d)
{
    struct reading r = { .arena = a, .d = d, .text = text, .len = len };
    struct json *root = new_json(&r, JSON_OBJECT, 0);
    r.hosts = new_json(&r, JSON_OBJECT, 0);
    if (root == NULL || r.hosts == NULL)
        return NULL;
    root->child = r.hosts;
    r.hosts->parent = root;
    r.hosts->key = STR("hosts");
    struct str rest = { text, len };
    while (rest.n > 0)
        read_line(&r, str_cut(rest, '\n', &rest));
    if (r.hosts->child == NULL && d->status == MEMPLAN_OK)
        diag_hint(diag_add(d, MEMPLAN_E_SYNTAX, "no host in the file"),
                  "a line for each, such as: worker-0 slots=8");
    return d->status == MEMPLAN_OK ? root : NULL;
}

/* ---- which of them ---- */

/* What "worker-0@worker-1:0,2" says of one host. */
struct picked {
    bool named, numbered;
    uint64_t seen[SLOTS_MAX / WORD_BITS];
    uint64_t n; /* of different numbers */
};

static void pick_slots(struct config *c, struct picked *p, struct str host,
                       struct str ids, uint64_t slots)
{
    while (ids.n > 0) {
        uint64_t id = 0;
        const struct str one = str_cut(ids, ',', &ids);
        if (!read_digits(one, &id) || id >= slots) {
            diag_hint(config_bad(c, c->root, MEMPLAN_E_RANGE,
                                 "no GPU '%.*s' on '%.*s'", (int)one.n, one.p,
                                 (int)host.n, host.p),
                      "its hostfile has slots=%" PRIu64, slots);
            return;
        }
        uint64_t *word = &p->seen[id / WORD_BITS];
        const uint64_t bit = UINT64_C(1) << id % WORD_BITS;
        p->n += (*word & bit) == 0;
        *word |= bit;
        p->numbered = true;
    }
}

static struct picked pick(struct config *c, struct str host, uint64_t slots)
{
    struct picked p = { .named = false };
    struct str rest = str_of(c->s->hosts.some);
    while (rest.n > 0) {
        struct str ids;
        const struct str name = str_cut(str_cut(rest, '@', &rest), ':', &ids);
        if (!is_same(name, host))
            continue;
        p.named = true;
        pick_slots(c, &p, host, ids, slots);
    }
    return p;
}

/* GPUs of a host that are used. */
static uint64_t used(struct config *c, const struct json *host)
{
    const struct setup_hosts *of = &c->s->hosts;
    const uint64_t slots = (uint64_t)host->number;
    if (of->some[0] == '\0')
        return of->gpus > 0 ? of->gpus : slots;
    const struct picked p = pick(c, host->key, slots);
    const uint64_t some = p.numbered ? p.n : slots;
    if (of->excludes)
        return p.named ? slots - some : slots;
    return p.named ? some : 0;
}

static void check_named(struct config *c, const struct json *hosts)
{
    struct str rest = str_of(c->s->hosts.some);
    while (rest.n > 0) {
        struct str ids;
        const struct str name = str_cut(str_cut(rest, '@', &rest), ':', &ids);
        if (!is_there(hosts, name))
            diag_hint(
                config_bad(c, c->root, MEMPLAN_E_UNKNOWN,
                           "no host '%.*s', which the line %s", (int)name.n,
                           name.p,
                           c->s->hosts.excludes ? "excludes" : "includes"),
                "name hosts of this file, or add it");
    }
}

/* What was said of the line without its hosts. */
static void forget_notes(struct setup *s)
{
    struct setup_hosts *of = &s->hosts;
    if (of->note_end > s->notes || of->note_first >= of->note_end)
        return;
    memmove(s->note[of->note_first], s->note[of->note_end],
            (s->notes - of->note_end) * sizeof(s->note[0]));
    s->notes -= of->note_end - of->note_first;
    of->note_end = of->note_first;
}

static void set_count(struct config *c, enum setup_key key, uint64_t n)
{
    char text[UNIT_TEXT_MAX];
    str_format(text, sizeof(text), "%" PRIu64, n);
    config_set(c, config_at(c, "hosts"), key, text);
}

static void together(struct config *c)
{
    const struct json *hosts = config_at(c, "hosts");
    uint64_t gpus = 0, nodes = 0, most = 0, least = SLOTS_MAX;
    check_named(c, hosts);
    const uint32_t wanted = c->s->hosts.nodes;
    for (const struct json *v = hosts->child; v != NULL; v = v->next) {
        const uint64_t n = used(c, v);
        if (n == 0 || (wanted > 0 && nodes == wanted))
            continue;
        nodes++;
        gpus += n;
        most = n > most ? n : most;
        least = n < least ? n : least;
    }
    if (c->d->status != MEMPLAN_OK)
        return;
    if (gpus == 0) {
        diag_hint(config_bad(c, c->root, MEMPLAN_E_CONFLICT,
                             "no GPU is left of the hosts of this file"),
                  "exclude fewer, or give them more slots");
        return;
    }
    set_count(c, KEY_GPUS, gpus);
    set_count(c, KEY_GPUS_PER_NODE, most);
    c->s->nodes = 0;
    c->s->one_node = false;
    c->s->left_out = 0;
    forget_notes(c->s);
    if (wanted > nodes)
        config_note(c,
                    "--num_nodes %" PRIu32 " of %" PRIu64 " hosts: these "
                    "are taken",
                    wanted, nodes);
    if (least < most)
        config_note(c,
                    "hosts have %" PRIu64 " to %" PRIu64
                    " GPUs: nodes of %" PRIu64 " are taken, the last not full "
                    "(--gpus-per-node)",
                    least, most, most);
}

const struct config_table config_hostfile = {
    rows,        sizeof(rows) / sizeof(rows[0]),
    false,       false,
    NULL,        together,
    NULL,        NULL,
    BESIDE_REST,
};
