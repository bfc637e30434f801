Layers that are given by name are what another name is given for: a framework
would not change them.
== args
gpt-oss-20b --implementation torchtitan
== stderr
memplan: --implementation: implementation torchtitan has no experts yet
  hint: Hugging Face's layers may have it: use --implementation hf
== exit
3
