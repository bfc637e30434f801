#!/usr/bin/env python3
"""What other estimators print for the measured runs that they can express.

Runs checkouts of their repositories as they are, and writes one line a figure
to tests/measured/peers.jsonl, which `memplan score` sets beside its own:

    python3 tests/oracle/peers.py --program build/memplan \
        --eleutherai PATH/cookbook --megatron PATH/Megatron-LM \
        --deepspeed PATH/DeepSpeed --simumax PATH/SimuMax \
        tests/measured/memory.jsonl tests/measured/memory-zero.jsonl \
        > tests/measured/peers.jsonl

A run is given to a peer when the peer has words for its layout, its kind of
model and whether it trains all weights; what it has no words for (a recompute
policy, a kernel) it is given nearest. Needs pandas for SimuMax.
"""

import argparse
import contextlib
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import types

GIB = 1 << 30


def resolve(program, row):
    """The row's setup with every default filled in, None if memplan refuses."""
    model = row["model"]
    by_name = isinstance(model, str)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as setup:
        json.dump(row["setup"], setup)
        setup.flush()
        done = subprocess.run(
            [program, "estimate", model if by_name else "-", "--setup", setup.name, "--json"],
            input=None if by_name else json.dumps(model), capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else None


def shape(models, model):
    """The names of Llama's configuration, of whatever spec it is."""
    if isinstance(model, str):
        with open(os.path.join(models, model.removesuffix(".json") + ".json")) as f:
            model = json.load(f)

    def first(*names, default=None):
        return next((model[n] for n in names if model.get(n) is not None), default)

    kind = model["model_type"]
    hidden = first("hidden_size", "n_embd", "d_model")
    heads = first("num_attention_heads", "n_head", "n_heads")
    if kind in ("bert", "t5", "vit", "convnet", "encoder", "encoder-decoder") or not heads:
        return None
    gated = first("gated_mlp", default=kind not in (
        "gpt2", "gpt_neox", "gpt_neo", "gptj", "opt", "bloom", "falcon", "mpt",
        "gpt_bigcode", "starcoder2", "phi", "decoder"))
    inner = first("intermediate_size", "n_inner", "ffn_dim", default=4 * hidden)
    if kind == "qwen":
        inner //= 2
    return {
        "hidden": hidden, "heads": heads, "inner": inner, "gated": gated,
        "layers": first("num_hidden_layers", "n_layer", "n_layers"),
        "kv": first("num_key_value_heads", default=heads),
        "head_dim": first("head_dim", default=hidden // heads),
        "vocab": first("vocab_size"),
        "tied": first("tie_word_embeddings", default=kind in ("gpt2", "gemma")),
        "rms": first("norm", default="rmsnorm") == "rmsnorm",
        "experts": first("num_experts", "num_local_experts", "n_routed_experts", default=0),
        "top_k": first("num_experts_per_tok", default=1),
        "expert_inner": first("moe_intermediate_size", default=inner),
        "shared": first("shared_expert_intermediate_size", default=0) or
                  first("n_shared_experts", default=0) * first("moe_intermediate_size", default=0),
        "mla": first("kv_lora_rank") is not None,
        "mtp": first("num_nextn_predict_layers", default=0),
        "dense_first": first("first_k_dense_replace", default=0),
    }


def version(path):
    run = subprocess.run(["git", "-C", path, "log", "-1", "--format=%h"],
                         capture_output=True, text=True, check=True)
    return run.stdout.strip()


def load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Peer:
    def __init__(self, path):
        self.path = path
        self.version = version(path)


class EleutherAI(Peer):
    name = "EleutherAI cookbook"

    def __init__(self, path):
        super().__init__(path)
        self.program = os.path.join(path, "calc", "calc_transformer_mem.py")

    def bytes(self, row, s, m, report):
        """calc_transformer_mem.py; its MoE flags, its two kinds of recompute."""
        if (s["cp"] > 1 or m["mla"] or s["offload_optimizer"] != "none"
                or s["optimizer"] not in ("adamw", "momentum")):
            return None
        flags = {
            "--num-gpus": s["gpus"], "-tp": s["tp"], "-pp": s["pp"], "-z": s["zero"],
            "-b": s["micro_batch"], "-s": s["seq_len"], "-v": m["vocab"],
            "-hs": m["hidden"], "-a": m["heads"], "-l": m["layers"],
            "-ff": (m["expert_inner"] if m["experts"] else m["inner"]) / m["hidden"],
            "-nl": 3 if m["gated"] else 2, "-kv": m["kv"] / m["heads"],
            "-opt": "adamw" if s["optimizer"] == "adamw" else "sgd_momentum",
            "--bytes-per-grad-ele": 4 if s["grad_dtype"] == "fp32" else 2,
        }
        if m["experts"]:
            flags |= {"--num-experts": m["experts"], "-ep": s["ep"]}
        words = [sys.executable, self.program]
        for key, value in flags.items():
            words += [key, str(value)]
        # without it the tool counts the scores that flash attention never makes
        if s["recompute"] != "none" or s["attention"] == "flash":
            words.append("--checkpoint-activations")
        said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        found = re.search(r"Total Memory per GPU.*?([\d.]+) GiB|Per-GPU Memory Required.*?([\d.]+) GiB", said)
        figure = found.group(1) or found.group(2)
        return int(float(figure) * GIB)


class Megatron(Peer):
    name = "Megatron-LM"

    def __init__(self, path):
        super().__init__(path)
        package = types.ModuleType("megatron_training")
        package.__path__ = [os.path.join(path, "megatron", "training")]
        utils = types.ModuleType("megatron_training.utils")
        utils.is_hybrid_model = lambda args: False
        utils.print_rank_0 = lambda text: None
        sys.modules |= {"megatron_training": package, "megatron_training.utils": utils}
        self.module = load("megatron_training.theoretical_memory_usage", os.path.join(
            path, "megatron", "training", "theoretical_memory_usage.py"))

    def bytes(self, row, s, m, report):
        """theoretical_memory_usage.py, which Megatron-LM prints at its start."""
        if s["framework"] not in ("megatron", "nemo", "megatron-deepspeed") or m["mla"]:
            return None
        class Args(types.SimpleNamespace):
            def __getattr__(self, key):
                return None
        freq = [0] * m["dense_first"] + [1] * (m["layers"] - m["dense_first"])
        multiple = 128 * s["tp"]
        args = Args(
            kv_channels=m["head_dim"], num_attention_heads=m["heads"],
            hidden_size=m["hidden"], group_query_attention=m["kv"] != m["heads"],
            num_query_groups=m["kv"], num_experts=m["experts"] or None,
            swiglu=m["gated"], num_layers=m["layers"],
            moe_shared_expert_intermediate_size=m["shared"] or None,
            moe_layer_freq=freq, moe_ffn_hidden_size=m["expert_inner"],
            moe_router_topk=m["top_k"], ffn_hidden_size=m["inner"],
            mtp_num_layers=m["mtp"] or None,
            normalization="RMSNorm" if m["rms"] else "LayerNorm",
            multi_latent_attention=False,
            padded_vocab_size=-(-m["vocab"] // multiple) * multiple,
            untie_embeddings_and_output_weights=not m["tied"],
            world_size=s["gpus"], data_parallel_size=s["dp"],
            tensor_model_parallel_size=s["tp"],
            pipeline_model_parallel_size=s["pp"],
            virtual_pipeline_model_parallel_size=s["vpp"] if s["vpp"] > 1 else None,
            expert_tensor_parallel_size=s["etp"], expert_model_parallel_size=s["ep"],
            use_distributed_optimizer=s["zero"] >= 1, seq_length=s["seq_len"],
            micro_batch_size=s["micro_batch"], sequence_parallel=s["sequence_parallel"],
            recompute_granularity=None if s["recompute"] == "none" else s["recompute"])
        with contextlib.redirect_stdout(io.StringIO()):
            total = self.module.report_theoretical_memory(args, s["grad_accum"])[2]
        return int(total * (1 << 20))


class DeepSpeed(Peer):
    name = "DeepSpeed"

    def __init__(self, path):
        super().__init__(path)
        zero = os.path.join(path, "deepspeed", "runtime", "zero")
        self.stage2 = self.function(os.path.join(zero, "stage_1_and_2.py"),
                                    "estimate_zero2_model_states_mem_needs")
        self.stage3 = self.function(os.path.join(zero, "stage3.py"),
                                    "estimate_zero3_model_states_mem_needs")

    @staticmethod
    def function(path, name):
        """One function of a file whose imports need a GPU stack."""
        with open(path) as f:
            text = f.read()
        body = re.search(rf"^def {name}\(.*?(?=^def )", text, re.M | re.S).group(0)
        scope = {}
        exec(body, scope)
        return scope[name]

    def bytes(self, row, s, m, report):
        """Its two estimates of model states; activations it does not estimate."""
        if s["engine"] != "deepspeed" or s["zero"] < 2 or s["tp"] * s["pp"] > 1:
            return None
        total = report["model"]["parameters"]
        offload = s["offload_optimizer"] != "none"
        nodes = -(-s["gpus"] // s["gpus_per_node"])
        per_node = min(s["gpus"], s["gpus_per_node"])
        if s["zero"] == 2:
            return self.stage2(total, per_node, nodes, offload)[1]
        return self.stage3(total, m["vocab"] * m["hidden"], per_node, nodes, offload,
                           s["offload_params"] != "none")[1]


class SimuMax(Peer):
    name = "SimuMax"

    def __init__(self, path):
        super().__init__(path)
        sys.path.insert(0, path)
        self.system = os.path.join(path, "configs", "system", "a100_pcie.json")

    def bytes(self, row, s, m, report):
        """Its Megatron model, with the system file that its examples use."""
        if (s["framework"] not in ("megatron", "nemo") or m["mla"] or m["mtp"]
                or s["zero"] > 1 or s["etp"] > 1 or s["fp8_recipe"] is not None
                and s["precision"].startswith("fp8")
                or s["recompute"] == "selective"):
            return None
        from simumax.core.config import ModelConfig, StrategyConfig, SystemConfig
        from simumax.core.perf_llm import PerfLLM
        model = {
            "model_type": "moe" if m["experts"] else "dense", "model_name": "row",
            "hidden_size": m["hidden"], "head_num": m["heads"], "kv_head_num": m["kv"],
            "head_size": m["head_dim"], "intermediate_size": m["inner"],
            "layer_num": m["layers"], "vocab_size": m["vocab"], "use_swiglu": m["gated"]}
        if m["experts"]:
            model |= {"expert_num": m["experts"], "topk": m["top_k"],
                      "moe_ffn_hidden_size": m["expert_inner"],
                      "dense_layers": m["dense_first"],
                      "moe_shared_expert_intermediate_size": m["shared"] or None}
        strategy = {
            "seq_len": s["seq_len"], "micro_batch_size": s["micro_batch"],
            "micro_batch_num": s["grad_accum"], "dtype": "bf16",
            "world_size": s["gpus"], "tp_size": s["tp"], "pp_size": s["pp"],
            "cp_size": s["cp"], "ep_size": s["ep"], "etp_size": s["etp"],
            "moe_dispatcher_policy": "all2all",
            "enable_sequence_parallel": s["sequence_parallel"],
            "interleaving_size": s["vpp"], "zero_state": s["zero"],
            "enable_dropout": False, "use_fused_norm": True, "use_math_sdp": False,
            "use_flash_sdp": True, "use_fp32_accum_grad": True,
            "enable_recompute": s["recompute"] == "full", "mem_factor": 0.94}
        if s["recompute"] == "full":
            strategy |= {"recompute_granularity": "full_block",
                         "recompute_layer_num": m["layers"] // (s["pp"] * s["vpp"])}
        perf = PerfLLM()
        with contextlib.redirect_stdout(io.StringIO()):
            perf.configure(strategy_config=StrategyConfig(**strategy),
                           model_config=ModelConfig(**model),
                           system_config=SystemConfig.init_from_config_file(self.system))
            perf.model_config.padded_vocab_size = True
            perf.model_config.make_vocab_size_divisible_by = 128
            perf.run_estimate()
            said = perf.analysis_mem().data

        return max(int(float(text.split()[0]) * {"GB": GIB, "MB": 1 << 20}[text.split()[1]])
                   for text in self.peaks(said))

    @staticmethod
    def peaks(said):
        for key, value in said.items():
            if isinstance(value, dict):
                yield from SimuMax.peaks(value)
            elif key == "peak_mem":
                yield value


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", required=True)
    parser.add_argument("--models", default="models")
    kinds = {"eleutherai": EleutherAI, "megatron": Megatron, "deepspeed": DeepSpeed, "simumax": SimuMax}
    for key in kinds:
        parser.add_argument(f"--{key}")
    parser.add_argument("rows", nargs="+")
    args = parser.parse_args()
    peers = [kind(getattr(args, key)) for key, kind in kinds.items() if getattr(args, key)]
    failed = {}
    for path in args.rows:
        with open(path) as lines:
            rows = [json.loads(line) for line in lines if line.strip()]
        for row in rows:
            if row["kind"] != "memory" or row["measured"]["metric"] == "steady_allocated":
                continue
            report = resolve(args.program, row)
            if report is None or report["setup"]["lora_rank"]:
                continue
            model = shape(args.models, row["model"])
            if model is None:
                continue
            for peer in peers:
                try:
                    said = peer.bytes(row, report["setup"], model, report)
                except Exception as e:
                    failed.setdefault((peer.name, f"{type(e).__name__}: {e}"), []).append(row["id"])
                    continue
                if said is not None:
                    print(json.dumps({"id": row["id"], "kind": "peer", "peer": peer.name,
                                      "source": f"commit {peer.version}", "bytes": said}))
    for (name, why), ids in failed.items():
        print(f"{name}: {len(ids)} rows: {why[:150]} ({ids[0]})", file=sys.stderr)


if __name__ == "__main__":
    main()
