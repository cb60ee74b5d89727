#!/usr/bin/env python3
"""Converts tiny Hugging Face checkpoints with mlx-lm (PyPI: `mlx[cpu]` and `mlx-lm`), at 0, 4 and 8
bits, and compares its logits with those of moeflux at every position. Needs no other package.

Usage: mlx_lm_logits.py MOEFLUX GOLDENS WORK [FAMILY ...]
GOLDENS has a folder a family as tests/golden/models does; WORK is an empty folder or a new one.
Both programs compute in f32 on the CPU from the same file: mlx-lm's conversion and, in the last two
columns, what `moeflux quantize` writes. The columns before compare with the golden's logits, which
transformers computed from the weights before the conversion: qwen3_next and qwen3_5_moe_text lose
bits there, since mlx-lm adds the one of their norms in bf16. The exit status is 1 when a family
differs by more than 1e-3.
"""

import contextlib
import json
import pathlib
import shutil
import subprocess
import sys

import mlx.core as mx
import numpy
from mlx_lm import convert
from mlx_lm.utils import load_model

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOKENIZER = ROOT / "tests" / "golden" / "tokenizer" / "gpt2.tokenizer.json"
GROUP_SIZE = 32  # divides most of the tiny widths; mlx-lm leaves the others as they are
TOLERANCE = 1e-3
# mlx-lm rounds YaRN's corner dimensions whatever `truncate` says, so what differs there is mlx-lm.
WRONG_THERE = ["gpt_oss"]
FAMILIES = [
    "deepseek_v2",
    "deepseek_v3",
    "gemma4_text",
    "glm4_moe",
    "glm4_moe_lite",
    "gpt_oss",
    "gpt_oss+truncate",
    "lfm2_moe",
    "mimo_v2_flash",
    "minimax_m2",
    "mixtral",
    "olmoe",
    "qwen2_moe",
    "qwen3_5_moe_text",
    "qwen3_moe",
    "qwen3_next",
]


def rope_of(parameters, config):
    """Rotary positions as published files spell them, which is how mlx-lm reads them."""
    config["rope_theta"] = parameters["rope_theta"]
    is_plain = parameters["rope_type"] == "default"
    scaling = {k: v for k, v in parameters.items() if k not in ("rope_theta", "rope_type")}
    config["rope_scaling"] = None if is_plain else {**scaling, "type": parameters["rope_type"]}


def gemma4_config(config):
    config["rope_parameters"] = config.pop("rope_by_layer")
    config["global_head_dim"] = config.pop("per_layer_config")["3"]["head_dim"]


def mimo_config(config):
    rope = config.pop("rope_by_layer")
    sliding = [int(t == "sliding_attention") for t in config.pop("layer_types")]
    config.update(
        hybrid_layer_pattern=sliding,
        moe_layer_freq=[int(t == "sparse") for t in config.pop("mlp_layer_types")],
        add_swa_attention_sink_bias=True,
        add_full_attention_sink_bias=False,
        sliding_window_size=config["sliding_window"],
        n_shared_experts=None,
        topk_method="noaux_tc",
        scoring_func="sigmoid",
        layernorm_epsilon=config["rms_norm_eps"],
        rope_theta=rope["full_attention"]["rope_theta"],
        swa_rope_theta=rope["sliding_attention"]["rope_theta"],
        partial_rotary_factor=rope["full_attention"]["partial_rotary_factor"],
        swa_num_attention_heads=config["num_attention_heads"],
        swa_num_key_value_heads=2 * config["num_key_value_heads"],
        swa_head_dim=config["head_dim"],
        swa_v_head_dim=config["v_head_dim"],
    )


def published_config(config, change):
    """transformers 5 writes rope_parameters and leaves defaults out; mlx-lm knows older keys."""
    rope = config.pop("rope_parameters")
    if "rope_theta" in rope:
        rope_of(rope, config)
    else:
        config["rope_by_layer"] = rope
    kind = config["model_type"]
    if kind not in ("deepseek_v2", "deepseek_v3", "glm4_moe_lite"):
        config.setdefault("head_dim", config["hidden_size"] // config["num_attention_heads"])
    if kind == "qwen3_moe":
        config["num_experts"] = config.pop("num_local_experts")
    if kind == "minimax_m2":
        config.update(rotary_dim=config["head_dim"], shared_intermediate_size=0)
    if kind == "gemma4_text":
        gemma4_config(config)
    if kind == "mimo_v2_flash":
        mimo_config(config)
    if kind == "mixtral":
        config["head_dim"] = config["hidden_size"] // config["num_attention_heads"]
    if change == "truncate":
        config["rope_scaling"]["truncate"] = True
    if kind != "qwen3_5_moe_text":
        return config
    config["rope_parameters"] = rope  # published so, and inside a text_config
    return {"model_type": "qwen3_5_moe", "text_config": config}


def narrow_heads(name, tensor):
    """mlx-lm's Mixtral has heads of hidden_size / heads, as published ones: half of these."""
    if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight")):
        return tensor[: tensor.shape[0] // 2]
    return mx.contiguous(tensor[:, : tensor.shape[1] // 2]) if "o_proj" in name else tensor


def published_tensors(kind, tensors):
    """Experts as published checkpoints of the family have them, where the tiny ones differ."""
    if kind == "gpt_oss":  # rows first, and named as linear modules
        return {
            f"{k}.weight" if k.endswith("_proj") else k: (
                mx.contiguous(v.swapaxes(-1, -2)) if k.endswith("_proj") else v
            )
            for k, v in tensors.items()
        }
    if kind == "mixtral":
        return {k: narrow_heads(k, v) for k, v in tensors.items()}
    if kind != "qwen3_5_moe_text":
        return tensors
    separate = [k for k in tensors if ".experts.0." in k]
    layers = sorted({k.split(".experts.")[0] for k in separate})
    for prefix in layers:
        stacks = {}
        for name in ("gate_proj", "up_proj", "down_proj"):
            of = [k for k in tensors if k.startswith(f"{prefix}.experts.") and f".{name}." in k]
            of.sort(key=lambda k: int(k.split(".experts.")[1].split(".")[0]))
            stacks[name] = mx.stack([tensors.pop(k) for k in of])
        gate_up = mx.concatenate([stacks["gate_proj"], stacks["up_proj"]], axis=1)
        tensors[f"{prefix}.experts.gate_up_proj"] = gate_up
        tensors[f"{prefix}.experts.down_proj"] = stacks["down_proj"]
    return tensors


def tensors_of(folder):
    tensors = {}
    for file in sorted(folder.glob("model*.safetensors")):
        tensors.update(mx.load(str(file)))
    return tensors


def checkpoint(source, change, folder):
    """A copy that mlx-lm opens: spelled as published ones are, and with a tokenizer, which the
    conversion only copies."""
    folder.mkdir(parents=True)
    config = json.loads((source / "config.json").read_text())
    tensors = published_tensors(config["model_type"], tensors_of(source))
    mx.save_safetensors(str(folder / "model.safetensors"), tensors, metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(published_config(config, change), indent=1))
    own = source / "tokenizer.json"
    shutil.copy(own if own.exists() else TOKENIZER, folder / "tokenizer.json")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"})
    )


def logits_of_mlx(folder, tokens):
    model, _ = load_model(folder)
    model.set_dtype(mx.float32)  # scales and biases, too: nothing is rounded on the way
    out = model(mx.array(tokens)[None])
    return numpy.array(out[0].astype(mx.float32))


def logits_of_moeflux(program, model, tokens, device, folder):
    out = folder / "moeflux.safetensors"
    command = [program, "logits", "-m", model, "-o", out, "--device", device]
    command += ["--precision", "f32", "-ctk", "f32", "-ctv", "f32"]
    command += ["--tokens", ",".join(str(t) for t in tokens)]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        raise RuntimeError(run.stderr.strip())
    logits = numpy.array(mx.load(str(out))["logits"])
    out.unlink()
    return logits


def quantized_by_moeflux(program, source, hf, change, bits, folder):
    """moeflux reads gpt_oss as transformers saves it, and what it writes says so."""
    respells = source.name == "gpt_oss"
    shutil.rmtree(folder, ignore_errors=True)
    command = [program, "quantize", "-m", source if respells else hf, "-o", folder]
    command += ["--type", f"affine-{bits}", "--group-size", str(GROUP_SIZE)]
    subprocess.run(command, capture_output=True, check=True)
    if respells:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(published_config(config, change)))


def count_equal(a, b):
    equal = [k for k in a if k in b and a[k].dtype == b[k].dtype and mx.array_equal(a[k], b[k])]
    return f"{len(equal)} of {len(b)}"


def compare(program, goldens, work, family, bits):
    name, _, change = family.partition("+")
    source, hf = goldens / name, work / family / "hf"
    folder = work / family / f"mlx-{bits}"
    if not hf.exists():
        checkpoint(source, change, hf)
    shutil.rmtree(folder, ignore_errors=True)
    settings = {"quantize": True, "q_bits": bits, "q_group_size": GROUP_SIZE} if bits else {}
    with contextlib.redirect_stdout(sys.stderr):
        convert(str(hf), str(folder), **settings)
    golden = mx.load(str(source / "golden.safetensors"))
    tokens = [int(t) for t in numpy.array(golden["tokens"])]
    theirs = logits_of_mlx(folder, tokens)
    ours = [logits_of_moeflux(program, folder, tokens, d, folder) for d in ("reference", "cpu")]
    row = [f"{abs(theirs - o).max():.1e}" for o in ours] + [f"{theirs.std():.2f}"]
    far = max(abs(theirs - o).max() for o in ours) > TOLERANCE
    if bits == 0 and not change and name != "mixtral":
        truth = numpy.array(golden["logits"].astype(mx.float32))
        straight = logits_of_moeflux(program, source, tokens, "reference", folder)
        row += [f"{abs(x - truth).max():.1e}" for x in (theirs, ours[0], straight)]
    row += (6 - len(row)) * [""]
    if bits > 0:
        own = folder.parent / f"own-{bits}"
        quantized_by_moeflux(program, source, hf, change, bits, own)
        own_logits = logits_of_moeflux(program, own, tokens, "reference", own)
        difference = abs(logits_of_mlx(own, tokens) - own_logits).max()
        row += [f"{difference:.1e}", count_equal(tensors_of(own), tensors_of(folder))]
        far = far or difference > TOLERANCE
    return row, far


def main():
    program, goldens, work = (pathlib.Path(a).absolute() for a in sys.argv[1:4])
    mx.set_default_device(mx.cpu)
    print("| family | bits | mlx-lm's file | the same, cpu | deviation of logits", end=" ")
    print("| mlx-lm, transformers | ours, transformers | the same, unconverted", end=" ")
    print("| our file | equal tensors |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    far = 0
    for family in sys.argv[4:] or FAMILIES:
        for bits in (0, 4, 8):
            try:
                cells, is_far = compare(program, goldens, work, family, bits)
                far += is_far and family not in WRONG_THERE
            except Exception as problem:  # one family shall not hide the others
                cells = [" ".join(str(problem).split())[:200]]
                far += 1
            cells += (8 - len(cells)) * [""]
            print(f"| {family} | {bits} | " + " | ".join(cells) + " |", flush=True)
    return int(far > 0)


if __name__ == "__main__":
    sys.exit(main())
