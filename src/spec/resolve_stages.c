/*
 * Owns how layers are split over pipeline stages and their chunks. Every stage,
 * and every chunk of the interleaved schedule, has a layer at least, but for the
 * ends of Megatron's where told so; what does not come out even is longer first.
 */
#include "spec/resolve.h"

#include "base/count.h"
#include "base/unit.h"

#include <inttypes.h>
#include <string.h>

#include "base/banned.h"

/* Megatron's layout may leave the embedding or the head and its loss alone on a
 * stage, such as 'Et*3|(tt|)*29m|L' (pipeline_parallel_layer_layout.py). */
static bool check_bare(const struct run *r, struct diag *d)
{
    const bool may = r->engine == ENGINE_MEGATRON && run_chunks(r) == 1;
    for (uint64_t i = 0; i < r->pp; i++) {
        if (r->setup.pipeline_layers[i] > 0
            || (may && (i == 0 || i + 1 == r->pp)))
            continue;
        memplan_error *e =
            setup_error(d, MEMPLAN_E_CONFLICT, KEY_PIPELINE_LAYERS,
                        "stage %" PRIu64 " of pipeline_layers has no layer", i);
        diag_hint(e, may ? "of Megatron's stages the first and the last may "
                           "have none: give it 1 or more"
                         : "give it 1 or more");
        return false;
    }
    return true;
}

static bool check_stage_list(const struct run *r, const struct spec *spec,
                             struct diag *d)
{
    const struct setup *s = &r->setup;
    if (s->pipeline_count != r->pp) {
        memplan_error *e = setup_error(
            d, MEMPLAN_E_CONFLICT, KEY_PIPELINE_LAYERS,
            "pipeline_layers has %zu entr%s for pp %" PRIu64, s->pipeline_count,
            s->pipeline_count == 1 ? "y" : "ies", r->pp);
        const size_t n = s->pipeline_count;
        if (r->pp == 1)
            diag_hint(e, "leave it out");
        else
            diag_hint(e, "give %" PRIu64 " numbers that add up to %" PRIu64,
                      r->pp, spec_blocks(spec));
        if (n > 0
            && (!r->given[KEY_GPUS] || r->gpus % (r->tp * r->cp * n) == 0))
            str_append(e->hint, sizeof(e->hint), ", or use --pp %zu", n);
        return false;
    }
    uint64_t sum = 0;
    for (size_t i = 0; i < s->pipeline_count; i++)
        sum += s->pipeline_layers[i];
    if (sum == spec_blocks(spec))
        return check_bare(r, d);
    memplan_error *e =
        setup_error(d, MEMPLAN_E_CONFLICT, KEY_PIPELINE_LAYERS,
                    "pipeline_layers adds up to %" PRIu64
                    ", the model has %" PRIu64 " layer%s",
                    sum, spec_blocks(spec), unit_s((double)spec_blocks(spec)));
    diag_hint(e, "make the numbers add up to %" PRIu64, spec_blocks(spec));
    return false;
}

static bool check_chunks(const struct run *r, uint64_t layers, struct diag *d)
{
    if (r->vpp <= layers / r->pp)
        return true;
    memplan_error *e = setup_error(
        d, MEMPLAN_E_CONFLICT, KEY_VPP,
        "pp %" PRIu64 " x vpp %" PRIu64 " chunks for %" PRIu64 " layer%s",
        r->pp, r->vpp, layers, unit_s((double)layers));
    diag_hint(e, "use --vpp %" PRIu64 " or less", layers / r->pp);
    return false;
}

static bool check_stages(const struct run *r, const struct spec *spec,
                         struct diag *d)
{
    const uint64_t layers = spec_blocks(spec);
    if (layers >= r->pp)
        return check_chunks(r, layers, d);
    memplan_error *e =
        setup_error(d, MEMPLAN_E_CONFLICT, KEY_PP,
                    "pp %" PRIu64 " needs %" PRIu64 " layers, the model has "
                    "%" PRIu64,
                    r->pp, r->pp, layers);
    resolve_hint_divisors(e, r->given[KEY_GPUS]
                                 ? gcd_u64(layers, r->gpus / (r->tp * r->cp))
                                 : layers);
    return false;
}

/* torchtitan counts embedding and head as a layer each, so that the ends of its
 * stages, which go round the ranks, or down and up again, have one layer less
 * (distributed/pipeline_parallel.py, generate_llm_fqn_per_model_part). */
static uint64_t titan_layers(const struct run *r, uint64_t layers,
                             uint64_t rank)
{
    const uint64_t stages = r->pp * run_chunks(r), all = layers + 2;
    uint64_t n = 0;
    for (uint64_t c = 0; c < run_chunks(r); c++) {
        const uint64_t i =
            run_folds(r) && c == 1 ? stages - 1 - rank : c * r->pp + rank;
        const uint64_t end = i == 0 || i + 1 == stages ? 1 : 0;
        n += all / stages + (i < all % stages ? 1 : 0) - end;
    }
    return n;
}

static bool splits_like_titan(const struct run *r, uint64_t layers)
{
    /* else some stage had no layer */
    return run_torch_pipelines(r) && (layers + 2) / (r->pp * run_chunks(r)) > 1;
}

/* Megatron's flags have equal chunks alone (transformer_config.py,
 * __post_init__); a layout has any (pipeline_parallel_layer_layout.py). */
static void say_chunks(struct run *r)
{
    for (uint64_t i = 0; i < r->pp; i++)
        if (r->stage_layers[i] % r->vpp != 0 && resolve_is_megatron(r)) {
            resolve_note(r, KEY_VPP,
                         "chunks of a stage differ, the first ones a layer "
                         "longer: Megatron has them so by "
                         "--pipeline-model-parallel-layout alone (--vpp)");
            return;
        }
}

void resolve_stages(struct run *r, const struct spec *spec, struct diag *d)
{
    bool listed = r->given[KEY_PIPELINE_LAYERS];
    const uint64_t layers = spec_blocks(spec);
    const bool ends = !listed && splits_like_titan(r, layers);
    bool good = listed ? check_stage_list(r, spec, d)
                       : ends || check_stages(r, spec, d);
    for (uint64_t i = 0; i < r->pp; i++) {
        const uint64_t longer = layers % r->pp;
        uint64_t n = listed && i < r->setup.pipeline_count
                         ? r->setup.pipeline_layers[i]
                     : ends ? titan_layers(r, layers, i)
                            : layers / r->pp + (i < longer ? 1 : 0);
        r->stage_layers[i] = (uint16_t)min_u64(n, UINT16_MAX);
    }
    if (good && r->vpp > 1)
        say_chunks(r);
    if (!good || listed)
        return;
    memcpy(r->setup.pipeline_layers, r->stage_layers,
           r->pp * sizeof(r->stage_layers[0]));
    r->setup.pipeline_count = (size_t)r->pp;
    resolve_count(r, KEY_PIPELINE_LAYERS, r->pp);
    if (ends)
        resolve_assume(r, KEY_PIPELINE_LAYERS,
                       "embedding and head count as a layer each of the "
                       "stages, as in torchtitan (--pipeline-layers)");
    else if (layers % r->pp != 0)
        resolve_assume(r, KEY_PIPELINE_LAYERS,
                       "%" PRIu64 " layers over %" PRIu64
                       " stages, the first ones a layer longer "
                       "(--pipeline-layers)",
                       layers, r->pp);
}
