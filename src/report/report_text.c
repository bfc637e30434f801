/*
 * Owns what people read of an estimate: the answer first, then what fills the
 * memory, then what it costs. The same blocks make the Markdown. Refuses to
 * compute anything but shares and differences.
 */
#include "report/report_view.h"

#include "base/str.h"
#include "base/unit.h"

#include "base/banned.h"

#define CHOICE_TEXT(id, text) text,
static const char *const engine_names[] = { ENGINE_MAP(CHOICE_TEXT) };
static const char *const schedule_names[] = { SCHEDULE_MAP(CHOICE_TEXT) };
static const char *const precision_names[] = { PRECISION_MAP(CHOICE_TEXT) };
#undef CHOICE_TEXT

#define GIB 1073741824.0

/* "41.20": GiB, as every size in the tables, so that they can be compared. */
static const char *gib(char buf[UNIT_TEXT_MAX], uint64_t bytes)
{
    if (bytes > 0 && (double)bytes < 0.005 * GIB)
        return "<0.01";
    return unit_format_grouped(buf, (double)bytes / GIB, 2);
}

const char *text_percent(char buf[UNIT_TEXT_MAX], double fraction)
{
    unit_format_grouped(buf, 100 * fraction, 1);
    str_append(buf, UNIT_TEXT_MAX, "%%");
    return buf;
}

/* ---- head ---- */

/* As PEFT counts them (print_trainable_parameters), where not all are. */
static void append_trained(char *text, const struct params_result *p)
{
    char count[UNIT_TEXT_MAX], share[UNIT_TEXT_MAX];
    if (p->trainable == p->total)
        return;
    str_append(text, TEXT_BLOCK_MAX, ", %s trained (%s%%),",
               unit_format_grouped(count, (double)p->trainable, 0),
               unit_format_grouped(
                   share, 100 * (double)p->trainable / (double)p->total, 4));
}

static void title(struct out *o, const struct memplan_report *r)
{
    char text[TEXT_BLOCK_MAX];
    char count[UNIT_TEXT_MAX];
    char gpus[UNIT_TEXT_MAX];
    str_format(text, sizeof(text), "%s: %s parameter%s",
               r->spec.name[0] != '\0' ? r->spec.name : r->spec.model_type,
               unit_format_count(count, (double)r->params.total),
               unit_s((double)r->params.total));
    append_trained(text, &r->params);
    str_append(text, sizeof(text), " on %s x %s",
               unit_format_grouped(gpus, (double)r->run.gpus, 0),
               r->run.gpu.name);
    out_title(o, text);
}

static void append_degree(char *text, const char *name, uint64_t n, bool always)
{
    if (n > 1 || always)
        str_append(text, TEXT_BLOCK_MAX, "%s%s %llu",
                   text[0] != '\0' ? ", " : "", name, (unsigned long long)n);
}

static void layout(struct out *o, const struct run *run, bool convnet)
{
    char text[TEXT_BLOCK_MAX] = "";
    char buf[UNIT_TEXT_MAX];
    append_degree(text, "dp", run->dp, true);
    append_degree(text, "tp", run->tp, true);
    append_degree(text, "pp", run->pp, true);
    if (run->pp > 1)
        str_append(text, sizeof(text), " (%s)", schedule_names[run->schedule]);
    append_degree(text, "vpp", run->vpp, false);
    append_degree(text, "cp", run->cp, false);
    append_degree(text, "ep", run->ep, false);
    append_degree(text, "etp", run->etp, false);
    append_degree(text, "zero", run->zero, true);
    str_append(text, sizeof(text), " (%s); %s; ", engine_names[run->engine],
               precision_names[run->precision]);
    if (convnet)
        str_append(text, sizeof(text), "images, ");
    else
        str_append(text, sizeof(text), "sequences of %s token%s, ",
                   unit_format_grouped(buf, (double)run->seq_len, 0),
                   unit_s((double)run->seq_len));
    str_append(text, sizeof(text), "%s a pass, ",
               unit_format_grouped(buf, (double)run->micro_batch, 0));
    str_append(text, sizeof(text), "%s a step",
               unit_format_grouped(buf, (double)run->global_batch, 0));
    out_paragraph(o, PAINT_NONE, text);
}

static void verdict(struct out *o, const struct memplan_report *r)
{
    const struct memory_result *m = &r->memory;
    char text[TEXT_BLOCK_MAX];
    char total[UNIT_TEXT_MAX], capacity[UNIT_TEXT_MAX], rest[UNIT_TEXT_MAX];
    uint64_t apart =
        m->headroom < 0 ? 0 - (uint64_t)m->headroom : (uint64_t)m->headroom;
    str_format(text, sizeof(text),
               m->fits ? "fits: %s GiB of %s GiB on each %s, %s GiB free"
                       : "DOES NOT FIT: needs %s GiB of %s GiB on each %s, "
                         "%s GiB too much",
               gib(total, m->device_total), gib(capacity, m->capacity),
               r->run.gpu.name, gib(rest, apart));
    if (m->paged_here > 0)
        str_append(text, sizeof(text),
                   "; %s GiB of the total are paged moments, which give "
                   "way",
                   gib(rest, m->paged_here));
    if (m->fits && m->paged_on_host > 0)
        str_append(text, sizeof(text), "; %s GiB of %s on the host",
                   gib(rest, m->paged_on_host),
                   m->paged_here > 0 ? "them" : "paged moments");
    if (o->format == MEMPLAN_FORMAT_TABLE)
        out_text(o, "\n");
    out_paragraph(o, m->fits ? PAINT_GOOD : PAINT_BAD, text);
}

/* ---- memory ---- */

struct memory_table {
    const struct memory_result *m;
    const struct stage_result *worst;
};

/* Bars share one scale: the GPU, or what is needed where that is more. */
static double bar_share(const struct memory_table *x, uint64_t bytes)
{
    uint64_t most = x->m->capacity > x->m->device_total ? x->m->capacity
                                                        : x->m->device_total;
    return most > 0 ? (double)bytes / (double)most : 0;
}

static double share(const struct memory_table *x, uint64_t bytes)
{
    return x->m->capacity > 0 ? (double)bytes / (double)x->m->capacity : 0;
}

static void memory_row(struct table *t, const struct memory_table *x,
                       unsigned depth, const char *label, uint64_t bytes)
{
    char buf[UNIT_TEXT_MAX];
    table_row(t, depth, depth > 0 ? PAINT_FAINT : PAINT_NONE);
    table_cell(t, label);
    table_cell(t, gib(buf, bytes));
    table_cell(t, text_percent(buf, share(x, bytes)));
    if (depth == 0)
        table_bar(t, bar_share(x, bytes));
    table_end_row(t);
}

/* The term of a component that comes after another one (TERM_COUNT: the first),
 * in order of size and then of the table of terms; TERM_COUNT when there is
 * none. */
static enum term next_term(const struct stage_result *s, enum component c,
                           enum term after)
{
    const uint64_t *bytes = s->peak.bytes;
    enum term best = TERM_COUNT;
    for (unsigned i = 0; i < TERM_COUNT; i++) {
        enum term t = (enum term)i;
        if (term_info(t)->component != c || bytes[t] == 0)
            continue;
        bool behind = after == TERM_COUNT || bytes[t] < bytes[after]
                      || (bytes[t] == bytes[after] && t > after);
        if (behind && (best == TERM_COUNT || bytes[t] > bytes[best]))
            best = t;
    }
    return best;
}

/* Terms of less than a thousandth of the GPU go together. */
static void component_rows(struct table *t, const struct memory_table *x,
                           enum component c)
{
    enum { TERMS_SHOWN = 4 };
    const struct stage_result *s = x->worst;
    uint64_t left = s->component[c];
    enum term term = next_term(s, c, TERM_COUNT);
    memory_row(t, x, 0, component_label(c), left);
    for (size_t i = 0; i < TERMS_SHOWN && term != TERM_COUNT; i++) {
        uint64_t bytes = s->peak.bytes[term];
        if (i > 0 && share(x, bytes) < 0.001)
            break;
        memory_row(t, x, 1, term_info(term)->label, bytes);
        left -= bytes < left ? bytes : left;
        term = next_term(s, c, term);
    }
    if (left > 0 && term != TERM_COUNT)
        memory_row(t, x, 1, "other", left);
}

static void outside_label(char buf[64], const struct outside_row *row)
{
    str_format(buf, 64, "%s", row->label);
    if (row->count > 1)
        str_append(buf, 64, " x %llu", (unsigned long long)row->count);
    if (row->unverified)
        str_append(buf, 64, " (unverified)");
}

/* Another stage than the one that reserves most may have more with them. */
static void paged_row(struct table *t, const struct memory_table *x)
{
    const struct memory_result *m = x->m;
    char label[64] = "paged moments, as there is room";
    if (m->paged == 0)
        return;
    if (m->device_stage != m->reserved_stage)
        str_format(label, sizeof(label), "more on stage %llu: paged moments",
                   (unsigned long long)m->device_stage);
    memory_row(t, x, 0, label, m->device_total - m->reserved - m->outside);
}

static void fill_memory(struct table *t, const void *ctx)
{
    const struct memory_table *x = ctx;
    const struct memory_result *m = x->m;
    for (unsigned c = 0; c < COMP_COUNT; c++)
        component_rows(t, x, (enum component)c);

    char buf[UNIT_TEXT_MAX];
    table_row(t, 0, PAINT_STRONG);
    table_cell(t, "peak allocated");
    table_cell(t, gib(buf, m->peak));
    table_cell(t, text_percent(buf, share(x, m->peak)));
    table_end_row(t);
    memory_row(t, x, 0, "reserved on top",
               m->reserved > m->peak ? m->reserved - m->peak : 0);
    memory_row(t, x, 0, "outside the allocator", m->outside);
    for (size_t i = 0; i < m->n_outside; i++) {
        char label[64];
        outside_label(label, &m->outside_row[i]);
        memory_row(t, x, 1, label, m->outside_row[i].bytes);
    }
    paged_row(t, x);
    table_row(t, 0, m->fits ? PAINT_STRONG : PAINT_BAD);
    table_cell(t, "device total");
    table_cell(t, gib(buf, m->device_total));
    table_cell(t, text_percent(buf, share(x, m->device_total)));
    table_bar(t, bar_share(x, m->device_total));
    table_end_row(t);
}

void text_worst_stage(char *text, size_t size, const struct memplan_report *r)
{
    if (r->memory.n_stages > 1)
        str_append(text, size, ", on stage %llu of %llu",
                   (unsigned long long)r->memory.worst,
                   (unsigned long long)r->memory.n_stages);
}

void text_peak(char *text, size_t size, const struct memplan_report *r)
{
    const struct stage_result *s = &r->memory.stage[r->memory.worst];
    bool block = s->peak_block && s->peak_block[0] != '\0';
    str_format(text, size, "peak in %s", phase_name(s->peak.phase));
    if (block)
        str_append(text, size, " of %s", s->peak_block);
    if (peak_is_in_layer(r, s))
        str_append(text, size, " %llu", (unsigned long long)s->peak_layer);
    if (s->peak.op && s->peak.op[0] != '\0')
        str_append(text, size, ", at %s", s->peak.op);
    text_worst_stage(text, size, r);
}

static void peak_line(struct out *o, const struct memplan_report *r)
{
    char text[TEXT_BLOCK_MAX];
    char steady[UNIT_TEXT_MAX];
    text_peak(text, sizeof(text), r);
    str_append(text, sizeof(text), "; %s GiB stay between steps",
               gib(steady, r->memory.steady));
    out_paragraph(o, PAINT_NONE, text);
    if (r->memory.retries)
        out_paragraph(o, PAINT_NONE,
                      "fits only because the allocator gives back what it "
                      "caches and tries again, which costs time");
    str_format(text, sizeof(text),
               "model states (weights, gradients, optimizer): %s GiB",
               gib(steady, r->memory.model_states));
    out_paragraph(o, PAINT_NONE, text);
}

static void memory_section(struct out *o, const struct memplan_report *r)
{
    static const struct column columns[] = {
        { "", COLUMN_LEFT },
        { "GiB", COLUMN_RIGHT },
        { "of GPU", COLUMN_RIGHT },
        { "", COLUMN_BAR },
    };
    const struct memory_result *m = &r->memory;
    struct memory_table x = { m, &m->stage[m->worst] };
    out_heading(o, m->n_stages > 1
                       ? "memory of a GPU of the fullest stage, at the peak"
                       : "memory of each GPU, at the peak");
    table_write(o, columns, sizeof(columns) / sizeof(columns[0]), fill_memory,
                &x);
    peak_line(o, r);
}

/* ---- beside the GPU ---- */

static void fill_offload(struct table *t, const void *ctx)
{
    const struct offload_result *o = ctx;
    const struct {
        const char *label;
        uint64_t gpu, node;
    } rows[] = {
        { "host memory", o->host, o->host_node },
        { "of that, pinned", o->sum[OFFLOAD_ON_PINNED], o->pinned_node },
        { "disk", o->sum[OFFLOAD_ON_DISK], o->disk_node },
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char buf[UNIT_TEXT_MAX];
        if (rows[i].gpu == 0)
            continue;
        table_row(t, i == 1 ? 1 : 0, i == 1 ? PAINT_FAINT : PAINT_NONE);
        table_cell(t, rows[i].label);
        table_cell(t, gib(buf, rows[i].gpu));
        table_cell(t, gib(buf, rows[i].node));
        table_end_row(t);
    }
}

static void moved_line(struct out *o, const struct offload_result *x,
                       enum offload_kind to, enum offload_kind from)
{
    char text[TEXT_BLOCK_MAX], buf[UNIT_TEXT_MAX];
    const bool disk = to == OFFLOAD_TO_DISK;
    if (x->sum[to] == 0 && x->sum[from] == 0)
        return;
    str_format(text, sizeof(text), "each GPU in a step: %s GiB to %s, ",
               gib(buf, x->sum[to]), disk ? "disk" : "the host");
    str_append(text, sizeof(text), "%s GiB back", gib(buf, x->sum[from]));
    out_paragraph(o, PAINT_NONE, text);
}

static void offload_section(struct out *o, const struct memplan_report *r)
{
    static const struct column columns[] = {
        { "", COLUMN_LEFT },
        { "a GPU", COLUMN_RIGHT },
        { "a node", COLUMN_RIGHT },
    };
    const struct offload_result *x = &r->memory.offload;
    char text[TEXT_BLOCK_MAX];
    if (x->n == 0)
        return;
    str_format(text, sizeof(text),
               "beside the GPU, GiB; a node has %llu of the GPU%s",
               (unsigned long long)x->node_gpus, unit_s((double)r->run.gpus));
    out_heading(o, text);
    table_write(o, columns, sizeof(columns) / sizeof(columns[0]), fill_offload,
                x);
    moved_line(o, x, OFFLOAD_TO_HOST, OFFLOAD_FROM_HOST);
    moved_line(o, x, OFFLOAD_TO_DISK, OFFLOAD_FROM_DISK);
}

/* ---- stages ---- */

static void layer_range(char buf[UNIT_TEXT_MAX], uint64_t first, uint64_t n)
{
    if (n > 0)
        str_append(buf, UNIT_TEXT_MAX, "%s%llu-%llu", buf[0] == '\0' ? "" : ",",
                   (unsigned long long)first,
                   (unsigned long long)(first + n - 1));
}

static void stage_layers(char buf[UNIT_TEXT_MAX], const struct stage_result *s)
{
    buf[0] = '\0';
    if (s->layers == 0)
        str_append(buf, UNIT_TEXT_MAX, "none");
    else
        layer_range(buf, s->first_layer, s->low_layers);
    layer_range(buf, s->high_layer, s->high_layers);
    if (s->chunks > 2)
        str_append(buf, UNIT_TEXT_MAX, "%s", ",..");
    if (s->has_embedding)
        str_append(buf, UNIT_TEXT_MAX, "+embed");
    if (s->has_head)
        str_append(buf, UNIT_TEXT_MAX, "+head");
}

static void fill_stages(struct table *t, const void *ctx)
{
    const struct memory_result *m = ctx;
    bool wide = t->n > 6;
    for (uint64_t i = 0; i < m->n_stages; i++) {
        const struct stage_result *s = &m->stage[i];
        char buf[UNIT_TEXT_MAX];
        table_row(t, 0, i == m->worst ? PAINT_STRONG : PAINT_NONE);
        table_cell(t, unit_format_grouped(buf, (double)s->index, 0));
        stage_layers(buf, s);
        table_cell(t, buf);
        table_cell(t, unit_format_count(buf, (double)s->parameters));
        table_cell(t, unit_format_grouped(buf, (double)s->in_flight, 0));
        table_cell(t, gib(buf, s->rest.total));
        if (wide) {
            table_cell(t, gib(buf, s->component[COMP_ACTIVATIONS]));
            table_cell(t, gib(buf, s->component[COMP_TEMPORARY]));
        }
        table_cell(t, gib(buf, s->peak.total));
        table_end_row(t);
    }
}

static void stage_section(struct out *o, const struct memory_result *m)
{
    static const struct column wide[] = {
        { "stage", COLUMN_RIGHT },  { "layers", COLUMN_LEFT },
        { "params", COLUMN_RIGHT }, { "in flight", COLUMN_RIGHT },
        { "rest", COLUMN_RIGHT },   { "activ.", COLUMN_RIGHT },
        { "temp.", COLUMN_RIGHT },  { "peak", COLUMN_RIGHT },
    };
    static const struct column narrow[] = {
        { "stage", COLUMN_RIGHT },  { "layers", COLUMN_LEFT },
        { "params", COLUMN_RIGHT }, { "in flight", COLUMN_RIGHT },
        { "rest", COLUMN_RIGHT },   { "peak", COLUMN_RIGHT },
    };
    enum { WIDE_COLUMNS = 80 };
    if (m->n_stages <= 1)
        return;
    out_heading(o, "pipeline stages, GiB on each GPU");
    if (o->width == 0 || o->width >= WIDE_COLUMNS)
        table_write(o, wide, sizeof(wide) / sizeof(wide[0]), fill_stages, m);
    else
        table_write(o, narrow, sizeof(narrow) / sizeof(narrow[0]), fill_stages,
                    m);
}

/* ---- changes ---- */

static void fill_changes(struct table *t, const void *ctx)
{
    const struct changes *changes = ctx;
    for (size_t i = 0; i < changes->n; i++) {
        const struct change *c = &changes->row[i];
        char text[64], buf[UNIT_TEXT_MAX];
        table_row(t, 0, PAINT_NONE);
        table_cell(t, c->text);
        table_cell(t, gib(buf, c->device_total));
        str_format(text, sizeof(text), "%s", c->fits ? "fits" : "not yet");
        if (c->host_node != 0)
            str_append(text, sizeof(text), ", %s GiB of host memory a node",
                       gib(buf, c->host_node));
        table_cell(t, text);
        table_end_row(t);
    }
}

/* A higher stage that needs more than a lower one: tests/property/test_shards.c
 * has the buffers. */
static void stage_line(struct out *o, const struct memplan_report *r,
                       const struct changes *changes)
{
    char text[TEXT_BLOCK_MAX];
    bool lower = false;
    for (size_t i = 0; i < changes->n; i++)
        lower = lower || changes->row[i].lower_stage;
    if (!lower)
        return;
    str_format(text, sizeof(text),
               "a lower ZeRO stage needs less here: %s of stage %llu are "
               "larger than what it shards%s",
               r->run.zero == 3 ? "gathered weights and buckets" : "buckets",
               (unsigned long long)r->run.zero,
               r->run.engine != ENGINE_DEEPSPEED ? ""
               : r->run.zero == 3 ? " (--prefetch-bucket, --reduce-bucket)"
                                  : " (--reduce-bucket)");
    out_paragraph(o, PAINT_NONE, text);
}

static void change_section(struct out *o, const struct memplan_report *r,
                           const struct changes *changes)
{
    static const struct column columns[] = {
        { "added options", COLUMN_LEFT },
        { "GiB", COLUMN_RIGHT },
        { "", COLUMN_LEFT },
    };
    bool any = false;
    for (size_t i = 0; i < changes->n; i++)
        any = any || changes->row[i].fits;
    if (changes->n == 0)
        return;
    out_heading(o, r->memory.fits ? "other ways"
                   : any          ? "what would make it fit"
                                  : "what would help");
    table_write(o, columns, sizeof(columns) / sizeof(columns[0]), fill_changes,
                changes);
    stage_line(o, r, changes);
}

/* ---- the whole ---- */

void text_assumptions(struct out *o, const struct memplan_report *r)
{
    char text[ASSUMPTION_TEXT];
    if (r->run.n_assumptions == 0)
        return;
    out_heading(o, "assumed (the option that says otherwise)");
    for (size_t i = 0; i < r->run.n_assumptions; i++)
        out_item(o, assumption_text(&r->run.assumption[i], text));
}

static void text_hint(struct out *o)
{
    if (o->format == MEMPLAN_FORMAT_TABLE)
        out_text(o, "\n");
    out_paragraph(o, PAINT_FAINT,
                  "memplan explain with the same arguments shows where each "
                  "number comes from");
}

void report_write_text(struct out *o, const struct memplan_report *r,
                       const struct answers *answers)
{
    if (r->kind == REPORT_COMPUTE) {
        text_compute_report(o, r, &answers->laws);
        text_assumptions(o, r);
        return;
    }
    if (r->kind != REPORT_ESTIMATE)
        return;
    title(o, r);
    layout(o, &r->run, spec_is_convnet(&r->spec));
    verdict(o, r);
    if (!r->memory.fits)
        change_section(o, r, &answers->changes);
    memory_section(o, r);
    offload_section(o, r);
    stage_section(o, &r->memory);
    text_compute_section(o, r, &answers->laws);
    text_assumptions(o, r);
    text_hint(o);
}
