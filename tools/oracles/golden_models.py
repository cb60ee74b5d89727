"""The models of tests/golden/models in transformers, for the scripts beside this one."""
import contextlib
import json
import pathlib
import tempfile

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file
from transformers.models.glm5_next import modeling_glm5_next

GLM_PREFIX = "model.language_model."


class GlmText(torch.nn.Module):
    """GLM-5.3-Flash's text alone: transformers has it inside a model that also sees."""

    def __init__(self, model, head):
        super().__init__()
        self.model = model
        self.lm_head = torch.nn.Linear(head.shape[1], head.shape[0], bias=False)
        self.lm_head.weight = torch.nn.Parameter(head)

    def forward(self, input_ids):
        hidden = self.model(input_ids=input_ids, use_cache=False).last_hidden_state
        return transformers.modeling_outputs.CausalLMOutput(logits=self.lm_head(hidden))


def load_glm(folder, options):
    config = json.loads((folder / "config.json").read_text())
    with safe_open(folder / "model.safetensors", "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}
    head = tensors.pop("lm_head.weight").to(options["dtype"])
    with tempfile.TemporaryDirectory() as text:
        (pathlib.Path(text) / "config.json").write_text(json.dumps(config))
        save_file({name.removeprefix(GLM_PREFIX): tensor for name, tensor in tensors.items()},
                  pathlib.Path(text) / "model.safetensors", {"format": "pt"})
        model, report = modeling_glm5_next.Glm5NextTextModel.from_pretrained(text, **options)
    return GlmText(model, head), report


def load(folder, dtype):
    """The model of a folder, of which every tensor has been taken and none made up."""
    folder = pathlib.Path(folder)
    options = {"dtype": dtype, "attn_implementation": "eager", "experts_implementation": "eager",
               "output_loading_info": True}
    if json.loads((folder / "config.json").read_text())["model_type"] == "glm5_next_text":
        model, report = load_glm(folder, options)
    else:
        model, report = transformers.AutoModelForCausalLM.from_pretrained(folder, **options)
    assert not any(report.values()), report
    return model.eval()


@contextlib.contextmanager
def in_float64():
    """Where transformers' code asks for float32 by name, it gets float64."""
    kept = torch.float32, torch.float, torch.Tensor.float, torch.get_default_dtype()
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.float32, torch.float, torch.Tensor.float = kept[:3]
        torch.set_default_dtype(kept[3])


def versions():
    return f"transformers {transformers.__version__} torch {torch.__version__}"
