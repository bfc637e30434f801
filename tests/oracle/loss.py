"""Bytes per logit (per token and vocabulary entry): kept after the forward pass, forward peak and backward peak.

Two vocabulary sizes; the slope of the live bytes without the embedding and head weights and their gradients.
"""
import device  # noqa: F401
import families
import measure


def slope(family, dtype, hold):
    small, large = (dict(families.SHAPES["small"], v=v) for v in (20000, 40000))
    values = []
    for shape in (small, large):
        run = measure.Run(family, shape, dtype, "eager", "0", backward=True, hold_logits=hold)
        phases = run.tracker.phases
        fixed = phases["rest"]["end"]
        start = phases["forward"]["end"]
        values.append((fixed, phases["loss"]["peak"] - fixed, phases["loss"]["end"] - fixed,
                       phases["backward_head"]["peak"] - fixed, phases["loss"]["op"], phases["backward_head"]["op"]))
    tokens = small["b"] * small["s"]
    each = [(b - a) / (tokens * 20000) for a, b in zip(values[0][1:4], values[1][1:4])]
    return [round(x, 3) for x in each], values[0][4:]


if __name__ == "__main__":
    print("family dtype caller -> forward peak, kept, backward peak (bytes per logit); operations at the peaks")
    for family, dtypes in (("llama", ("bf16", "fp32", "autocast")), ("gemma2", ("bf16", "fp32", "autocast")),
                           ("cohere", ("bf16", "fp32", "autocast")), ("gptj", ("bf16", "autocast")),
                           ("gpt_neo", ("bf16", "autocast"))):
        for dtype in dtypes:
            for hold in (False, True):
                each, operations = slope(family, dtype, hold)
                print(family, dtype, "holds outputs" if hold else "keeps only the loss", each, operations, flush=True)
