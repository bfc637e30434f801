== args
models mystery.json
== file mystery.json
{
  "model_type": "mystery", "hidden_size": 64, "intermediate_size": 128,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
  "vocab_size": 256, "hidden_act": "silu", "rms_norm_eps": 1e-5,
  "rope_theta": 10000.0, "max_position_embeddings": 512
}
== stderr ~
they are as much those of mistral, qwen2, phi3, olmo2
== exit
3
