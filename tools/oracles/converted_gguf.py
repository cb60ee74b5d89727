#!/usr/bin/env python3
"""GGUF files that llama.cpp's converter makes, and what transformers computes from their weights.

Takes layers of the random checkpoint of tests/golden/models/FAMILY and has the converter write them
in Q8_0, without a vocabulary. The decoded numbers go back to their place in the checkpoint: the
converter moves numbers the same way when each is replaced by its index. transformers runs in
float32 on what came out.

usage: converted_gguf.py LLAMA_CPP MODELS_FOLDER TARGET_FOLDER FAMILY...
       (llama.cpp's sources as in llama-cpp-python 0.3.36, with its pull request 26757 for axk2;
       transformers 5.24, torch 2.11)
"""
import json
import pathlib
import re
import sys
import tempfile

LLAMA_CPP = pathlib.Path(sys.argv[1])
sys.path[:0] = [str(LLAMA_CPP), str(LLAMA_CPP / "gguf-py")]
import conversion  # noqa: E402
import gguf  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

TOKENS = 24

SIGMOID = {"scoring_func": "sigmoid"}
# Layers that are taken, keys that change what they compute, and keys of publishers' configs.
FAMILIES = {
    # The file's reader knows the pattern of layers, and how far those with positions see.
    "llama4_text": ([0, 1, 0, 3], {"interleave_moe_layer_step": 2, "moe_layers": [1, 3],
                                   "attention_chunk_size": 8192, "floor_scale": 8192}, {}),
    "qwen3_vl_moe_text": ([0, 1], {}, {}),
    "lfm2_moe": ([0, 1, 2, 3], {}, {}),
    # As published, without keys of YaRN's factor, which such files do not have.
    "solar_open": ([0, 1], {"rope_parameters": {
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "beta_fast": 32.0,
        "beta_slow": 1.0, "original_max_position_embeddings": 128,
        "partial_rotary_factor": 1.0}}, {}),
    "deepseek_v32": ([0, 1], {}, SIGMOID),
    "glm_moe_dsa": ([0, 2], {"indexer_types": ["full", "shared"]}, SIGMOID),
    "cohere2_moe": ([0, 1, 3], {}, {}),
    # The reader knows the limit of the published models, too.
    "minimax_m3_vl_text": ([0, 1, 3], {"swiglu_limit": 7.0}, SIGMOID | {
        "n_shared_experts": 1, "moe_layer_freq": [0, 1, 1],
        "sparse_attention_config": {
            "sparse_num_index_heads": 2, "sparse_index_dim": 32, "sparse_topk_blocks": 3,
            "sparse_block_size": 4, "sparse_local_block": 1}}),
    "bailing_hybrid": ([0, 1, 3], {
        "expert_swiglu_limit_list": [0.0, 0.05, 0.04],
        "share_expert_swiglu_limit_list": [0.0, 0.0, 0.03]}, {
        "architectures": ["BailingMoeV3ForCausalLM"], "layer_group_size": 3, "head_dim": 32,
        "max_position_embeddings": 512, "num_experts_per_tok": 2, "n_group": 4,
        "norm_topk_prob": True, "no_kda_lora": True, "score_function": "sigmoid",
        "gated_attention_proj_granularity_type": "head_wise",
        "moe_shared_expert_intermediate_size": 32}),
    # The last ratio is that of a layer that predicts.
    "deepseek_v4": ([0, 1, 2], {}, {
        "compress_ratios": [0, 8, 4, 0], "num_hash_layers": 2, "rope_scaling": {
            "type": "yarn", "factor": 4.0, "beta_fast": 32, "beta_slow": 1,
            "original_max_position_embeddings": 128}}),
    # Rows of 32 numbers, which blocks hold. The file's reader knows the gate.
    "qwen4_exp_text": ([0, 3], {
        "heads_per_ngram": 1, "output_gate_type": "sigmoid", "full_attention_interval": 2}, {
        "layer_types": ["linear_attention", "full_attention"]}),
    "glm5_next_text": ([0, 1, 2], {}, SIGMOID | {
        "mla_use_nope": True, "first_k_dense_replace": 1, "linear_attn_config": {
            "num_heads": 4, "head_dim": 32, "short_conv_kernel_size": 4,
            "gate_lower_bound": -5.0}}),
    # Queries grow from position 16.
    "mistral4": ([0, 1], {}, {"architectures": ["Mistral3ForConditionalGeneration"]}),
    # Some layers without positions, which the converter takes from the older key.
    "granite_swa": ([0, 1, 2], {"layer_rope_theta": [0, 10000.0, 10000.0]}, {
        "no_rope_layers": [0, 1, 1], "rope_theta": 10000.0}),
    "granitemoe_swa": ([0, 1], {"layer_rope_theta": [10000.0, 0]}, {
        "no_rope_layers": [1, 0], "rope_theta": 10000.0}),
    # One low rank of queries, and shared experts as wide as the others, as the converter wants.
    "dots3_note_text": ([0, 2, 3], {
        "swa_q_lora_rank": 64, "moe_shared_expert_intermediate_size": 32}, SIGMOID),
    "axk2": ([0, 1], {}, SIGMOID | {"first_k_dense_replace": 1}),
    "mimo_v2_flash": ([0, 1, 3], {}, SIGMOID | {
        "topk_method": "noaux_tc", "hybrid_layer_pattern": [0, 1, 0],
        "swa_num_attention_heads": 4, "swa_num_key_value_heads": 4, "swa_head_dim": 48,
        "swa_v_head_dim": 32, "layernorm_epsilon": 1e-6, "rms_norm_eps": None,
        "rope_theta": 5000000.0, "swa_rope_theta": 10000.0, "partial_rotary_factor": 0.334,
        "rope_parameters": None}),
}
LISTS = ("layer_types", "mlp_layer_types", "indexer_types", "no_rope_layers")


def taken(config, tensors, layers):
    """The checkpoint with these of its layers."""
    config = dict(config)
    text = config.get("text_config", config)
    for key in LISTS:
        if isinstance(text.get(key), list):
            text[key] = [text[key][layer] for layer in layers]
    text["num_hidden_layers"] = len(layers)
    out = {}
    for name, value in tensors.items():
        value = value.float() if value.is_floating_point() else value
        match = re.match(r"(.*\blayers\.)(\d+)(\..*)", name)
        if match is None:
            out[name] = value
            continue
        for to, layer in enumerate(layers):
            if layer == int(match[2]):
                out[f"{match[1]}{to}{match[3]}"] = value.clone()
    return config, out


def with_wide_rows(tensors):
    """Qwen3.8's table with one head of 32 numbers where it had two of 16."""
    heads = {"sizes": torch.tensor([1009, 1013]), "offsets": torch.tensor([0, 1009])}
    return {name: heads[name.rpartition("_")[2]] if "ngram_heads_" in name else
            value.reshape(-1, 32) if ".shard_" in name else value
            for name, value in tensors.items()}


def as_dots3_is_converted(tensors):
    """Windowed layers with as low a rank of queries as the others, at random, and shared experts
    that are cut."""
    seed = torch.Generator().manual_seed(11)
    out = {}
    for name, value in tensors.items():
        if ".q_a_" in name and value.shape[0] == 32 or ".q_b_" in name and value.shape[1] == 32:
            wide = [64 if extent == 32 else extent for extent in value.shape]
            value = value.mean() + value.std() * torch.randn(wide, generator=seed)
        if ".shared_experts." in name:
            value = value[:, :32] if "down_proj" in name else value[:32]
        out[name] = value.contiguous()
    return out


def with_gate_apart(tensors, config):
    """A.X-K2's queries see the normed half of their input alone, and its gates the other."""
    rank, value_rows = config["q_lora_rank"], config["v_head_dim"]
    out = dict(tensors)
    for name, value in tensors.items():
        if name.endswith("q_b_proj.weight"):
            heads = value.reshape(config["num_attention_heads"], -1, 2 * rank).clone()
            heads[:, :-value_rows, rank:] = 0
            heads[:, -value_rows:, :rank] = 0
            out[name] = heads.reshape(value.shape)
    return out


V4_EXPERT = re.compile(r"layers\.(\d+)\.ffn\.experts\.(\d+)\.(w[123])\.weight$")
V4_STACKS = {"ffn_gate_exps": "w1", "ffn_down_exps": "w2", "ffn_up_exps": "w3"}


def fp4(name, value):
    """An expert's matrix as DeepSeek-V4 has it: two codes a byte, a power of 2 for each 32."""
    kind = gguf.GGMLQuantizationType.MXFP4
    blocks = torch.from_numpy(gguf.quants.quantize(value.numpy(), kind))
    blocks = blocks.reshape(value.shape[0], -1, 17)
    codes = torch.cat([blocks[:, :, 1:] & 15, blocks[:, :, 1:] >> 4], dim=-1)
    packed = codes[:, :, 0::2] | codes[:, :, 1::2] << 4
    return {name: packed.reshape(value.shape[0], -1).contiguous(),
            name.removesuffix("weight") + "scale": blocks[:, :, 0].contiguous()}


def fp8(name, value):
    """A matrix whose tiles of 128 rows and columns all have the same power of 2."""
    exponent = int(torch.ceil(torch.log2(value.abs().max() / 448)))
    scale = torch.full([-(-extent // 128) for extent in value.shape], exponent + 127)
    return {name: (value * 2.0 ** -exponent).to(torch.float8_e4m3fn),
            name.removesuffix("weight") + "scale": scale.to(torch.uint8)}


def as_v4(tensors, only_experts=False):
    """Experts in 4 bits, and other large matrices in 8 bits, which the file has as Q8_0."""
    out = {}
    for name, value in tensors.items():
        if V4_EXPERT.match(name):
            out |= fp4(name, value)
        elif not only_experts and re.search(r"\.w(q_[ab]|kv|o_[ab]|[123])\.weight$", name):
            out |= fp8(name, value)
        else:
            out[name] = value
    return out


def quantise_all(model_class):
    """As llama.cpp's llama-quantize, which takes every matrix of DeepSeek-V4, mixes of streams
    and biases of entries among them."""
    forced = model_class.tensor_force_quant

    def force(self, name, new_name, bid, n_dims):
        if self.ftype != gguf.LlamaFileType.ALL_F32 and re.search(r"hc_\w+_fn|_ape", new_name):
            return gguf.GGMLQuantizationType.Q8_0
        return forced(self, name, new_name, bid, n_dims)

    model_class.tensor_force_quant = force


def convert(folder, config, tensors, ftype):
    """The converter's file, as tensors by name."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    model_class = conversion.get_model_class(config["architectures"][0])
    # Mistral's hands its work to a class of its own.
    for worker in (model_class, getattr(model_class, "Mistral4Model", model_class)):
        worker.set_vocab = lambda self: None
    if config["model_type"] == "deepseek_v4":
        quantise_all(model_class)
    gguf.GGUFWriter.add_chat_template = lambda self, template: None
    with torch.inference_mode():
        model_class(folder, ftype, folder / "model.gguf", eager=True, model_name="tiny",
                    hparams=config | config.get("text_config", {})).write()
    reader = gguf.GGUFReader(folder / "model.gguf")
    return {tensor.name: tensor for tensor in reader.tensors}


def decoded(converted, places, tensors):
    """The checkpoint's tensors with the numbers that the converted file has of them."""
    names = [name for name, value in tensors.items() if value.is_floating_point()]
    starts = np.cumsum([0] + [tensors[name].numel() for name in names])
    flat = torch.cat([tensors[name].reshape(-1) for name in names]).numpy().copy()
    experts = {}
    for name, tensor in converted.items():
        if tensor.tensor_type in (gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.I32):
            continue
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if tensor.tensor_type == gguf.GGMLQuantizationType.MXFP4:
            block, part = name.split(".")[1:3]
            experts |= {f"layers.{block}.ffn.experts.{i}.{V4_STACKS[part]}.weight":
                        torch.from_numpy(own.copy()) for i, own in enumerate(values)}
            continue
        flat[np.array(places[name].data).astype(np.int64).reshape(-1)] = values.reshape(-1)
    return tensors | {
        name: torch.from_numpy(flat[starts[i]:starts[i + 1]].reshape(tensors[name].shape))
        for i, name in enumerate(names)} | experts


def limited(gate, up, limit):
    return (torch.nn.functional.silu(gate).clamp(max=limit) * up.clamp(-limit, limit))


def limit_units(model, config):
    """transformers has no limits in Ling's units; the publisher's code in sglang has these."""
    linear = torch.nn.functional.linear

    def routed(experts, limit):
        def forward(x, chosen, weights):
            out = torch.zeros_like(x)
            for token, (ids, own) in enumerate(zip(chosen, weights)):
                for expert, weight in zip(ids, own):
                    gate, up = linear(x[token], experts.gate_up_proj[expert]).chunk(2, dim=-1)
                    out[token] += weight * linear(limited(gate, up, limit),
                                                  experts.down_proj[expert])
            return out
        return forward

    def shared(mlp, limit):
        return lambda x: mlp.down_proj(limited(mlp.gate_proj(x), mlp.up_proj(x), limit))

    for i, layer in enumerate(model.model.layers):
        if config["expert_swiglu_limit_list"][i] > 0:
            layer.mlp.experts.forward = routed(layer.mlp.experts,
                                               config["expert_swiglu_limit_list"][i])
        if config["share_expert_swiglu_limit_list"][i] > 0:
            layer.mlp.shared_experts.forward = shared(layer.mlp.shared_experts,
                                                      config["share_expert_swiglu_limit_list"][i])


# The vision tower gets these sizes and random weights; a text does not use it.
VISION = {"depth": 1, "num_hidden_layers": 1, "hidden_size": 16, "intermediate_size": 16,
          "out_hidden_size": 64, "num_heads": 2, "num_attention_heads": 2, "patch_size": 2,
          "deepstack_visual_indexes": [0], "num_position_embeddings": 4}


def logits_of(config, tensors, tokens):
    if config["model_type"] in ("minimax_m3_vl_text", "glm5_next_text"):
        config = {"architectures": config["architectures"],
                  "model_type": config["model_type"].removesuffix("_text"),
                  "text_config": config, "vision_config": {}}
    if "vision_config" in config:
        config["vision_config"] = VISION
    if config["model_type"] == "qwen3_vl_moe":
        # transformers turns experts around by their shape, which here says nothing.
        tensors = {name: value.transpose(1, 2).contiguous() if ".experts." in name else value
                   for name, value in tensors.items()}
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
        save_file(tensors, pathlib.Path(folder) / "model.safetensors", {"format": "pt"})
        sees = "vision_config" in config
        auto = transformers.AutoModelForImageTextToText if sees else (
            transformers.AutoModelForCausalLM)
        if config["model_type"] == "mistral4":
            auto = transformers.Mistral4ForCausalLM  # which no auto class has
        model, info = auto.from_pretrained(folder, dtype=torch.float32, output_loading_info=True,
                                           attn_implementation="eager",
                                           experts_implementation="eager")
    lacks = [name for name in info["missing_keys"] if not re.search("visual|vision|modal", name)]
    assert not lacks and not info["unexpected_keys"], (lacks, info["unexpected_keys"])
    if "expert_swiglu_limit_list" in config:
        limit_units(model, config)
    return model.eval()(input_ids=tokens).logits[0].float()


def main(models, target, families):
    for family in families:
        source = pathlib.Path(models) / family
        layers, changed, published = FAMILIES[family]
        config, tensors = taken(json.loads((source / "config.json").read_text()),
                                load_file(source / "model.safetensors"), layers)
        config |= changed
        tensors = {name: value for name, value in tensors.items() if "visual" not in name}
        if family == "qwen4_exp_text":
            tensors = with_wide_rows(tensors)
        if family == "dots3_note_text":
            tensors = as_dots3_is_converted(tensors)
        if family == "axk2":
            tensors = with_gate_apart(tensors, config)
        floats = {n: value for n, value in tensors.items() if value.is_floating_point()}
        starts = np.cumsum([0] + [value.numel() for value in floats.values()])
        indices = {name: torch.arange(start, start + value.numel()).float().reshape(value.shape)
                   for start, (name, value) in zip(starts, floats.items())}
        folder = pathlib.Path(target) / f"gguf-{family.removesuffix('_text')}"
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as work:
            work = pathlib.Path(work)
            # 1-D tensors are not moved, only mapped; their own values keep the converter's checks.
            moved = {n: indices[n] if n in floats and value.ndim > 1 else value
                     for n, value in tensors.items()}
            stored = tensors
            if family == "axk2":  # whose converter wants zeros where there were
                moved = with_gate_apart(moved, config)
            if family == "deepseek_v4":
                moved = {n: tensors[n] if V4_EXPERT.match(n) else moved[n] for n in tensors}
                stored, moved = as_v4(tensors), as_v4(moved, only_experts=True)
            file = convert(work / family, config | published, stored,
                           gguf.LlamaFileType.MOSTLY_Q8_0)
            places = convert(work / "places", config | published, moved,
                             gguf.LlamaFileType.ALL_F32)
            back = decoded(file, places, tensors)
            (folder / "model.gguf").write_bytes((work / family / "model.gguf").read_bytes())
        text = config.get("text_config", config)
        tokens = torch.randint(0, text["vocab_size"], (1, TOKENS),
                               generator=torch.Generator().manual_seed(5))
        with torch.no_grad():
            logits = logits_of(config, back, tokens)
        save_file({"tokens": tokens[0].int(), "logits": logits.contiguous()},
                  folder / "golden.safetensors",
                  {"source": f"transformers {transformers.__version__} torch 2.11 float32 cpu, "
                             "llama.cpp's converter"})
        print(family, "logits", logits.std().item())


if __name__ == "__main__":
    main(*sys.argv[2:4], sys.argv[4:])
