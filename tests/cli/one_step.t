One step of several tokens, one number of GPUs that was looked at.
== args
compute gpt2 --tokens 1 --days 1
== stdout ~
124M parameters on 1 token take
1,024 tokens; 1 step
of 1 number looked at
