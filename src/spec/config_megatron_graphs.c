/*
 * Owns how Megatron's flags say that layers run in CUDA graphs, of all its
 * versions, and the way back: --cuda-graph-modules was --cuda-graph-scope, an
 * implementation a flag of its own.
 */
#include "spec/config_megatron.h"

#include "spec/config_emit.h"

#include <inttypes.h>

#include "base/banned.h"

static const char impl_flag[] = "cuda_graph_impl";
static const char warmup_flag[] = "cuda_graph_warmup_steps";

/* Whose graphs a file asks for; NULL: none. */
static const struct json *implementation(const struct config *c,
                                         struct str *name)
{
    static const struct {
        const char *flag, *name;
    } old[] = { { "enable_cuda_graph", "local" },
                { "external_cuda_graph", "transformer_engine" } };
    const struct json *v = config_at(c, impl_flag);
    if (v != NULL && v->kind == JSON_STRING && !str_is(v->text, "none")) {
        *name = v->text;
        return v;
    }
    for (size_t i = 0; i < sizeof old / sizeof old[0] && v == NULL; i++)
        if (config_is_true(c, old[i].flag)) {
            *name = str_of(old[i].name);
            return config_at(c, old[i].flag);
        }
    return NULL;
}

/* Parts of layers; all of them is no list. What was a part once, and means
 * something else now, is told. */
static void read_scope(struct config *c, const char *flag, struct str *impl)
{
    char all[CONFIG_LIST_MAX], list[CONFIG_LIST_MAX] = "";
    config_modules(c, flag, all);
    for (struct str rest = str_of(all); rest.n > 0;) {
        const struct str word = str_cut(rest, ',', &rest);
        if (str_is(word, "full_iteration"))
            *impl = word;
        else if (!str_is(word, "full")
                 && !str_is(word, "full_iteration_inference"))
            str_append(list, CONFIG_LIST_MAX, "%s%.*s", list[0] ? "," : "",
                       (int)word.n, word.p);
    }
    if (list[0] != '\0')
        config_set(c, config_at(c, flag), KEY_CUDA_GRAPH_SCOPE, list);
}

void config_megatron_graphs(struct config *c)
{
    char name[CONFIG_LIST_MAX];
    struct str impl = { 0 };
    const struct json *where = implementation(c, &impl);
    if (where == NULL)
        return;
    config_set(c, where, KEY_CUDA_GRAPH, "true");
    read_scope(c,
               config_flag_given(c, "cuda_graph_modules") ? "cuda_graph_modules"
                                                          : "cuda_graph_scope",
               &impl);
    str_format(name, sizeof name, "%.*s", (int)impl.n, impl.p);
    config_set(c, where, KEY_CUDA_GRAPH_IMPL, name);
    if (config_at(c, warmup_flag) != NULL)
        config_set_json(c, config_at(c, warmup_flag),
                        KEY_CUDA_GRAPH_WARMUP_STEPS);
}

/* ---- and back ---- */

void config_megatron_emit_graphs(struct emit *e, const struct run *r)
{
    if (!r->cuda_graph)
        return;
    emit_word(e, impl_flag, "transformer_engine");
    if (r->cuda_graph_scope != 0)
        config_emit_modules(e, r, "cuda_graph_modules", KEY_CUDA_GRAPH_SCOPE);
    if (r->given[KEY_CUDA_GRAPH_WARMUP_STEPS])
        emit_raw(e, warmup_flag, "%" PRIu64, r->cuda_graph_warmup_steps);
}
