/*
 * Owns the way of text to the caller's writer: buffering, colour, blocks,
 * wrapping, CSV quoting. Refuses to know what the text is about.
 */
#include "report/out.h"

#include "base/diag.h"

#include <string.h>

#include "base/banned.h"

/* What is narrower than this is written as if it had this many columns. */
enum { WIDTH_LEAST = 40 };

void out_init(struct out *o, const memplan_style *style,
              memplan_write_fn *write, void *ctx)
{
    memset(o, 0, sizeof(*o));
    o->write = write;
    o->ctx = ctx;
    o->format = style ? style->format : MEMPLAN_FORMAT_TABLE;
    o->colour = style && style->colour && o->format == MEMPLAN_FORMAT_TABLE;
    if (style && style->width > 0 && o->format == MEMPLAN_FORMAT_TABLE)
        o->width =
            style->width > WIDTH_LEAST ? (size_t)style->width : WIDTH_LEAST;
}

static void flush(struct out *o)
{
    if (!o->failed && o->n > 0 && !o->write(o->ctx, o->buf, o->n))
        o->failed = true;
    o->n = 0;
}

void out_no_picture(struct out *o)
{
    o->no_picture = true;
}

memplan_status out_close(struct out *o, memplan_errors *errs)
{
    flush(o);
    if (o->no_picture) {
        struct diag no;
        diag_init(&no, errs);
        return diag_add(&no, MEMPLAN_E_ARG, "only a trace has a picture")
            ->status;
    }
    if (!o->failed)
        return MEMPLAN_OK;
    struct diag d;
    diag_init(&d, errs);
    diag_add(&d, MEMPLAN_E_WRITE, "%s", memplan_status_text(MEMPLAN_E_WRITE));
    return MEMPLAN_E_WRITE;
}

static void put(struct out *o, const char *text, size_t n)
{
    while (n > 0 && !o->failed) {
        size_t room = sizeof(o->buf) - o->n;
        size_t part = n < room ? n : room;
        memcpy(o->buf + o->n, text, part);
        o->n += part;
        text += part;
        n -= part;
        if (o->n == sizeof(o->buf))
            flush(o);
    }
}

void out_bytes(struct out *o, const char *text, size_t n)
{
    if (n == 0)
        return;
    if (text[0] == '\n')
        o->blanks = 0;
    for (; o->blanks > 0; o->blanks--)
        put(o, " ", 1);
    put(o, text, n);
}

void out_text(struct out *o, const char *text)
{
    out_bytes(o, text, strlen(text));
}

void out_blanks(struct out *o, size_t n)
{
    o->blanks += n;
}

bool out_sink(void *ctx, const char *text, size_t len)
{
    struct out *o = ctx;
    out_bytes(o, text, len);
    return !o->failed;
}

void out_paint(struct out *o, enum paint paint)
{
    if (!o->colour)
        return;
    switch (paint) {
    case PAINT_NONE: out_text(o, "\033[0m"); break;
    case PAINT_STRONG: out_text(o, "\033[1m"); break;
    case PAINT_FAINT: out_text(o, "\033[2m"); break;
    case PAINT_GOOD: out_text(o, "\033[1;32m"); break;
    case PAINT_BAD: out_text(o, "\033[1;31m"); break;
    }
}

size_t out_columns(const char *text)
{
    size_t n = 0;
    for (; *text != '\0'; text++)
        n += ((unsigned char)*text & 0xC0) != 0x80;
    return n;
}

/* Names and sources come from other people's files: an escape sequence in one
 * must not reach the terminal, nor a bar break a Markdown table. */
void out_plain(struct out *o, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        bool control = (unsigned char)c < 0x20 || c == 0x7F;
        if (o->format == MEMPLAN_FORMAT_MARKDOWN && strchr("\\|<*`", c)
            && c != '\0')
            out_bytes(o, "\\", 1);
        out_bytes(o, control ? "?" : &c, 1);
    }
}

/* ---- blocks ---- */

/* The empty line between two blocks. */
void out_block(struct out *o, enum block_form form)
{
    bool apart = form == FORM_HEADING;
    if (o->format == MEMPLAN_FORMAT_MARKDOWN)
        apart = !(form == FORM_ITEM && o->last == FORM_ITEM);
    if (apart && o->last != FORM_NOTHING)
        out_text(o, "\n");
    o->last = form;
}

static size_t word_length(const char *text)
{
    return strcspn(text, " ");
}

void out_wrap(struct out *o, size_t at, size_t indent, const char *text)
{
    bool first = true;
    while (*text != '\0') {
        size_t n = word_length(text);
        char word[TEXT_BLOCK_MAX];
        size_t kept = n < sizeof(word) ? n : sizeof(word) - 1;
        memcpy(word, text, kept);
        word[kept] = '\0';
        size_t columns = out_columns(word);
        if (!first && o->width > 0 && at + 1 + columns > o->width) {
            out_text(o, "\n");
            out_blanks(o, indent);
            at = indent;
        } else if (!first) {
            out_blanks(o, 1);
            at++;
        }
        out_plain(o, text, n);
        at += columns;
        first = false;
        text += n;
        if (*text == ' ')
            text++;
    }
}

static void wrap(struct out *o, size_t at, size_t indent, const char *text)
{
    out_wrap(o, at, indent, text);
    out_text(o, "\n");
}

void out_title(struct out *o, const char *text)
{
    out_block(o, FORM_TITLE);
    if (o->format == MEMPLAN_FORMAT_MARKDOWN)
        out_text(o, "# ");
    out_paint(o, PAINT_STRONG);
    out_wrap(o, 0, 0, text);
    out_paint(o, PAINT_NONE);
    out_text(o, "\n");
}

void out_heading(struct out *o, const char *text)
{
    out_block(o, FORM_HEADING);
    if (o->format == MEMPLAN_FORMAT_MARKDOWN)
        out_text(o, "## ");
    out_paint(o, PAINT_STRONG);
    out_plain(o, text, strlen(text));
    out_paint(o, PAINT_NONE);
    out_text(o, "\n");
}

void out_paragraph(struct out *o, enum paint paint, const char *text)
{
    out_block(o, FORM_PARAGRAPH);
    bool strong = o->format == MEMPLAN_FORMAT_MARKDOWN
                  && (paint == PAINT_GOOD || paint == PAINT_BAD);
    if (paint != PAINT_NONE)
        out_paint(o, paint);
    if (strong) {
        out_text(o, "**");
        out_plain(o, text, strlen(text));
        out_text(o, "**");
    } else {
        out_wrap(o, 0, 0, text);
    }
    if (paint != PAINT_NONE)
        out_paint(o, PAINT_NONE);
    out_text(o, "\n");
}

void out_item(struct out *o, const char *text)
{
    enum { INDENT = 4 };
    out_block(o, FORM_ITEM);
    if (o->format == MEMPLAN_FORMAT_MARKDOWN) {
        out_text(o, "- ");
        wrap(o, 0, 0, text);
        return;
    }
    out_text(o, "  - ");
    wrap(o, INDENT, INDENT, text);
}

/* ---- CSV ---- */

void out_csv(struct out *o, bool first, const char *text)
{
    if (!first)
        out_text(o, ",");
    if (strcspn(text, ",\"\r\n") == strlen(text)) {
        out_text(o, text);
        return;
    }
    out_text(o, "\"");
    for (; *text != '\0'; text++) {
        if (*text == '"')
            out_text(o, "\"");
        out_bytes(o, text, 1);
    }
    out_text(o, "\"");
}

void out_csv_end(struct out *o)
{
    out_text(o, "\r\n");
}
