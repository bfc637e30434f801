/*
 * Owns how Megatron-LM's flags split layers over pipeline stages and their
 * chunks. [megatron/training/arguments.py, core_v0.16]
 */
#include "spec/config_megatron.h"

#include "base/count.h"
#include "base/unit.h"

#include <inttypes.h>
#include <string.h>

#include "base/banned.h"

/* ---- layout ---- */

enum { LAYOUT_MAX = 4096 };

/* "Et*3|(tt|)*6mL", multiplied out; false when it does not read so. */
struct layout {
    struct str in;
    size_t at;
    char out[LAYOUT_MAX];
    size_t n;
};

static uint64_t layout_times(struct layout *l)
{
    uint64_t times = 0;
    if (l->at >= l->in.n || l->in.p[l->at] != '*')
        return 1;
    for (l->at++; l->at < l->in.n && l->in.p[l->at] >= '0'
                  && l->in.p[l->at] <= '9' && times < LAYOUT_MAX;
         l->at++)
        times = times * 10 + (uint64_t)(l->in.p[l->at] - '0');
    return times;
}

/* Repeats what was written from `begin` on. */
static bool layout_repeat(struct layout *l, size_t begin)
{
    const size_t one = l->n - begin;
    const uint64_t times = layout_times(l);
    if (times == 0 || one * times > LAYOUT_MAX - begin)
        return false;
    for (uint64_t i = 1; i < times; i++)
        memcpy(l->out + begin + i * one, l->out + begin, one);
    l->n = begin + one * times;
    return true;
}

static bool layout_spread(struct layout *l)
{
    size_t open = LAYOUT_MAX; /* no parenthesis */
    while (l->at < l->in.n) {
        const char byte = l->in.p[l->at++];
        size_t begin = l->n;
        if (byte == '(') {
            if (open != LAYOUT_MAX)
                return false; /* Megatron has no nested ones */
            open = l->n;
            continue;
        }
        if (byte == ')') {
            if (open == LAYOUT_MAX)
                return false;
            begin = open;
            open = LAYOUT_MAX;
        } else if (l->n < LAYOUT_MAX && memchr("EtmL|", byte, 5) != NULL) {
            l->out[l->n++] = byte;
        } else {
            return false;
        }
        if (!layout_repeat(l, begin))
            return false;
    }
    return open == LAYOUT_MAX;
}

static void set_stages(struct config *c, const char *flag,
                       const uint64_t *stage, uint64_t pp)
{
    char text[LAYOUT_MAX] = "";
    for (uint64_t i = 0; i < pp; i++)
        str_append(text, sizeof(text), i > 0 ? ",%" PRIu64 : "%" PRIu64,
                   stage[i]);
    config_set(c, config_at(c, flag), KEY_PIPELINE_LAYERS, text);
}

static void from_layout(struct config *c, uint64_t pp)
{
    static const char flag[] = "pipeline_model_parallel_layout";
    const struct json *value = config_at(c, flag);
    struct layout l = { .in = value->text };
    uint64_t stage[SETUP_LIST_MAX] = { 0 };
    uint64_t chunks = 1;
    bool good = value->kind == JSON_STRING && layout_spread(&l);
    for (size_t i = 0; good && i < l.n; i++) {
        chunks += l.out[i] == '|';
        stage[(chunks - 1) % pp] += l.out[i] == 't';
    }
    if (!good || chunks % pp != 0) {
        memplan_error *e = config_bad(c, value, MEMPLAN_E_ARG,
                                      "a layout that does not read as stages");
        diag_hint(e,
                  "such as 'Et*3|(tt|)*6mL', with a multiple of %" PRIu64
                  " chunks",
                  pp);
        return;
    }
    config_flag_set(c, flag, KEY_VPP, chunks / pp);
    set_stages(c, flag, stage, pp);
}

/* Layers over stages as Megatron's flags have them; embedding and head count as
 * a layer each where they say so. 0 layers: the script leaves them to others. */
struct ends {
    uint64_t layers, all, pp;
    uint64_t first, last; /* layers of the end stages; 0: such as the others */
    bool embedding, loss;
    uint64_t inner, rest; /* the other stages, and their layers */
};

static struct ends ends_of(struct config *c, uint64_t pp)
{
    struct ends x = {
        .layers = config_flag_count(c, "num_layers"),
        .pp = pp,
        .first = config_flag_count(c, "decoder_first_pipeline_num_layers"),
        .last = config_flag_count(c, "decoder_last_pipeline_num_layers"),
        .embedding =
            config_flag_given(c, "account_for_embedding_in_pipeline_split"),
        .loss = config_flag_given(c, "account_for_loss_in_pipeline_split"),
    };
    x.all = x.layers + x.embedding + x.loss;
    x.inner = pp - (x.first > 0) - (x.last > 0);
    x.rest = x.all > x.first + x.last ? x.all - x.first - x.last : 0;
    return x;
}

static const char *ends_flag(const struct ends *x)
{
    return x->first > 0   ? "decoder_first_pipeline_num_layers"
           : x->last > 0  ? "decoder_last_pipeline_num_layers"
           : x->embedding ? "account_for_embedding_in_pipeline_split"
                          : "account_for_loss_in_pipeline_split";
}

/* What remains, and the numbers next to the one end's that leave a multiple. */
static void hint_ends(struct config *c, const struct ends *x, memplan_error *e)
{
    const uint64_t end = x->first + x->last;
    const bool one = (x->first > 0) != (x->last > 0);
    char other[CONFIG_PATH_MAX];
    if (end == 0) {
        diag_hint(e,
                  "%" PRIu64 " with what counts as one do not divide by "
                  "%" PRIu64 ": leave it out, or add "
                  "--decoder-first-pipeline-num-layers",
                  x->all, x->pp);
        return;
    }
    diag_hint(e, "%" PRIu64 " layer%s remain%s for %" PRIu64 " stage%s",
              x->rest, unit_s((double)x->rest), x->rest == 1 ? "s" : "",
              x->inner, unit_s((double)x->inner));
    if (!one || x->inner == 0)
        return;
    uint64_t below = x->all % x->inner > 0 ? x->all % x->inner : x->inner;
    if (below >= x->all)
        return;
    const uint64_t top = min_u64(end, x->all - 1);
    if (top > below)
        below += (top - below) / x->inner * x->inner;
    str_append(e->hint, sizeof(e->hint), ": write %" PRIu64, below);
    if (below < end && below + x->inner < x->all)
        str_append(e->hint, sizeof(e->hint), " or %" PRIu64, below + x->inner);
    str_append(e->hint, sizeof(e->hint), ", or add %s",
               config_shown(c,
                            x->first > 0 ? "decoder_last_pipeline_num_layers"
                                         : "decoder_first_pipeline_num_layers",
                            other));
}

/* Stages with fewer layers at the ends: said so, or because the embedding and
 * the head count as layers there. */
static void from_ends(struct config *c, const struct ends *x)
{
    uint64_t stage[SETUP_LIST_MAX] = { 0 };
    char shown[CONFIG_PATH_MAX], of[CONFIG_PATH_MAX];
    const char *flag = ends_flag(x);
    if ((x->first | x->last) == 0 && !x->embedding && !x->loss)
        return;
    const uint64_t each = x->inner > 0 ? x->rest / x->inner : 0;
    if (x->layers == 0) {
        config_note(c, "%s without %s: stages are even, or --pipeline-layers",
                    config_shown(c, flag, shown),
                    config_shown(c, "num_layers", of));
        return;
    }
    if (each == 0 || each * x->inner != x->rest) {
        hint_ends(c, x,
                  config_bad(c, config_at(c, flag), MEMPLAN_E_CONFLICT,
                             "%" PRIu64 " layer%s do%s not split so over "
                             "%" PRIu64 " stage%s",
                             x->layers, unit_s((double)x->layers),
                             x->layers == 1 ? "es" : "", x->pp,
                             unit_s((double)x->pp)));
        return;
    }
    for (uint64_t i = 0; i < x->pp; i++)
        stage[i] = each;
    stage[0] = x->first > 0 ? x->first : each - x->embedding;
    stage[x->pp - 1] = x->last > 0 ? x->last : each - x->loss;
    set_stages(c, flag, stage, x->pp);
}

/* Layers of a virtual stage: of the file's layers, or of the model's, which
 * have to be a multiple (arguments.py, validate_args). */
static void virtual_stages(struct config *c, const struct ends *x)
{
    static const char flag[] = "num_layers_per_virtual_pipeline_stage";
    const uint64_t each = config_flag_count(c, flag);
    char shown[CONFIG_PATH_MAX];
    if (each == 0)
        return;
    if (x->layers == 0)
        c->s->chunk_layers = (uint32_t)each;
    else if (x->all % (x->pp * each) == 0)
        config_flag_set(c, flag, KEY_VPP, x->all / x->pp / each);
    else
        diag_hint(config_bad(c, config_at(c, flag), MEMPLAN_E_CONFLICT,
                             "%s %" PRIu64 " with %" PRIu64
                             " layer%s over %" PRIu64 " stage%s",
                             config_shown(c, flag, shown), each, x->all,
                             unit_s((double)x->all), x->pp,
                             unit_s((double)x->pp)),
                  "write a divisor of the layers of a stage");
}

/* Chunks of a stage: the flag has equal ones alone (transformer_config.py,
 * __post_init__). */
static void check_chunks(struct config *c, const struct ends *x,
                         uint64_t chunks)
{
    static const char flag[] = "num_virtual_stages_per_pipeline_rank";
    const uint64_t each = x->inner > 0 ? x->rest / x->inner : 0;
    char shown[CONFIG_PATH_MAX];
    if (x->layers == 0 || each * x->inner != x->rest
        || (each % chunks == 0 && x->first % chunks == 0
            && x->last % chunks == 0))
        return;
    diag_hint(config_bad(c, config_at(c, flag), MEMPLAN_E_CONFLICT,
                         "%s %" PRIu64 " with %" PRIu64 " layer%s over %" PRIu64
                         " stage%s",
                         config_shown(c, flag, shown), chunks, x->all,
                         unit_s((double)x->all), x->pp, unit_s((double)x->pp)),
              "write a divisor of the layers of each stage, or "
              "--pipeline-model-parallel-layout");
}

void config_megatron_stages(struct config *c)
{
    const uint64_t pp = config_flag_number(c, "pipeline_model_parallel_size");
    if (pp <= 1 || pp > SETUP_LIST_MAX)
        return;
    if (config_flag_given(c, "pipeline_model_parallel_layout")) {
        from_layout(c, pp);
        return;
    }
    const uint64_t chunks =
        config_flag_count(c, "num_virtual_stages_per_pipeline_rank");
    const struct ends ends = ends_of(c, pp);
    if (chunks > 0) {
        config_flag_set(c, "num_virtual_stages_per_pipeline_rank", KEY_VPP,
                        chunks);
        check_chunks(c, &ends, chunks);
    } else {
        virtual_stages(c, &ends);
    }
    from_ends(c, &ends);
}
