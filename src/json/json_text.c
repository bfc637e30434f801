/*
 * Owns the text under JSON: UTF-8, surrogates, escapes, what of it a terminal
 * may be shown, and places in it as line and column. Refuses to know tokens:
 * json_scan.c does.
 */
#include "json/json_scan.h"

#include <string.h>

#include "base/banned.h"

/* ---- bytes and characters ---- */

unsigned json_hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return (unsigned)(c - '0');
    if (c >= 'a' && c <= 'f')
        return (unsigned)(c - 'a' + 10);
    if (c >= 'A' && c <= 'F')
        return (unsigned)(c - 'A' + 10);
    return 16;
}

bool json_is_high_surrogate(unsigned code)
{
    return code >= 0xD800 && code <= 0xDBFF;
}

bool json_is_low_surrogate(unsigned code)
{
    return code >= 0xDC00 && code <= 0xDFFF;
}

/* RFC 3629: no overlong forms, no surrogates, nothing past U+10FFFF. */
size_t json_utf8_length(const char *text, size_t n)
{
    const unsigned char *p = (const unsigned char *)text;
    if (n == 0)
        return 0;
    if (p[0] < 0x80)
        return 1;

    size_t len = p[0] >= 0xF0 ? 4 : p[0] >= 0xE0 ? 3 : 2;
    if (p[0] < 0xC2 || p[0] > 0xF4 || n < len)
        return 0;
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xC0) != 0x80)
            return 0;
    }
    if ((p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xED && p[1] > 0x9F)
        || (p[0] == 0xF0 && p[1] < 0x90) || (p[0] == 0xF4 && p[1] > 0x8F))
        return 0;
    return len;
}

unsigned json_utf8_decode(const char *text, size_t len)
{
    const unsigned char *p = (const unsigned char *)text;
    if (len == 1)
        return p[0];
    unsigned code = p[0] & (0xFFu >> (len + 1));
    for (size_t i = 1; i < len; i++)
        code = code << 6 | (p[i] & 0x3F);
    return code;
}

static size_t utf8_encode(char *out, unsigned code)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t len = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = len; i-- > 1; code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3F));
    out[0] = (char)((0xF00 >> len & 0xFF) | code);
    return len;
}

void json_printable(char *buf, size_t size, struct str text)
{
    size_t n = 0;
    while (text.n > 0) {
        size_t len = json_utf8_length(text.p, text.n);
        unsigned code = len > 0 ? json_utf8_decode(text.p, len) : 0;
        /* C1 controls are terminal commands as well. */
        bool plain = code >= 0x20 && (code < 0x7F || code >= 0xA0);
        size_t wide = plain ? len : 1;
        if (n + wide >= size)
            break;
        if (plain)
            memcpy(buf + n, text.p, len);
        else
            buf[n] = '?';
        n += wide;
        text.p += len > 0 ? len : 1;
        text.n -= len > 0 ? len : 1;
    }
    if (size > 0)
        buf[n] = '\0';
}

/* ---- places ---- */

static uint32_t cut_to_u32(size_t v)
{
    return v < UINT32_MAX ? (uint32_t)v : UINT32_MAX;
}

void json_place(memplan_error *e, const char *text, size_t len, size_t offset)
{
    size_t line = 1;
    size_t begin = 0;
    if (offset > len)
        offset = len;
    for (size_t i = 0; i < offset; i++) {
        if (text[i] == '\n') {
            line++;
            begin = i + 1;
        }
    }
    e->line = cut_to_u32(line);
    e->column = cut_to_u32(offset - begin + 1);
    e->offset = offset;
}

uint32_t json_line(const char *text, size_t len, size_t offset)
{
    memplan_error e;
    json_place(&e, text, len, offset);
    return e.line;
}

/* ---- escapes ---- */

static unsigned unescape_hex4(const char *p)
{
    unsigned code = 0;
    for (size_t i = 0; i < 4; i++)
        code = code << 4 | json_hex_value(p[i]);
    return code;
}

size_t json_unescape(char *out, const char *p, size_t n)
{
    static const char from[] = "\"\\/bfnrt";
    static const char to[] = "\"\\/\b\f\n\r\t";
    size_t used = 0;
    for (size_t i = 0; i < n;) {
        if (p[i] != '\\') {
            out[used++] = p[i++];
            continue;
        }
        const char *simple = strchr(from, p[i + 1]);
        if (simple) {
            out[used++] = to[simple - from];
            i += 2;
            continue;
        }
        unsigned code = unescape_hex4(p + i + 2);
        i += 6;
        if (json_is_high_surrogate(code)) {
            unsigned low = unescape_hex4(p + i + 2);
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
            i += 6;
        }
        used += utf8_encode(out + used, code);
    }
    return used;
}

size_t json_value_length(const char *text, size_t len, size_t offset)
{
    size_t depth = 0;
    bool in_string = false;
    for (size_t i = offset; i < len; i++) {
        char c = text[i];
        if (in_string && c == '\\')
            i++;
        else if (c == '"')
            in_string = !in_string;
        else if (!in_string && (c == '{' || c == '['))
            depth++;
        else if (!in_string && (c == '}' || c == ']') && --depth == 0)
            return i + 1 - offset;
    }
    return len - offset;
}
