"""What BERT's layers keep for backward under PyTorch and transformers of 2022,
whose softmax keeps its input and whose model adds a mask of ones.

    pip install torch==1.10.2 transformers==4.16.2   (Python 3.9)
    python tests/oracle/old.py

prints bytes kept, in a layer, in the whole, parameters excluded. On the CPU,
in fp32, without dropout (whose mask is no byte an element there). A layer's
800,648 are memplan's 800,768 (tests/cli/softmax_input.t): 8 are a divisor in
host memory, and four columns of statistics take 512 bytes each, not 480.
"""
import torch
import transformers
from transformers import BertConfig, BertForMaskedLM

B, S, LAYERS = 3, 40, 3


def kept(layers):
    config = BertConfig(
        hidden_size=96, num_attention_heads=6, intermediate_size=208,
        vocab_size=1234, num_hidden_layers=layers, max_position_embeddings=64,
        type_vocab_size=2, hidden_act="gelu", hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0)
    model = BertForMaskedLM(config).train()
    own = {p.storage().data_ptr() for p in model.parameters()}
    own |= {p.storage().data_ptr() for p in model.buffers()}
    seen = {}

    def pack(t):
        storage = t.storage()
        if storage.data_ptr() not in own:
            seen[storage.data_ptr()] = (storage.size() * t.element_size(), t)
        return t

    ids = torch.randint(5, 1234, (B, S))
    own.add(ids.storage().data_ptr())
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        model(input_ids=ids, labels=ids)
    return sum(n for n, _ in seen.values())


if __name__ == "__main__":
    print("torch", torch.__version__, "transformers", transformers.__version__)
    print("a layer", kept(LAYERS) - kept(LAYERS - 1), "all", kept(LAYERS))
