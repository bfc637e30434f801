/*
 * Owns what people read of FLOPs, time and money, in an estimate and in the
 * answer of `compute`. Refuses to compute anything but ratios.
 */
#include "plan/scaling.h"
#include "report/report_view.h"

#include "base/str.h"
#include "base/unit.h"

#include <math.h>

#include "base/banned.h"

/* A line of the table; nothing when the value is not known. */
static void line(struct table *t, const char *label, const char *value,
                 const char *note)
{
    table_row(t, 0, PAINT_NONE);
    table_cell(t, label);
    table_cell(t, value);
    table_cell(t, note);
    table_end_row(t);
}

static bool known(double x)
{
    return isfinite(x) && x > 0;
}

/* Few enough digits to read, enough to compare. */
static const char *quantity(char buf[UNIT_TEXT_MAX], double x)
{
    return unit_format_grouped(buf, x, x < 10 ? 2 : x < 1000 ? 1 : 0);
}

enum { NOTE_MAX = 256, VALUE_MAX = 64 };

/* ---- FLOPs ---- */

static void flop_line(struct table *t, const char *label, double flop,
                      const char *what, double per_token)
{
    char value[VALUE_MAX], note[NOTE_MAX], buf[UNIT_TEXT_MAX];
    if (!known(flop))
        return;
    str_format(value, sizeof(value), "%s FLOP", unit_format_flop(buf, flop));
    str_format(note, sizeof(note), "%s", what);
    if (known(per_token))
        str_append(note, sizeof(note), "%s%s FLOP a token",
                   what[0] != '\0' ? "; " : "",
                   unit_format_flop(buf, per_token));
    line(t, label, value, note);
}

static void flop_lines(struct table *t, const struct memplan_report *r)
{
    const struct compute_result *c = &r->compute;
    /* one of two stacks, or towers, has the mask */
    const bool part_causal =
        r->has_model
        && (r->spec.decoder_layers > 0 || r->spec.joint == JOINT_CLIP);
    char note[NOTE_MAX], n[UNIT_TEXT_MAX], d[UNIT_TEXT_MAX];
    str_format(note, sizeof(note), "6 x %s parameter%s x %s token%s",
               unit_format_count(n, c->params), unit_s(c->params),
               unit_format_count(d, c->tokens), unit_s(c->tokens));
    flop_line(t, "6ND", c->flops_6nd, note, 0);
    if (!c->has_exact)
        return;
    if (!(c->model_flops < c->model_flops_full)) { /* nothing is masked */
        flop_line(t, "model", c->model_flops, "", c->flops_per_token);
        flop_line(t, "hardware", c->hardware_flops, "with what is recomputed",
                  0);
        return;
    }
    flop_line(t, "model, causal", c->model_flops,
              part_causal ? "causal attention's scores counted half"
                          : "attention scores counted half",
              c->flops_per_token);
    flop_line(t, "model, full", c->model_flops_full,
              "attention scores counted whole", c->flops_per_token_full);
    flop_line(t, "hardware", c->hardware_flops,
              "causal, with what is recomputed", 0);
}

/* ---- speed ---- */

/* Of a short step, three that are not zero. */
static int step_digits(double seconds)
{
    if (seconds >= 10)
        return 1;
    return seconds >= 0.01 ? 3 : 2 - (int)floor(log10(seconds));
}

/* The largest parts of a predicted step, in order. */
static void parts_line(struct table *t, const struct memplan_report *r)
{
    enum { SHOWN = 4 };
    const struct time_result *x = &r->time;
    char note[NOTE_MAX] = "", buf[UNIT_TEXT_MAX];
    bool told[TIME_PARTS] = { false };
    if (!r->compute.mfu_predicted)
        return;
    for (int n = 0; n < SHOWN; n++) {
        int most = -1;
        for (int i = 0; i < TIME_PARTS; i++)
            if (!told[i] && (most < 0 || x->part[i] > x->part[most]))
                most = i;
        told[most] = true;
        if (x->part[most] < 0.005 * x->step_s)
            break;
        str_append(note, sizeof(note), "%s%s %s", n > 0 ? "; " : "",
                   text_percent(buf, x->part[most] / x->step_s),
                   time_part_label((enum time_part)most));
    }
    line(t, "", "", note);
}

static void step_lines(struct table *t, const struct memplan_report *r)
{
    const struct compute_result *c = &r->compute;
    char value[VALUE_MAX], note[NOTE_MAX], buf[UNIT_TEXT_MAX];
    if (known(c->step_time_s)) {
        str_format(value, sizeof(value), "%s s",
                   unit_format_grouped(buf, c->step_time_s,
                                       step_digits(c->step_time_s)));
        str_format(note, sizeof(note), "%s token%s",
                   unit_format_grouped(buf, c->tokens_per_step, 0),
                   unit_s(c->tokens_per_step));
        if (known(c->steps))
            str_append(note, sizeof(note), "; %s step%s",
                       unit_format_grouped(buf, ceil(c->steps), 0),
                       unit_s(ceil(c->steps)));
        line(t, "step", value, note);
        parts_line(t, r);
    }
    if (known(c->tokens_per_s)) {
        str_format(value, sizeof(value), "%s tokens/s",
                   quantity(buf, c->tokens_per_s));
        note[0] = '\0';
        if (c->gpus > 1)
            str_format(note, sizeof(note), "%s on each GPU",
                       quantity(buf, c->tokens_per_s / c->gpus));
        line(t, "throughput", value, note);
    }
}

static void utilisation_lines(struct table *t, const struct compute_result *c)
{
    char value[UNIT_TEXT_MAX], note[NOTE_MAX], buf[UNIT_TEXT_MAX];
    if (known(c->mfu)) {
        str_format(note, sizeof(note), "%s",
                   c->mfu_given       ? "as given"
                   : c->mfu_predicted ? "predicted"
                                      : "assumed");
        if (known(c->peak_flop_s))
            str_append(note, sizeof(note), "; of %s dense TFLOP/s",
                       quantity(buf, c->peak_flop_s / 1e12));
        line(t, "MFU", text_percent(value, c->mfu), note);
    }
    if (known(c->mfu_full) && c->mfu_full > c->mfu)
        line(t, "MFU, full", text_percent(value, c->mfu_full),
             "attention scores counted whole");
    if (known(c->hfu))
        line(t, "HFU", text_percent(value, c->hfu), "recomputation counted");
}

static void transfer_lines(struct table *t, const struct memplan_report *r)
{
    const struct compute_result *c = &r->compute;
    char value[UNIT_TEXT_MAX];
    if (known(c->communication_bytes) && c->communication_bytes < 1e18)
        line(t, "communication",
             unit_format_bytes(value, (uint64_t)c->communication_bytes),
             "sent by each GPU in a step");
    if (r->run.pp > 1 && isfinite(c->bubble_fraction))
        line(t, "bubble", text_percent(value, c->bubble_fraction),
             "of idle to busy time in the pipeline");
}

/* ---- time and money ---- */

/* Of layouts that are possible, each with its own step. */
static void searched_line(struct table *t, const struct memplan_report *r)
{
    const struct deadline_result *x = &r->deadline;
    char value[VALUE_MAX], note[NOTE_MAX], buf[UNIT_TEXT_MAX];
    str_format(note, sizeof(note), "for %s day%s",
               unit_format_double(buf, r->compute.deadline_days),
               unit_s(r->compute.deadline_days));
    if (x->met) {
        unit_format_grouped(value, x->gpus, 0);
        str_append(note, sizeof(note), ": MFU %s", text_percent(buf, x->mfu));
        str_append(
            note, sizeof(note), " there, %s days%s", quantity(buf, x->days),
            x->too_large ? ", but no number that is in time fits in memory"
                         : "");
    } else {
        str_format(value, sizeof(value), "none");
        str_append(note, sizeof(note), ": no number is enough; %s days",
                   quantity(buf, x->days));
        str_append(note, sizeof(note), " on %s at best",
                   unit_format_grouped(buf, x->gpus, 0));
    }
    line(t, "GPUs needed", value, note);
}

static void deadline_line(struct table *t, const struct memplan_report *r)
{
    const struct compute_result *c = &r->compute;
    char value[VALUE_MAX], note[NOTE_MAX], buf[UNIT_TEXT_MAX];
    if (!c->has_deadline)
        return;
    if (r->deadline.searched) {
        searched_line(t, r);
        return;
    }
    str_format(note, sizeof(note), "for %s day%s",
               unit_format_double(buf, c->deadline_days),
               unit_s(c->deadline_days));
    if (c->gpus_in_nodes > c->gpus_needed)
        str_append(note, sizeof(note), "; %s in whole nodes",
                   unit_format_grouped(buf, c->gpus_in_nodes, 0));
    if (r->has_model)
        str_append(note, sizeof(note), "; each as fast as here");
    line(t, "GPUs needed", unit_format_grouped(value, c->gpus_needed, 0), note);
}

static void time_lines(struct table *t, const struct memplan_report *r)
{
    const struct compute_result *c = &r->compute;
    char value[VALUE_MAX], note[NOTE_MAX], buf[UNIT_TEXT_MAX];
    note[0] = '\0';
    if (c->availability < 1 && c->availability > 0)
        str_format(note, sizeof(note), "training %s of the time",
                   text_percent(buf, c->availability));
    if (known(c->gpu_hours))
        line(t, "GPU-hours", quantity(value, c->gpu_hours), note);
    deadline_line(t, r);
    if (!known(c->days))
        return;
    bool brief = c->days < 1;
    str_format(value, sizeof(value), brief ? "%s hours" : "%s days",
               quantity(buf, brief ? c->days * 24 : c->days));
    str_format(note, sizeof(note), "on %s GPU%s",
               unit_format_grouped(buf, c->gpus, 0), c->gpus > 1 ? "s" : "");
    line(t, "time", value, note);
}

static void cost_line(struct table *t, const struct compute_result *c)
{
    char value[VALUE_MAX], note[NOTE_MAX], buf[UNIT_TEXT_MAX];
    if (!isfinite(c->cost_usd)) {
        line(t, "cost", "not known", "--price sets a GPU-hour's");
        return;
    }
    str_format(
        value, sizeof(value), "%s USD",
        unit_format_grouped(buf, c->cost_usd, c->cost_usd < 100 ? 2 : 0));
    str_format(note, sizeof(note), "%s USD a GPU-hour",
               unit_format_grouped(buf, c->price_usd_h, 2));
    if (c->price_source && c->price_source[0] != '\0')
        str_append(note, sizeof(note), ": %s", c->price_source);
    line(t, "cost", value, note);
}

static void energy_line(struct table *t, const struct compute_result *c)
{
    char value[VALUE_MAX], note[NOTE_MAX], buf[UNIT_TEXT_MAX];
    if (!known(c->energy_kwh))
        return;
    const bool large = c->energy_kwh >= 1e5;
    str_format(value, sizeof(value), "%s %s",
               quantity(buf, large ? c->energy_kwh / 1000 : c->energy_kwh),
               large ? "MWh" : "kWh");
    str_format(note, sizeof(note), "%s W a GPU%s and cooling with it",
               quantity(buf, c->tdp_w),
               c->tdp_with_cpu ? " and its CPU; node" : ", its node");
    line(t, "energy", value, note);
}

static void fill_compute(struct table *t, const void *ctx)
{
    const struct memplan_report *r = ctx;
    flop_lines(t, r);
    step_lines(t, r);
    utilisation_lines(t, &r->compute);
    transfer_lines(t, r);
    time_lines(t, r);
    cost_line(t, &r->compute);
    energy_line(t, &r->compute);
}

static void compute_table(struct out *o, const struct memplan_report *r)
{
    static const struct column columns[] = {
        { "", COLUMN_LEFT },
        { "", COLUMN_RIGHT },
        { "", COLUMN_NOTE },
    };
    table_write(o, columns, sizeof(columns) / sizeof(columns[0]), fill_compute,
                r);
}

/* ---- scaling laws ---- */

/* Where a table has what a budget buys, only of the size. */
static void law_line(struct out *o, const struct law_answers *c, bool budget)
{
    char text[TEXT_BLOCK_MAX], buf[UNIT_TEXT_MAX];
    if (c->chosen_law >= c->n_laws || !known(c->tokens_optimal))
        return;
    const struct law_result *law = &c->law[c->chosen_law];
    str_format(text, sizeof(text), "%s: %s parameter%s ",
               scaling_name(law->law), unit_format_count(buf, c->params),
               unit_s(c->params));
    str_append(text, sizeof(text), "want%s %s ", c->params > 1 ? "" : "s",
               unit_format_count(buf, c->tokens_optimal));
    str_append(text, sizeof(text), "token%s, ", unit_s(c->tokens_optimal));
    str_append(text, sizeof(text), "%s each",
               quantity(buf, c->tokens_per_param_optimal));
    if (known(c->params) && known(c->tokens))
        str_append(text, sizeof(text), " (here: %s)",
                   quantity(buf, c->tokens / c->params));
    if (budget && known(c->budget_flops)) {
        str_append(text, sizeof(text), "; %s FLOP are best spent ",
                   unit_format_flop(buf, c->budget_flops));
        str_append(text, sizeof(text), "on %s parameter%s",
                   unit_format_count(buf, law->params), unit_s(law->params));
        str_append(text, sizeof(text), " and %s token%s",
                   unit_format_count(buf, law->tokens), unit_s(law->tokens));
    }
    out_paragraph(o, PAINT_NONE, text);
}

static const char *loss_text(char buf[UNIT_TEXT_MAX], double loss)
{
    str_format(buf, UNIT_TEXT_MAX, "%.3f", loss);
    return buf;
}

/* How much more it trains than the same loss needs, and what that saves. */
static void loss_lines(struct out *o, const struct law_answers *c)
{
    char text[TEXT_BLOCK_MAX], buf[UNIT_TEXT_MAX];
    if (!known(c->loss))
        return;
    str_format(text, sizeof(text), "loss %s by %s: ", loss_text(buf, c->loss),
               scaling_name(c->same_loss.law));
    str_append(text, sizeof(text), "%s parameters on ",
               unit_format_count(buf, c->same_loss.params));
    str_append(text, sizeof(text), "%s tokens reach it with ",
               unit_format_count(buf, c->same_loss.tokens));
    str_append(text, sizeof(text), "%s FLOP",
               unit_format_flop(buf, c->same_loss_flops));
    if (c->extra_training > 0.005)
        str_append(text, sizeof(text), "; this training costs %s more",
                   text_percent(buf, c->extra_training));
    out_paragraph(o, PAINT_NONE, text);
    if (!(c->served_flops > 0))
        return;
    str_format(text, sizeof(text), "training and serving together: %s FLOP; ",
               unit_format_flop(buf, c->served_flops_here));
    str_append(text, sizeof(text), "least with %s parameters on ",
               unit_format_count(buf, c->served.params));
    str_append(text, sizeof(text),
               "%s tokens: ", unit_format_count(buf, c->served.tokens));
    str_append(text, sizeof(text), "%s FLOP",
               unit_format_flop(buf, c->served_flops));
    out_paragraph(o, PAINT_NONE, text);
}

static void range_cell(struct table *t, bool has, double low, double high)
{
    char text[VALUE_MAX], buf[UNIT_TEXT_MAX];
    text[0] = '\0';
    if (has) {
        str_format(text, sizeof(text), "%s-", unit_format_count(buf, low));
        str_append(text, sizeof(text), "%s", unit_format_count(buf, high));
    }
    table_cell(t, text);
}

static void fill_laws(struct table *t, const void *ctx)
{
    const struct law_answers *c = ctx;
    for (size_t i = 0; i < c->n_laws; i++) {
        const struct law_result *law = &c->law[i];
        char buf[UNIT_TEXT_MAX];
        table_row(t, 0, i == c->chosen_law ? PAINT_STRONG : PAINT_NONE);
        table_cell(t, scaling_name(law->law));
        table_cell(t, unit_format_count(buf, law->params));
        range_cell(t, law->has_range, law->params_low, law->params_high);
        table_cell(t, unit_format_count(buf, law->tokens));
        range_cell(t, law->has_range, law->tokens_low, law->tokens_high);
        table_cell(t, quantity(buf, law->tokens_per_param));
        table_cell(t, known(law->loss) ? loss_text(buf, law->loss) : "");
        table_end_row(t);
    }
}

static void law_notes(struct out *o, const struct law_answers *c)
{
    for (size_t i = 0; i < c->n_laws; i++) {
        const struct law_result *law = &c->law[i];
        char text[TEXT_BLOCK_MAX];
        bool note =
            law->has_range && law->range_note && law->range_note[0] != '\0';
        str_format(text, sizeof(text), "%s: %s%s%s", scaling_name(law->law),
                   law->source ? law->source : "", note ? "; range: " : "",
                   note ? law->range_note : "");
        out_item(o, text);
    }
}

static void law_section(struct out *o, const struct law_answers *c)
{
    static const struct column columns[] = {
        { "law", COLUMN_LEFT },    { "params", COLUMN_RIGHT },
        { "range", COLUMN_RIGHT }, { "tokens", COLUMN_RIGHT },
        { "range", COLUMN_RIGHT }, { "ratio", COLUMN_RIGHT },
        { "loss", COLUMN_RIGHT },
    };
    char text[TEXT_BLOCK_MAX], buf[UNIT_TEXT_MAX];
    if (c->n_laws == 0)
        return;
    str_format(text, sizeof(text), "compute-optimal for %s FLOP",
               unit_format_flop(buf, c->budget_flops));
    out_heading(o, text);
    table_write(o, columns, sizeof(columns) / sizeof(columns[0]), fill_laws, c);
    law_notes(o, c);
}

/* ---- the two places ---- */

void text_compute_section(struct out *o, const struct memplan_report *r,
                          const struct law_answers *laws)
{
    char text[TEXT_BLOCK_MAX], buf[UNIT_TEXT_MAX];
    str_format(text, sizeof(text), "training on %s token%s",
               unit_format_count(buf, r->compute.tokens),
               unit_s(r->compute.tokens));
    out_heading(o, text);
    compute_table(o, r);
    law_line(o, laws, true);
}

void text_compute_report(struct out *o, const struct memplan_report *r,
                         const struct law_answers *laws)
{
    const struct compute_result *c = &r->compute;
    char text[TEXT_BLOCK_MAX], buf[UNIT_TEXT_MAX];
    text[0] = '\0';
    if (r->has_model && r->spec.name[0] != '\0')
        str_format(text, sizeof(text), "%s: ", r->spec.name);
    str_append(text, sizeof(text), "%s parameter%s",
               unit_format_count(buf, c->params), unit_s(c->params));
    str_append(text, sizeof(text), " on %s token%s",
               unit_format_count(buf, c->tokens), unit_s(c->tokens));
    if (known(c->gpu_hours))
        str_append(text, sizeof(text), " take%s %s %s-hours",
                   c->params > 1 ? "" : "s", quantity(buf, c->gpu_hours),
                   r->run.gpu.name);
    out_title(o, text);
    compute_table(o, r);
    law_section(o, laws);
    if (r->has_model || r->run.given[KEY_PARAMS])
        law_line(o, laws, false);
    loss_lines(o, laws);
}
