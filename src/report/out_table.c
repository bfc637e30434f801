/*
 * Owns how a table looks: aligned columns between blanks for people, pipes for
 * Markdown. Refuses to know what is in it.
 */
#include "report/out.h"

#include <string.h>

#include "base/banned.h"

enum {
    INDENT = 2, /* before the first column */
    GAP = 2,    /* between columns */
    BAR_MOST = 30,
    BAR_LEAST = 6,  /* what is shorter says nothing */
    LEFT_LEAST = 8, /* a text column is not cut below this */
    NOTE_LEAST = 20,
    WIDTH_USUAL = 80
};

static bool is_markdown(const struct table *t)
{
    return t->out->format == MEMPLAN_FORMAT_MARKDOWN;
}

static size_t natural_width(const struct table *t)
{
    size_t sum = INDENT;
    for (size_t i = 0; i < t->n; i++)
        sum += (i > 0 ? GAP : 0) + t->width[i];
    return sum;
}

/* Bars take what is left of the line. */
static void fit_bars(struct table *t)
{
    size_t limit = t->out->width > 0 ? t->out->width : WIDTH_USUAL;
    size_t used = natural_width(t);
    for (size_t i = 0; i < t->n; i++) {
        if (t->column[i].kind != COLUMN_BAR)
            continue;
        size_t room = limit > used ? limit - used : 0;
        t->width[i] = room > BAR_MOST ? BAR_MOST : room;
        if (t->width[i] < BAR_LEAST)
            t->width[i] = 0;
    }
}

/* On a terminal, text columns give way until the line fits; the first one,
 * which says what the row is about, does not. */
static void fit_text(struct table *t)
{
    size_t used = natural_width(t);
    for (size_t i = t->n; i-- > 1 && t->out->width > 0;) {
        bool note = t->column[i].kind == COLUMN_NOTE;
        size_t least = note ? NOTE_LEAST : LEFT_LEAST;
        if (used <= t->out->width
            || (t->column[i].kind != COLUMN_LEFT && !note))
            continue;
        size_t over = used - t->out->width;
        size_t spare = t->width[i] > least ? t->width[i] - least : 0;
        size_t cut = over < spare ? over : spare;
        t->width[i] -= cut;
        used -= cut;
    }
}

static void write_header(struct table *t)
{
    bool any = false;
    for (size_t i = 0; i < t->n; i++)
        any = any || t->column[i].title[0] != '\0';
    if (!any && !is_markdown(t))
        return;

    table_row(t, 0, PAINT_FAINT);
    for (size_t i = 0; i < t->n; i++)
        table_cell(t, t->column[i].title);
    table_end_row(t);
    if (!is_markdown(t))
        return;
    for (size_t i = 0; i < t->n; i++) {
        if (t->column[i].kind == COLUMN_RIGHT)
            out_text(t->out, "| --: ");
        else if (t->column[i].kind != COLUMN_BAR)
            out_text(t->out, "| :-- ");
    }
    out_text(t->out, "|\n");
}

void table_write(struct out *o, const struct column *column, size_t n,
                 table_fill_fn *fill, const void *ctx)
{
    struct table t = { .out = o, .column = column, .n = n };
    if (!is_markdown(&t)) {
        t.measuring = true;
        for (size_t i = 0; i < n; i++)
            t.width[i] = out_columns(column[i].title);
        fill(&t, ctx);
        t.measuring = false;
        fit_bars(&t);
        fit_text(&t);
    }
    out_block(o, FORM_TABLE);
    write_header(&t);
    fill(&t, ctx);
}

void table_row(struct table *t, unsigned depth, enum paint paint)
{
    t->at = 0;
    t->depth = depth;
    t->paint = paint;
}

static void markdown_cell(struct table *t, const char *text)
{
    bool strong =
        t->paint != PAINT_NONE && t->paint != PAINT_FAINT && text[0] != '\0';
    if (t->column[t->at].kind == COLUMN_BAR)
        return;
    out_text(t->out, "| ");
    if (t->at == 0 && t->depth > 0 && text[0] != '\0')
        out_text(t->out, "&nbsp;&nbsp;");
    if (strong)
        out_text(t->out, "**");
    out_plain(t->out, text, strlen(text));
    if (strong)
        out_text(t->out, "**");
    if (text[0] != '\0')
        out_text(t->out, " ");
}

/* Bytes of the first `columns` characters of a text. */
static size_t bytes_of_columns(const char *text, size_t columns)
{
    size_t n = 0;
    while (text[n] != '\0') {
        bool begins = ((unsigned char)text[n] & 0xC0) != 0x80;
        if (begins && columns-- == 0)
            break;
        n++;
    }
    return n;
}

/* Beside the row, over lines of its own; below it where there is no room. */
static void note_cell(struct table *t, const char *text)
{
    struct out *o = t->out;
    size_t begin = natural_width(t) - t->width[t->at];
    if (text[0] == '\0')
        return;
    if (o->width > 0 && begin + NOTE_LEAST > o->width) {
        begin = 2 * INDENT;
        out_text(o, "\n");
        out_blanks(o, begin);
    } else {
        out_blanks(o, GAP);
    }
    out_wrap(o, begin, begin, text);
}

static void text_cell(struct table *t, const char *text, size_t indent)
{
    struct out *o = t->out;
    size_t columns = out_columns(text);
    size_t width = t->width[t->at] > indent ? t->width[t->at] - indent : 0;
    bool cut = columns > width;
    size_t dots = cut ? (width < 3 ? width : 3) : 0;
    size_t shown = cut ? width - dots : columns;
    size_t pad = width - (shown + dots);
    bool right = t->column[t->at].kind == COLUMN_RIGHT;

    if (t->column[t->at].kind == COLUMN_NOTE) {
        note_cell(t, text);
        return;
    }
    out_blanks(o, (t->at == 0 ? INDENT : GAP) + indent + (right ? pad : 0));
    if (columns > 0) {
        if (t->paint != PAINT_NONE)
            out_paint(o, t->paint);
        size_t n = bytes_of_columns(text, shown);
        size_t ends = n;
        while (ends > 0 && text[ends - 1] == ' ')
            ends--;
        out_plain(o, text, ends);
        out_blanks(o, n - ends);
        out_bytes(o, "...", dots);
        if (t->paint != PAINT_NONE)
            out_paint(o, PAINT_NONE);
    }
    out_blanks(o, right ? 0 : pad);
}

void table_cell(struct table *t, const char *text)
{
    if (!text)
        text = "";
    if (t->at >= t->n)
        return;
    size_t indent = t->at == 0 ? 2 * (size_t)t->depth : 0;
    size_t columns = out_columns(text) + indent;
    if (t->measuring && t->column[t->at].kind != COLUMN_BAR) {
        if (columns > t->width[t->at])
            t->width[t->at] = columns;
    } else if (!t->measuring && is_markdown(t)) {
        markdown_cell(t, text);
    } else if (!t->measuring) {
        text_cell(t, text, indent);
    }
    t->at++;
}

void table_bar(struct table *t, double fraction)
{
    char bar[BAR_MOST + 1];
    size_t width = t->at < t->n ? t->width[t->at] : 0;
    if (width > BAR_MOST)
        width = BAR_MOST;
    double length = fraction * (double)width + 0.5;
    size_t n = width;
    if (!(length > 0))
        n = 0;
    else if (length < (double)width)
        n = (size_t)length;
    memset(bar, '#', n);
    bar[n] = '\0';
    table_cell(t, bar);
}

void table_end_row(struct table *t)
{
    while (t->at < t->n)
        table_cell(t, "");
    if (t->measuring)
        return;
    out_text(t->out, is_markdown(t) ? "|\n" : "\n");
}
