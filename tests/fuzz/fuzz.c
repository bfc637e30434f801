#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fuzz_require(bool holds, const char *why)
{
    if (holds)
        return;
    fprintf(stderr, "fuzz: %s\n", why);
    abort();
}

void fuzz_status(memplan_status status, const memplan_errors *errs)
{
    fuzz_require((status == MEMPLAN_OK) == (errs->count == 0),
                 "a status without an error, or an error without a status");
    size_t kept = errs->count < errs->capacity ? errs->count : errs->capacity;
    for (size_t i = 0; i < kept; i++) {
        const memplan_error *e = &errs->item[i];
        fuzz_require(e->message[0] != '\0', "an error without a text");
        fuzz_require(memchr(e->message, 0, sizeof(e->message))
                         && memchr(e->hint, 0, sizeof(e->hint))
                         && memchr(e->key, 0, sizeof(e->key))
                         && memchr(e->pointer, 0, sizeof(e->pointer)),
                     "a text that does not end");
    }
}

/* ---- numbers that are none ---- */

static bool is_letter(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* The word at p, in any case, and no letter after it: what a chunk of output
 * ends with may go on in the next one ("inf", "erence_tokens"). */
static bool is_word(const char *p, size_t left, const char *word)
{
    size_t n = strlen(word);
    if (left < n)
        return false;
    for (size_t i = 0; i < n; i++) {
        if ((p[i] | 0x20) != word[i])
            return false;
    }
    return left > n && !is_letter(p[n]);
}

static bool has_no_number(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && is_letter(p[i - 1]))
            continue;
        if (is_word(p + i, n - i, "nan") || is_word(p + i, n - i, "inf")
            || is_word(p + i, n - i, "infinity"))
            return true;
    }
    return false;
}

bool fuzz_is_quiet(const uint8_t *input, size_t size)
{
    return !has_no_number((const char *)input, size);
}

/* ---- reports ---- */

struct sink {
    size_t bytes;
    char last;
    bool quiet;
};

static bool sink_write(void *ctx, const char *text, size_t len)
{
    struct sink *s = ctx;
    s->bytes += len;
    if (len > 0)
        s->last = text[len - 1];
    if (s->quiet)
        fuzz_require(!has_no_number(text, len), "nan or inf in the output");
    return true;
}

static void write_once(const memplan_report *report, memplan_view view,
                       memplan_style style, bool quiet)
{
    struct sink s = { 0, 0, quiet };
    fuzz_require(
        memplan_report_write(report, view, &style, sink_write, &s, NULL)
            == MEMPLAN_OK,
        "a report is not written");
    fuzz_require(s.bytes > 0 && s.last == '\n', "a report without an end");
}

static void write_all(const memplan_report *report, bool quiet)
{
    static const memplan_style styles[] = {
        { MEMPLAN_FORMAT_TABLE, false, 0 },
        { MEMPLAN_FORMAT_TABLE, true, 40 },
        { MEMPLAN_FORMAT_JSON, false, 0 },
        { MEMPLAN_FORMAT_CSV, false, 0 },
        { MEMPLAN_FORMAT_MARKDOWN, false, 0 },
    };
    for (size_t i = 0; i < sizeof(styles) / sizeof(styles[0]); i++) {
        write_once(report, MEMPLAN_VIEW_SUMMARY, styles[i], quiet);
        write_once(report, MEMPLAN_VIEW_EXPLAIN, styles[i], quiet);
    }
}

static uint64_t bytes_of(const memplan_report *report, const char *path)
{
    uint64_t n = 0;
    fuzz_require(memplan_report_bytes(&n, report, path) == MEMPLAN_OK, path);
    return n;
}

void fuzz_report(const memplan_report *report, bool quiet)
{
    uint64_t peak = 0;
    if (memplan_report_bytes(&peak, report, "memory.peak_allocated")
        == MEMPLAN_OK) {
        fuzz_require(bytes_of(report, "memory.parameters")
                             + bytes_of(report, "memory.gradients")
                             + bytes_of(report, "memory.optimizer_states")
                             + bytes_of(report, "memory.activations")
                             + bytes_of(report, "memory.temporary")
                         == peak,
                     "the components are not the peak");
        uint64_t total = bytes_of(report, "memory.device_total");
        fuzz_require(bytes_of(report, "memory.peak_reserved") >= peak,
                     "less is reserved than allocated");
        fuzz_require(total >= bytes_of(report, "memory.peak_reserved"),
                     "the total is less than a part of it");
        fuzz_require(memplan_report_fits(report)
                         == (total <= bytes_of(report, "memory.capacity")),
                     "the verdict is not that of the numbers");
    }
    write_all(report, quiet);
}
