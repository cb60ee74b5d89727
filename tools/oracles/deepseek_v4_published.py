#!/usr/bin/env python3
"""A tiny random DeepSeek-V4 in the storage of its published checkpoints, and its logits.

Writes TARGET/{config.json, model.safetensors, golden.safetensors} as tests/golden/formats has them,
with the publisher's keys and names. Dense matrices are in e4m3 with a UE8M0 scale for each
128 x 128, routed experts in pairs of e2m1 with one for each 32 columns of a row. Routers, norms and
what makes entries are in bf16, streams, sinks and biases in f32. Some tensors of a layer that
predicts further tokens are there too; nobody uses them. The logits come from the numbers decoded
again, with the formulas of the formats, in float32.

usage: deepseek_v4_published.py TARGET        (transformers 5.17, torch 2.11, safetensors)
"""
import json
import pathlib
import sys
import tempfile

import torch
import transformers
from safetensors.torch import save_file

SEED = 11
TOKENS = 160  # so many that an entry of 128 tokens is there
BLOCK = 128
GROUP = 32
E4M3_MAX = 448.0
E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
SCALE_BIAS = 127

CONFIG = {
    "architectures": ["DeepseekV4ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
    "bos_token_id": 0, "eos_token_id": 1, "expert_dtype": "fp4", "hc_eps": 1e-06, "hc_mult": 4,
    "hc_sinkhorn_iters": 20, "head_dim": 128, "hidden_act": "silu", "hidden_size": 192,
    "index_head_dim": 32, "index_n_heads": 16, "index_topk": 12, "initializer_range": 0.02,
    "max_position_embeddings": 4096, "model_type": "deepseek_v4", "moe_intermediate_size": 64,
    "n_routed_experts": 8, "n_shared_experts": 1, "norm_topk_prob": True,
    "num_attention_heads": 4, "num_experts_per_tok": 2, "num_hidden_layers": 3,
    "num_hash_layers": 1, "num_key_value_heads": 1, "num_nextn_predict_layers": 1, "o_groups": 2,
    "o_lora_rank": 128, "q_lora_rank": 96, "qk_rope_head_dim": 32,
    "quantization_config": {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
                            "scale_fmt": "ue8m0", "weight_block_size": [BLOCK, BLOCK]},
    "rms_norm_eps": 1e-06,
    "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 16,
                     "original_max_position_embeddings": 256, "type": "yarn"},
    "rope_theta": 10000, "routed_scaling_factor": 1.5, "scoring_func": "sqrtsoftplus",
    "sliding_window": 32, "swiglu_limit": 1.0, "tie_word_embeddings": False,
    "topk_method": "noaux_tc", "torch_dtype": "bfloat16", "transformers_version": "4.57.1",
    "use_cache": True, "vocab_size": 256, "compress_rope_theta": 160000,
    "compress_ratios": [0, 4, 128, 0, 0], "dspark_block_size": 5, "dspark_noise_token_id": 255,
    "dspark_target_layer_ids": [1, 2], "dspark_markov_rank": 16,
}


class Writer:
    """The tensors of a file, and the numbers that they stand for."""

    def __init__(self):
        self.generator = torch.Generator().manual_seed(SEED)
        self.stored = {}
        self.decoded = {}

    def drawn(self, shape, mean=0.0, deviation=0.09):
        return torch.randn(shape, generator=self.generator) * deviation + mean

    def factors(self, shape):
        """Powers of two that differ, so that no scale can stand for another."""
        return torch.exp2(torch.randint(-1, 2, shape, generator=self.generator).float())

    def plain(self, name, value, dtype):
        self.stored[name] = value.to(dtype).contiguous()
        self.decoded[name] = self.stored[name].float()

    def fp8(self, name, rows, cols):
        def spread(scales):
            wide = scales.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
            return wide[:rows, :cols]

        blocks = (-(-rows // BLOCK), -(-cols // BLOCK))
        value = self.drawn((rows, cols)) * spread(self.factors(blocks))
        exponents = torch.zeros(blocks)
        for r in range(blocks[0]):
            for c in range(blocks[1]):
                block = value[r * BLOCK:(r + 1) * BLOCK, c * BLOCK:(c + 1) * BLOCK]
                exponents[r, c] = torch.log2(block.abs().max() / E4M3_MAX).ceil()
        scales = spread(torch.exp2(exponents))
        codes = (value / scales).to(torch.float8_e4m3fn)
        self.stored[f"{name}.weight"] = codes
        self.stored[f"{name}.scale"] = power_bytes(exponents)
        self.decoded[f"{name}.weight"] = codes.float() * scales

    def fp4(self, name, rows, cols):
        groups = self.drawn((rows, cols // GROUP, GROUP)) * self.factors((rows, cols // GROUP, 1))
        exponents = torch.log2(groups.abs().amax(2) / E2M1[-1]).ceil()
        scaled = groups / torch.exp2(exponents)[..., None]
        codes = (scaled.abs()[..., None] - E2M1).abs().argmin(-1)
        value = E2M1[codes] * torch.where(scaled < 0, -1.0, 1.0)
        codes = (codes + 8 * (scaled < 0)).reshape(rows, cols)
        pairs = (codes[:, 0::2] + 16 * codes[:, 1::2]).to(torch.uint8)
        self.stored[f"{name}.weight"] = pairs.view(torch.int8).contiguous()
        self.stored[f"{name}.scale"] = power_bytes(exponents)
        decoded = value * torch.exp2(exponents)[..., None]
        self.decoded[f"{name}.weight"] = decoded.reshape(rows, cols)


def power_bytes(exponents):
    return (exponents + SCALE_BIAS).to(torch.uint8).view(torch.float8_e8m0fnu).contiguous()


def write_compressor(w, prefix, unit, width):
    c = CONFIG
    cols = 2 * width if unit == 4 else width
    w.plain(f"{prefix}.ape", w.drawn((unit, cols)), torch.float32)
    for matrix in ("wkv", "wgate"):
        w.plain(f"{prefix}.{matrix}.weight", w.drawn((cols, c["hidden_size"])), torch.bfloat16)
    w.plain(f"{prefix}.norm.weight", w.drawn((width,), 1.0), torch.bfloat16)


def write_attention(w, prefix, unit):
    c = CONFIG
    hidden, width = c["hidden_size"], c["num_attention_heads"] * c["head_dim"]
    out = c["o_groups"] * c["o_lora_rank"]
    w.plain(f"{prefix}.attn_sink", w.drawn((c["num_attention_heads"],), 0.0, 1.0), torch.float32)
    w.plain(f"{prefix}.q_norm.weight", w.drawn((c["q_lora_rank"],), 1.0), torch.bfloat16)
    w.plain(f"{prefix}.kv_norm.weight", w.drawn((c["head_dim"],), 1.0), torch.bfloat16)
    w.fp8(f"{prefix}.wq_a", c["q_lora_rank"], hidden)
    w.fp8(f"{prefix}.wq_b", width, c["q_lora_rank"])
    w.fp8(f"{prefix}.wkv", c["head_dim"], hidden)
    w.fp8(f"{prefix}.wo_a", out, width // c["o_groups"])
    w.fp8(f"{prefix}.wo_b", hidden, out)
    if unit == 0:
        return
    write_compressor(w, f"{prefix}.compressor", unit, c["head_dim"])
    if unit != 4:
        return
    w.fp8(f"{prefix}.indexer.wq_b", c["index_n_heads"] * c["index_head_dim"], c["q_lora_rank"])
    w.plain(f"{prefix}.indexer.weights_proj.weight", w.drawn((c["index_n_heads"], hidden)),
            torch.bfloat16)
    write_compressor(w, f"{prefix}.indexer.compressor", unit, c["index_head_dim"])


def write_experts(w, prefix, is_listed):
    c = CONFIG
    hidden, inner, count = c["hidden_size"], c["moe_intermediate_size"], c["n_routed_experts"]
    w.plain(f"{prefix}.gate.weight", w.drawn((count, hidden)), torch.bfloat16)
    if is_listed:
        lists = torch.rand((c["vocab_size"], count), generator=w.generator).argsort(1)
        lists = lists[:, :c["num_experts_per_tok"]].to(torch.int64).contiguous()
        w.stored[f"{prefix}.gate.tid2eid"] = w.decoded[f"{prefix}.gate.tid2eid"] = lists
    else:
        w.plain(f"{prefix}.gate.bias", w.drawn((count,)), torch.float32)
    for matrix, rows, cols in (("w1", inner, hidden), ("w2", hidden, inner), ("w3", inner, hidden)):
        w.fp8(f"{prefix}.shared_experts.{matrix}", rows, cols)
        for expert in range(count):
            w.fp4(f"{prefix}.experts.{expert}.{matrix}", rows, cols)


def write_streams(w, name, rows, scales):
    width = CONFIG["hc_mult"] * CONFIG["hidden_size"]
    w.plain(f"{name}_fn", w.drawn((rows, width)), torch.float32)
    w.plain(f"{name}_base", w.drawn((rows,)), torch.float32)
    w.plain(f"{name}_scale", w.drawn((scales,), 0.5), torch.float32)


def write_model():
    w, c = Writer(), CONFIG
    hidden, streams = c["hidden_size"], c["hc_mult"]
    for name in ("embed", "head"):
        w.plain(f"{name}.weight", w.drawn((c["vocab_size"], hidden)), torch.bfloat16)
    w.plain("norm.weight", w.drawn((hidden,), 1.0), torch.bfloat16)
    write_streams(w, "hc_head", streams, 1)
    for i in range(c["num_hidden_layers"]):
        layer = f"layers.{i}"
        for part in ("attn", "ffn"):
            w.plain(f"{layer}.{part}_norm.weight", w.drawn((hidden,), 1.0), torch.bfloat16)
            write_streams(w, f"{layer}.hc_{part}", streams * streams + 2 * streams, 3)
        write_attention(w, f"{layer}.attn", c["compress_ratios"][i])
        write_experts(w, f"{layer}.ffn", i < c["num_hash_layers"])
    w.fp8("mtp.0.e_proj", BLOCK, BLOCK)
    w.fp4("mtp.0.ffn.experts.0.w1", 1, GROUP)
    w.plain("mtp.0.norm.weight", w.drawn((hidden,), 1.0), torch.bfloat16)
    return w


def logits_of(tensors, tokens):
    config = {key: value for key, value in CONFIG.items() if key != "quantization_config"}
    kept = {name: value for name, value in tensors.items() if not name.startswith("mtp.")}
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
        save_file(kept, pathlib.Path(folder) / "model.safetensors", {"format": "pt"})
        model, report = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    assert not any(report.values()), report
    with torch.no_grad():
        return model.eval()(input_ids=tokens).logits[0].float()


def with_noise(tensors, seed):
    generator = torch.Generator().manual_seed(seed)
    return {name: value * (1 + 2e-6 * torch.randn(value.shape, generator=generator))
            if value.is_floating_point() else value for name, value in tensors.items()}


def main(target):
    w = write_model()
    tokens = torch.randint(0, CONFIG["vocab_size"], (1, TOKENS),
                           generator=torch.Generator().manual_seed(SEED))
    logits = logits_of(w.decoded, tokens)
    for seed in range(3):  # a route or a choice of entries near a tie would show
        other = logits_of(with_noise(w.decoded, seed), tokens)
        least = torch.nn.functional.cosine_similarity(logits, other).min().item()
        print("cosine with noise", least)
        assert least > 0.9999999 - 1e-6
    folder = pathlib.Path(target)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    save_file(w.stored, folder / "model.safetensors", {"format": "pt"})
    save_file({"tokens": tokens[0].int(), "logits": logits.contiguous()},
              folder / "golden.safetensors",
              {"source": f"transformers {transformers.__version__} torch {torch.__version__} "
                         "float32 cpu eager"})
    print("logits", logits.std().item())


if __name__ == "__main__":
    main(sys.argv[1])
