#!/usr/bin/env python3
"""The residual streams of the models of tests/golden/models that have several, as transformers
computes them in float64.

Adds to FOLDER/golden.safetensors
- `streams` [layers + 1, tokens, streams * hidden] f32: before the first layer, and after each;
- `collapsed` [tokens, hidden] f32: what the head's matrix sees.
The tokens are those that are there, and so are the logits, which have to come out again.

usage: stream_golden.py FOLDER...        (transformers 5.24, torch 2.15, safetensors)
"""
import pathlib
import sys

import golden_models
import torch
from safetensors import safe_open
from safetensors.torch import save_file

LOGITS_MOST_OFF = 2e-5


def read(path):
    with safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()


def layers_of(model):
    inner = model.model
    return inner.layers if hasattr(inner, "layers") else inner.language_model.layers


def states_of(model, tokens):
    """Logits, streams around layers, and the head's input."""
    streams, collapsed = [], []
    layers = layers_of(model)

    def keep_input(_, args):
        streams.append(args[0])

    def keep_output(_, args, output):
        streams.append(output[0] if isinstance(output, tuple) else output)

    hooks = [layers[0].register_forward_pre_hook(keep_input)]
    hooks += [layer.register_forward_hook(keep_output) for layer in layers]
    hooks.append(model.lm_head.register_forward_pre_hook(lambda _, args: collapsed.append(args[0])))
    with torch.no_grad():
        logits = model(input_ids=tokens[None].long()).logits[0]
    for hook in hooks:
        hook.remove()
    assert len(streams) == len(layers) + 1 and len(collapsed) == 1
    return logits, torch.stack([s[0].flatten(1) for s in streams]), collapsed[0][0]


def main(folders):
    for folder in map(pathlib.Path, folders):
        golden, metadata = read(folder / "golden.safetensors")
        with golden_models.in_float64():
            model = golden_models.load(folder, torch.float64)
            logits, streams, collapsed = states_of(model, golden["tokens"])
        off = (logits - golden["logits"]).abs().max().item()
        print(folder.name, "logits off by", off, "streams", list(streams.shape),
              "of", streams.std().item(), "collapsed", list(collapsed.shape))
        assert off < LOGITS_MOST_OFF
        golden["streams"] = streams.to(torch.float32).contiguous()
        golden["collapsed"] = collapsed.to(torch.float32).contiguous()
        metadata["streams"] = f"{golden_models.versions()} float64 cpu eager"
        save_file(golden, folder / "golden.safetensors", metadata)


if __name__ == "__main__":
    main(sys.argv[1:])
