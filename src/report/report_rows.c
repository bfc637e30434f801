/*
 * Owns the order and the names of everything in memplan.estimate/1 and
 * memplan.compute/1. Refuses to know whether it becomes JSON or CSV.
 */
#include "report/report_rows.h"
#include "plan/scaling.h"

#include <math.h>

#include "report/report_view.h"

#include <string.h>

#include "base/banned.h"

#define VISIT(v, rows, base) visit_rows(v, rows, ROW_COUNT(rows), base)

/* ---- model, setup, gpu ---- */

static const struct row name_rows[] = {
    ROW_OR_NONE(struct spec, name, "name", ""),
    ROW_OR_NONE(struct spec, model_type, "model_type", ""),
};

static const struct row params_rows[] = {
    ROW(struct params_result, total, "parameters", ""),
    ROW(struct params_result, active, "active_parameters", ""),
    ROW(struct params_result, embedding, "embedding_parameters", ""),
    ROW(struct params_result, trainable, "trainable_parameters", ""),
};

static void visit_model(const struct memplan_report *r, struct visitor *v)
{
    if (!r->has_model) {
        visit_text(v, "model", NULL);
        return;
    }
    if (!v->begin(v, "model", false))
        return;
    VISIT(v, name_rows, &r->spec);
    VISIT(v, params_rows, &r->params);
    v->end(v, false);
}

/* An array of the words or numbers of a comma list. */
static void visit_list(struct visitor *v, const struct memplan_field *field,
                       const char *text)
{
    struct str rest = str_of(text);
    if (rest.n == 0) {
        visit_text(v, field->key, NULL);
        return;
    }
    if (!v->begin(v, field->key, true))
        return;
    while (rest.n > 0) {
        char word[64];
        uint64_t n = 0;
        struct str item = str_cut(rest, ',', &rest);
        str_format(word, sizeof(word), "%.*s", (int)item.n, item.p);
        for (size_t i = 0; i < item.n; i++)
            n = n * 10 + (uint64_t)(item.p[i] - '0');
        if (field->choices[0] != '\0')
            visit_text(v, NULL, word);
        else
            visit_u64(v, NULL, "", n);
    }
    v->end(v, true);
}

static void visit_setup_key(const struct setup *s, enum setup_key key,
                            struct visitor *v)
{
    enum { LIST_TEXT_MAX = 6 * SETUP_LIST_MAX + 1 }; /* of LENGTHS_MAX too */
    const struct memplan_field *field = setup_field(key);
    char buf[LIST_TEXT_MAX];
    if (!s->set[key]) {
        visit_text(v, field->key, NULL);
        return;
    }
    switch (field->type) {
    case MEMPLAN_TYPE_COUNT: visit_u64(v, field->key, "", s->v[key].n); return;
    case MEMPLAN_TYPE_BYTES: visit_u64(v, field->key, "B", s->v[key].n); return;
    case MEMPLAN_TYPE_REAL: visit_real(v, field->key, "", s->v[key].x); return;
    case MEMPLAN_TYPE_BOOL: visit_bool(v, field->key, s->v[key].n != 0); return;
    case MEMPLAN_TYPE_LIST:
        if (key == KEY_IMAGE) { /* 3x32x32 */
            visit_text(v, field->key,
                       setup_value_text(s, key, buf, sizeof(buf)));
            return;
        }
        visit_list(v, field, setup_value_text(s, key, buf, sizeof(buf)));
        return;
    case MEMPLAN_TYPE_CHOICE:
    case MEMPLAN_TYPE_NAME:
        visit_text(v, field->key, setup_value_text(s, key, buf, sizeof(buf)));
        return;
    }
}

/* What other keys ask for is none of the setup's: beside `days` and no `gpus`
 * as many as it takes, beside `budget` the tokens that it pays for. Told to be
 * given, they would contradict it. */
static bool is_asked_for(const struct run *run, enum setup_key key)
{
    return !run->given[key]
           && ((key == KEY_GPUS && run->given[KEY_DAYS])
               || (key == KEY_TOKENS && run->given[KEY_BUDGET]));
}

static void visit_setup(const struct memplan_report *r, struct visitor *v)
{
    if (!v->begin(v, "setup", false))
        return;
    for (size_t key = 0; setup_field(key); key++) {
        if (is_asked_for(&r->run, (enum setup_key)key))
            visit_text(v, setup_field(key)->key, NULL);
        else
            visit_setup_key(&r->run.setup, (enum setup_key)key, v);
    }
    v->end(v, false);
}

static const struct row gpu_rows[] = {
    ROW_OR_NONE(struct run, gpu.name, "name", ""),
    ROW_OR_NONE(struct run, capacity_bytes, "memory_bytes", "B"),
    ROW_OR_NONE(struct run, peak_flop_s, "peak_flops", "FLOP/s"),
    ROW(struct run, price_usd_h, "price_usd_h", "USD"),
};

static void visit_gpu(const struct memplan_report *r, struct visitor *v)
{
    if (!v->begin(v, "gpu", false))
        return;
    VISIT(v, gpu_rows, &r->run);
    v->end(v, false);
}

/* ---- memory ---- */

static const struct row memory_rows[] = {
    ROW(struct memory_result, model_states, "model_states", "B"),
    ROW(struct memory_result, steady, "steady_allocated", "B"),
    ROW(struct memory_result, peak, "peak_allocated", "B"),
    ROW(struct memory_result, reserved, "peak_reserved", "B"),
    ROW(struct memory_result, outside, "outside", "B"),
    ROW(struct memory_result, paged_here, "paged", "B"),
    ROW(struct memory_result, paged_on_host, "paged_on_host", "B"),
    ROW(struct memory_result, device_total, "device_total", "B"),
    ROW(struct memory_result, capacity, "capacity", "B"),
    ROW(struct memory_result, headroom, "headroom", "B"),
    ROW(struct memory_result, fits, "fits", ""),
};

static const struct row outside_rows[] = {
    ROW(struct outside_row, key, "key", ""),
    ROW(struct outside_row, label, "label", ""),
    ROW(struct outside_row, bytes, "bytes", "B"),
    ROW(struct outside_row, count, "count", ""),
    ROW_OR_NONE(struct outside_row, source, "source", ""),
    ROW(struct outside_row, unverified, "unverified", ""),
};

static const struct row stage_rows[] = {
    ROW(struct stage_result, index, "stage", ""),
    ROW(struct stage_result, layers, "layers", ""),
    ROW(struct stage_result, first_layer, "first_layer", ""),
    ROW(struct stage_result, low_layers, "first_chunk_layers", ""),
    ROW(struct stage_result, high_layer, "second_chunk_layer", ""),
    ROW(struct stage_result, has_embedding, "has_embedding", ""),
    ROW(struct stage_result, has_head, "has_head", ""),
    ROW(struct stage_result, parameters, "parameter_count", ""),
    ROW(struct stage_result, in_flight, "in_flight", ""),
    ROW(struct stage_result, waiting, "weight_gradients_waiting", ""),
    ROW(struct stage_result, model_states, "model_states", "B"),
    ROW(struct stage_result, rest.total, "steady_allocated", "B"),
    ROW(struct stage_result, peak.total, "peak_allocated", "B"),
    ROW(struct stage_result, reserved, "peak_reserved", "B"),
    ROW(struct stage_result, paged_here, "paged", "B"),
};

static const struct row allocator_rows[] = {
    ROW(struct simulated, done, "simulated", ""),
    ROW(struct simulated, allocated, "allocated", "B"),
    ROW(struct simulated, reserved, "reserved", "B"),
    ROW(struct simulated, retries, "retries", ""),
    ROW(struct simulated, steps, "steps", ""),
};

/* Null where nothing is there. */
static const struct row offload_rows[] = {
    ROW_OR_NONE(struct offload_result, host, "host_per_gpu", "B"),
    ROW_OR_NONE(struct offload_result, sum[OFFLOAD_ON_PINNED],
                "host_pinned_per_gpu", "B"),
    ROW_OR_NONE(struct offload_result, host_node, "host_per_node", "B"),
    ROW_OR_NONE(struct offload_result, pinned_node, "host_pinned_per_node",
                "B"),
    ROW_OR_NONE(struct offload_result, sum[OFFLOAD_ON_DISK], "disk_per_gpu",
                "B"),
    ROW_OR_NONE(struct offload_result, disk_node, "disk_per_node", "B"),
};

/* Of one GPU in one step. */
static const struct row moved_rows[] = {
    ROW_OR_NONE(struct offload_result, sum[OFFLOAD_TO_HOST], "to_host_bytes",
                "B"),
    ROW_OR_NONE(struct offload_result, sum[OFFLOAD_FROM_HOST],
                "from_host_bytes", "B"),
    ROW_OR_NONE(struct offload_result, sum[OFFLOAD_TO_DISK], "to_disk_bytes",
                "B"),
    ROW_OR_NONE(struct offload_result, sum[OFFLOAD_FROM_DISK],
                "from_disk_bytes", "B"),
};

static const struct row pool_rows[] = {
    ROW(struct sim_pool_result, segments, "segments", ""),
    ROW(struct sim_pool_result, reserved, "reserved", "B"),
    ROW(struct sim_pool_result, allocated, "allocated", "B"),
};

bool peak_is_in_layer(const struct memplan_report *r,
                      const struct stage_result *s)
{
    for (uint32_t i = 0; s->peak_block && i < r->program.n_blocks; i++) {
        const struct block *b = &r->program.block[i];
        if (b->kind == BLOCK_LAYER && strcmp(b->name, s->peak_block) == 0)
            return true;
    }
    return false;
}

static const char *or_null(const char *text)
{
    return text && text[0] != '\0' ? text : NULL;
}

static void visit_components(const struct stage_result *s, struct visitor *v)
{
    for (unsigned c = 0; c < COMP_COUNT; c++)
        visit_u64(v, component_key((enum component)c), "B", s->component[c]);
}

static void visit_peak(const struct memplan_report *r,
                       const struct stage_result *s, struct visitor *v)
{
    visit_text(v, "peak_phase", phase_name(s->peak.phase));
    visit_text(v, "peak_block", or_null(s->peak_block));
    if (peak_is_in_layer(r, s))
        visit_u64(v, "peak_layer", "", s->peak_layer);
    else
        visit_text(v, "peak_layer", NULL);
    visit_text(v, "peak_operation", or_null(s->peak.op));
}

static void visit_stages(const struct memplan_report *r, struct visitor *v)
{
    if (!v->begin(v, "stages", true))
        return;
    for (uint64_t i = 0; i < r->memory.n_stages; i++) {
        const struct stage_result *s = &r->memory.stage[i];
        if (!v->begin(v, NULL, false))
            continue;
        VISIT(v, stage_rows, s);
        visit_components(s, v);
        visit_peak(r, s, v);
        v->end(v, false);
    }
    v->end(v, true);
}

static void visit_terms(const struct stage_result *s, struct visitor *v)
{
    if (!v->begin(v, "terms", false))
        return;
    for (unsigned t = 0; t < TERM_COUNT; t++)
        visit_u64(v, term_info((enum term)t)->key, "B", s->peak.bytes[t]);
    v->end(v, false);
}

static void visit_outside(const struct memory_result *m, struct visitor *v)
{
    if (!v->begin(v, "outside_rows", true))
        return;
    for (size_t i = 0; i < m->n_outside; i++) {
        if (!v->begin(v, NULL, false))
            continue;
        VISIT(v, outside_rows, &m->outside_row[i]);
        v->end(v, false);
    }
    v->end(v, true);
}

static void visit_offload(const struct offload_result *o, struct visitor *v)
{
    if (!v->begin(v, "offload_rows", true))
        return;
    for (size_t i = 0; i < o->n; i++) {
        if (!v->begin(v, NULL, false))
            continue;
        visit_text(v, "place", offload_kind_key(o->row[i].kind));
        visit_text(v, "label", o->row[i].label);
        visit_u64(v, "bytes", "B", o->row[i].bytes);
        v->end(v, false);
    }
    v->end(v, true);
}

/* Of the stage that reserves most; null where nothing was simulated. */
static void visit_allocator(const struct memory_result *m, struct visitor *v)
{
    const struct simulated *sim = &m->stage[m->reserved_stage].sim;
    if (!sim->done) {
        visit_text(v, "allocator", NULL);
        return;
    }
    if (!v->begin(v, "allocator", false))
        return;
    VISIT(v, allocator_rows, sim);
    visit_u64(v, "fragmentation", "B", sim->reserved - sim->allocated);
    visit_u64(v, "stage", "", m->reserved_stage);
    if (v->begin(v, "pools", true)) {
        for (unsigned i = 0; i < SIM_POOLS; i++) {
            if (sim->pool[i].segments == 0 || !v->begin(v, NULL, false))
                continue;
            visit_text(v, "pool", sim_pool_key((enum sim_pool)i));
            VISIT(v, pool_rows, &sim->pool[i]);
            v->end(v, false);
        }
        v->end(v, true);
    }
    v->end(v, false);
}

/* Of CUDA graphs: what their pool reserves, of the stage that reserves most, and
 * which of the run's steps the peak is of. */
static void visit_graphs(const struct memplan_report *r, struct visitor *v)
{
    static const char *const step[GRAPH_STEPS] = {
        [STEP_EAGER] = "before graphs",
        [STEP_CAPTURE] = "capture",
        [STEP_REPLAY] = "graphs",
    };
    if (!r->run.cuda_graph) {
        visit_text(v, "cuda_graph_pool", NULL);
        visit_text(v, "peak_step", NULL);
        return;
    }
    visit_u64(v, "cuda_graph_pool", "B",
              r->memory.stage[r->memory.reserved_stage].graph_pool);
    visit_text(v, "peak_step", step[r->run.graph_step]);
}

static void visit_memory(const struct memplan_report *r, struct visitor *v)
{
    const struct stage_result *worst = &r->memory.stage[r->memory.worst];
    if (!v->begin(v, "memory", false))
        return;
    visit_components(worst, v);
    VISIT(v, memory_rows, &r->memory);
    VISIT(v, offload_rows, &r->memory.offload);
    visit_peak(r, worst, v);
    visit_u64(v, "worst_stage", "", r->memory.worst);
    visit_graphs(r, v);
    visit_terms(worst, v);
    visit_outside(&r->memory, v);
    visit_offload(&r->memory.offload, v);
    visit_allocator(&r->memory, v);
    visit_stages(r, v);
    v->end(v, false);
}

/* ---- compute ---- */

static const struct row tokens_rows[] = {
    ROW(struct compute_result, tokens, "tokens", ""),
    ROW(struct compute_result, flops_6nd, "flops_6nd", "FLOP"),
};

/* Absent where no model was counted. */
static const struct row exact_rows[] = {
    ROW(struct compute_result, model_flops, "model_flops", "FLOP"),
    ROW(struct compute_result, model_flops_full, "model_flops_full", "FLOP"),
    ROW(struct compute_result, hardware_flops, "hardware_flops", "FLOP"),
    ROW(struct compute_result, flops_per_token, "flops_per_token", "FLOP"),
    ROW(struct compute_result, flops_per_token_full, "flops_per_token_full",
        "FLOP"),
};

static const struct row speed_rows[] = {
    ROW_OR_NONE(struct compute_result, step_time_s, "step_time_s", "s"),
    ROW_OR_NONE(struct compute_result, tokens_per_s, "tokens_per_s", "1/s"),
    ROW_OR_NONE(struct compute_result, tokens_per_step, "tokens_per_step", ""),
    ROW_OR_NONE(struct compute_result, steps, "steps", ""),
    ROW_OR_NONE(struct compute_result, mfu, "mfu", ""),
    ROW_OR_NONE(struct compute_result, mfu_full, "mfu_full", ""),
    ROW_OR_NONE(struct compute_result, hfu, "hfu", ""),
    ROW(struct compute_result, mfu_given, "mfu_given", ""),
    ROW(struct compute_result, mfu_predicted, "mfu_predicted", ""),
};

static const struct row cost_rows[] = {
    ROW(struct compute_result, gpu_hours, "gpu_hours", "h"),
    ROW(struct compute_result, gpus, "gpus", ""),
    ROW(struct compute_result, days, "days", "d"),
    ROW(struct compute_result, cost_usd, "cost_usd", "USD"),
    ROW_OR_NONE(struct compute_result, energy_kwh, "energy_kwh", "kWh"),
};

static const struct row price_rows[] = {
    ROW(struct compute_result, availability, "availability", ""),
    ROW(struct compute_result, price_usd_h, "price_usd_h", "USD"),
    ROW_OR_NONE(struct compute_result, price_source, "price_source", ""),
};

static const struct row sent_rows[] = {
    ROW(struct compute_result, communication_bytes, "communication_bytes", "B"),
};

static const struct row exposed_rows[] = {
    ROW(struct time_result, exposed_s, "exposed_communication_s", "s"),
};

static const struct row bubble_rows[] = {
    ROW(struct compute_result, bubble_fraction, "bubble_fraction", ""),
};

static const struct row deadline_rows[] = {
    ROW(struct compute_result, deadline_days, "deadline_days", "d"),
    ROW(struct compute_result, gpus_needed, "gpus_needed", ""),
    ROW(struct compute_result, gpus_in_nodes, "gpus_in_nodes", ""),
};

static const struct row search_rows[] = {
    ROW(struct deadline_result, met, "deadline_met", ""),
    ROW(struct deadline_result, gpus, "deadline_gpus", ""),
    ROW(struct deadline_result, days, "deadline_gpus_days", "d"),
    ROW(struct deadline_result, mfu, "deadline_gpus_mfu", ""),
    ROW(struct deadline_result, too_large, "deadline_too_large", ""),
};

/* How many GPUs meet a deadline, by GPU-hours and by the step that they
 * have. */
static void visit_deadline(const struct memplan_report *r, struct visitor *v)
{
    VISIT(v, deadline_rows, r->compute.has_deadline ? &r->compute : NULL);
    VISIT(v, search_rows, r->deadline.searched ? &r->deadline : NULL);
}

static const struct row law_rows[] = {
    ROW(struct law_result, params, "parameters_optimal", ""),
    ROW(struct law_result, tokens, "tokens_optimal", ""),
    ROW(struct law_result, tokens_per_param, "tokens_per_parameter", ""),
};

static const struct row law_loss_rows[] = {
    ROW_OR_NONE(struct law_result, loss, "loss", ""),
};

static const struct row range_rows[] = {
    ROW(struct law_result, params_low, "parameters_low", ""),
    ROW(struct law_result, params_high, "parameters_high", ""),
    ROW(struct law_result, tokens_low, "tokens_low", ""),
    ROW(struct law_result, tokens_high, "tokens_high", ""),
    ROW_OR_NONE(struct law_result, range_note, "range", ""),
};

static const struct row comm_rows[] = {
    ROW(struct comm_row, key, "key", ""),
    ROW(struct comm_row, collective, "collective", ""),
    ROW(struct comm_row, group, "group", ""),
    ROW(struct comm_row, bytes, "bytes", "B"),
};

static const struct row optimal_rows[] = {
    ROW_OR_NONE(struct law_answers, tokens_optimal, "tokens_optimal", ""),
    ROW_OR_NONE(struct law_answers, tokens_per_param_optimal,
                "tokens_per_parameter", ""),
    ROW_OR_NONE(struct law_answers, budget_flops, "budget_flops", "FLOP"),
};

static const struct row budget_rows[] = {
    ROW(struct law_result, params, "budget_parameters", ""),
    ROW(struct law_result, tokens, "budget_tokens", ""),
    ROW_OR_NONE(struct law_result, source, "source", ""),
};

/* Tokens for this many parameters, and the best use of this many FLOPs. */
static void visit_chinchilla(const struct law_answers *c, struct visitor *v)
{
    bool known = c->chosen_law < c->n_laws;
    const struct law_result *law = known ? &c->law[c->chosen_law] : NULL;
    if (c->n_laws == 0) {
        visit_text(v, "chinchilla", NULL);
        return;
    }
    if (!v->begin(v, "chinchilla", false))
        return;
    visit_text(v, "law", law ? scaling_name(law->law) : NULL);
    VISIT(v, optimal_rows, c);
    VISIT(v, budget_rows, law);
    v->end(v, false);
}

static void visit_laws(const struct law_answers *c, struct visitor *v)
{
    if (!v->begin(v, "laws", true))
        return;
    for (size_t i = 0; i < c->n_laws; i++) {
        const struct law_result *law = &c->law[i];
        if (!v->begin(v, NULL, false))
            continue;
        visit_text(v, "law", scaling_name(law->law));
        VISIT(v, law_rows, law);
        VISIT(v, law_loss_rows, law);
        VISIT(v, range_rows, law->has_range ? law : NULL);
        visit_text(v, "source", or_null(law->source));
        v->end(v, false);
    }
    v->end(v, true);
}

static const struct row same_rows[] = {
    ROW_OR_NONE(struct law_answers, loss, "loss", ""),
    ROW_OR_NONE(struct law_answers, same_loss_flops, "least_flops", "FLOP"),
    ROW_OR_NONE(struct law_answers, extra_training, "extra_training", ""),
};

static const struct row served_rows[] = {
    ROW(struct law_result, params, "served_parameters", ""),
    ROW(struct law_result, tokens, "served_tokens", ""),
};

static const struct row served_flop_rows[] = {
    ROW(struct law_answers, served_flops, "served_flops", "FLOP"),
    ROW(struct law_answers, served_flops_here, "served_flops_here", "FLOP"),
};

/* What the same loss costs at the least. */
static void visit_loss(const struct law_answers *c, struct visitor *v)
{
    const bool known = isfinite(c->loss) && c->loss > 0;
    const bool served = known && c->served_flops > 0;
    if (!v->begin(v, "same_loss", false))
        return;
    VISIT(v, same_rows, known ? c : NULL);
    VISIT(v, law_rows, known ? &c->same_loss : NULL);
    VISIT(v, served_rows, served ? &c->served : NULL);
    VISIT(v, served_flop_rows, served ? c : NULL);
    v->end(v, false);
}

static void visit_comm(const struct comm_result *c, struct visitor *v)
{
    if (!v->begin(v, "communication", true))
        return;
    for (size_t i = 0; i < c->n; i++) {
        if (!v->begin(v, NULL, false))
            continue;
        VISIT(v, comm_rows, &c->row[i]);
        v->end(v, false);
    }
    v->end(v, true);
}

/* Where a step's time goes. */
static void visit_time(const struct memplan_report *r, struct visitor *v)
{
    if (!v->begin(v, "step_time", true))
        return;
    for (int i = 0; r->compute.mfu_predicted && i < TIME_PARTS; i++) {
        if (r->time.part[i] <= 0 || !v->begin(v, NULL, false))
            continue;
        visit_text(v, "key", time_part_key((enum time_part)i));
        visit_real(v, "seconds", "s", r->time.part[i]);
        v->end(v, false);
    }
    v->end(v, true);
}

static void visit_compute(const struct memplan_report *r,
                          const struct law_answers *laws, struct visitor *v)
{
    const struct compute_result *c = &r->compute;
    if (!v->begin(v, "compute", false))
        return;
    VISIT(v, tokens_rows, c);
    VISIT(v, exact_rows, c->has_exact ? c : NULL);
    VISIT(v, speed_rows, c);
    VISIT(v, cost_rows, c);
    VISIT(v, price_rows, c);
    VISIT(v, sent_rows, c);
    VISIT(v, moved_rows, &r->memory.offload);
    VISIT(v, exposed_rows, c->mfu_predicted ? &r->time : NULL);
    VISIT(v, bubble_rows, c);
    visit_comm(&r->comm, v);
    visit_time(r, v);
    visit_chinchilla(laws, v);
    visit_laws(laws, v);
    visit_loss(laws, v);
    visit_deadline(r, v);
    v->end(v, false);
}

/* ---- the rest ---- */

static void visit_assumptions(const struct memplan_report *r, struct visitor *v)
{
    if (!v->begin(v, "assumptions", true))
        return;
    for (size_t i = 0; i < r->run.n_assumptions; i++) {
        char text[ASSUMPTION_TEXT];
        visit_text(v, NULL, assumption_text(&r->run.assumption[i], text));
    }
    v->end(v, true);
}

static void visit_changes(const struct changes *changes, struct visitor *v)
{
    if (!v->begin(v, "changes", true))
        return;
    for (size_t i = 0; i < changes->n; i++) {
        const struct change *c = &changes->row[i];
        if (!v->begin(v, NULL, false))
            continue;
        visit_text(v, "options", c->text);
        visit_u64(v, "peak_allocated", "B", c->peak);
        visit_u64(v, "device_total", "B", c->device_total);
        visit_bool(v, "fits", c->fits);
        if (c->host_node != 0)
            visit_u64(v, "host_per_node", "B", c->host_node);
        v->end(v, false);
    }
    v->end(v, true);
}

static void visit_estimate(const struct memplan_report *r,
                           const struct answers *answers, struct visitor *v)
{
    visit_text(v, "schema", "memplan.estimate/1");
    visit_model(r, v);
    visit_setup(r, v);
    visit_gpu(r, v);
    visit_memory(r, v);
    visit_compute(r, &answers->laws, v);
    visit_changes(&answers->changes, v);
    visit_assumptions(r, v);
}

static const struct row size_rows[] = {
    ROW(struct compute_result, params, "parameters", ""),
};

static const struct row fit_rows[] = {
    ROW(struct memory_result, fits, "fits", ""),
};

/* What there is of a model alone. */
static void visit_step(const struct memplan_report *r, struct visitor *v)
{
    static const struct comm_result none = { .n = 0 };
    const struct compute_result *c = &r->compute;
    VISIT(v, fit_rows, r->has_model ? &r->memory : NULL);
    VISIT(v, sent_rows, c);
    VISIT(v, moved_rows, r->has_model ? &r->memory.offload : NULL);
    VISIT(v, exposed_rows, c->mfu_predicted ? &r->time : NULL);
    VISIT(v, bubble_rows, c);
    visit_comm(r->has_model ? &r->comm : &none, v);
    visit_time(r, v);
}

static void visit_compute_only(const struct memplan_report *r,
                               const struct law_answers *laws,
                               struct visitor *v)
{
    const struct compute_result *c = &r->compute;
    visit_text(v, "schema", "memplan.compute/1");
    VISIT(v, size_rows, c);
    VISIT(v, tokens_rows, c);
    VISIT(v, exact_rows, c->has_exact ? c : NULL);
    VISIT(v, speed_rows, c);
    VISIT(v, cost_rows, c);
    visit_deadline(r, v);
    VISIT(v, price_rows, c);
    visit_step(r, v);
    visit_chinchilla(laws, v);
    visit_laws(laws, v);
    visit_loss(laws, v);
    visit_model(r, v);
    visit_setup(r, v);
    visit_gpu(r, v);
    visit_assumptions(r, v);
}

void report_visit(const struct memplan_report *r, const struct answers *answers,
                  struct visitor *v)
{
    if (!v->begin(v, NULL, false))
        return;
    switch (r->kind) {
    case REPORT_NONE: break;
    case REPORT_ESTIMATE: visit_estimate(r, answers, v); break;
    case REPORT_COMPUTE: visit_compute_only(r, &answers->laws, v); break;
    }
    v->end(v, false);
}
