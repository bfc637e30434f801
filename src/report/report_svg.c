/*
 * Owns the picture of a trace: what is alive, stacked by component, over the
 * events of the step, with its phases marked and its peak labelled. Whole
 * numbers throughout, so that it is the same picture in every locale.
 */
#include "report/report_svg.h"

#include <string.h>

#include "base/banned.h"

/* Units of the view box; ten to a pixel. */
enum {
    WIDTH = 12000,
    HEIGHT = 6200,
    LEFT = 1100,   /* of the plot */
    RIGHT = 9100,  /* where the legend begins, less a gap */
    TOP = 900,     /* room for title and peak */
    BOTTOM = 5300, /* above the strip of phases */
    STRIP = 5360,
    STRIP_HEIGHT = 220,
    LEGEND = 9350,
    LEGEND_STEP = 260,
    LETTER = 70, /* width of one, roughly, at the size of labels */
    COLUMNS = 800
};

/* A column stands for some events: it shows the fullest of them, so that the
 * peak is in the picture whatever the number of events. */
struct column_state {
    uint64_t top[COMP_COUNT]; /* sums: the last one is all that is alive */
    size_t event;
};

struct picture {
    struct out *o;
    const struct memplan_report *report;
    const struct trace *t;
    struct column_state *column;
    size_t n;       /* columns */
    uint64_t scale; /* bytes at the upper edge */
    size_t peak;    /* column of the peak */
};

/* Okabe and Ito's colours, apart for most kinds of colour vision. */
static const char *component_colour(enum component c)
{
    switch (c) {
    case COMP_PARAMETERS: return "#0072b2";
    case COMP_GRADIENTS: return "#009e73";
    case COMP_OPTIMIZER: return "#56b4e9";
    case COMP_ACTIVATIONS: return "#e69f00";
    case COMP_TEMPORARY: return "#d55e00";
    case COMP_COUNT: break;
    }
    return "#000000";
}

static const char *phase_colour(enum phase phase)
{
    switch (phase) {
    case PHASE_REST: return "#eeeeee";
    case PHASE_FORWARD: return "#c6dbef";
    case PHASE_LOSS: return "#fdae6b";
    case PHASE_BACKWARD: return "#6baed6";
    case PHASE_RECOMPUTE: return "#9e9ac8";
    case PHASE_ACCUMULATE: return "#a1d99b";
    case PHASE_REDUCE: return "#74c476";
    case PHASE_CLIP: return "#bdbdbd";
    case PHASE_STEP: return "#969696";
    case PHASE_COUNT: break;
    }
    return "#ffffff";
}

/* What a reader calls a stretch of the step: the loss belongs to the forward
 * pass, what backward does between the layers to the backward pass. */
static const char *pass_name(enum phase phase)
{
    switch (phase) {
    case PHASE_REST: return "rest";
    case PHASE_FORWARD:
    case PHASE_LOSS: return "forward";
    case PHASE_BACKWARD:
    case PHASE_RECOMPUTE:
    case PHASE_ACCUMULATE:
    case PHASE_REDUCE: return "backward";
    case PHASE_CLIP:
    case PHASE_STEP: return "step";
    case PHASE_COUNT: break;
    }
    return "";
}

/* ---- text ---- */

static void number(struct out *o, uint64_t n)
{
    char buf[UNIT_TEXT_MAX];
    str_format(buf, sizeof(buf), "%llu", (unsigned long long)n);
    out_text(o, buf);
}

/* ` name="n"` */
static void attribute(struct out *o, const char *name, uint64_t n)
{
    out_text(o, " ");
    out_text(o, name);
    out_text(o, "=\"");
    number(o, n);
    out_text(o, "\"");
}

static const char *entity(char c)
{
    switch (c) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '"': return "&quot;";
    }
    return NULL;
}

/* A name may come from a user's file: what XML gives a meaning is replaced, and
 * what it forbids is left out. */
static void escaped(struct out *o, const char *text)
{
    for (; *text != '\0'; text++) {
        if (entity(*text) != NULL)
            out_text(o, entity(*text));
        else if ((unsigned char)*text >= ' ')
            out_bytes(o, text, 1);
    }
}

struct place {
    uint64_t x, y;
    const char *anchor; /* start, middle, end */
};

static void label(struct out *o, struct place at, const char *text)
{
    out_text(o, "<text");
    attribute(o, "x", at.x);
    attribute(o, "y", at.y);
    if (strcmp(at.anchor, "start") != 0) {
        out_text(o, " text-anchor=\"");
        out_text(o, at.anchor);
        out_text(o, "\"");
    }
    out_text(o, ">");
    escaped(o, text);
    out_text(o, "</text>\n");
}

struct box {
    uint64_t x, y, width, height;
    const char *colour;
};

static void rectangle(struct out *o, const struct box *b)
{
    out_text(o, "<rect");
    attribute(o, "x", b->x);
    attribute(o, "y", b->y);
    attribute(o, "width", b->width);
    attribute(o, "height", b->height);
    out_text(o, " fill=\"");
    out_text(o, b->colour);
    out_text(o, "\"/>\n");
}

/* ---- the columns ---- */

static bool fill_columns(struct picture *p, struct arena *a)
{
    const struct trace *t = p->t;
    uint64_t by[COMP_COUNT] = { 0 }, most = 0;
    p->n = t->n < COLUMNS ? t->n : COLUMNS;
    p->column = ARENA_NEW(a, struct column_state, p->n + 1);
    if (p->column == NULL)
        return false;
    size_t k = 0;
    for (size_t i = 0; i < t->n; i++) {
        const struct trace_event *e = &t->event[i];
        uint64_t live = 0;
        uint64_t top[COMP_COUNT];
        by[e->component] += e->birth ? e->bytes : 0;
        by[e->component] -= e->birth ? 0 : e->bytes;
        for (size_t c = 0; c < COMP_COUNT; c++)
            top[c] = live += by[c];
        const bool first = i == 0 || i * p->n / t->n != k;
        k = i * p->n / t->n;
        struct column_state *s = &p->column[k];
        if (first || live > s->top[COMP_COUNT - 1]) {
            memcpy(s->top, top, sizeof(top));
            s->event = i;
        }
        if (live > most) {
            most = live;
            p->peak = k;
        }
    }
    return true;
}

static uint64_t column_x(const struct picture *p, size_t k)
{
    return LEFT + k * (RIGHT - LEFT) / p->n;
}

static uint64_t level_y(const struct picture *p, uint64_t bytes)
{
    const double share = (double)bytes / (double)p->scale;
    return BOTTOM - (uint64_t)(share * (BOTTOM - TOP) + 0.5);
}

/* ---- the plot ---- */

/* Along the columns with steps, forwards or back; nothing is said where
 * nothing changes. */
static void edge(const struct picture *p, size_t component, bool back)
{
    uint64_t was = 0;
    for (size_t i = 0; i < p->n; i++) {
        const size_t k = back ? p->n - 1 - i : i;
        const uint64_t y = component == COMP_COUNT
                               ? BOTTOM
                               : level_y(p, p->column[k].top[component]);
        if (i == 0 || y != was) {
            out_text(p->o, i == 0 && !back ? "M" : "H");
            number(p->o, column_x(p, back ? k + 1 : k));
            out_text(p->o, i == 0 && !back ? " " : "V");
            number(p->o, y);
        }
        was = y;
    }
    out_text(p->o, "H");
    number(p->o, column_x(p, back ? 0 : p->n));
}

static void band(const struct picture *p, enum component c)
{
    out_text(p->o, "<path fill=\"");
    out_text(p->o, component_colour(c));
    out_text(p->o, "\" d=\"");
    edge(p, c, false);
    edge(p, c == 0 ? COMP_COUNT : (size_t)c - 1, true);
    out_text(p->o, "Z\"><title>");
    out_text(p->o, component_label(c));
    out_text(p->o, "</title></path>\n");
}

static void level_line(const struct picture *p, uint64_t bytes,
                       const char *style)
{
    out_text(p->o, "<path class=\"");
    out_text(p->o, style);
    out_text(p->o, "\" d=\"M");
    number(p->o, LEFT);
    out_text(p->o, " ");
    number(p->o, level_y(p, bytes));
    out_text(p->o, "H");
    number(p->o, RIGHT);
    out_text(p->o, "\"/>\n");
}

/* Powers of two bytes, so that the labels are round in GiB and MiB. */
static void axis(const struct picture *p)
{
    char buf[UNIT_TEXT_MAX];
    uint64_t tick = 1;
    while (p->scale / tick > 6)
        tick *= 2;
    for (uint64_t i = 0; i <= p->scale / tick; i++) {
        level_line(p, i * tick, "grid");
        label(p->o,
              (struct place){ LEFT - 100, level_y(p, i * tick) + 45, "end" },
              unit_format_bytes(buf, i * tick));
    }
}

static void capacity(const struct picture *p)
{
    char text[TEXT_BLOCK_MAX], buf[UNIT_TEXT_MAX];
    const uint64_t bytes = p->report->memory.capacity;
    if (bytes > p->scale)
        return;
    level_line(p, bytes, "capacity");
    str_format(text, sizeof(text), "%s of the GPU",
               unit_format_bytes(buf, bytes));
    label(p->o, (struct place){ LEFT + 60, level_y(p, bytes) - 50, "start" },
          text);
}

static void peak(const struct picture *p)
{
    char text[TEXT_BLOCK_MAX], buf[UNIT_TEXT_MAX];
    const struct trace_event *e = &p->t->event[p->t->peak_at];
    const uint64_t x = column_x(p, p->peak), y = level_y(p, p->t->peak);
    const uint64_t middle = (LEFT + RIGHT) / 2;
    out_text(p->o, "<circle");
    attribute(p->o, "cx", x);
    attribute(p->o, "cy", y);
    out_text(p->o, " r=\"45\" fill=\"none\" stroke=\"#000\" "
                   "stroke-width=\"18\"/>\n");
    str_format(text, sizeof(text), "peak %s: %s%s%s, '%s'",
               unit_format_bytes(buf, p->t->peak), phase_name(e->phase),
               e->block[0] == '\0' ? "" : " of ", e->block, e->name);
    label(p->o, (struct place){ x, y - 90, x < middle ? "start" : "end" },
          text);
}

/* ---- phases ---- */

static const struct trace_event *shown(const struct picture *p, size_t k)
{
    return &p->t->event[p->column[k].event];
}

static bool same_pass(const struct trace_event *a, const struct trace_event *b)
{
    return strcmp(pass_name(a->phase), pass_name(b->phase)) == 0
           && a->micro_batch == b->micro_batch;
}

static void pass(const struct picture *p, size_t from, size_t to)
{
    char text[TEXT_BLOCK_MAX];
    const struct trace_event *e = shown(p, from);
    const uint64_t x = column_x(p, from), end = column_x(p, to);
    const bool of_batch = e->phase != PHASE_REST && e->phase != PHASE_CLIP
                          && e->phase != PHASE_STEP;
    str_format(text, sizeof(text), "%s", pass_name(e->phase));
    if (of_batch)
        str_format(text, sizeof(text), "%s %lu", pass_name(e->phase),
                   (unsigned long)e->micro_batch);
    if ((end - x) > (strlen(text) + 1) * LETTER)
        label(p->o,
              (struct place){ (x + end) / 2, STRIP + STRIP_HEIGHT + 160,
                              "middle" },
              text);
    if (from == 0)
        return;
    out_text(p->o, "<path class=\"pass\" d=\"M");
    number(p->o, x);
    out_text(p->o, " ");
    number(p->o, TOP);
    out_text(p->o, "V");
    number(p->o, STRIP + STRIP_HEIGHT);
    out_text(p->o, "\"/>\n");
}

static void phases(const struct picture *p)
{
    size_t phase_from = 0, pass_from = 0;
    for (size_t k = 1; k <= p->n; k++) {
        if (k == p->n || shown(p, k)->phase != shown(p, phase_from)->phase) {
            const uint64_t x = column_x(p, phase_from);
            const struct box b = { x, STRIP, column_x(p, k) - x, STRIP_HEIGHT,
                                   phase_colour(shown(p, phase_from)->phase) };
            rectangle(p->o, &b);
            phase_from = k;
        }
        if (k == p->n || !same_pass(shown(p, k), shown(p, pass_from))) {
            pass(p, pass_from, k);
            pass_from = k;
        }
    }
}

/* ---- the legend ---- */

static void entry(struct out *o, uint64_t y, const char *colour,
                  const char *text)
{
    const struct box b = { LEGEND, y - 120, 150, 150, colour };
    rectangle(o, &b);
    label(o, (struct place){ LEGEND + 240, y, "start" }, text);
}

static void legend(const struct picture *p)
{
    char text[TEXT_BLOCK_MAX], buf[UNIT_TEXT_MAX];
    const uint64_t *top = p->column[p->peak].top;
    uint64_t y = TOP + 120;
    bool seen[PHASE_COUNT] = { false };
    label(p->o, (struct place){ LEGEND, y, "start" }, "at the peak");
    for (unsigned c = COMP_COUNT; c-- > 0;) {
        const uint64_t bytes = top[c] - (c == 0 ? 0 : top[c - 1]);
        str_format(text, sizeof(text), "%s  %s",
                   component_label((enum component)c),
                   unit_format_bytes(buf, bytes));
        entry(p->o, y += LEGEND_STEP, component_colour((enum component)c),
              text);
    }
    for (size_t k = 0; k < p->n; k++)
        seen[shown(p, k)->phase] = true;
    y += 2 * LEGEND_STEP;
    label(p->o, (struct place){ LEGEND, y, "start" }, "phases");
    for (unsigned f = 0; f < PHASE_COUNT; f++)
        if (seen[f])
            entry(p->o, y += LEGEND_STEP, phase_colour((enum phase)f),
                  phase_name((enum phase)f));
}

/* ---- all of it ---- */

static void head(const struct picture *p)
{
    struct out *o = p->o;
    char text[TEXT_BLOCK_MAX];
    const char *name = p->report->spec.name ? p->report->spec.name : "model";
    out_text(o, "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\"");
    attribute(o, "width", WIDTH / 10);
    attribute(o, "height", HEIGHT / 10);
    out_text(o, " viewBox=\"0 0 ");
    number(o, WIDTH);
    out_text(o, " ");
    number(o, HEIGHT);
    out_text(o, "\" font-family=\"sans-serif\" font-size=\"130\">\n"
                "<style>.grid{stroke:#ddd;stroke-width:8}"
                ".pass{stroke:#000;stroke-width:8;stroke-opacity:.25}"
                ".capacity{stroke:#c00;stroke-width:20;"
                "stroke-dasharray:120 80}</style>\n<title>");
    escaped(o, name);
    out_text(o, ": memory over a step</title>\n");
    const struct box paper = { 0, 0, WIDTH, HEIGHT, "#ffffff" };
    rectangle(o, &paper);
    str_format(text, sizeof(text), "%s: memory over a step, stage %llu of %llu",
               name, (unsigned long long)p->report->memory.worst,
               (unsigned long long)p->report->memory.n_stages);
    out_text(o, "<g font-size=\"190\">");
    label(o, (struct place){ LEFT, 400, "start" }, text);
    out_text(o, "</g>\n");
    str_format(text, sizeof(text),
               "%llu allocations and releases, in order: not to scale in time",
               (unsigned long long)p->t->n);
    label(o, (struct place){ LEFT, HEIGHT - 130, "start" }, text);
}

bool report_svg_trace(struct out *o, const struct memplan_report *report,
                      const struct trace *t, struct arena *a)
{
    struct picture p = { .o = o, .report = report, .t = t };
    if (!fill_columns(&p, a))
        return false;
    const uint64_t of_gpu = report->memory.capacity;
    const uint64_t most =
        of_gpu / 2 > t->peak || of_gpu < t->peak ? t->peak : of_gpu;
    p.scale = most + most / 16 + 1;
    head(&p);
    axis(&p);
    for (unsigned c = 0; c < COMP_COUNT; c++)
        band(&p, (enum component)c);
    phases(&p);
    capacity(&p);
    peak(&p);
    legend(&p);
    out_text(o, "</svg>\n");
    return true;
}
