/*
 * Owns how the reading of a model's text is shown: what was read, what the
 * class filled in and why, what was ignored; and the same model as a
 * specification that says all of it. Refuses to judge: the notes are the
 * importer's (src/spec/spec_notes.c).
 */
#include "report/report_rows.h"

#include "report/report_view.h"

#include "base/unit.h"

#include <stdlib.h>
#include <string.h>

#include "base/banned.h"

enum { VALUE_SHOWN = 40 }; /* of a list in the file */

/* What the file has, short; and what holds, where that is another. */
static void value_cell(struct table *t, const struct spec_note *note)
{
    char text[VALUE_SHOWN + 8];
    const char *value = note->value[0] != '\0' ? note->value : note->given;
    const bool cut = strlen(value) > VALUE_SHOWN;
    str_format(text, sizeof(text), "%.*s%s", VALUE_SHOWN, value,
               cut ? "..." : "");
    table_cell(t, text);
}

/* As a key with one value can differ: "0.0" is 0. */
static bool says_another(const struct spec_note *note)
{
    return note->origin == NOTE_READ && note->value[0] != '\0'
           && strcmp(note->value, note->given) != 0
           && (note->given[0] == '"'
               || strtod(note->value, NULL) < strtod(note->given, NULL)
               || strtod(note->value, NULL) > strtod(note->given, NULL));
}

struct section {
    const struct spec *spec;
    enum note_origin origin;
    size_t notes; /* of its notes, the first so many */
};

static void why_cell(struct table *t, const struct spec_note *note)
{
    char text[128];
    if (says_another(note)) {
        str_format(text, sizeof(text), "the file says %s", note->given);
        table_cell(t, text);
        return;
    }
    table_cell(t, note->why);
}

static void fill_section(struct table *t, const void *ctx)
{
    const struct section *s = ctx;
    for (size_t i = 0; i < s->notes; i++) {
        const struct spec_note *note = &s->spec->note[i];
        if (note->origin != s->origin)
            continue;
        table_row(t, 0, PAINT_NONE);
        table_cell(t, note->key);
        value_cell(t, note);
        why_cell(t, note);
        table_end_row(t);
    }
}

static bool has_section(const struct section *s)
{
    for (size_t i = 0; i < s->notes; i++) {
        if (s->spec->note[i].origin == s->origin)
            return true;
    }
    return false;
}

static const struct {
    enum note_origin origin;
    const char *title, *key;
} sections[] = {
    { NOTE_READ, "read from the file", "read" },
    { NOTE_LIST, "lists and objects read", "lists" },
    { NOTE_DEFAULT, "not in the file, filled in", "defaults" },
    { NOTE_CLASS, "decided by the class", "class" },
    { NOTE_IGNORED, "ignored: nothing about memory", "ignored" },
};

/* What a file describes: one model, or what joins several, and each of them. */
struct understood {
    const struct spec *spec[3];
    const char *word[3]; /* "" for a file of one model */
    size_t n;
};

static struct understood understood_of(const struct memplan_model *m)
{
    struct understood u = { .spec = { &m->spec }, .word = { "" }, .n = 1 };
    if (m->spec.part == PART_ALL) {
        u.word[0] = "the whole";
        for (enum part p = PART_TEXT; p <= PART_VISION; p++) {
            u.word[u.n] = part_name(p);
            u.spec[u.n++] = m->spec.parts->part[p];
        }
    }
    return u;
}

static size_t notes_of(const struct understood *u, size_t i)
{
    return u->n > 1 ? u->spec[i]->own_notes : u->spec[i]->notes;
}

static void people_sections(struct out *o, const struct understood *u, size_t k)
{
    static const struct column columns[] = { { "", COLUMN_LEFT },
                                             { "", COLUMN_LEFT },
                                             { "", COLUMN_LEFT } };
    for (size_t i = 0; i < ROW_COUNT(sections); i++) {
        char text[128];
        const struct section s = { u->spec[k], sections[i].origin,
                                   notes_of(u, k) };
        if (!has_section(&s))
            continue;
        if (k == 0)
            str_format(text, sizeof(text), "%s%s%s", u->word[0],
                       u->n > 1 ? ": " : "", sections[i].title);
        else
            str_format(text, sizeof(text), "%s part (%s): %s", u->word[k],
                       u->spec[k]->model_type, sections[i].title);
        out_heading(o, text);
        table_write(o, columns, 3, fill_section, &s);
    }
}

static void import_people(struct out *o, const struct memplan_model *m)
{
    const struct understood u = understood_of(m);
    char text[TEXT_BLOCK_MAX], n[UNIT_TEXT_MAX];
    str_format(text, sizeof(text), "%s: read as %s%s, %s parameter%s",
               m->spec.name[0] != '\0' ? m->spec.name : "model",
               m->spec.model_type, m->spec.read_as ? " (--as)" : "",
               unit_format_grouped(n, (double)m->params.total, 0),
               unit_s((double)m->params.total));
    out_title(o, text);
    for (size_t k = 0; k < u.n; k++)
        people_sections(o, &u, k);
}

/* ---- JSON ---- */

/* A key of the whole specification: what the file says as it says it, what was
 * filled in as a file could say it. */
static bool is_said(const struct spec_note *note)
{
    switch (note->origin) {
    case NOTE_READ:
    case NOTE_LIST: return true;
    case NOTE_DEFAULT: return note->sayable;
    case NOTE_CLASS:
    case NOTE_IGNORED: break;
    }
    return false;
}

static const char *said(const struct spec_note *note)
{
    return note->given[0] != '\0' ? note->given : note->value;
}

/* Keys "a.b" of one object stand in the first one's place. */
static void write_inside(struct json_writer *w, const struct spec *spec,
                         size_t from, size_t n)
{
    const char *holder = spec->note[from].key;
    for (size_t i = 0; i < from; i++) {
        if (is_said(&spec->note[i])
            && strncmp(spec->note[i].key, holder, n + 1) == 0)
            return;
    }
    char key[96];
    str_format(key, sizeof(key), "%.*s", (int)n, holder);
    json_key(w, key);
    json_begin_object(w);
    for (size_t i = from; i < spec->notes; i++) {
        const struct spec_note *note = &spec->note[i];
        if (!is_said(note) || strncmp(note->key, holder, n + 1) != 0)
            continue;
        json_key(w, note->key + n + 1);
        json_raw(w, said(note));
    }
    json_end_object(w);
}

static void write_keys(struct json_writer *w, const struct spec *spec, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct spec_note *note = &spec->note[i];
        const size_t holder = strcspn(note->key, ".");
        if (!is_said(note))
            continue;
        if (note->key[holder] == '.') {
            write_inside(w, spec, i, holder);
            continue;
        }
        json_key(w, note->key);
        json_raw(w, said(note));
    }
}

/* LLaVA's Llama has another name here, of other defaults. */
static const char *type_of(const struct spec *spec)
{
    return family_name(spec->family == FAM_LLAVA_TEXT ? FAM_LLAMA
                                                      : spec->family);
}

static void write_part(struct json_writer *w, const char *key,
                       const struct spec *spec)
{
    json_key(w, key);
    json_begin_object(w);
    json_key(w, "model_type");
    json_string(w, type_of(spec));
    write_keys(w, spec, spec->own_notes);
    json_end_object(w);
}

/* Of several parts in Hugging Face's dialect alone: memplan's has one. */
static void write_spec(struct json_writer *w, const struct spec *spec)
{
    const bool whole = spec->part == PART_ALL;
    json_key(w, "spec");
    json_begin_object(w);
    if (!whole) {
        json_key(w, "memplan");
        json_u64(w, 1);
    }
    if (spec->name[0] != '\0') {
        json_key(w, "name");
        json_string(w, spec->name);
    }
    json_key(w, "model_type");
    json_string(w, whole ? spec->model_type : family_name(spec->family));
    write_keys(w, spec, spec->notes);
    if (whole) {
        write_part(w, "text_config", spec->parts->part[PART_TEXT]);
        write_part(w, "vision_config", spec->parts->part[PART_VISION]);
    }
    json_end_object(w);
}

static void write_note(struct json_writer *w, const struct spec_note *note)
{
    json_begin_object(w);
    json_key(w, "key");
    json_string(w, note->key);
    json_key(w, "value");
    json_raw(w, note->value[0] != '\0' ? note->value : said(note));
    json_key(w, "given");
    json_raw(w, note->given[0] != '\0' ? note->given : "null");
    json_key(w, "why");
    json_string(w, note->why[0] != '\0' ? note->why : NULL);
    json_end_object(w);
}

static void write_sections(struct json_writer *w, const struct understood *u,
                           size_t at)
{
    const struct spec *spec = u->spec[at];
    for (size_t k = 0; k < ROW_COUNT(sections); k++) {
        json_key(w, sections[k].key);
        json_begin_array(w);
        for (size_t i = 0; i < notes_of(u, at); i++) {
            if (spec->note[i].origin == sections[k].origin)
                write_note(w, &spec->note[i]);
        }
        json_end_array(w);
    }
}

static void import_json(struct out *o, const struct memplan_model *m)
{
    const struct understood u = understood_of(m);
    struct json_visitor json;
    json_visitor_init(&json, o);
    struct json_writer *w = &json.w;
    json_begin_object(w);
    json_key(w, "schema");
    json_string(w, "memplan.import/1");
    json_key(w, "name");
    json_string(w, m->spec.name);
    json_key(w, "model_type");
    json_string(w, m->spec.model_type);
    json_key(w, "parameters");
    json_u64(w, m->params.total);
    write_spec(w, &m->spec);
    write_sections(w, &u, 0);
    for (size_t k = 1; k < u.n; k++) {
        json_key(w, u.word[k]);
        json_begin_object(w);
        json_key(w, "model_type");
        json_string(w, u.spec[k]->model_type);
        write_sections(w, &u, k);
        json_end_object(w);
    }
    json_end_object(w);
    json_end(w);
}

/* ---- CSV ---- */

static void csv_sections(struct out *o, const struct understood *u, size_t at)
{
    static const char *const holders[] = { "", "text_config.",
                                           "vision_config." };
    const struct spec *spec = u->spec[at];
    for (size_t k = 0; k < ROW_COUNT(sections); k++) {
        for (size_t i = 0; i < notes_of(u, at); i++) {
            const struct spec_note *note = &spec->note[i];
            char key[128];
            if (note->origin != sections[k].origin)
                continue;
            str_format(key, sizeof(key), "%s%s", holders[at], note->key);
            out_csv(o, true, sections[k].key);
            out_csv(o, false, key);
            out_csv(o, false, note->value);
            out_csv(o, false, note->given);
            out_csv(o, false, note->why);
            out_csv_end(o);
        }
    }
}

static void import_csv(struct out *o, const struct memplan_model *m)
{
    const struct understood u = understood_of(m);
    out_text(o, "origin,key,value,given,why");
    out_csv_end(o);
    for (size_t k = 0; k < u.n; k++)
        csv_sections(o, &u, k);
}

memplan_status memplan_model_write_import(const memplan_model *model,
                                          const memplan_style *style,
                                          memplan_write_fn *write, void *ctx,
                                          memplan_errors *errs)
{
    struct out o;
    out_init(&o, style, write, ctx);
    switch (o.format) {
    case MEMPLAN_FORMAT_TABLE:
    case MEMPLAN_FORMAT_MARKDOWN: import_people(&o, model); break;
    case MEMPLAN_FORMAT_JSON: import_json(&o, model); break;
    case MEMPLAN_FORMAT_CSV: import_csv(&o, model); break;
    case MEMPLAN_FORMAT_SVG: out_no_picture(&o); break;
    }
    return out_close(&o, errs);
}
