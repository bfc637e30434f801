What stands below a number is wrapped as the terminal is wide.
== args
explain gpt2
== tty
stdout 60
== env
NO_COLOR=1
== stdout ~
            docs/method.md#eq-saved; kept by
            input_layernorm: a layer norm keeps its input,
            mean and reciprocal deviation
