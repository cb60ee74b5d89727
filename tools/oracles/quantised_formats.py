"""Quantised formats of checkpoints by their definitions, with options drawn at random.

A format makes a matrix's tensors and the numbers that they mean, and the section of config.json.
"""
import collections
import re

import torch

E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
AWQ_PLACES = [0, 2, 4, 6, 1, 3, 5, 7]


def packed(codes, bits, places=None):
    """Codes of the last extent in words of 32 bits, the first in the lowest bits."""
    per = 32 // bits
    codes = torch.nn.functional.pad(codes, (0, -codes.shape[-1] % per)).long()
    codes = codes.unflatten(-1, (-1, per))
    if places:
        codes = codes[..., places]
    words = (codes << (bits * torch.arange(per))).sum(-1)
    return torch.where(words >= 1 << 31, words - (1 << 32), words).int()


def stream(codes, bits):
    """Codes of any width one after another in words of 32 bits."""
    ones = (codes.long()[..., None] >> torch.arange(bits)) & 1
    words = (ones.flatten(-2).unflatten(-1, (-1, 32)) << torch.arange(32)).sum(-1)
    return words.to(torch.uint32)


def nibbles(codes):
    codes = codes.unflatten(-1, (-1, 2))
    return (codes[..., 0] | codes[..., 1] << 4).to(torch.uint8)


def nearest_e2m1(values):
    return (values[..., None] - E2M1).abs().argmin(-1)


def powers(values):
    """Bytes of E8M0 above the values, and what they mean."""
    exponents = torch.ceil(torch.log2(values.clamp_min(1e-6))).clamp(-100, 100)
    return (exponents + 127).to(torch.uint8), torch.exp2(exponents)


class Integers:
    """Codes of a matrix with a scale and a zero point for each group of columns."""

    def __init__(self, weight, bits, group, one, symmetric, dtype, order=None):
        rows, cols = weight.shape
        width = cols if group <= 0 else group
        self.map = torch.arange(cols) // width
        if order == "group":
            self.map = self.map[torch.randperm(cols)]
        groups = int(self.map.max()) + 1
        low, high = torch.zeros(rows, groups), torch.zeros(rows, groups)
        for i in range(groups):
            own = weight[:, self.map == i]
            low[:, i], high[:, i] = own.amin(1).clamp_max(0), own.amax(1).clamp_min(0)
        top = (1 << bits) - 1
        if symmetric:
            self.scales = (torch.maximum(-low, high) / (top // 2)).clamp_min(1e-5).to(dtype)
            self.zeros = torch.full((rows, groups), 1 << (bits - 1))
        else:
            self.scales = ((high - low) / top).clamp_min(1e-5).to(dtype)
            self.zeros = (-low / self.scales.float()).round().clamp(one, top).long()
        scales, zeros = self.scales.float()[:, self.map], self.zeros[:, self.map]
        self.codes = (weight / scales + zeros).round().clamp(0, top).long()
        self.values = (self.codes - zeros) * scales


def compressed(name, left, groups):
    return {"quant_method": "compressed-tensors", "format": name, "ignore": left, "config_groups":
            {f"group_{i}": group for i, group in enumerate(groups)}}


def of_linear(**weights):
    return [{"targets": ["Linear"], "weights": {"type": "float", "symmetric": True, **weights}}]


def modelopt(section, flat):
    return {"quant_method": "modelopt"} | (section if flat else {"quantization": section})


def quark(left, weight):
    return {"quant_method": "quark", "exclude": left, "layer_quant_config": {}, "export": {
        "weight_format": "real_quantized", "pack_method": "reorder", "kv_cache_group": []},
            "global_quant_config": {"weight": weight, "bias": None}}


def auto_round(packing, form, bits):
    return {"quant_method": "auto-round", "packing_format": "auto_round" + packing, "bits": bits,
            "group_size": form.group, "sym": form.symmetric, "data_type": "int",
            "autoround_version": "0.9.0"}


class Format:
    """A format with the options that a model has.

    `store` gives a matrix's parts and what they mean, or None where there is no such matrix.
    `store_stack` gives those of all experts of a layer.
    """

    def __init__(self, draw):
        self.draw = draw
        self.one = draw.choice

    keys = ("quantization_config",)

    def store_stack(self, weight, module):
        return None


class Fp8(Format):
    def __init__(self, draw):
        super().__init__(draw)
        self.kind = self.one(["block", "block", "modelopt", "channel", "tensor", "mxfp8",
                              "ct_block", "ct_mxfp8", "pb_wo", "static", "fbgemm", "quark"])
        self.block = self.one([(128, 128), (32, 32), (16, 64), (64, 16), (1, 128), (128, 1)])
        if self.kind in ("ct_block", "pb_wo"):
            self.block = (128, 128)
        self.power = self.kind == "block" and self.one([False, False, True])
        self.dtype = self.one([torch.float32, torch.float32, torch.bfloat16])
        self.flat = self.one([False, True])

    def store(self, weight, module):
        rows, cols = weight.shape
        rows_alone, whole = ("channel", "fbgemm"), ("tensor", "modelopt", "static", "quark")
        block = (1, 32) if "mxfp8" in self.kind else self.block
        if self.kind in rows_alone + whole:
            block = (1 if self.kind in rows_alone else rows, cols)
        if "mxfp8" in self.kind and cols % 32:
            return None
        pad = torch.nn.functional.pad(weight, (0, -cols % block[1], 0, -rows % block[0]))
        tiles = pad.unflatten(1, (-1, block[1])).unflatten(0, (-1, block[0]))
        scales = tiles.abs().amax((1, 3)).clamp_min(1e-4) / 448
        if self.power or "mxfp8" in self.kind:
            stored, scales = powers(scales)
            if self.power:
                stored = stored.view(torch.float8_e8m0fnu)
        else:
            stored = scales.to(self.dtype if self.kind != "modelopt" else torch.float32)
            scales = stored.float()
        codes = (tiles / scales[:, None, :, None]).to(torch.float8_e4m3fn)
        values = codes.float() * scales[:, None, :, None]
        back = [t.flatten(2, 3).flatten(0, 1)[:rows, :cols].contiguous() for t in (codes, values)]
        inverse = self.kind in ("block", "mxfp8", "static")
        name = "weight_scale_inv" if inverse else "weight_scale"
        parts = {"weight": back[0], name: stored}
        if self.kind in whole:
            parts[name] = stored.reshape(()) if self.flat else stored.reshape(1)
        if self.kind == "channel" and self.flat:
            parts[name] = stored.reshape(rows)
        if self.kind == "modelopt":
            parts["input_scale"] = torch.tensor(0.3)
        if self.kind == "static":
            parts["activation_scale"] = torch.tensor(0.3)
        return parts, back[1]

    def store_stack(self, weight, module):
        """Experts [E, rows, cols], whose halves are gate and up, as transformers stores them."""
        if self.kind != "static":
            return None
        halves = self.one([1, 2]) if module.endswith("gate_up_proj") else 1
        own = weight.unflatten(1, (halves, -1))
        scales = own.abs().amax((2, 3), keepdim=True).clamp_min(1e-4) / 448
        codes = (own / scales).to(torch.float8_e4m3fn)
        return {"": codes.flatten(1, 2), "_scale_inv": scales.flatten(2),
                "_activation_scale": torch.full((len(weight),), 0.3)}, (
                    codes.float() * scales).flatten(1, 2)

    def config(self, left):
        if self.kind == "block":
            return {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                    "weight_block_size": list(self.block), "modules_to_not_convert": left} | (
                        {"scale_fmt": "ue8m0"} if self.power else {})
        if self.kind == "static":
            return {"quant_method": "fp8", "activation_scheme": "static", "dequantize": False,
                    "weight_block_size": None, "modules_to_not_convert": left}
        if self.kind == "quark":
            return quark(left, {"dtype": "fp8_e4m3", "qscheme": "per_tensor"})
        if self.kind == "fbgemm":
            return {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0,
                    "modules_to_not_convert": left}
        if self.kind == "mxfp8":
            return {"quant_method": "mxfp8", "weight_block_size": [1, 32], "fmt": "e4m3",
                    "activation_scheme": "dynamic", "ignored_layers": left}
        if self.kind in ("modelopt", "pb_wo"):
            name = "FP8" if self.kind == "modelopt" else "FP8_PB_WO"
            return modelopt({"quant_algo": name, "exclude_modules": left}, self.flat)
        if self.kind == "ct_mxfp8":
            return compressed("mxfp8-quantized", left, of_linear(
                num_bits=8, strategy="group", group_size=32))
        if self.kind == "ct_block":
            return compressed("float-quantized", left, of_linear(
                num_bits=8, strategy="block", block_structure=[128, 128]))
        return compressed("float-quantized", left, of_linear(num_bits=8, strategy=self.kind))


class Fp4(Format):
    def __init__(self, draw):
        super().__init__(draw)
        self.kind = self.one(["nvfp4_ct", "nvfp4_modelopt", "mxfp4_ct", "mxfp4_quark"])
        self.flat = self.one([False, True])

    def store(self, weight, module):
        cols = weight.shape[1]
        width = 32 if "mxfp4" in self.kind else 16
        if cols % width:
            return None
        groups = weight.unflatten(1, (-1, width))
        scales = groups.abs().amax(2).clamp_min(1e-4) / 6
        if "mxfp4" in self.kind:
            stored, whole = powers(scales)
        else:
            outer = (scales.max() / 448 * self.one([1.0, 1.7])).float()
            if self.kind == "nvfp4_ct":
                divisor = 1 / outer
                stored = (scales * divisor).to(torch.float8_e4m3fn)
                whole = stored.float() / divisor
            else:
                stored = (scales / outer).to(torch.float8_e4m3fn)
                whole = stored.float() * outer
        codes = nearest_e2m1(groups / whole[..., None].clamp_min(1e-9))
        values = (E2M1[codes] * whole[..., None]).flatten(1)
        codes = nibbles(codes.flatten(1))
        if self.kind == "nvfp4_modelopt":
            return {"weight": codes, "weight_scale": stored, "weight_scale_2": outer.reshape(
                [] if self.flat else [1]), "input_scale": torch.tensor(0.01)}, values
        name = "weight" if self.kind == "mxfp4_quark" else "weight_packed"
        parts = {name: codes, "weight_scale": stored}
        if self.kind == "nvfp4_ct":
            parts |= {"weight_global_scale": divisor.reshape(1),
                      "input_global_scale": torch.tensor([200.0])}
        return parts, values

    def config(self, left):
        if self.kind == "nvfp4_modelopt":
            return modelopt({"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": left},
                            self.flat)
        if self.kind == "mxfp4_quark":
            return quark(left, {"dtype": "fp4", "qscheme": "per_group", "group_size": 32,
                                "scale_format": "e8m0"})
        if self.kind == "mxfp4_ct":
            return compressed("mxfp4-pack-quantized", left, of_linear(
                num_bits=4, strategy="group", group_size=32))
        return compressed("nvfp4-pack-quantized", left, of_linear(
            num_bits=4, strategy="tensor_group", group_size=16))


class Packed(Format):
    """compressed-tensors' integers, of two schemes in half of the models."""

    def __init__(self, draw):
        super().__init__(draw)
        self.schemes = [{"bits": self.one([4, 4, 8]), "group": self.one([-1, 16, 32, 64, 128, 48]),
                         "symmetric": self.one([True, False])} for _ in range(self.one([1, 2]))]
        self.order = self.one([None, None, "group", "weight", "static", "dynamic"])
        self.dtype = self.one([torch.bfloat16, torch.float16, torch.float32])
        self.said = self.one([True, False])
        self.targets = collections.defaultdict(list)

    def store(self, weight, module):
        rows, cols = weight.shape
        at = self.draw.randrange(len(self.schemes))
        scheme = self.schemes[at]
        group = scheme["group"]
        if cols % max(group, 1) or cols % (32 // scheme["bits"]) or cols % 8:
            return None
        maps = self.order in ("group", "dynamic") and group > 0
        own = Integers(weight, scheme["bits"], group, 0, scheme["symmetric"], self.dtype,
                       "group" if maps else None)
        self.targets[at].append(module)
        parts = {"weight_packed": packed(own.codes, scheme["bits"]),
                 "weight_scale": own.scales,
                 "weight_shape": torch.tensor([rows, cols])}
        if not scheme["symmetric"]:
            parts["weight_zero_point"] = packed(own.zeros.T, scheme["bits"]).T.contiguous()
        if maps:
            parts["weight_g_idx"] = own.map.int()
        return parts, own.values

    def config(self, left):
        groups, inner = [], {} if self.said else {"format": "pack-quantized"}
        for at, names in self.targets.items():
            scheme = self.schemes[at]
            is_group = scheme["group"] > 0
            groups.append(inner | {"targets": names, "weights": {
                "num_bits": scheme["bits"], "type": "int", "symmetric": scheme["symmetric"],
                "strategy": "group" if is_group else "channel",
                "actorder": self.order if is_group else None,
                "group_size": scheme["group"] if is_group else None}})
        return compressed("pack-quantized" if self.said else "mixed-precision", left, groups)


class Int8(Format):
    """compressed-tensors' signed bytes."""

    def __init__(self, draw):
        super().__init__(draw)
        self.group = self.one([-1, -1, 32, 64, 128, 16])
        self.symmetric = self.one([True, True, False])
        self.dtype = self.one([torch.bfloat16, torch.float16, torch.float32])
        self.flat = self.one([True, False])

    def store(self, weight, module):
        rows, cols = weight.shape
        if cols % max(self.group, 1) or cols % 8:
            return None
        own = Integers(weight, 8, self.group, 0, self.symmetric, self.dtype)
        parts = {"weight": (own.codes - 128).to(torch.int8), "weight_scale": own.scales}
        if not self.symmetric:
            parts["weight_zero_point"] = (own.zeros - 128).to(torch.int8)
        elif self.flat and self.group <= 0:
            parts["weight_scale"] = own.scales.reshape(rows)
        return parts, own.values

    def config(self, left):
        is_group = self.group > 0
        return compressed("int-quantized", left, of_linear(
            num_bits=8, type="int", symmetric=self.symmetric, group_size=self.group
            if is_group else None, strategy="group" if is_group else "channel"))


class Gptq(Format):
    rounded = False  # by AutoRound

    def __init__(self, draw):
        super().__init__(draw)
        self.bits, self.group = self.one([4, 4, 8]), self.one([-1, 32, 64, 128, 48, 16])
        self.order, self.symmetric = self.one([False, True]), self.one([False, True])
        self.second = self.one([False, True])
        self.dtype = self.one([torch.float16, torch.bfloat16])
        self.varies = self.one([False, False, True])
        self.indexed = self.order or self.one([True, True, False])
        self.dynamic = {}

    def store(self, weight, module):
        rows, cols = weight.shape
        bits, group = self.bits, self.group
        if self.varies and self.draw.random() < 0.4:
            bits, group = self.one([4, 8]), self.one([-1, 32, 64])
            self.dynamic[module] = {"bits": bits, "group_size": group}
        if cols % 8 or rows % (32 // bits):
            return None
        lowest = 0 if self.second else 1
        own = Integers(weight, bits, group, lowest, self.symmetric, self.dtype,
                       "group" if self.order and group > 0 else None)
        zeros = own.zeros - lowest
        parts = {"qweight": packed(own.codes, bits).T.contiguous(),
                 "qzeros": packed(zeros.T.contiguous(), bits), "scales": own.scales.T.contiguous()}
        if self.indexed:
            parts["g_idx"] = own.map.int()
        return parts, own.values

    def config(self, left):
        if self.rounded:
            packing = self.one(["", ":gptqmodel"]) if self.second else ":auto_gptq"
            return auto_round(packing, self, self.bits) | {
                "extra_config": self.dynamic | {name: {"bits": 16} for name in left}}
        out = {"quant_method": "gptq", "bits": self.bits, "group_size": self.group,
               "desc_act": self.order, "sym": self.symmetric, "modules_to_not_convert": left}
        if self.second or self.one([True, False]):
            out["checkpoint_format"] = "gptq_v2" if self.second else "gptq"
        if self.varies:
            out["dynamic"] = {f"+:{re.escape(name)}$": own for name, own in self.dynamic.items()}
            out["dynamic"] |= {f"-:{re.escape(name)}$": {} for name in left}
        return out


class RoundedGptq(Gptq):
    rounded = True

    def __init__(self, draw):
        super().__init__(draw)
        self.order = False


class Awq(Format):
    rounded = False

    def __init__(self, draw):
        super().__init__(draw)
        self.group = self.one([-1, 16, 32, 64, 128, 48])
        self.symmetric = self.one([False, False, True])
        self.dtype = self.one([torch.float16, torch.bfloat16])

    def store(self, weight, module):
        rows, cols = weight.shape
        if rows % 8 or cols % 8 or cols % max(self.group, 1):
            return None
        own = Integers(weight, 4, self.group, 0, self.symmetric, self.dtype)
        return {"qweight": packed(own.codes.T.contiguous(), 4, AWQ_PLACES),
                "qzeros": packed(own.zeros.T.contiguous(), 4, AWQ_PLACES),
                "scales": own.scales.T.contiguous()}, own.values

    def config(self, left):
        if self.rounded:
            return auto_round(":auto_awq", self, 4)
        return {"quant_method": "awq", "bits": 4, "group_size": self.group, "version":
                self.one(["gemm", "GEMM"]), "zero_point": not self.symmetric,
                "modules_to_not_convert": left}


class RoundedAwq(Awq):
    rounded = True


class Mlx(Format):
    def __init__(self, draw):
        super().__init__(draw)
        self.usual = self.scheme()
        self.dtype = self.one([torch.bfloat16, torch.float16, torch.float32])
        both = ("quantization", "quantization_config")
        self.keys = self.one([both[:1], both[1:], both])
        self.sections = {}

    def scheme(self):
        mode = self.one(["affine"] * 5 + ["mxfp4", "mxfp8", "nvfp4"])
        if mode != "affine":
            group, bits = {"mxfp4": (32, 4), "mxfp8": (32, 8), "nvfp4": (16, 4)}[mode]
            return {"group_size": group, "bits": bits, "mode": mode}
        return {"group_size": self.one([32, 64, 128]), "bits": self.one([2, 3, 4, 5, 6, 8])} | (
            {"mode": mode} if self.one([True, False]) else {})

    def store(self, weight, module):
        scheme = self.usual
        if self.draw.random() < 0.3:
            scheme = self.scheme()
        cols = weight.shape[1]
        if cols % scheme["group_size"] or cols % 32:
            return None
        if scheme is not self.usual:
            self.sections[module] = scheme
        groups = weight.unflatten(1, (-1, scheme["group_size"]))
        mode, bits = scheme.get("mode", "affine"), scheme["bits"]
        if mode == "affine":
            top = (1 << bits) - 1
            biases = groups.amin(2).to(self.dtype)
            scales = ((groups.amax(2) - groups.amin(2)) / top).clamp_min(1e-5).to(self.dtype)
            wide, low = scales.float()[..., None], biases.float()[..., None]
            codes = ((groups - low) / wide).round().clamp(0, top).long()
            return {"weight": stream(codes.flatten(1), bits), "scales": scales,
                    "biases": biases}, (codes * wide + low).flatten(1)
        scales = groups.abs().amax(2).clamp_min(1e-3) / (448 if mode == "mxfp8" else 6)
        if mode == "nvfp4":
            stored = scales.to(torch.float8_e4m3fn)
            scales, stored = stored.float(), stored.view(torch.uint8)
        else:
            stored, scales = powers(scales)
        wide = scales[..., None]
        if mode == "mxfp8":
            codes = (groups / wide).to(torch.float8_e4m3fn)
            return {"weight": codes.flatten(1).view(torch.uint8).view(torch.uint32),
                    "scales": stored}, (codes.float() * wide).flatten(1)
        codes = nearest_e2m1(groups / wide.clamp_min(1e-9))
        return {"weight": nibbles(codes.flatten(1)).view(torch.uint32), "scales": stored}, (
            E2M1[codes] * wide).flatten(1)

    def config(self, left):
        return self.usual | self.sections | {name: False for name in left}


FORMATS = {"fp8": Fp8, "fp4": Fp4, "packed": Packed, "int8": Int8, "gptq": Gptq, "awq": Awq,
           "rounded_gptq": RoundedGptq, "rounded_awq": RoundedAwq, "mlx": Mlx}
