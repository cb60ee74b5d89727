"""Makes GGUF files of random_configs.py's models by llama.cpp's converter, without a vocabulary."""
import contextlib
import json
import logging
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file

# Classes of publishers, which the converter knows in the place of transformers' own.
PUBLISHED = {"BailingHybridForCausalLM": "BailingMoeV3ForCausalLM",
             "Mistral4ForCausalLM": "Mistral3ForConditionalGeneration"}


def every(interval, at, one, other):
    """Kinds of layers: the at-th of each `interval` layers is of another."""
    return lambda c: [one if i % interval == at else other for i in range(c["num_hidden_layers"])]


FULL, SLIDING = "full_attention", "sliding_attention"
# Options without a key in files, as published models have them.
GIVEN = {
    "mistral": {"sliding_window": None},
    "gemma3_text": {"layer_types": every(6, 5, FULL, SLIDING),
                    "query_pre_attn_scalar": lambda c: c["head_dim"]},
    "gpt_oss": {"layer_types": every(2, 0, SLIDING, FULL)},
    "mellum": {"mlp_layer_types": every(1, 0, "sparse", "")},
    "laguna": {"layer_types": every(4, 0, FULL, SLIDING),
               "mlp_layer_types": lambda c: sorted(c["mlp_layer_types"]),
               "gating": lambda c: c.get("gating", True)},
    "nemotron_h": {"layers_block_type": lambda c: [
        "moe" if kind == "mlp" else kind for kind in c["layers_block_type"]]},
    "llama4_text": {
        "attention_chunk_size": 8192, "floor_scale": 8192, "no_rope_layers": every(4, 3, 0, 1),
        "layer_types": every(4, 3, FULL, "chunked_attention"),
        "moe_layers": lambda c: [i for i in range(c["num_hidden_layers"])
                                 if (i + 1) % c["interleave_moe_layer_step"] == 0]},
    "solar_open": {"rope_parameters": lambda c: {
        key: value for key, value in c["rope_parameters"].items() if "mscale" not in key}},
    "afmoe": {"mup_enabled": True, "layer_types": every(4, 3, FULL, SLIDING)},
    "step3p5": {"rope_parameters": lambda c: {
        FULL: c["rope_parameters"][FULL] | {"partial_rotary_factor": 0.5},
        SLIDING: {"rope_type": "default", "partial_rotary_factor": 1.0,
                  "rope_theta": c["rope_parameters"][SLIDING]["rope_theta"]}}},
    "qwen4_exp_text": {"output_gate_type": "sigmoid"},
    "dots3_note_text": {
        "n_group": 1, "topk_group": 1, "swa_q_lora_rank": lambda c: c["q_lora_rank"],
        "moe_shared_expert_intermediate_size": lambda c: c["moe_intermediate_size"]},
} | {name: {"linear_num_heads": lambda c: c["num_attention_heads"]} | (
    {"num_expert_group": 1, "topk_group": 1} if name == "kimi_linear" else {})
     for name in ("kimi_linear", "bailing_hybrid", "glm5_next_text")}


def given(config):
    """The config with what its files take for granted."""
    out = dict(config)
    for key, value in GIVEN.get(config["model_type"], {}).items():
        with contextlib.suppress(KeyError):  # a class has defaults
            out[key] = value(out) if callable(value) else value
    return out


def words(c, tensors):
    """Keys that converters read in the place of transformers' own."""
    if c.get("layer_rope_theta"):
        yield "no_rope_layers", [int(bool(base)) for base in c["layer_rope_theta"]]
        yield "rope_theta", max(c["layer_rope_theta"])
    kinds = {"linear_attention": "mamba", FULL: "attention"} if (
        c["model_type"] == "granitemoehybrid") else {"indexed_attention": FULL}
    if c.get("layer_types"):
        yield "layer_types", [kinds.get(kind, kind) for kind in c["layer_types"]]
    if c.get("mlp_layer_types"):
        yield "first_k_dense_replace", c["mlp_layer_types"].count("dense")
    if c["model_type"] in ("deepseek_v3", "deepseek_v32", "glm_moe_dsa", "glm4_moe_lite",
                           "mimo_v2_flash", "dots3_note_text", "glm5_next_text", "exaone_moe"):
        yield "scoring_func", "sigmoid"
    if c["model_type"] == "minimax_m2" and "rotary_dim" not in c:
        rope = c.get("rope_parameters") or c
        yield "rotary_dim", int(rope.get("partial_rotary_factor", 1.0) * c["head_dim"])
    if c["model_type"] == "step3p5":
        full, sliding = (c["rope_parameters"][kind] for kind in (FULL, SLIDING))
        slides = [kind == SLIDING for kind in c["layer_types"]]
        yield from {"num_attention_groups": c["num_key_value_heads"], "norm_expert_weight": True,
                    "attention_other_setting": {
                        "num_attention_heads": c["num_sliding_attention_heads"],
                        "num_attention_groups": c["num_key_value_heads"]},
                    "moe_num_experts": c["n_routed_experts"], "moe_top_k": c["num_experts_per_tok"],
                    "moe_layers_enum": ",".join(
                        str(i) for i, kind in enumerate(c["mlp_layer_types"]) if kind == "sparse"),
                    "partial_rotary_factors": [1.0 if own else 0.5 for own in slides],
                    "rope_theta": [full["rope_theta"], sliding["rope_theta"]],
                    "rope_parameters": full}.items()
    if c["model_type"] == "kimi_linear":
        yield "moe_router_activation_func", "sigmoid"
        full = [i + 1 for i, kind in enumerate(c["layer_types"]) if "full" in kind]
        linear = [i + 1 for i, kind in enumerate(c["layer_types"]) if "full" not in kind]
        yield "linear_attn_config", {
            "full_attn_layers": full, "kda_layers": linear, "head_dim": c["linear_head_dim"],
            "num_heads": c["linear_num_heads"], "short_conv_kernel_size":
            c["linear_conv_kernel_dim"]}
        yield "moe_layer_freq", 1
    if c["model_type"] == "glm5_next_text":
        yield "mla_use_nope", True
        yield "linear_attn_config", {
            "num_heads": c["linear_num_heads"], "head_dim": c["linear_head_dim"],
            "short_conv_kernel_size": c["linear_conv_kernel_dim"],
            "gate_lower_bound": c["linear_lower_bound"]}
    if c["model_type"] == "bailing_hybrid":
        yield from {"no_kda_lora": True, "gated_attention_proj_granularity_type": "head_wise",
                    "head_dim": c["linear_head_dim"], "n_group": c["num_expert_group"],
                    "num_experts_per_tok": c["num_experts_per_token"],
                    "norm_topk_prob": c["moe_renormalize"], "score_function": "sigmoid",
                    "max_position_embeddings": c["model_max_length"],
                    "short_conv_kernel_size": c["linear_conv_kernel_dim"],
                    "moe_shared_expert_intermediate_size": c["moe_intermediate_size"]}.items()
    if c["model_type"] == "mimo_v2_flash":
        rope = c["rope_parameters"]
        yield from {"topk_method": "noaux_tc", "swa_num_attention_heads": c["num_attention_heads"],
                    "hybrid_layer_pattern": [int(kind == SLIDING) for kind in c["layer_types"]],
                    "swa_num_key_value_heads": max(
                        len(tensor) // c["head_dim"] for name, tensor in tensors.items()
                        if name.endswith("k_proj.weight")),
                    "swa_head_dim": c["head_dim"], "swa_v_head_dim": c["v_head_dim"],
                    "layernorm_epsilon": c["rms_norm_eps"], "rms_norm_eps": None,
                    "rope_theta": rope[FULL]["rope_theta"],
                    "swa_rope_theta": rope[SLIDING]["rope_theta"], "rope_parameters": None,
                    "partial_rotary_factor": rope[FULL]["partial_rotary_factor"]}.items()


def without_vocabulary(model):
    """Writes how many tokens there are, which a vocabulary would say."""
    writer, key = model.gguf_writer, f"{model.gguf_writer.arch}.vocab_size"
    writer.add_tokenizer_model("none")
    if not any(key in data for data in writer.kv_data):
        writer.add_vocab_size(model.hparams["vocab_size"])


class Converter:
    """`sources`: llama.cpp's folder."""

    def __init__(self, sources):
        sys.path[:0] = [str(sources), str(pathlib.Path(sources) / "gguf-py")]
        import conversion  # pylint: disable=import-outside-toplevel
        import gguf  # pylint: disable=import-outside-toplevel
        self.conversion, self.types = conversion, gguf.LlamaFileType
        gguf.GGUFWriter.add_chat_template = lambda writer, template: None
        conversion.ModelBase.no_mtp = True
        logging.disable(logging.WARNING)

    def convert(self, folder, architectures, seed):
        """The file's path. Some are made of what transformers makes of config.json."""
        architecture = PUBLISHED.get(architectures[0], architectures[0])
        model_class = self.conversion.get_model_class(architecture)
        # Mistral's hands its work to a class of its own.
        for worker in (model_class, getattr(model_class, "Mistral4Model", model_class)):
            worker.set_vocab = without_vocabulary
        config = json.loads((folder / "config.json").read_text())
        if seed % 4 == 3:
            config = self.conversion.ModelBase.load_hparams(folder, False)
        config |= {"architectures": [architecture]}
        tensors = load_file(folder / "model.safetensors")
        config |= dict(words(config, tensors))
        source = folder / "published"
        source.mkdir(exist_ok=True)
        dense = "block_sparse_moe.{}_proj" if config["model_type"] == "kimi_linear" else "-"
        renamed = {}
        for name, tensor in tensors.items():
            for part in ("gate", "up", "down"):
                name = name.replace(dense.format(part), f"mlp.{part}_proj")
            renamed[name] = tensor
        save_file(renamed, source / "model.safetensors", {"format": "pt"})
        vocabulary = {f"{token}": token for token in range(config["vocab_size"])}
        (source / "tokenizer.json").write_text(  # of which Gemma's wants the length
            json.dumps({"model": {"vocab": vocabulary}, "added_tokens": []}))
        (source / "config.json").write_text(json.dumps(config))
        plain = self.types.MOSTLY_BF16 if seed % 8 == 5 else self.types.ALL_F32
        path = folder / "model.gguf"
        with torch.inference_mode():
            model_class(source, plain, path, eager=True, model_name="tiny",
                        hparams=config).write()
        return path
