/*
 * Owns the dialect of torchrun's command line: how many GPUs, on how many
 * nodes. What its program trains is in other files. [torch/distributed/run.py]
 */
#include "spec/config_emit.h"
#include "spec/config_hf.h"

#include "base/unit.h"

#include <inttypes.h>

#include "base/banned.h"

static const struct config_row rows[] = {
    LATER("nnodes"),        LATER("nproc_per_node"),  QUIET("rdzv_backend"),
    QUIET("rdzv_endpoint"), QUIET("rdzv_id"),         QUIET("rdzv_conf"),
    QUIET("node_rank"),     QUIET("master_addr"),     QUIET("master_port"),
    QUIET("max_restarts"),  QUIET("job.config_file"),
};

/* The script's name may stand behind torchrun's last flag. */
static bool first_number(const struct json *value, uint64_t *out)
{
    struct str rest;
    return value->kind == JSON_STRING
           && unit_parse_count(str_cut(value->text, ' ', &rest), out) == UNIT_OK
           && *out < UINT32_MAX;
}

static void set_count(struct config *c, const struct json *where,
                      enum setup_key key, uint64_t n)
{
    char text[UNIT_TEXT_MAX];
    str_format(text, sizeof(text), "%" PRIu64, n);
    config_set(c, where, key, text);
}

/* --nproc_per_node may be a word (gpu, auto), --nnodes a range. */
void config_world(struct config *c)
{
    const struct json *each = config_at(c, "nproc_per_node");
    const struct json *nodes = config_at(c, "nnodes");
    uint64_t per_node = 0, n = 1;
    if (each == NULL || !first_number(each, &per_node))
        return;
    set_count(c, each, KEY_GPUS_PER_NODE, per_node);
    if (nodes == NULL || first_number(nodes, &n))
        set_count(c, each, KEY_GPUS, n * per_node);
    else
        config_note(c, "--nnodes is no number there: give --gpus");
}

/* ---- and back ---- */

/* Programs that take the rest from a file, as --emit writes it. */
static void apart(struct emit *e, const struct run *r)
{
    const bool titan = r->framework == FW_TORCHTITAN;
    if (run_spreads(r))
        emit_refuse(e, KEY_SCHEDULE,
                    "one process needs no launcher: python "
                    "train.py, with device_map=\"auto\"");
    const uint64_t each = emit_node(e, r);
    str_append(e->head, sizeof(e->head),
               "torchrun --nnodes %" PRIu64 " --nproc_per_node %" PRIu64,
               r->gpus / each, each);
    if (r->gpus > each)
        str_append(e->head, sizeof(e->head), "%s",
                   " --rdzv_backend c10d --rdzv_endpoint $HEAD_NODE:29500");
    str_append(e->head, sizeof(e->head), " \\\n    %s",
               titan ? "-m torchtitan.train --job.config_file torchtitan.toml"
                     : "train.py training_args.json");
}

const struct config_table config_torchrun = {
    rows,        sizeof(rows) / sizeof(rows[0]),
    false,       true,
    NULL,        config_world,
    apart,       NULL,
    BESIDE_REST,
};
