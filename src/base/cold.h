/*
 * Hints to compilers. COLD: a function that is seldom called, such as one that
 * reports an error. It is put aside, as is what leads to nothing but it: code
 * that an estimate runs is several times what a CPU's first cache holds. INLINE:
 * one whose arguments, constants mostly, need not be in memory where it is part
 * of its caller. APART: one of few cases, which is not to make its caller save
 * registers for the many.
 */
#ifndef MEMPLAN_BASE_COLD_H
#define MEMPLAN_BASE_COLD_H

#if defined(__GNUC__)
#define COLD __attribute__((cold))
#define INLINE __attribute__((always_inline)) static inline
#define APART __attribute__((noinline)) static
#else
#define COLD
#define INLINE static inline
#define APART static
#endif

#endif
