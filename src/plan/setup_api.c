/* Setups behind the public calls: a handle around struct setup. */
#include "plan/report_data.h"
#include "spec/config.h"
#include "json/json.h"

#include "base/banned.h"

const memplan_field *memplan_setup_field(size_t index)
{
    return setup_field(index);
}

memplan_status memplan_setup_new(memplan_setup **out,
                                 const memplan_allocator *allocator,
                                 memplan_errors *errs)
{
    struct diag d;
    diag_init(&d, errs);
    if (out == NULL) {
        diag_add(&d, MEMPLAN_E_ARG, "no place for the setup");
        return d.status;
    }
    const memplan_allocator a =
        allocator == NULL ? allocator_default() : *allocator;
    *out = a.resize(a.ctx, NULL, 0, sizeof **out);
    if (*out == NULL)
        return diag_nomem(&d);
    **out = (struct memplan_setup){ .alloc = a };
    return MEMPLAN_OK;
}

void memplan_setup_free(memplan_setup *setup)
{
    if (setup == NULL)
        return;
    const memplan_allocator a = setup->alloc;
    a.resize(a.ctx, setup, sizeof *setup, 0);
}

bool memplan_setup_has(const memplan_setup *setup, const char *key)
{
    const enum setup_key k =
        setup == NULL || key == NULL ? KEY_COUNT : setup_find_key(str_of(key));
    return k != KEY_COUNT && setup->setup.set[k];
}

memplan_status memplan_setup_set(memplan_setup *setup, const char *key,
                                 const char *value, memplan_errors *errs)
{
    struct diag d;
    diag_init(&d, errs);
    if (setup == NULL || key == NULL || value == NULL) {
        diag_add(&d, MEMPLAN_E_ARG, "no setup, key or value");
        return d.status;
    }
    return setup_set(&setup->setup, str_of(key), str_of(value), &d);
}

typedef memplan_status parse_fn(struct setup *s, const struct json *root,
                                const char *text, size_t len, struct diag *d);

static memplan_status parse(memplan_setup *setup, struct str json,
                            memplan_errors *errs, parse_fn *into)
{
    struct diag d;
    diag_init(&d, errs);
    if (setup == NULL || (json.p == NULL && json.n != 0)) {
        diag_add(&d, MEMPLAN_E_ARG, "no setup, or no text");
        return d.status;
    }
    struct arena arena;
    arena_init(&arena, &setup->alloc);
    const struct json *root = json_parse(&arena, json.p, json.n, &d);
    if (root != NULL)
        into(&setup->setup, root, json.p, json.n, &d);
    arena_release(&arena);
    return d.status;
}

memplan_status memplan_setup_parse(memplan_setup *setup, const char *json,
                                   size_t len, memplan_errors *errs)
{
    return parse(setup, (struct str){ json, len }, errs, setup_parse);
}

memplan_status memplan_setup_prices(memplan_setup *setup, const char *json,
                                    size_t len, memplan_errors *errs)
{
    return parse(setup, (struct str){ json, len }, errs, setup_parse_prices);
}

static const struct config_dialect *find_dialect(const char *name)
{
    const struct config_dialect *dialect = config_dialect(0);
    for (size_t i = 0; dialect != NULL; dialect = config_dialect(++i)) {
        if (str_same_name(str_of(dialect->name), str_of(name)))
            break;
    }
    return dialect;
}

static memplan_status bad_dialect(struct diag *d, const char *name)
{
    memplan_error *e =
        diag_add(d, MEMPLAN_E_UNKNOWN, "unknown dialect '%.40s'", name);
    diag_hint(e, "use");
    for (size_t i = 0; config_dialect(i) != NULL; i++)
        str_append(e->hint, sizeof(e->hint), i > 0 ? ", %s" : " %s",
                   config_dialect(i)->name);
    return d->status;
}

/* Hosts are read first, and leave the other file to be read. */
static void forget_pending(struct setup *s, bool is_hosts)
{
    s->hosts.file[0] = '\0';
    if (is_hosts)
        return;
    s->pending[0] = '\0';
    s->pending_keeps = false;
    s->pending_held = NULL;
}

memplan_status memplan_setup_import(memplan_setup *setup, const char *dialect,
                                    const char *text, size_t len,
                                    const char *name, memplan_errors *errs)
{
    struct diag d;
    diag_init(&d, errs);
    if (setup == NULL || dialect == NULL || name == NULL
        || (text == NULL && len != 0)) {
        diag_add(&d, MEMPLAN_E_ARG, "no setup, dialect, text or name");
        return d.status;
    }
    const struct config_dialect *known = find_dialect(dialect);
    if (known == NULL)
        return bad_dialect(&d, dialect);
    const bool is_hosts = known->table == &config_hostfile;
    const bool keeps = !is_hosts && setup->setup.pending[0] != '\0'
                       && setup->setup.pending_keeps;
    const char *held = keeps ? setup->setup.pending_held : NULL;
    forget_pending(&setup->setup, is_hosts);
    struct arena arena;
    arena_init(&arena, &setup->alloc);
    const struct json *root = known->parse(&arena, text, len, &d);
    if (root != NULL)
        config_read(&(struct config){ .s = &setup->setup,
                                      .table = known->table,
                                      .root = root,
                                      .text = text,
                                      .len = len,
                                      .name = name,
                                      .keeps = keeps,
                                      .held = held,
                                      .d = &d });
    arena_release(&arena);
    return d.status;
}

void memplan_setup_pending_skip(memplan_setup *setup)
{
    const char *dialect = NULL;
    const char *named = memplan_setup_pending(setup, &dialect);
    if (named == NULL)
        return;
    char note[SETUP_NOTE_TEXT];
    str_format(note, sizeof(note), "'%.120s' was not read: add --%s FILE",
               named, dialect);
    config_add_note(&setup->setup, note);
    if (setup->setup.hosts.file[0] != '\0')
        setup->setup.hosts.file[0] = '\0';
    else
        setup->setup.pending[0] = '\0';
}

const char *memplan_setup_pending(const memplan_setup *setup,
                                  const char **dialect)
{
    if (setup == NULL)
        return NULL;
    if (setup->setup.hosts.file[0] != '\0') {
        if (dialect != NULL)
            *dialect = "hostfile";
        return setup->setup.hosts.file;
    }
    if (setup->setup.pending[0] == '\0')
        return NULL;
    if (dialect != NULL)
        *dialect = setup->setup.pending_dialect;
    return setup->setup.pending;
}
