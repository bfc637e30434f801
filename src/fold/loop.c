/*
 * What a training loop's variables hold of a micro-batch whose backward is
 * done: its outputs, and through their graph what nodes have as attributes of
 * their own, which backward does not free. Until the next micro-batch's outputs
 * take the variables, or until the loop empties them, after the step.
 * [docs/method.md eq. loop]
 */
#include "fold/stage.h"

#include "base/banned.h"

static void held(struct put *p, const struct stage *s, uint64_t below)
{
    if (s->run->keep_outputs)
        PUT(p, TERM_OUTPUTS, "outputs, and what their graph holds",
            F("bytes", s->before[s->n].held - s->before[below].held));
}

bool loop_holds_over(const struct stage *s)
{
    return s->run->keep_outputs && !s->run->drop_outputs;
}

void loop_forward(struct put *p, const struct stage *s)
{
    if (loop_holds_over(s))
        held(p, s, 0);
}

void loop_backward(struct put *p, const struct stage *s, uint32_t position)
{
    held(p, s, position + 1);
}

void loop_idle(struct put *p, const struct stage *s)
{
    held(p, s, 0);
}

void loop_rest(struct put *p, const struct stage *s)
{
    loop_forward(p, s);
}
