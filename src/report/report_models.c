/*
 * Owns how one model is shown, its shapes and its parameters by block and
 * tensor, and the list of the catalogue's. Refuses to count: the numbers are
 * the program's and the fold's.
 */
#include "report/report_rows.h"

#include "report/report_view.h"

#include "base/unit.h"

#include <string.h>

#include "base/banned.h"

/* ---- shapes ---- */

static const struct row shape_rows[] = {
    ROW(struct spec, layers, "num_hidden_layers", ""),
    ROW(struct spec, hidden, "hidden_size", ""),
    ROW_OR_NONE(struct spec, heads, "num_attention_heads", ""),
    ROW_OR_NONE(struct spec, kv_heads, "num_key_value_heads", ""),
    ROW_OR_NONE(struct spec, head_dim, "head_dim", ""),
    ROW_OR_NONE(struct spec, ffn, "intermediate_size", ""),
    ROW_OR_NONE(struct spec, ssm.inner, "ssm_inner_size", ""),
    ROW_OR_NONE(struct spec, ssm.heads, "ssm_num_heads", ""),
    ROW_OR_NONE(struct spec, ssm.head_dim, "ssm_head_dim", ""),
    ROW_OR_NONE(struct spec, ssm.state, "ssm_state_size", ""),
    ROW_OR_NONE(struct spec, ssm.groups, "ssm_num_groups", ""),
    ROW_OR_NONE(struct spec, ssm.conv, "ssm_conv_kernel", ""),
    ROW_OR_NONE(struct spec, ssm.rank, "ssm_time_step_rank", ""),
    ROW_OR_NONE(struct spec, vocab, "vocab_size", ""),
    ROW_OR_NONE(struct spec, max_positions, "max_position_embeddings", ""),
    ROW_OR_NONE(struct spec, sliding_window, "sliding_window", ""),
    ROW_OR_NONE(struct spec, experts, "num_experts", ""),
    ROW_OR_NONE(struct spec, experts_per_token, "num_experts_per_tok", ""),
    ROW_OR_NONE(struct spec, expert_ffn, "moe_intermediate_size", ""),
    ROW_OR_NONE(struct spec, shared_ffn, "shared_expert_intermediate_size", ""),
    ROW(struct spec, tied, "tie_word_embeddings", ""),
};

static const struct row count_rows[] = {
    ROW(struct params_result, trainable, "trainable_parameters", ""),
    ROW(struct params_result, frozen, "frozen_parameters", ""),
    ROW(struct params_result, buffers, "buffers", ""),
    ROW(struct params_result, active, "active_parameters", ""),
    ROW(struct params_result, active_without_input,
        "active_without_input_embedding", ""),
    ROW(struct params_result, active_without_words,
        "active_without_embedding_and_head", ""),
    ROW(struct params_result, embedding, "embedding_parameters", ""),
};

/* ---- blocks ---- */

static bool is_weight(const struct tensor *t)
{
    return t->role == ROLE_PARAM && !t->tied;
}

/* How often a block is in the model. */
static uint64_t block_count(const struct program *p, uint32_t index)
{
    uint64_t n = 0;
    if (p->block[index].kind != BLOCK_LAYER)
        return 1;
    for (uint64_t i = 0; i < p->layers; i++)
        n += p->layer_block[i] == index;
    return n;
}

static uint64_t block_parameters(const struct program *p, uint32_t index)
{
    const struct block *b = &p->block[index];
    uint64_t sum = 0;
    for (uint32_t i = 0; i < b->tensor_count; i++) {
        const struct tensor *t = &p->tensor[b->tensor_first + i];
        if (is_weight(t))
            sum += t->full_elems;
    }
    return sum;
}

/* "conv1d.bias" */
enum { TENSOR_WORDS_MAX = 96 };

static const char *tensor_words(char buf[TENSOR_WORDS_MAX],
                                const struct tensor *t)
{
    str_format(buf, TENSOR_WORDS_MAX, "%s%s%s", t->of ? t->of : "",
               t->of ? "." : "", t->name);
    return buf;
}

/* "4096 x 11008" */
static void shape_words(char buf[TENSOR_WORDS_MAX], const struct tensor *t)
{
    buf[0] = '\0';
    for (uint8_t i = 0; i < t->rank; i++)
        str_append(buf, TENSOR_WORDS_MAX, "%s%llu", i > 0 ? " x " : "",
                   (unsigned long long)t->dim[i].n);
}

/* ---- people ---- */

static void text_cells(struct table *t, const char *what, const char *value)
{
    table_row(t, 0, PAINT_NONE);
    table_cell(t, what);
    table_cell(t, value);
    table_end_row(t);
}

/* What comes in, and what each layer of a list makes of it. */
static void fill_pictures(struct table *t, const struct spec *m)
{
    char what[96], value[96], n[UNIT_TEXT_MAX];
    str_format(value, sizeof value, "%llu x %llu x %llu",
               (unsigned long long)m->channels,
               (unsigned long long)m->resnet.height,
               (unsigned long long)m->resnet.width_pixels);
    text_cells(t, "input", value);
    for (uint64_t i = 0; i < m->n_conv; i++) {
        const struct conv_layer *c = &m->conv[i];
        str_format(what, sizeof what, "%llu %s%s%.40s",
                   (unsigned long long)i + 1, conv_kind_name(c->kind),
                   c->name[0] != '\0' ? " " : "", c->name);
        str_format(value, sizeof value, "%llu",
                   (unsigned long long)c->gives.channels);
        if (!c->gives.flat)
            str_append(value, sizeof value, " x %llu x %llu",
                       (unsigned long long)c->gives.side[0],
                       (unsigned long long)c->gives.side[1]);
        text_cells(t, what, value);
    }
    text_cells(t, "num_classes", unit_format_grouped(n, (double)m->labels, 0));
}

static void fill_shapes(struct table *t, const void *ctx)
{
    const struct memplan_model *m = ctx;
    if (spec_is_convnet(&m->spec)) {
        fill_pictures(t, &m->spec);
        return;
    }
    for (size_t i = 0; i < ROW_COUNT(shape_rows); i++) {
        struct value v = row_value(&shape_rows[i], &m->spec);
        char buf[VALUE_TEXT_MAX];
        if (v.kind == VALUE_NONE)
            continue;
        table_row(t, 0, PAINT_NONE);
        table_cell(t, shape_rows[i].key);
        table_cell(t, value_text(buf, v));
        table_end_row(t);
    }
}

static void count_cells(struct table *t, uint64_t n, uint64_t total)
{
    char buf[UNIT_TEXT_MAX];
    table_cell(t, unit_format_grouped(buf, (double)n, 0));
    table_cell(t,
               total > 0 ? text_percent(buf, (double)n / (double)total) : "");
}

static void fill_groups(struct table *t, const void *ctx)
{
    const struct params_result *p = ctx;
    for (unsigned g = 0; g < PG_COUNT; g++) {
        if (p->group[g] == 0)
            continue;
        table_row(t, 0, PAINT_NONE);
        table_cell(t, param_group_name((enum param_group)g));
        count_cells(t, p->group[g], p->total);
        table_end_row(t);
    }
    table_row(t, 0, PAINT_STRONG);
    table_cell(t, "all");
    count_cells(t, p->total, p->total);
    table_end_row(t);
}

/* Vendors publish one or another of these [method.md eq. params]. */
static const struct row use_rows[] = {
    ROW(struct params_result, trainable, "trainable", ""),
    ROW(struct params_result, frozen, "frozen", ""),
    ROW(struct params_result, buffers, "buffers, no parameters", ""),
    ROW(struct params_result, active, "active per token", ""),
    ROW(struct params_result, active_without_input,
        "  without the input embedding, as OpenAI counts", ""),
    ROW(struct params_result, active_without_words,
        "  without embedding and head, as GLM counts", ""),
};

static void fill_uses(struct table *t, const void *ctx)
{
    for (size_t i = 0; i < ROW_COUNT(use_rows); i++) {
        const struct value v = row_value(&use_rows[i], ctx);
        char buf[UNIT_TEXT_MAX];
        table_row(t, 0, PAINT_NONE);
        table_cell(t, use_rows[i].key);
        table_cell(t, unit_format_grouped(buf, (double)v.u64, 0));
        table_end_row(t);
    }
}

static void fill_blocks(struct table *t, const void *ctx)
{
    const struct program *p = ctx;
    char buf[TENSOR_WORDS_MAX];
    for (uint32_t b = 0; b < p->n_blocks; b++) {
        const struct block *block = &p->block[b];
        table_row(t, 0, PAINT_STRONG);
        str_format(buf, sizeof(buf), "%llu x %s",
                   (unsigned long long)block_count(p, b), block->name);
        table_cell(t, buf);
        table_cell(t, "");
        count_cells(t, block_parameters(p, b), 0);
        table_end_row(t);
        for (uint32_t i = 0; i < block->tensor_count; i++) {
            const struct tensor *w = &p->tensor[block->tensor_first + i];
            if (w->role != ROLE_PARAM)
                continue;
            table_row(t, 1, PAINT_NONE);
            tensor_words(buf, w);
            if (!w->trainable || w->dropped)
                str_append(buf, sizeof(buf), " (frozen)");
            table_cell(t, buf);
            shape_words(buf, w);
            table_cell(t, buf);
            if (w->tied)
                table_cell(t, "tied");
            else
                count_cells(t, w->full_elems, 0);
            table_end_row(t);
        }
    }
}

static void write_people(struct out *o, const struct memplan_model *m)
{
    static const struct column two[] = {
        { "", COLUMN_LEFT },
        { "", COLUMN_RIGHT },
    };
    static const struct column three[] = {
        { "", COLUMN_LEFT },
        { "parameters", COLUMN_RIGHT },
        { "", COLUMN_RIGHT },
    };
    static const struct column uses[] = {
        { "", COLUMN_LEFT },
        { "parameters", COLUMN_RIGHT },
    };
    static const struct column blocks[] = {
        { "", COLUMN_LEFT },
        { "shape", COLUMN_LEFT },
        { "parameters", COLUMN_RIGHT },
    };
    char text[TEXT_BLOCK_MAX], n[UNIT_TEXT_MAX], exact[UNIT_TEXT_MAX];
    str_format(text, sizeof(text), "%s: %s parameter%s (%s), %s",
               m->spec.name[0] != '\0' ? m->spec.name : "model",
               unit_format_count(n, (double)m->params.total),
               unit_s((double)m->params.total),
               unit_format_grouped(exact, (double)m->params.total, 0),
               m->spec.model_type);
    out_title(o, text);
    if (m->spec.source[0] != '\0') {
        str_format(text, sizeof(text), "source: %s", m->spec.source);
        out_paragraph(o, PAINT_NONE, text);
    }
    char part[PART_TEXT_MAX];
    if (spec_says_part(&m->spec, part))
        out_paragraph(o, PAINT_NONE, part);
    out_heading(o, "shapes");
    table_write(o, two, 2, fill_shapes, m);
    out_heading(o, "parameters by kind");
    table_write(o, three, 3, fill_groups, &m->params);
    out_heading(o, "parameters by use");
    table_write(o, uses, 2, fill_uses, &m->params);
    out_heading(o, "parameters by block");
    table_write(o, blocks, 3, fill_blocks, &m->program);
}

/* ---- JSON ---- */

static void visit_tensor(struct visitor *v, const struct tensor *t)
{
    char name[TENSOR_WORDS_MAX];
    v->begin(v, NULL, false);
    visit_text(v, "name", tensor_words(name, t));
    v->begin(v, "shape", true);
    for (uint8_t i = 0; i < t->rank; i++)
        visit_u64(v, NULL, "", t->dim[i].n);
    v->end(v, true);
    visit_u64(v, "parameters", "", t->tied ? 0 : t->full_elems);
    visit_text(v, "kind", param_group_name(t->group));
    visit_bool(v, "tied", t->tied);
    visit_bool(v, "trainable", t->trainable && !t->dropped);
    v->end(v, false);
}

static void visit_block(struct visitor *v, const struct program *p,
                        uint32_t index)
{
    const struct block *b = &p->block[index];
    v->begin(v, NULL, false);
    visit_text(v, "name", b->name);
    visit_u64(v, "count", "", block_count(p, index));
    visit_u64(v, "parameters", "", block_parameters(p, index));
    v->begin(v, "tensors", true);
    for (uint32_t i = 0; i < b->tensor_count; i++) {
        const struct tensor *t = &p->tensor[b->tensor_first + i];
        if (t->role == ROLE_PARAM)
            visit_tensor(v, t);
    }
    v->end(v, true);
    v->end(v, false);
}

static const struct row head_rows[] = {
    ROW_OR_NONE(struct spec, name, "name", ""),
    ROW_OR_NONE(struct spec, model_type, "model_type", ""),
};

static const struct row source_rows[] = {
    ROW_OR_NONE(struct spec, source, "source", ""),
};

/* What the list and the single model have in common. */
static void visit_head(struct visitor *v, const struct spec *spec,
                       uint64_t parameters)
{
    visit_rows(v, head_rows, ROW_COUNT(head_rows), spec);
    visit_u64(v, "parameters", "", parameters);
    visit_rows(v, source_rows, ROW_COUNT(source_rows), spec);
}

/* "shared experts" becomes "shared_experts". */
static void visit_group(struct visitor *v, const struct params_result *p,
                        enum param_group group)
{
    char key[32];
    str_format(key, sizeof(key), "%s", param_group_name(group));
    for (char *c = key; *c != '\0'; c++) {
        if (*c == ' ')
            *c = '_';
    }
    visit_u64(v, key, "", p->group[group]);
}

static void write_json(struct out *o, const struct memplan_model *m)
{
    struct json_visitor json;
    json_visitor_init(&json, o);
    struct visitor *v = &json.base;
    v->begin(v, NULL, false);
    visit_head(v, &m->spec, m->params.total);
    visit_text(v, "part",
               m->spec.parts != NULL || m->spec.text_of != NULL
                   ? part_name(m->spec.part)
                   : NULL);
    visit_rows(v, count_rows, ROW_COUNT(count_rows), &m->params);
    visit_rows(v, shape_rows, ROW_COUNT(shape_rows), &m->spec);
    v->begin(v, "groups", false);
    for (unsigned g = 0; g < PG_COUNT; g++)
        visit_group(v, &m->params, (enum param_group)g);
    v->end(v, false);
    v->begin(v, "blocks", true);
    for (uint32_t b = 0; b < m->program.n_blocks; b++)
        visit_block(v, &m->program, b);
    v->end(v, true);
    v->end(v, false);
    json_end(&json.w);
}

/* ---- CSV: a line a tensor ---- */

static void csv_tensor(struct out *o, const struct program *p, uint32_t index,
                       const struct tensor *t)
{
    char buf[TENSOR_WORDS_MAX];
    out_csv(o, true, p->block[index].name);
    str_format(buf, sizeof(buf), "%llu",
               (unsigned long long)block_count(p, index));
    out_csv(o, false, buf);
    out_csv(o, false, tensor_words(buf, t));
    shape_words(buf, t);
    out_csv(o, false, buf);
    str_format(buf, sizeof(buf), "%llu",
               (unsigned long long)(t->tied ? 0 : t->full_elems));
    out_csv(o, false, buf);
    out_csv_end(o);
}

static void write_csv(struct out *o, const struct program *p)
{
    static const char *const names[] = { "block", "count", "tensor", "shape",
                                         "parameters" };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        out_csv(o, i == 0, names[i]);
    out_csv_end(o);
    for (uint32_t b = 0; b < p->n_blocks; b++) {
        const struct block *block = &p->block[b];
        for (uint32_t i = 0; i < block->tensor_count; i++) {
            const struct tensor *t = &p->tensor[block->tensor_first + i];
            if (t->role == ROLE_PARAM)
                csv_tensor(o, p, b, t);
        }
    }
}

memplan_status memplan_model_write(const memplan_model *model,
                                   const memplan_style *style,
                                   memplan_write_fn *write, void *ctx,
                                   memplan_errors *errs)
{
    struct out o;
    out_init(&o, style, write, ctx);
    switch (o.format) {
    case MEMPLAN_FORMAT_TABLE:
    case MEMPLAN_FORMAT_MARKDOWN: write_people(&o, model); break;
    case MEMPLAN_FORMAT_JSON: write_json(&o, model); break;
    case MEMPLAN_FORMAT_CSV: write_csv(&o, &model->program); break;
    case MEMPLAN_FORMAT_SVG: out_no_picture(&o); break;
    }
    return out_close(&o, errs);
}

/* ---- the catalogue ---- */

struct listed {
    struct spec spec; /* name, model_type and source only */
    uint64_t parameters;
};

struct list {
    struct listed *item;
    size_t n;
};

static const char *keep(struct arena *a, const char *text)
{
    return arena_copy(a, text, strlen(text));
}

/* Reads every model before a byte is written: a list is whole or not there. */
static memplan_status read_list(struct list *list, struct arena *a,
                                const memplan_allocator *allocator,
                                memplan_errors *errs)
{
    size_t n = 0;
    while (memplan_builtin_name(n))
        n++;
    list->n = n;
    list->item = ARENA_NEW(a, struct listed, n);
    for (size_t i = 0; i < n && !a->failed; i++) {
        struct listed *item = &list->item[i];
        memplan_model *model = NULL;
        memplan_status status = memplan_model_builtin(
            &model, memplan_builtin_name(i), allocator, errs);
        if (status != MEMPLAN_OK)
            return status;
        item->spec.name = keep(a, model->spec.name);
        item->spec.model_type = keep(a, model->spec.model_type);
        item->spec.source = keep(a, model->spec.source);
        item->parameters = model->params.total;
        memplan_model_free(model);
    }
    if (!a->failed)
        return MEMPLAN_OK;
    struct diag d;
    diag_init(&d, errs);
    return diag_nomem(&d);
}

static void fill_list(struct table *t, const void *ctx)
{
    const struct list *list = ctx;
    for (size_t i = 0; i < list->n; i++) {
        const struct listed *item = &list->item[i];
        char buf[UNIT_TEXT_MAX];
        table_row(t, 0, PAINT_NONE);
        table_cell(t, item->spec.name);
        table_cell(t, item->spec.model_type);
        table_cell(t, unit_format_count(buf, (double)item->parameters));
        table_cell(t, item->spec.source);
        table_end_row(t);
    }
}

static void list_json(struct out *o, const struct list *list)
{
    struct json_visitor json;
    json_visitor_init(&json, o);
    struct visitor *v = &json.base;
    v->begin(v, NULL, true);
    for (size_t i = 0; i < list->n; i++) {
        v->begin(v, NULL, false);
        visit_head(v, &list->item[i].spec, list->item[i].parameters);
        v->end(v, false);
    }
    v->end(v, true);
    json_end(&json.w);
}

static void list_csv(struct out *o, const struct list *list)
{
    out_text(o, "name,model_type,parameters,source");
    out_csv_end(o);
    for (size_t i = 0; i < list->n; i++) {
        const struct listed *item = &list->item[i];
        char buf[UNIT_TEXT_MAX];
        out_csv(o, true, item->spec.name);
        out_csv(o, false, item->spec.model_type);
        str_format(buf, sizeof(buf), "%llu",
                   (unsigned long long)item->parameters);
        out_csv(o, false, buf);
        out_csv(o, false, item->spec.source);
        out_csv_end(o);
    }
}

static void write_list(struct out *o, const struct list *list)
{
    static const struct column columns[] = {
        { "name", COLUMN_LEFT },
        { "type", COLUMN_LEFT },
        { "parameters", COLUMN_RIGHT },
        { "source", COLUMN_LEFT },
    };
    switch (o->format) {
    case MEMPLAN_FORMAT_TABLE:
    case MEMPLAN_FORMAT_MARKDOWN:
        table_write(o, columns, sizeof(columns) / sizeof(columns[0]), fill_list,
                    list);
        break;
    case MEMPLAN_FORMAT_JSON: list_json(o, list); break;
    case MEMPLAN_FORMAT_CSV: list_csv(o, list); break;
    case MEMPLAN_FORMAT_SVG: out_no_picture(o); break;
    }
}

memplan_status memplan_models_write(const memplan_style *style,
                                    memplan_write_fn *write, void *ctx,
                                    const memplan_allocator *allocator,
                                    memplan_errors *errs)
{
    struct out o;
    struct arena a;
    struct list list = { NULL, 0 };
    arena_init(&a, allocator);
    memplan_status status = read_list(&list, &a, allocator, errs);
    if (status == MEMPLAN_OK) {
        out_init(&o, style, write, ctx);
        write_list(&o, &list);
        status = out_close(&o, errs);
    }
    arena_release(&a);
    return status;
}
