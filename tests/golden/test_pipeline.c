/*
 * torchtitan's pipelines against recorded ones (tests/oracle/pipeline.py): the
 * order of each rank action by action, and of whole steps of one rank the
 * fullest moment of each kind of pass. Without what no GPU is needed for, as
 * test_steps.c.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "memplan/memplan.h"

#include "fold/fold.h"
#include "fold/schedule.h"
#include "plan/report_data.h"
#include "recorded_run.h"
#include "json/json.h"

enum { TEXT_MAX = 1 << 20, WORD_MAX = 64, STEPS_MAX = 1024, CHUNKS_MAX = 4 };

static char text[TEXT_MAX];

static uint64_t number(const struct json *o, const char *key)
{
    return (uint64_t)at(o, key)->number;
}

static const struct json *read_golden(const char *name, struct arena *a,
                                      size_t *len)
{
    char path[1024];
    struct diag d;
    snprintf(path, sizeof path, "%s/../pipeline/%s", MEMPLAN_GOLDEN_DIR, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    *len = fread(text, 1, sizeof text, f);
    fclose(f);
    assert_true(*len < sizeof text);
    diag_init(&d, NULL);
    const struct json *root = json_parse(a, text, *len, &d);
    assert_non_null(root);
    return root;
}

/* ---- orders ---- */

static enum schedule schedule_named(const char *name)
{
    static const char *const names[SCHEDULE_COUNT] = {
#define X(id, text) [id] = text,
        SCHEDULE_MAP(X)
#undef X
    };
    for (unsigned i = 0; i < SCHEDULE_COUNT; i++)
        if (strcmp(names[i], name) == 0)
            return (enum schedule)i;
    fail_msg("no schedule '%s'", name);
    return SCHEDULE_COUNT;
}

struct steps {
    struct step v[STEPS_MAX];
    size_t n;
};

static bool add_step(void *ctx, const struct slot *slot)
{
    struct steps *x = ctx;
    assert_true(x->n < STEPS_MAX);
    x->v[x->n++] = (struct step){ .kind = (uint8_t)slot->kind,
                                  .chunk = (uint8_t)slot->chunk,
                                  .micro = slot->micro };
    return true;
}

static size_t list_steps(struct steps *to, const struct run *run, uint64_t rank)
{
    to->n = 0;
    if (run_splits_backward(run)) {
        assert_true(schedule_room(run, run->grad_accum) <= STEPS_MAX);
        return schedule_steps(to->v, run, rank, run->grad_accum);
    }
    uint64_t nothing[CHUNKS_MAX] = { 0 };
    assert_true(run->vpp <= CHUNKS_MAX);
    const struct stage s = { .run = run,
                             .index = rank,
                             .chunks = (uint32_t)run->vpp,
                             .chunk_kept = nothing,
                             .chunk_stash = nothing,
                             .in_flight = stage_in_flight(run, rank) };
    schedule_interleaved(&s, &run->grad_accum, add_step, to);
    return to->n;
}

/* "3I0": a stage, what, of which micro-batch. */
static bool same_rank(const struct run *run, uint64_t rank,
                      const struct json *want)
{
    static const char letter[] = { 'F', 'B', 'I', 'W' };
    static struct steps steps;
    const size_t n = list_steps(&steps, run, rank);
    const struct step *step = steps.v;
    for (size_t i = 0; i < n; i++, want = want->next) {
        char got[WORD_MAX];
        const uint64_t stage = run_folds(run) && step[i].chunk == 1
                                   ? 2 * run->pp - 1 - rank
                                   : step[i].chunk * run->pp + rank;
        snprintf(got, sizeof got, "%llu%c%u", (unsigned long long)stage,
                 letter[step[i].kind], step[i].micro);
        if (want == NULL || !str_is(want->text, got))
            return false;
    }
    return want == NULL;
}

/* Of a rank's chunks, how many backwards are split. */
static bool same_share(const struct run *run, uint64_t rank)
{
    static struct steps steps;
    unsigned split[CHUNKS_MAX] = { 0 };
    const size_t n = list_steps(&steps, run, rank);
    for (size_t i = 0; i < n; i++)
        split[steps.v[i].chunk] += steps.v[i].kind == SLOT_WEIGHT;
    for (uint64_t c = 0; c < run_chunks(run); c++)
        if (schedule_split_share(run, rank, c) * (double)run->grad_accum
            != (double)split[c])
            return false;
    return true;
}

static bool same_order(const struct json *row)
{
    struct run run = { .schedule = schedule_named(at(row, "schedule")->text.p),
                       .impl = IMPL_TORCHTITAN,
                       .engine = ENGINE_FSDP2,
                       .pp = number(row, "pp"),
                       .vpp = number(row, "vpp"),
                       .grad_accum = number(row, "micros") };
    const struct json *ranks = at(row, "ranks")->child;
    bool same = true;
    for (uint64_t r = 0; r < run.pp; r++, ranks = ranks->next) {
        if (same_rank(&run, r, ranks->child) && same_share(&run, r))
            continue;
        printf("%s of %llu micro-batches, rank %llu of %llu differs\n",
               at(row, "schedule")->text.p, (unsigned long long)run.grad_accum,
               (unsigned long long)r, (unsigned long long)run.pp);
        same = false;
    }
    return same;
}

static void test_orders(void **state)
{
    (void)state;
    struct arena a;
    size_t len;
    arena_init(&a, NULL);
    const struct json *root = read_golden("orders.json", &a, &len);
    unsigned orders = 0, wrong = 0;
    for (const struct json *row = at(root, "orders")->child; row != NULL;
         row = row->next, orders++)
        wrong += !same_order(row);
    assert_true(orders > 0);
    assert_int_equal(wrong, 0);
    arena_release(&a);
}

/* ---- memory ---- */

/* The fullest moment of each kind of pass of each chunk, and between steps. */
struct passes {
    uint64_t peak[CHUNKS_MAX][SLOT_KINDS], rest, most;
    uint64_t merged; /* the last stage's logits put together; 0: they are not */
};

static void keep(struct passes *p, unsigned chunk, enum slot_kind kind,
                 uint64_t bytes)
{
    p->peak[chunk][kind] = max_u64(p->peak[chunk][kind], bytes);
    p->most = max_u64(p->most, bytes);
}

/* Under the name of a pass, and no part of it: parameters of the next stage come
 * after it; gradients of a unit's first backward are cast to be added to, beside
 * more in flight than a later one has, which is modelled at its end alone. */
static bool is_aside(char kind, uint64_t micro, const char *op)
{
    if (kind == 'F')
        return strcmp(op, "resize empty.memory_format") == 0;
    return kind == 'B' && micro == 0 && strcmp(op, "_to_copy") == 0;
}

static void measured(struct passes *p, const struct json *run)
{
    static const char letters[] = "FBIW";
    const uint64_t pp = number(at(run, "setup"), "pp");
    *p = (struct passes){ .rest = 0 };
    for (const struct json *row = at(run, "later")->child; row != NULL;
         row = row->next) {
        const char *what = row->child->text.p;
        const struct json *peak = row->child->next->next;
        const char *kind = strchr(letters, what[0]);
        if (kind == NULL) {
            if (strcmp(what, "merge") == 0)
                p->merged = (uint64_t)peak->number;
            if (strcmp(what, "zero_grad") == 0)
                p->rest = (uint64_t)peak->next->next->number;
            continue;
        }
        const unsigned stage = (unsigned)strtoul(what + 1, NULL, 10);
        const uint64_t micro = (uint64_t)row->child->next->number;
        p->most = max_u64(p->most, (uint64_t)peak->number);
        if (strcmp(peak->next->text.p, "(start)") == 0)
            continue; /* the first stage puts its backward off as a whole */
        if (is_aside(what[0], micro, peak->next->text.p))
            continue;
        const bool whole = stage == 0 && what[0] == 'W';
        assert_true(stage / pp < CHUNKS_MAX);
        keep(p, (unsigned)(stage / pp),
             whole ? SLOT_BACKWARD : (enum slot_kind)(kind - letters),
             (uint64_t)peak->number);
    }
}

static void look(struct passes *p, const struct stage *s, uint64_t less,
                 struct instant when)
{
    struct moment m;
    const unsigned chunk = stage_chunk(s, when.position);
    const bool back = when.slot != SLOT_FORWARD;
    if (s->others != NULL
        && stage_others_kept(s, when.position, when.slot, when.later) == NEVER)
        return;
    if (s->splits && back)
        assert_true(moment_in_slot(&m, s, &when));
    else
        assert_true(moment_at(&m, s, when.phase, when.position, when.later));
    keep(p, chunk, when.slot, m.total - less);
}

static void look_at(struct passes *p, const struct stage *s, uint64_t less,
                    uint32_t position)
{
    const bool head = s->head && position + 1 == s->n;
    for (unsigned later = 0; later < 2; later++) {
        struct instant when = { head ? PHASE_LOSS : PHASE_FORWARD, position,
                                later != 0, SLOT_FORWARD };
        look(p, s, less, when);
        for (unsigned k = SLOT_BACKWARD; k < SLOT_KINDS; k++) {
            if (k != SLOT_BACKWARD && !s->splits)
                continue;
            when = (struct instant){ PHASE_BACKWARD, position, later != 0,
                                     (enum slot_kind)k };
            look(p, s, less, when);
            when.phase = PHASE_RECOMPUTE;
            if (stage_recomputed(s, position) && k != SLOT_WEIGHT)
                look(p, s, less, when);
        }
    }
}

/* torchtitan's split, of a rank's chunks. */
static bool same_layers(const struct stage *s, const struct json *run)
{
    uint64_t before = 0, chunk = 0;
    for (const struct json *n = at(run, "layers")->child; n != NULL;
         n = n->next, chunk++) {
        if (run_layers_before(s->run, s->index, chunk) != before)
            return false;
        before += (uint64_t)n->number;
    }
    return chunk == s->chunks && s->layers == before
           && run_layers_before(s->run, s->index, chunk) == before;
}

static void predicted(struct passes *p, const memplan_report *r,
                      const struct json *golden)
{
    struct arena a;
    struct memory_fold f;
    struct stage s;
    const uint64_t rank = number(golden, "rank");
    arena_init(&a, NULL);
    assert_true(memory_fold_init(&f, &r->program, &r->run, &a));
    f.scratch.bare = true;
    const unsigned modes =
        1u << WGRAD_KEEP | 1u << WGRAD_FREE | WALK_UNPACKS | WALK_CHECKPOINT
        | WALK_EARLY
        | (run_splits_backward(&r->run) ? WALK_SPLIT | WALK_REMAKES : 0);
    for (uint32_t b = 0; b < r->program.n_blocks; b++)
        walk_block(&f.walk[b], &r->program, &r->program.block[b],
                   run_regions(&r->run), modes, &f.scratch);
    uint64_t first = 0;
    for (uint64_t i = 0; i < rank; i++)
        first += r->run.stage_layers[i];
    stage_init(&s, &f, rank, first);
    assert_true(same_layers(&s, golden));
    struct moment rest;
    assert_true(moment_with(&rest, &s, PHASE_REST, 0, false, NULL, COMP_COUNT));
    const uint64_t less =
        rest.bytes[TERM_WORKSPACE] - s.sum.buffer_bytes - s.global_buffer_bytes;
    *p = (struct passes){ .rest = rest.total - less };
    struct moment clip;
    assert_true(moment_with(&clip, &s, PHASE_CLIP, 0, false, NULL, COMP_COUNT));
    if (pipe_outputs(&s) > 0)
        p->merged = clip.total - less;
    assert_true(moment_at(&s.rest, &s, PHASE_COUNT, 0, false));
    s.has_rest = true;
    for (uint32_t i = 0; i < s.n; i++)
        look_at(p, &s, less, i);
    const struct instant cast = { PHASE_ACCUMULATE, 0, false, SLOT_BACKWARD };
    if (engine_accumulates(s.run, false))
        look(p, &s, less, cast);
    arena_release(&a);
}

static const double most = 0.01, most_aside = 0.025;

static void tell(const char *name, const char *what, uint64_t got,
                 uint64_t want)
{
    printf("%s: %s %.2f MB, measured %.2f (%+.2f %%)\n", name, what,
           (double)got / 1e6, (double)want / 1e6,
           100 * ((double)got - (double)want) / (double)want);
}

static bool differs(const char *name, const char *what, uint64_t got,
                    uint64_t want)
{
    const bool bad =
        want == 0 || fabs((double)got - (double)want) > most * (double)want;
    if (bad)
        tell(name, what, got, want);
    return bad;
}

/* No less, that is: as the schedule drains gradients of a chunk that is reduced
 * already are counted on, and of buffers that wait for hidden states as many as
 * where most are in flight. */
static bool falls_short(const char *name, const char *what, uint64_t got,
                        uint64_t want)
{
    const bool bad = (double)got < (1 - most_aside) * (double)want;
    if (bad)
        tell(name, what, got, want);
    return bad;
}

static bool compare_run(const struct json *run, size_t len)
{
    static const char *const kinds[SLOT_KINDS] = { "forward", "backward",
                                                   "inputs", "weights" };
    struct passes got, want;
    char name[256], what[WORD_MAX];
    const struct json *setup = at(run, "setup");
    memplan_report *r = estimate_recorded(run, text, len);
    snprintf(name, sizeof name, "%s pp %llu m %llu %s %s rank %llu",
             at(setup, "schedule")->text.p,
             (unsigned long long)number(setup, "pp"),
             (unsigned long long)number(setup, "grad_accum"),
             at(setup, "precision")->text.p, at(setup, "recompute")->text.p,
             (unsigned long long)number(run, "rank"));
    measured(&want, run);
    predicted(&got, r, run);
    bool bad = differs(name, "peak", got.most, want.most);
    bad = differs(name, "rest", got.rest, want.rest) || bad;
    if (want.merged > 0 || got.merged > 0)
        bad = differs(name, "merged", got.merged, want.merged) || bad;
    for (unsigned c = 0; c < CHUNKS_MAX; c++)
        for (unsigned k = 0; k < SLOT_KINDS; k++) {
            if (want.peak[c][k] == 0)
                continue;
            snprintf(what, sizeof what, "chunk %u, %s", c, kinds[k]);
            bad =
                falls_short(name, what, got.peak[c][k], want.peak[c][k]) || bad;
        }
    memplan_report_free(r);
    return bad;
}

static void test_steps(void **state)
{
    (void)state;
    struct arena a;
    size_t len;
    arena_init(&a, NULL);
    const struct json *root = read_golden("steps.json", &a, &len);
    unsigned runs = 0, bad = 0;
    for (const struct json *run = at(root, "runs")->child; run != NULL;
         run = run->next, runs++)
        bad += compare_run(run, len);
    printf("%u of %u steps as measured\n", runs - bad, runs);
    assert_true(runs > 0);
    assert_int_equal(bad, 0);
    arena_release(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_orders),
                                        cmocka_unit_test(test_steps) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
