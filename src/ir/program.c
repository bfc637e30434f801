/*
 * What several folds look for in a program. Owns no rule of any of them.
 */
#include "ir/program.h"

#include <math.h>
#include <string.h>

#include "base/banned.h"

double program_reached(double places, double share, uint64_t k)
{
    const double open = fmax(1, places * share);
    return open * (1 - pow(1 - 1 / open, (double)k));
}

const struct op *program_words_product(const struct program *p)
{
    const struct block *head = &p->block[p->head];
    for (uint32_t k = 0; k < head->op_count; k++) {
        const struct op *op = &p->op[head->op_first + k];
        if (op->kind == OP_LINEAR && p->tensor[op->in[1]].words)
            return op;
    }
    return NULL;
}

void program_set_layers(struct program *p, uint64_t first, uint64_t end,
                        uint32_t block)
{
    memset(&p->layer_block[first], (int)block, (size_t)(end - first));
    if (block < p->n_blocks)
        p->block[block].layers += end - first;
}
