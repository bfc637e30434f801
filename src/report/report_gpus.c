/*
 * Owns how the GPU catalogue is shown. What was not read at a source is marked
 * wherever it is.
 */
#include "report/report_rows.h"

#include "base/unit.h"
#include "data/gpu.h"

#include <string.h>

#include "base/banned.h"

static const struct row rows[] = {
    ROW(struct gpu, name, "name", ""),
    ROW(struct gpu, title, "title", ""),
    ROW_OR_NONE(struct gpu, aliases, "aliases", ""),
    ROW(struct gpu, vendor, "vendor", ""),
    ROW_OR_NONE(struct gpu, memory_bytes, "memory_bytes", "B"),
    ROW_OR_NONE(struct gpu, visible_bytes, "visible_bytes", "B"),
    ROW_OR_NONE(struct gpu, bandwidth_bytes_s, "bandwidth_bytes_s", "B/s"),
    ROW_OR_NONE(struct gpu, peak_fp32_flop_s, "peak_fp32_flop_s", "FLOP/s"),
    ROW_OR_NONE(struct gpu, peak_tf32_flop_s, "peak_tf32_flop_s", "FLOP/s"),
    ROW_OR_NONE(struct gpu, peak_fp16_flop_s, "peak_fp16_flop_s", "FLOP/s"),
    ROW_OR_NONE(struct gpu, peak_bf16_flop_s, "peak_bf16_flop_s", "FLOP/s"),
    ROW_OR_NONE(struct gpu, peak_fp8_flop_s, "peak_fp8_flop_s", "FLOP/s"),
    ROW_OR_NONE(struct gpu, peak_fp4_flop_s, "peak_fp4_flop_s", "FLOP/s"),
    ROW_OR_NONE(struct gpu, sm_count, "sm_count", ""),
    ROW_OR_NONE(struct gpu, gpus_per_node, "gpus_per_node", ""),
    ROW_OR_NONE(struct gpu, link, "link", ""),
    ROW_OR_NONE(struct gpu, intra_node_bytes_s, "intra_node_bytes_s", "B/s"),
    ROW_OR_NONE(struct gpu, inter_node_bytes_s, "inter_node_bytes_s", "B/s"),
    ROW_OR_NONE(struct gpu, host_link_bytes_s, "host_link_bytes_s", "B/s"),
    ROW_OR_NONE(struct gpu, price_usd_h, "price_usd_h", "USD"),
    ROW_OR_NONE(struct gpu, price_source, "price_source", ""),
    ROW_OR_NONE(struct gpu, tdp_w, "tdp_w", "W"),
    ROW_OR_NONE(struct gpu, unverified, "unverified", ""),
    ROW_OR_NONE(struct gpu, source, "source", ""),
    ROW_OR_NONE(struct gpu, note, "note", ""),
};

/* Whether the comma list of what nobody has read names this field. */
static bool is_unverified(const struct gpu *gpu, const char *key)
{
    struct str rest = str_of(gpu->unverified);
    while (rest.n > 0) {
        struct str name = str_cut(rest, ',', &rest);
        if (str_is(name, key) || str_is(name, "all"))
            return true;
    }
    return false;
}

/* ---- one GPU ---- */

/* "79.15 GiB", "312 TFLOP/s", "2.04 TB/s" */
static void value_words(char buf[64], struct value v)
{
    char number[UNIT_TEXT_MAX];
    if (v.kind == VALUE_U64 && strcmp(v.unit, "B") == 0)
        str_format(buf, 64, "%s", unit_format_bytes(number, v.u64));
    else if (v.kind == VALUE_REAL && strcmp(v.unit, "B/s") == 0)
        str_format(buf, 64, "%s GB/s",
                   unit_format_grouped(number, v.real / 1e9, 0));
    else if (v.kind == VALUE_REAL && strcmp(v.unit, "FLOP/s") == 0)
        str_format(buf, 64, "%s TFLOP/s",
                   unit_format_grouped(number, v.real / 1e12, 1));
    else if (v.kind == VALUE_NONE)
        str_format(buf, 64, "-");
    else
        str_format(buf, 64, "%s%s%s", value_text(number, v),
                   v.unit[0] != '\0' ? " " : "", v.unit);
}

/* Sources are sentences: lines below the table. */
static bool is_long(struct value v)
{
    enum { CELL_MOST = 36 };
    return v.kind == VALUE_TEXT && out_columns(v.text) > CELL_MOST;
}

static void fill_one(struct table *t, const void *ctx)
{
    const struct gpu *gpu = ctx;
    for (size_t i = 0; i < ROW_COUNT(rows); i++) {
        struct value v = row_value(&rows[i], gpu);
        bool number = v.kind != VALUE_TEXT && v.kind != VALUE_NONE;
        char words[64];
        if (is_long(v))
            continue;
        table_row(t, 0, PAINT_NONE);
        table_cell(t, rows[i].key);
        value_words(words, v);
        table_cell(t, v.kind == VALUE_TEXT ? v.text : words);
        table_cell(t, number && is_unverified(gpu, rows[i].key) ? "unverified"
                                                                : "");
        table_end_row(t);
    }
}

static void write_one(struct out *o, const struct gpu *gpu)
{
    static const struct column columns[] = {
        { "", COLUMN_LEFT },
        { "", COLUMN_LEFT },
        { "", COLUMN_LEFT },
    };
    out_title(o, gpu->title);
    table_write(o, columns, sizeof(columns) / sizeof(columns[0]), fill_one,
                gpu);
    for (size_t i = 0; i < ROW_COUNT(rows); i++) {
        struct value v = row_value(&rows[i], gpu);
        char text[TEXT_BLOCK_MAX];
        if (!is_long(v))
            continue;
        str_format(text, sizeof(text), "%s: %s", rows[i].key, v.text);
        out_item(o, text);
    }
}

/* ---- all ---- */

/* A '?' after what nobody has read at a source, its place kept elsewhere. */
static void number_cell(struct table *t, const struct gpu *gpu, double x,
                        int decimals, const char *key)
{
    char buf[UNIT_TEXT_MAX];
    if (!(x > 0)) {
        table_cell(t, "- ");
        return;
    }
    unit_format_grouped(buf, x, decimals);
    str_append(buf, sizeof(buf), is_unverified(gpu, key) ? "?" : " ");
    table_cell(t, buf);
}

/* The last "2024-11" or "2026" in the words about a price; "" when undated. */
static void date_of(char buf[UNIT_TEXT_MAX], const char *words)
{
    buf[0] = '\0';
    for (const char *at = strstr(words, "20"); at; at = strstr(at + 1, "20")) {
        size_t n = strspn(at, "0123456789-");
        bool begins = at == words || at[-1] == ' ';
        if (begins && n >= 4 && n <= 10 && is_digit(at[2]) && is_digit(at[3]))
            str_format(buf, UNIT_TEXT_MAX, "%.*s", (int)n, at);
    }
}

static void fill_all(struct table *t, const void *ctx)
{
    const double gib = 1073741824.0;
    (void)ctx;
    for (size_t i = 0; gpu_at(i); i++) {
        const struct gpu *g = gpu_at(i);
        char date[UNIT_TEXT_MAX];
        date_of(date, g->price_source);
        table_row(t, 0, PAINT_NONE);
        table_cell(t, g->name);
        number_cell(t, g, (double)g->memory_bytes / gib, 1, "memory_bytes");
        number_cell(t, g, (double)g->visible_bytes / gib, 1, "visible_bytes");
        number_cell(t, g, g->peak_bf16_flop_s / 1e12, 0, "peak_bf16_flop_s");
        number_cell(t, g, g->price_usd_h, 2, "price_usd_h");
        table_cell(t, date);
        number_cell(t, g, g->bandwidth_bytes_s / 1e9, 0, "bandwidth_bytes_s");
        table_cell(t, g->link);
        table_end_row(t);
    }
}

static void write_all(struct out *o)
{
    static const struct column columns[] = {
        { "name", COLUMN_LEFT },     { "GiB ", COLUMN_RIGHT },
        { "usable ", COLUMN_RIGHT }, { "bf16 ", COLUMN_RIGHT },
        { "USD/h ", COLUMN_RIGHT },  { "as of", COLUMN_LEFT },
        { "GB/s ", COLUMN_RIGHT },   { "link", COLUMN_LEFT },
    };
    /* A narrow terminal has no room for the last three. */
    enum { COLUMNS = sizeof(columns) / sizeof(columns[0]), ALL_COLUMNS = 80 };
    bool narrow = o->width > 0 && o->width < ALL_COLUMNS;
    table_write(o, columns, COLUMNS - (narrow ? 3 : 0), fill_all, NULL);
    out_paragraph(o, PAINT_FAINT,
                  "GiB on the card, usable GiB, dense bf16 TFLOP/s, GB/s of "
                  "memory; ? was not read at a source; memplan gpus NAME "
                  "shows all that is known of one");
}

/* ---- JSON, CSV ---- */

static void visit_gpu(struct visitor *v, const struct gpu *gpu)
{
    v->begin(v, NULL, false);
    visit_rows(v, rows, ROW_COUNT(rows), gpu);
    v->end(v, false);
}

static void write_json(struct out *o, const struct gpu *only)
{
    struct json_visitor json;
    json_visitor_init(&json, o);
    struct visitor *v = &json.base;
    if (only) {
        visit_gpu(v, only);
    } else {
        v->begin(v, NULL, true);
        for (size_t i = 0; gpu_at(i); i++)
            visit_gpu(v, gpu_at(i));
        v->end(v, true);
    }
    json_end(&json.w);
}

static void write_csv(struct out *o, const struct gpu *only)
{
    for (size_t r = 0; r < ROW_COUNT(rows); r++)
        out_csv(o, r == 0, rows[r].key);
    out_csv_end(o);
    for (size_t i = 0; gpu_at(i); i++) {
        if (only && only != gpu_at(i))
            continue;
        for (size_t r = 0; r < ROW_COUNT(rows); r++) {
            char buf[VALUE_TEXT_MAX];
            out_csv(o, r == 0, value_text(buf, row_value(&rows[r], gpu_at(i))));
        }
        out_csv_end(o);
    }
}

static memplan_status unknown_gpu(const char *name, memplan_errors *errs)
{
    struct diag d;
    diag_init(&d, errs);
    memplan_error *e =
        diag_add(&d, MEMPLAN_E_UNKNOWN, "there is no GPU '%s'", name);
    const struct gpu *near = gpu_nearest(name, strlen(name));
    if (near)
        diag_hint(e, "did you mean '%s'?", near->name);
    else
        diag_hint(e, "memplan gpus lists them");
    return MEMPLAN_E_UNKNOWN;
}

memplan_status memplan_gpus_write(const char *name, const memplan_style *style,
                                  memplan_write_fn *write, void *ctx,
                                  memplan_errors *errs)
{
    const struct gpu *only = name ? gpu_find(name, strlen(name)) : NULL;
    struct out o;
    if (name && !only)
        return unknown_gpu(name, errs);
    out_init(&o, style, write, ctx);
    switch (o.format) {
    case MEMPLAN_FORMAT_TABLE:
    case MEMPLAN_FORMAT_MARKDOWN:
        if (only)
            write_one(&o, only);
        else
            write_all(&o);
        break;
    case MEMPLAN_FORMAT_JSON: write_json(&o, only); break;
    case MEMPLAN_FORMAT_CSV: write_csv(&o, only); break;
    case MEMPLAN_FORMAT_SVG: out_no_picture(&o); break;
    }
    return out_close(&o, errs);
}
