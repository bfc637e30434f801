#!/usr/bin/env python3
"""Scoring rows from the golden values of Megatron-LM's functional tests.

Each test case of tests/functional_tests/test_cases is a list of Megatron's
options and, for each kind of machine, a file of what runs logged, with bytes
allocated among it. One line a figure, for `memplan score`:

    python3 tests/oracle/goldens.py PATH/Megatron-LM > rows.jsonl

PATH is a clone with its history: figures are of the options at the commit
that first had them, not of today's. Options are translated by the tables below; one that is in none of them ends up in the row's `x-needs`,
and so is seen. `--known` leaves such rows out, `--without FILE` those that a
file of rows has already (by source), `--cases WORD` takes only cases so named.

Of release runs, whose number of GPUs is not public, RELEASED has those of
which bytes between steps tell it; their rows have the seconds of a step too.

Not taken: cases that do not train (inference, conversion), those of models
that memplan has no words for, and runs resumed from a checkpoint. Of the rows
that it gives, tests/measured has one machine for each model and layout that
was not there yet. Needs PyYAML.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys

import yaml

CASES = "tests/functional_tests/test_cases"
RECIPES = "tests/test_utils/recipes"
GPUS = {"dgx_a100": "a100-80gb", "dgx_h100": "h100-80gb", "dgx_gb200": "gb200"}

# Cases that train no model that memplan knows, or do not train.
SKIP = re.compile(
    r"inference|grpo|rl_|mamba|hybrid|llava|mimo|nemo|retro|modelopt|distill|"
    r"flextron|serve|ckpt_conver|consistency|export|quant|gated_delta|gdn|"
    r"torch_fsdp2")

# What a run logs, saves, learns or reads: no tensor of its own on the GPU.
SAYS_NOTHING = set("""
    adam-beta1 adam-beta2 adam-eps apply-wd-to-qk-layernorm async-save
    async-strategy async-ckpt-use-cpu-shm auto-detect-ckpt-format
    check-for-large-grads check-weight-hash-across-dp-replicas-interval
    ckpt-assume-constant-structure ckpt-format ckpt-fully-parallel-load
    ckpt-fully-parallel-load-per-rank-objects ckpt-fully-parallel-save clip-grad
    ckpt-drop-redundant-extra-state
    data-cache-path data-path dataloader-type ddp-average-in-collective
    decoupled-lr decoupled-min-lr disable-gloo-process-groups
    dist-ckpt-optim-fully-reshardable dist-ckpt-strictness distributed-backend
    distributed-timeout-minutes empty-unused-memory-level error-injection-rate
    error-injection-type eval-interval eval-iters exit-duration-in-mins
    exit-interval fim-data fim-rate fim-spm-rate finetune init-method-std
    high-priority-stream-groups inference-max-seq-length load log-energy
    log-interval log-memory-interval log-memory-to-tensorboard
    log-num-zeros-in-grad log-params-norm log-progress log-throughput
    log-timers-to-tensorboard log-validation-ppl-to-tensorboard logging-level
    loss-scale lr lr-decay-iters lr-decay-samples lr-decay-style
    lr-warmup-fraction lr-warmup-init lr-warmup-iters lr-warmup-samples
    lr-wsd-decay-samples lr-wsd-decay-style manual-gc manual-gc-interval
    merge-file min-lr mock-data moe-aux-loss-coeff moe-router-bias-update-rate
    moe-z-loss-coeff mscale mscale-all-dim mtp-loss-scaling-factor
    muon-extra-scale-factor muon-momentum muon-scale-mode no-ckpt-fully-parallel-save
    no-ckpt-load-validate-sharding-integrity no-load-optim no-load-rng
    no-mmap-bin-files no-record-throughput norm-epsilon num-dataset-builder-threads
    num-workers override-opt_param-scheduler override-opt-param-scheduler rerun-mode
    rotary-base rotary-scaling-factor save save-interval save-retain-interval seed
    spec split straggler-minmax-count tensorboard-dir tensorboard-log-interval
    test-mode tiktoken-pattern timing-log-level timing-log-option tokenizer-type
    tokenizer-model train-iters train-samples use-checkpoint-args
    use-checkpoint-opt_param-scheduler use-dist-ckpt use-mcore-models
    use-persistent-ckpt-worker use-tp-pp-dp-mapping verify-integrity vocab-file
    wandb-entity wandb-exp-name wandb-project wandb-save-dir weight-decay
    weight-decay-incr-style start-weight-decay end-weight-decay
    dist-ckpt-save-pre-mcore-014 no-use-tokenizer-model-from-checkpoint-args
    no-check-for-nan-in-loss-and-grad attention-softmax-in-fp32
    overlap-p2p-communication-warmup-flush moe-router-load-balancing-type
    moe-router-topk-scaling-factor moe-router-pre-softmax moe-router-num-groups
    moe-router-group-topk moe-router-score-function te-rng-tracker
    original-max-position-embeddings distributed-timeout-seconds-after-init
    log-memory-details ddp-num-buckets rotary-interleaved bert-no-binary-head
    legacy-tokenizer enable-experimental eval-global-batch-size rampup-batch-size
    """.split())

# Read below, by name.
TRANSLATED = set("""
    num-layers encoder-num-layers decoder-num-layers hidden-size
    num-attention-heads ffn-hidden-size kv-channels group-query-attention
    num-query-groups seq-length encoder-seq-length decoder-seq-length
    max-position-embeddings position-embedding-type use-rotary-position-embeddings
    rotary-percent normalization swiglu squared-relu disable-bias-linear
    untie-embeddings-and-output-weights hidden-dropout attention-dropout
    qk-layernorm multi-latent-attention q-lora-rank kv-lora-rank qk-head-dim
    qk-pos-emb-head-dim v-head-dim num-experts moe-router-topk moe-ffn-hidden-size
    moe-layer-freq moe-shared-expert-intermediate-size mtp-num-layers
    make-vocab-size-divisible-by vocab-size vocab-extra-ids
    micro-batch-size global-batch-size tensor-model-parallel-size
    pipeline-model-parallel-size num-layers-per-virtual-pipeline-stage
    num-virtual-stages-per-pipeline-rank context-parallel-size
    expert-model-parallel-size expert-tensor-parallel-size sequence-parallel
    decoder-first-pipeline-num-layers decoder-last-pipeline-num-layers
    pipeline-model-parallel-layout use-distributed-optimizer
    num-distributed-optimizer-instances overlap-grad-reduce overlap-param-gather
    bf16 fp16 accumulate-allreduce-grads-in-fp32 grad-reduce-in-bf16 optimizer
    recompute-granularity recompute-method recompute-num-layers recompute-modules
    cross-entropy-loss-fusion cross-entropy-fusion-impl attention-backend
    transformer-impl use-flash-attn no-create-attention-mask-in-dataloader
    deterministic-mode no-gradient-accumulation-fusion moe-grouped-gemm
    moe-token-dispatcher-type fp8-format fp8-recipe fp8-param-gather
    use-megatron-fsdp data-parallel-sharding-strategy exit-on-missing-checkpoint
    use-precision-aware-optimizer main-grads-dtype main-params-dtype
    exp-avg-dtype exp-avg-sq-dtype no-rope-fusion no-bias-gelu-fusion
    apply-layernorm-1p no-persist-layer-norm moe-router-dtype moe-permute-fusion
    moe-router-enable-expert-bias calculate-per-token-loss
    no-use-layer-wise-param-layout no-masked-softmax-fusion apply-query-key-layer-scaling
    cuda-graph-impl external-cuda-graph cuda-graph-modules cuda-graph-scope
    cuda-graph-warmup-steps first-last-layers-bf16 num-layers-at-start-in-bf16
    num-layers-at-end-in-bf16 moe-flex-dispatcher-backend moe-enable-deepep
    tp-comm-overlap step-batch-size-schedule
    """.split())

# Options that no setup key says, in words.
NEEDS = {
    "enable-cuda-graph": "CUDA graphs (pools)",
}

# Vocabularies of the tokenizers, before padding: GPT-2's, WordPiece cased and
# uncased (the_pile's by what its runs allocate), multiMixV8 (128k),
# nemotron_2_256k.
VOCABULARIES = (("bpe/vocab.json", 50257), ("bert-large-cased-vocab", 28996),
                ("the_pile/bert_shard00/vocab.txt", 28996), ("vocab.txt", 30522), ("multiMixV8", 131072),
                ("nemotron_2_256k", 256000))


# GPUs of release runs: as many as a share of the optimizer's states tells, by
# bytes between steps within 1 % (the next powers of two are 2 % and more off).
RELEASED = {
    ("gpt3_15b_8t_release", "dgx_h100"): 256,
    ("gpt3_15b_8t_release_sm", "dgx_h100"): 256,
    ("gpt3_15b_8t_release_sm", "dgx_gb200"): 256,
    ("gpt3_15b_8t_release_sm_gb200", "dgx_gb200"): 128,
    ("deepseekv3_proxy_flex_tp1pp4emp16etp1cp1_release", "dgx_h100"): 64,
    ("deepseekv3_proxy_flex_tp1pp4emp16etp1cp1_release_sm", "dgx_h100"): 64,
    ("deepseekv3_proxy_flex_tp2pp2emp16etp1cp1_gb_200_release", "dgx_gb200"): 32,
    ("deepseekv3_proxy_flex_tp2pp2emp16etp1cp1_gb_200_release_sm", "dgx_gb200"): 32,
}
WORLD = ("GPUs not public: as many as bytes between steps, which hold a share of the optimizer's "
         "states, are within 1 % of (the next powers of two are 2 % and more off)")


def git(repository, *command):
    return subprocess.run(["git", "-C", repository, *command], check=True,
                          capture_output=True, text=True).stdout


def files(repository):
    """Golden files of today: path, commit that last changed it, its day."""
    commit = day = None
    last = {}
    log = git(repository, "log", "--format=@%h %cs", "--name-only", "--", CASES)
    for line in log.splitlines():
        if line.startswith("@"):
            commit, day = line[1:].split()
        elif line and line not in last:
            last[line] = (commit, day)
    for path in git(repository, "ls-tree", "-r", "--name-only", "HEAD", CASES).splitlines():
        if "/golden_values_" in path and path in last:
            yield path, *last[path]


def first_with(repository, path, figure):
    """Commit and day that the file came to this figure: later ones only moved
    it, or wrote the other values anew."""
    first = None
    for line in git(repository, "log", "--format=%h %cs", "--", path).splitlines():
        commit, day = line.split()
        try:
            if figures(git(repository, "show", f"{commit}:{path}")) != figure:
                break
        except subprocess.CalledProcessError:
            break
        first = commit, day
    return first


def worlds(repository):
    """(kind of model, case, platform) -> GPUs, by the recipes."""
    found = {}
    for path in git(repository, "ls-tree", "-r", "--name-only", "HEAD", RECIPES).splitlines():
        recipe = yaml.safe_load(git(repository, "show", "HEAD:" + path)) if path.endswith(".yaml") else None
        spec = (recipe or {}).get("spec") or {}
        for group in (recipe or {}).get("products") or []:
            for product in group.get("products") or [{}]:
                place = {**spec, **{k: v for k, v in group.items() if k in ("nodes", "gpus")}, **product}

                def one(key):
                    value = place.get(key)
                    return value[0] if isinstance(value, list) else value
                platforms = place.get("platforms")
                for platform in platforms if isinstance(platforms, list) else [platforms]:
                    for case in group.get("test_case") or []:
                        key = (spec.get("model"), case, platform)
                        found[key] = int(one("nodes") or 1) * int(one("gpus") or 8)
    return found


class Options:
    """Megatron's options of one case; remembers nothing of the file."""

    def __init__(self, config):
        raw = config.get("MODEL_ARGS") or {}
        self.values = {k.lstrip("-").strip(): v for k, v in raw.items()}
        self.values = {k: v for k, v in self.values.items() if v is not False}
        self.environment = {k: str(v) for k, v in (config.get("ENV_VARS") or {}).items()}

    def has(self, name):
        return name in self.values

    def text(self, name, default=None):
        return str(self.values[name]) if name in self.values else default

    def number(self, name, default=None):
        return int(str(self.values[name])) if name in self.values else default


def vocabulary(o, tp):
    """Rows of the embedding as padded for this layout; None if unknown."""
    if o.has("vocab-size"):
        size = o.number("vocab-size")
    else:
        name = (o.text("vocab-file") or "") + (o.text("tokenizer-model") or "")
        size = next((n for key, n in VOCABULARIES if key in name), None)
        if size is None:
            return None
        if o.has("vocab-extra-ids"):
            size += o.number("vocab-extra-ids")
    if o.text("tokenizer-type") == "NullTokenizer":
        size += 1
    multiple = o.number("make-vocab-size-divisible-by", 128) * tp
    return -(-size // multiple) * multiple


def bert(o, m):
    """Hugging Face's words: pretraining heads, Megatron's layers."""
    m.update(model_type="bert",
             architectures=["BertForMaskedLM" if o.has("bert-no-binary-head")
                            else "BertForPreTraining"],
             type_vocab_size=2, hidden_act="gelu", hidden_dropout_prob=0.1,
             attention_probs_dropout_prob=0.1, tie_word_embeddings=True)


def experts(o, m, needs):
    if not o.has("num-experts"):
        return
    m.update(num_experts=o.number("num-experts"),
             num_experts_per_tok=o.number("moe-router-topk", 2),
             moe_intermediate_size=o.number("moe-ffn-hidden-size", m["intermediate_size"]))
    if o.has("moe-shared-expert-intermediate-size"):
        m["shared_expert_intermediate_size"] = o.number("moe-shared-expert-intermediate-size")
    if o.has("moe-layer-freq"):
        dense = re.fullmatch(r"\(\[0\]\*(\d+)\+\[1\]\*(\d+)\)", o.text("moe-layer-freq"))
        if dense:
            m["first_k_dense_replace"] = int(dense[1])
        else:
            needs.append("moe-layer-freq " + o.text("moe-layer-freq"))


def model(o, kind, tp, needs):
    hidden, heads = o.number("hidden-size"), o.number("num-attention-heads")
    gated = o.has("swiglu")
    inner = 4 * hidden if not gated else int(4 * hidden * 2 / 3 / 64) * 64
    m = {"num_hidden_layers": o.number("num-layers", o.number("encoder-num-layers")),
         "num_attention_heads": heads, "hidden_size": hidden,
         "intermediate_size": o.number("ffn-hidden-size", inner),
         "vocab_size": vocabulary(o, tp),
         "max_position_embeddings": o.number("max-position-embeddings")}
    if m["vocab_size"] is None:
        needs.append("vocabulary of " + str(o.text("tokenizer-model")))
        m["vocab_size"] = 128
    if kind == "bert":
        bert(o, m)
        return m
    bias = not o.has("disable-bias-linear")
    latent = o.has("multi-latent-attention")
    position = o.text("position-embedding-type", "learned_absolute")
    if o.has("use-rotary-position-embeddings"):
        position = "rope"
    m.update(model_type="encoder-decoder" if kind == "t5" else "decoder",
             norm="rmsnorm" if o.text("normalization") == "RMSNorm" else "layernorm",
             gated_mlp=gated,
             hidden_act="silu" if gated else "relu2" if o.has("squared-relu") else "gelu",
             position_embedding={"learned_absolute": "learned"}.get(position, position),
             attention_bias=bias, attention_out_bias=bias, mlp_bias=bias,
             tie_word_embeddings=not o.has("untie-embeddings-and-output-weights"),
             hidden_dropout=float(o.text("hidden-dropout", "0.1")),
             attention_dropout=float(o.text("attention-dropout", "0.1")))
    if kind == "t5":
        m.update(num_decoder_layers=o.number("decoder-num-layers", m["num_hidden_layers"]),
                 lm_head_bias=True)
    if o.has("kv-channels") and not latent and (kind == "t5" or o.number("kv-channels") * heads != hidden):
        m["head_dim"] = o.number("kv-channels")
    if o.has("group-query-attention"):
        m["num_key_value_heads"] = o.number("num-query-groups", 1)
    if o.has("qk-layernorm") and not latent:
        m["qk_norm"] = True
    if latent:
        m.update(kv_lora_rank=o.number("kv-lora-rank", 32),
                 qk_nope_head_dim=o.number("qk-head-dim", 128),
                 qk_rope_head_dim=o.number("qk-pos-emb-head-dim", 64),
                 v_head_dim=o.number("v-head-dim", 128))
        if o.has("q-lora-rank"):
            m["q_lora_rank"] = o.number("q-lora-rank")
    experts(o, m, needs)
    if o.has("mtp-num-layers"):
        m["num_nextn_predict_layers"] = o.number("mtp-num-layers")
    return m


def spread(layout):
    """'Et*3|(tt|)*6mL' -> layers of each chunk."""
    text = layout
    while "*" in text:
        done = re.sub(r"\(([^()]*)\)\*(\d+)|([A-Za-z])\*(\d+)",
                      lambda f: (f[1] or f[3]) * int(f[2] or f[4]), text)
        if done == text:
            return None
        text = done
    return [part.count("t") for part in text.split("|")]


def pipeline(o, s, layers, needs):
    pp = s["pp"]
    if o.has("pipeline-model-parallel-layout"):
        chunks = spread(o.text("pipeline-model-parallel-layout"))
        if chunks is None or len(chunks) % pp:
            needs.append("pipeline layout " + o.text("pipeline-model-parallel-layout"))
            return
        s["vpp"] = len(chunks) // pp
        s["pipeline_layers"] = ",".join(str(sum(chunks[i::pp])) for i in range(pp))
    elif o.has("num-virtual-stages-per-pipeline-rank"):
        s["vpp"] = o.number("num-virtual-stages-per-pipeline-rank")
    elif o.has("num-layers-per-virtual-pipeline-stage"):
        s["vpp"] = layers // pp // o.number("num-layers-per-virtual-pipeline-stage")
    first = o.number("decoder-first-pipeline-num-layers")
    last = o.number("decoder-last-pipeline-num-layers")
    if first or last:
        ends = (first is not None) + (last is not None)
        inner = (layers - (first or 0) - (last or 0)) // (pp - ends)
        stages = [inner] * pp
        if first:
            stages[0] = first
        if last:
            stages[-1] = last
        s["pipeline_layers"] = ",".join(map(str, stages))
    if s.get("vpp", 1) == 1:
        s.pop("vpp", None)
    s["schedule"] = "interleaved" if "vpp" in s else "1f1b"


def numbers(o, s, needs):
    """Number formats, optimizer, who holds the states."""
    s["zero"] = 1 if o.has("use-distributed-optimizer") else 0
    if o.has("use-megatron-fsdp"):
        strategy = o.text("data-parallel-sharding-strategy", "no_shard")
        s["zero"] = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}[strategy]
    name = o.text("optimizer", "adam")
    s["optimizer"] = {"adam": "adamw", "sgd": "momentum", "muon": "muon", "dist_muon": "muon"}.get(name, name)
    if name == "dist_muon":
        s["zero"] = 1
    s["precision"] = "bf16-mixed" if o.has("bf16") else "fp16-mixed" if o.has("fp16") else "fp32"
    s["grad_dtype"] = "fp32"
    if o.has("fp16") and not o.has("accumulate-allreduce-grads-in-fp32"):
        s["grad_dtype"] = "fp16"
    if o.has("grad-reduce-in-bf16"):
        s["grad_dtype"] = "bf16"
    if o.has("fp8-format"):
        s["precision"] = "fp8-mixed"
        s["fp8_recipe"] = o.text("fp8-recipe", "delayed")
        if o.has("fp8-param-gather"):
            s["fp8_params"] = True
        if o.has("first-last-layers-bf16"):
            s["num_layers_at_start_in_bf16"] = o.number("num-layers-at-start-in-bf16", 1)
            s["num_layers_at_end_in_bf16"] = o.number("num-layers-at-end-in-bf16", 1)
    for key in ("main-grads-dtype", "main-params-dtype", "exp-avg-dtype", "exp-avg-sq-dtype"):
        if o.text(key, "fp32") != "fp32":
            needs.append(key + " " + o.text(key))


def kernels(o, s, needs):
    """What the layers run on, and the habits of deterministic runs."""
    backend = o.text("attention-backend", "auto")
    if backend == "local":
        s["implementation"] = "megatron-local"
    if o.text("transformer-impl", "transformer_engine") == "local":
        s["implementation"] = "megatron-local"
    unfused = o.environment.get("NVTE_FLASH_ATTN") == o.environment.get("NVTE_FUSED_ATTN") == "0"
    local = s["implementation"] == "megatron-local" and not o.has("use-flash-attn")
    s["attention"] = "eager" if backend == "unfused" or unfused or local else "flash"
    if o.has("cross-entropy-loss-fusion"):
        s["loss"] = "fused"
        s["ce_fusion"] = o.text("cross-entropy-fusion-impl", "native")
    s["deterministic"] = o.has("deterministic-mode") or ":4096:8" in o.environment.get(
        "CUBLAS_WORKSPACE_CONFIG", "")
    s["grad_accum_fusion"] = not o.has("no-gradient-accumulation-fusion")
    if o.has("multi-latent-attention") and o.text("position-embedding-type") == "rope" and \
            not o.has("no-rope-fusion"):
        s["rope_fusion"] = True
    if o.has("tp-comm-overlap"):
        s["tp_comm_overlap"] = True
    if o.has("defer-embedding-wgrad-compute"):
        s["defer_embedding_wgrad_compute"] = True
        s["wgrad_deferral_limit"] = int(o.text("wgrad-deferral-limit") or 0)
    if local and o.has("no-masked-softmax-fusion"):
        s["fused_softmax"] = False
    granularity = o.text("recompute-granularity")
    s["recompute"] = granularity or "none"
    if granularity == "full" and o.text("recompute-method") == "uniform":
        s["recompute_granularity"] = o.number("recompute-num-layers", 1)
    elif granularity == "full":
        s["recompute_layers"] = o.number("recompute-num-layers", 1)
    elif granularity == "selective" and o.has("recompute-modules"):
        s["recompute_modules"] = ",".join(o.text("recompute-modules").strip('[]"').split())
    if o.has("num-experts"):
        s["moe_dispatcher"] = o.text("moe-token-dispatcher-type", "allgather")
        s["grouped_gemm"] = o.has("moe-grouped-gemm")
        if o.text("moe-flex-dispatcher-backend") == "hybridep":
            s["moe_flex_dispatcher_backend"] = "hybridep"
        if o.has("moe-permute-fusion"):
            s["moe_permute_fusion"] = True
        if o.text("moe-router-dtype") == "fp32":
            s["moe_router_dtype"] = "fp32"
        balance = o.text("moe-router-load-balancing-type", "aux_loss")
        if float((o.text("moe-aux-loss-coeff") or "0").strip("[]").split()[0]) > 0 and balance in (
                "aux_loss", "seq_aux_loss", "global_aux_loss"):
            s["moe_aux_loss"] = balance


def graphs(o, s, needs):
    impl = o.text("cuda-graph-impl", "transformer_engine" if o.has("external-cuda-graph") else "none")
    if impl == "none":
        return
    s.update(cuda_graph=True, cuda_graph_impl=impl,
             cuda_graph_warmup_steps=o.number("cuda-graph-warmup-steps", 3))
    scope = o.text("cuda-graph-modules", o.text("cuda-graph-scope", ""))
    if scope:
        s["cuda_graph_scope"] = ",".join(scope.strip('[]"').split())
    if impl != "transformer_engine":
        needs.append("CUDA graphs (pools)")


def replayed(o, s, kind, day, notes):
    """Megatron-LM 5e4fc931ba: what pretrain_gpt.py moves to the GPU of a
    step's batches stays in the iterator that could replay them, and with it
    the mask that the data loader makes unless told not to. Only the first of
    the tensor-parallel ranks reads batches; the figures are of the last rank."""
    if day < "2026-05-21" or kind not in ("gpt", "moe") or s["tp"] > 1:
        return
    s["replay_batches"] = True
    if not o.has("no-create-attention-mask-in-dataloader"):
        s["attention_mask"] = "dataloader"
        notes.append("mask by the data loader (the default), golden of Megatron-LM after 5e4fc931ba")


def layout(o):
    """Ranks of one replica."""
    return (o.number("tensor-model-parallel-size", 1) * o.number("pipeline-model-parallel-size", 1)
            * o.number("context-parallel-size", 1))


def setup(o, gpu, gpus):
    needs = []
    layers = o.number("num-layers", o.number("encoder-num-layers", 0))
    tp, pp = o.number("tensor-model-parallel-size", 1), o.number("pipeline-model-parallel-size", 1)
    s = {"framework": "megatron", "implementation": "megatron", "engine": "megatron",
         "gpu": gpu, "gpus": gpus, "tp": tp, "pp": pp}
    if o.number("context-parallel-size", 1) > 1:
        s["cp"] = o.number("context-parallel-size")
        if o.has("cp-comm-type"):
            s["cp_comm"] = o.text("cp-comm-type")
    if o.has("expert-model-parallel-size"):
        s["ep"] = o.number("expert-model-parallel-size")
    if o.has("expert-tensor-parallel-size") and o.has("num-experts"):
        s["etp"] = o.number("expert-tensor-parallel-size")
    s["sequence_parallel"] = o.has("sequence-parallel") and tp > 1
    if pp > 1:
        pipeline(o, s, layers, needs)
    s["micro_batch"] = o.number("micro-batch-size")
    dp = max(1, gpus // (tp * pp * s.get("cp", 1)))
    s["global_batch"] = o.number("global-batch-size", s["micro_batch"] * dp)
    s["seq_len"] = o.number("seq-length", o.number("encoder-seq-length"))
    if o.has("decoder-seq-length"):
        s["decoder_seq_len"] = o.number("decoder-seq-length")
    numbers(o, s, needs)
    instances = o.number("num-distributed-optimizer-instances", 1)
    if instances > 1:
        s["shard_degree"] = dp // instances
    kernels(o, s, needs)
    graphs(o, s, needs)
    return s, needs


def figures(text):
    """(steady, peak) of a golden file: at the last step that was logged."""
    try:
        values = json.loads(text)
    except json.JSONDecodeError:
        return None, None

    def last(name):
        steps = values.get(name, {}).get("values", {})
        found = [steps[k] for k in sorted(steps, key=int) if isinstance(steps[k], (int, float))]
        return int(found[-1]) if found else None
    return last("mem-allocated-bytes"), last("mem-max-allocated-bytes")


def rows(repository, chosen):
    world = worlds(repository)
    for path, commit, day in files(repository):
        place = re.fullmatch(CASES + r"/([^/]+)/([^/]+)/golden_values_(dev|lts)_(dgx_[a-z0-9]+)\.json", path)
        if not place or SKIP.search(place[1] + "/" + place[2]) or not chosen.search(path):
            continue
        kind, case, branch, platform = place.groups()
        if platform not in GPUS:
            continue
        steady, peak = figures(git(repository, "show", f"{commit}:{path}"))
        if not peak:
            continue
        commit, day = first_with(repository, path, (steady, peak)) or (commit, day)
        folder = os.path.dirname(path)
        try:
            config = yaml.safe_load(git(repository, "show", f"{commit}:{folder}/model_config.yaml"))
        except subprocess.CalledProcessError:
            continue
        o = Options(config)
        notes = ["padded vocabulary", "rank world-1 only", "steady = allocated at the last logged step"]
        released = config.get("TEST_TYPE") == "release"
        gpus = world.get((kind, case, platform)) or world.get((kind, case, "dgx_h100"))
        told = RELEASED.get((case, platform)) if branch == "dev" else None
        if told:
            gpus = told
        elif released:  # at NVIDIA, on more nodes than the recipes say
            gpus = layout(o)
            notes.append("world size not public: one replica; without a distributed optimizer "
                         "memory does not depend on it")
        elif gpus is None:
            gpus = 8
            notes.append("in no recipe of today: one node of 8 assumed")
        s, needs = setup(o, GPUS[platform], gpus)
        replayed(o, s, kind, day, notes)
        if released and s["zero"]:
            needs.append("world size")
        if branch == "lts" and day < "2025-11" and not o.has("attention-backend") and \
                o.environment.get("NVTE_ALLOW_NONDETERMINISTIC_ALGO", "1") == "0":
            needs.append("attention kernel: what an LTS container of 2025 takes for deterministic ones")
        needs += [NEEDS.get(k, k + " " + str(v)) for k, v in o.values.items()
                  if k not in SAYS_NOTHING and k not in TRANSLATED]
        spec = model(o, kind, s["tp"], needs)
        found = []
        for metric, value in (("peak_allocated", peak), ("steady_allocated", steady)):
            if not value:
                continue
            row = {"id": f"mlm-{kind}-{case}-{platform[4:]}-{metric.split('_')[0]}".replace(
                       f"-{platform[4:]}-", f"-{'lts-' if branch == 'lts' else ''}{platform[4:]}-"),
                   "source": f"github NVIDIA/Megatron-LM {path} @ golden commit {commit} ({day}), "
                             "config = model_config.yaml at that commit",
                   "group": "megatron-goldens", "kind": "memory", "tier": "B",
                   "model": spec, "setup": s, "rank": "last-stage",
                   "measured": {"metric": metric, "bytes": value}, "notes": "; ".join(notes)}
            if needs:
                row["x-needs"] = sorted(set(needs))
            found.append(row)
        yield from released_rows(o, found, git(repository, "show", f"{commit}:{path}")) if told else found


def first_batch(o, s):
    """Sequences of the first steps, where their number grows."""
    grows = o.text("step-batch-size-schedule", "").split(":")
    ramp = o.text("rampup-batch-size", "").strip("[]").split()
    if len(grows) > 1:
        s["global_batch"] = int(grows[1].split()[0])
    elif ramp:
        s["global_batch"] = int(ramp[0])


def released_rows(o, rows, golden):
    """Rows of a run of RELEASED, and its step: the median of what it logged."""
    log = json.loads(golden).get("iteration-time", {}).get("values", {})
    seconds = [float(v) for step, v in log.items() if v != "nan" and int(step) >= 20]
    for row in rows:
        s = row["setup"]
        row.pop("x-needs", None)
        first_batch(o, s)
        s["overlap_comm"] = o.has("overlap-grad-reduce") and o.has("overlap-param-gather")
        if s["gpu"] == "gb200":
            s["gpus_per_node"] = 4
        row["notes"] += "; " + WORLD
        yield row
    step = {**row, "id": row["id"].rsplit("-", 1)[0] + "-time", "group": "megatron-releases",
            "kind": "throughput",
            "measured": {"metric": "step_time_s", "value": statistics.median(seconds)}}
    step.pop("rank")
    yield step


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("repository")
    parser.add_argument("--known", action="store_true", help="only rows that need nothing")
    parser.add_argument("--without", action="append", default=[], metavar="FILE")
    parser.add_argument("--cases", default="", metavar="WORD")
    given = parser.parse_args()

    def golden(row):
        return row["source"].split(" @ ")[0], row["measured"]["metric"]
    have = set()
    for name in given.without:
        with open(name) as f:
            have |= {golden(json.loads(line)) for line in f if line.strip()}
    for row in rows(given.repository, re.compile(given.cases)):
        if golden(row) not in have and not (given.known and "x-needs" in row):
            print(json.dumps(row))


if __name__ == "__main__":
    sys.exit(main())
