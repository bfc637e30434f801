/*
 * Functions nobody calls here: each has a replacement that knows how much room
 * there is, or that says when a number is none. A use is a compile error whose
 * text names the replacement. To be included last, after every system header,
 * by each .c file.
 */
#ifndef MEMPLAN_BASE_BANNED_H
#define MEMPLAN_BASE_BANNED_H

#undef strcpy
#define strcpy(to, from) banned_strcpy_write_str_format_or_arena_copy
#undef strcat
#define strcat(to, from) banned_strcat_write_str_append
#undef sprintf
#define sprintf(...) banned_sprintf_write_str_format
#undef vsprintf
#define vsprintf(...) banned_vsprintf_write_str_vformat
#undef strtok
#define strtok(text, seps) banned_strtok_write_str_cut
#undef atoi
#define atoi(text) banned_atoi_write_unit_parse_count
#undef atol
#define atol(text) banned_atol_write_unit_parse_count
#undef gets
#define gets(buf) banned_gets_write_fgets

#endif
