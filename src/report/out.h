/*
 * Text on its way out: buffered, with colour where it is allowed, in blocks
 * (title, heading, paragraph, item, table) that look right on a terminal, in a
 * file and as Markdown. A failed write is sticky: write on, ask at the end.
 * Nothing here allocates.
 */
#ifndef MEMPLAN_REPORT_OUT_H
#define MEMPLAN_REPORT_OUT_H

#include "memplan/memplan.h"

enum paint { PAINT_NONE, PAINT_STRONG, PAINT_FAINT, PAINT_GOOD, PAINT_BAD };

enum block_form {
    FORM_NOTHING,
    FORM_TITLE,
    FORM_HEADING,
    FORM_PARAGRAPH,
    FORM_ITEM,
    FORM_TABLE
};

struct out {
    memplan_write_fn *write;
    void *ctx;
    memplan_format format;
    bool colour;
    size_t width; /* of the terminal; 0: lines may be of any length */
    bool failed;
    bool no_picture; /* one was asked for where there is none */
    enum block_form last;
    size_t blanks; /* held back, so that no line ends in blanks */
    size_t n;
    char buf[1024];
};

/* style NULL: a table without colour. */
void out_init(struct out *o, const memplan_style *style,
              memplan_write_fn *write, void *ctx);

/* There is no picture of this: nothing was written, out_close says so. */
void out_no_picture(struct out *o);

/* Writes what is still held, reports E_WRITE if any write failed, E_ARG after
 * out_no_picture. */
memplan_status out_close(struct out *o, memplan_errors *errs);

void out_bytes(struct out *o, const char *text, size_t n);
void out_text(struct out *o, const char *text);
void out_blanks(struct out *o, size_t n);
void out_paint(struct out *o, enum paint paint); /* NONE: back to normal */

/* A memplan_write_fn whose ctx is a struct out: for the JSON writer. */
bool out_sink(void *ctx, const char *text, size_t len);

/* Columns of a text, and the text with what would upset a terminal or a
 * Markdown reader replaced. */
size_t out_columns(const char *text);
void out_plain(struct out *o, const char *text, size_t n);

/* Words from column `at` on, broken before the terminal's last one, later
 * lines indented; no line feed at the end. */
void out_wrap(struct out *o, size_t at, size_t indent, const char *text);

/* ---- blocks ---- */

enum { TEXT_BLOCK_MAX = 1024 }; /* for those who format one into a buffer */

void out_block(struct out *o, enum block_form form);
void out_title(struct out *o, const char *text);
void out_heading(struct out *o, const char *text);
void out_paragraph(struct out *o, enum paint paint, const char *text);
void out_item(struct out *o, const char *text);

/* ---- tables ---- */

/* On a terminal too narrow, LEFT texts are cut, except in the first column,
 * and a NOTE, which can only be last, goes on in the next line. */
enum column_kind { COLUMN_LEFT, COLUMN_RIGHT, COLUMN_BAR, COLUMN_NOTE };

struct column {
    const char *title;
    enum column_kind kind;
};
enum { COLUMN_MAX = 12 };

/* Filled twice by the same function, once to measure and once to write, so
 * that nothing is kept. */
struct table {
    struct out *out;
    const struct column *column;
    size_t n;
    size_t width[COLUMN_MAX];
    bool measuring;
    size_t at;        /* column of the next cell */
    unsigned depth;   /* of the row: its first cell goes in */
    enum paint paint; /* of the row */
};
typedef void table_fill_fn(struct table *t, const void *ctx);

void table_write(struct out *o, const struct column *column, size_t n,
                 table_fill_fn *fill, const void *ctx);

/* Before the row's first cell. */
void table_row(struct table *t, unsigned depth, enum paint paint);
void table_cell(struct table *t, const char *text); /* NULL: empty */
void table_bar(struct table *t, double fraction);   /* of the column's width */
void table_end_row(struct table *t);

/* ---- CSV ---- */

/* A field, quoted where RFC 4180 wants it; `first` in its line. */
void out_csv(struct out *o, bool first, const char *text);
void out_csv_end(struct out *o);

#endif
