"""The models of tests/golden/models in transformers, for the scripts beside this one."""
import contextlib
import json
import pathlib
import re
import tempfile

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file
from transformers.models.glm5_next import modeling_glm5_next
from transformers.models.muse_glimmer import modeling_muse_glimmer
from transformers.models.muse_spark import modeling_muse_spark

TEXT_PREFIX = "model.language_model."


class GlmText(torch.nn.Module):
    """GLM-5.3-Flash's text alone: transformers has it inside a model that also sees."""

    def __init__(self, model, head):
        super().__init__()
        self.model = model
        self.lm_head = torch.nn.Linear(head.shape[1], head.shape[0], bias=False)
        self.lm_head.weight = torch.nn.Parameter(head)

    def forward(self, input_ids, use_cache=False):
        hidden = self.model(input_ids=input_ids, use_cache=use_cache).last_hidden_state
        return transformers.modeling_outputs.CausalLMOutput(logits=self.lm_head(hidden))


class MuseText(GlmText):
    """The text of Muse Glimmer or Spark alone, likewise."""

    def forward(self, input_ids, use_cache=False):
        cap, factor = self.model.config.final_logit_softcapping, self.model.config.output_multiplier
        logits = super().forward(input_ids, use_cache).logits
        logits = cap * torch.tanh(logits * factor / cap)
        return transformers.modeling_outputs.CausalLMOutput(logits=logits)


TEXTS = {"glm5_next_text": (modeling_glm5_next.Glm5NextTextModel, GlmText),
         "muse_glimmer_text": (modeling_muse_glimmer.MuseGlimmerTextModel, MuseText),
         "muse_spark_text": (modeling_muse_spark.MuseSparkTextModel, MuseText)}


def load_text(folder, options, text_model, whole):
    config = json.loads((folder / "config.json").read_text())
    with safe_open(folder / "model.safetensors", "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}
    head = tensors.pop("lm_head.weight").to(options["dtype"])
    with tempfile.TemporaryDirectory() as text:
        (pathlib.Path(text) / "config.json").write_text(json.dumps(config))
        save_file({name.removeprefix(TEXT_PREFIX): tensor for name, tensor in tensors.items()},
                  pathlib.Path(text) / "model.safetensors", {"format": "pt"})
        model, report = text_model.from_pretrained(text, **options)
    return whole(model, head), report


NO_AUTO = {"mistral4": transformers.Mistral4ForCausalLM}  # which no auto class has
# Texts whose published names only the model that also sees translates.
SEEING = {"inkling_text": "inkling_mm_model", "mistral_large4_text": "mistral_large4",
          "step3p5": "step3p7"}
SMALL_VISION = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
                "num_attention_heads": 2, "head_dim": 8, "image_size": 8, "patch_size": 2,
                "width": 16, "layers": 1, "heads": 2}


def load_seeing(folder, options, model_type):
    """The text within a model that also sees, at random, which a text does not use."""
    config = {"model_type": model_type, "vision_config": SMALL_VISION,
              "text_config": json.loads((folder / "config.json").read_text())}
    with tempfile.TemporaryDirectory() as whole:
        (pathlib.Path(whole) / "config.json").write_text(json.dumps(config))
        (pathlib.Path(whole) / "model.safetensors").symlink_to(folder / "model.safetensors")
        model, report = transformers.AutoModelForImageTextToText.from_pretrained(whole, **options)
    lacks = {name for name in report["missing_keys"] if not re.search("audio|vision|modal", name)}
    return model, report | {"missing_keys": lacks}


def load(folder, dtype):
    """The model of a folder, of which every tensor has been taken and none made up."""
    folder = pathlib.Path(folder)
    options = {"dtype": dtype, "attn_implementation": "eager", "experts_implementation": "eager",
               "output_loading_info": True}
    model_type = json.loads((folder / "config.json").read_text())["model_type"]
    if model_type in TEXTS:
        model, report = load_text(folder, options, *TEXTS[model_type])
    elif model_type in SEEING:
        model, report = load_seeing(folder, options, SEEING[model_type])
    else:
        auto = NO_AUTO.get(model_type, transformers.AutoModelForCausalLM)
        model, report = auto.from_pretrained(folder, **options)
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
