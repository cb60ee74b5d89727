"""Options of config.json by family, for random_configs.py: values of a key, or what draws one.

Later keys may depend on earlier ones. Lists of layers are drawn whenever the number of layers does
not fit the model's own.
"""
ABSENT = "(absent)"
PER_LAYER = {"layer_types", "mlp_layer_types", "no_rope_layers", "layer_rope_theta",
             "indexer_types", "num_attention_heads_per_layer", "swiglu_limits",
             "swiglu_limits_shared", "kv_source_layers", "compress_ratios"}


class Draw:
    """A config as far as it has been drawn."""

    def __init__(self, random, config):
        self.random, self.config = random, config

    @property
    def layers(self):
        return self.config.get("num_hidden_layers", 4)

    def one(self, *values):
        return self.random.choice(values)

    def each(self, *values):
        """A value for each layer."""
        return [self.random.choice(values) for _ in range(self.layers)]

    def get(self, key, other=None):
        value = self.config.get(key, other)
        return other if value is None else value


class Follows:
    """A value that is always drawn, for it must go with others."""

    def __init__(self, draw):
        self.draw = draw

    def __call__(self, draw):
        return self.draw(draw)


def divisor_of(key, most=8):
    return Follows(lambda d: d.one(*(n for n in range(1, most + 1) if d.get(key, 8) % n == 0)))


def yarn(d):
    rope = {"rope_type": "yarn", "factor": d.one(2.0, 4.0, 16.0),
            "original_max_position_embeddings": d.one(8, 16, 64)}
    for key, values in {"beta_fast": (32.0, 8.0, 2.0), "beta_slow": (1.0, 0.25),
                        "attention_factor": (0.8, 1.3), "mscale": (1.0, 0.707, 2.0),
                        "mscale_all_dim": (1.0, 0.707, 0.5), "truncate": (False, True)}.items():
        if d.random.random() < 0.4:
            rope[key] = d.one(*values)
    return rope


SCALINGS = {
    "default": lambda d: {"rope_type": "default"},
    "linear": lambda d: {"rope_type": "linear", "factor": d.one(2.0, 3.5)},
    "yarn": yarn,
    "llama3": lambda d: {"rope_type": "llama3", "factor": d.one(4.0, 8.0),
                         "low_freq_factor": d.one(1.0, 0.5),
                         "high_freq_factor": d.one(4.0, 2.0, 32.0),
                         "original_max_position_embeddings": d.one(8, 32, 64)},
}


def rope(*shares, kinds=("default", "linear", "yarn", "yarn", "llama3"), more=None):
    """rope_parameters; `shares`: of heads that turn."""
    def draw(d):
        parameters = SCALINGS[d.one(*kinds)](d)
        parameters["rope_theta"] = d.one(500.0, 10000.0, 1e6, 5e6)
        if shares:
            parameters["partial_rotary_factor"] = d.one(*shares)
        for key, values in (more or {}).items():
            parameters[key] = d.one(*values)
        return parameters
    return draw


def longrope(d):
    """LongRoPE with as many factors as there are pairs, or plain positions."""
    parameters = {"rope_theta": d.one(500.0, 10000.0), "partial_rotary_factor": d.one(0.5, 1.0)}
    width = d.get("hidden_size") // d.get("num_attention_heads")
    pairs = int(width * parameters["partial_rotary_factor"]) // 2
    if d.random.random() < 0.3:
        return {"rope_type": "default"} | parameters
    factors = {name: [round(1 + most * i / pairs, 2) for i in range(pairs)]
               for name, most in {"short_factor": 1, "long_factor": 12}.items()}
    return {"rope_type": "longrope"} | parameters | factors


def rope_by(*names, shares=(), kinds=("default", "linear", "yarn", "llama3")):
    """rope_parameters of each kind of layers."""
    return lambda d: {name: rope(*shares, kinds=kinds)(d) for name in names}


def layers(*kinds, last=None):
    """A kind for each layer, at least one of the first; `last`: what the first or last must be."""
    def draw(d):
        types = d.each(*kinds)
        if last:
            types[0] = last
        return types
    return draw


SLIDING = layers("sliding_attention", "full_attention")
BY_WINDOW = rope_by("full_attention", "sliding_attention")
WINDOW = (1, 3, 7, 16, 33, 100)
EPS = (1e-6, 1e-5, 1e-3, 0.05)
CAP = (None, 0.5, 5.0, 30.0)
ACTIVATION = (*["silu"] * 20, "gelu", "gelu_pytorch_tanh", "relu", "relu2")
BOTH = (True, False)

TRUNK = {"num_hidden_layers": (1, 2, 3, 5), "hidden_size": (32, 64, 96, 128),
         "vocab_size": (100, 256, 259), "rms_norm_eps": EPS, "hidden_act": ACTIVATION,
         "tie_word_embeddings": BOTH, "intermediate_size": (32, 48, 72, 128)}
def heads(d):
    return d.one(*(n for n in (1, 2, 3, 4, 6, 8) if d.get("hidden_size") % n == 0))


HEADS = {"num_attention_heads": Follows(heads),
         "num_key_value_heads": divisor_of("num_attention_heads"),
         "head_dim": (8, 16, 24, 32, 48, 64, 128), "attention_bias": BOTH}
# A config of these families has no width of heads of its own.
OWN_HEADS = {"num_attention_heads": Follows(heads),
             "num_key_value_heads": divisor_of("num_attention_heads"),
             "head_dim": (16, 32, 48, ABSENT), "attention_bias": BOTH}


def experts(count, top="num_experts_per_tok", width="moe_intermediate_size"):
    table = {count: (4, 8, 12), top: (1, 2, 3, 4)}
    return table | ({width: (16, 32, 48, 64)} if width else {})


def groups(d):
    """Groups of two experts or more."""
    count = d.get("n_routed_experts", d.get("num_experts", 8))
    return d.one(*(n for n in (1, 2, 4) if count % n == 0 and count // n >= 2))


def groups_kept(key):
    """Enough groups for the experts of a token: those of others would all score 0."""
    def draw(d):
        count = d.get("n_routed_experts", d.get("num_experts", 8))
        chosen = d.get("num_experts_per_tok", d.get("num_experts_per_token", 2))
        most = d.get(key, 1)
        return d.random.randint(-(-chosen * most // count), most)
    return Follows(draw)


GROUPS = {"n_group": Follows(groups), "topk_group": groups_kept("n_group")}
OTHER_GROUPS = {"num_expert_group": Follows(groups), "topk_group": groups_kept("num_expert_group")}
SCALE = {"routed_scaling_factor": (0.5, 1.0, 2.5, 2.827), "norm_topk_prob": BOTH}
SPARSE = {"mlp_layer_types": layers("dense", "sparse", "sparse")}
ROUTED = {**experts("n_routed_experts"), **SCALE, **GROUPS, "n_shared_experts": (1, 2, 3)}
FIRST_DENSE = {"first_k_dense_replace": (0, 1, 2)}
STEPS = {"decoder_sparse_step": (1, 2, 3), "mlp_only_layers": ([], [0], [1], [0, 2])}
LATENT = {"num_attention_heads": Follows(heads), "q_lora_rank": (None, 16, 32, 64),
          "num_key_value_heads": Follows(lambda d: d.get("num_attention_heads")),
          "kv_lora_rank": (16, 32, 48, 64), "qk_nope_head_dim": (8, 16, 32, 48),
          "qk_rope_head_dim": (4, 8, 16, 32),
          "qk_head_dim": Follows(lambda d: d.get("qk_nope_head_dim") + d.get("qk_rope_head_dim")),
          "head_dim": Follows(lambda d: d.get("qk_rope_head_dim")),
          "v_head_dim": (8, 16, 32, 40), "attention_bias": BOTH}
LATENT_ROPE = {"rope_interleave": BOTH, "rope_parameters": rope()}
INDEX = {"index_n_heads": (16, 24), "index_head_dim": (32, 64), "index_topk": (1, 4, 8, 64)}
DELTA = {"linear_num_key_heads": (1, 2, 4),
         "linear_num_value_heads": Follows(
             lambda d: d.get("linear_num_key_heads") * d.one(1, 2, 3)),
         "linear_key_head_dim": (16, 32, 64), "linear_value_head_dim": (16, 32, 64),
         "linear_conv_kernel_dim": (2, 3, 4, 5)}
KDA = {"linear_num_heads": (1, 2, 4), "linear_head_dim": (16, 32, 64),
       "linear_conv_kernel_dim": (2, 3, 4)}
GRANITE = {"attention_multiplier": (0.05, 0.3, 1.0), "embedding_multiplier": (1.0, 3.0, 12.0),
           "logits_scaling": (0.5, 4.0), "residual_multiplier": (0.22, 1.0, 1.3)}
WINDOWS = {"sliding_window": WINDOW, "layer_types": SLIDING}
MLP_BIAS = {"mlp_bias": BOTH}
SHARED_WIDTH = {"shared_expert_intermediate_size": (16, 40, 64)}
DELTA_LAYERS = {"layer_types": layers("linear_attention", "full_attention")}
PARTIAL = (0.25, 0.5, 0.75, 1.0)

DENSE = {**TRUNK, **HEADS, "rope_parameters": rope()}
FAMILIES = {
    "llama": {**DENSE, **MLP_BIAS},
    "mistral": {**DENSE, "sliding_window": (*WINDOW, None)},
    "ministral3": {**DENSE, "sliding_window": (*WINDOW, None),
        "rope_parameters": rope(kinds=("yarn",), more={"llama_4_scaling_beta": (0.1, 0.5, 0.0)})},
    "smollm3": {**DENSE, **MLP_BIAS, "sliding_window": Follows(lambda d: d.one(*WINDOW)),
        "no_rope_layers": layers(0, 1), "no_rope_layer_interval": (2, 3, 4),
        "use_sliding_window": BOTH, "layer_types": SLIDING},
    "qwen3": {**DENSE, "use_sliding_window": BOTH,
        "sliding_window": Follows(lambda d: d.one(*WINDOW)), "max_window_layers": (0, 1, 2),
        "layer_types": Follows(lambda d: d.each("full_attention",
        *["sliding_attention"] * d.get("use_sliding_window")))},
    "qwen2": {**TRUNK, **OWN_HEADS, "head_dim": (ABSENT,), "use_sliding_window": BOTH,
        "sliding_window": Follows(lambda d: d.one(*WINDOW)), "max_window_layers": (0, 1, 2),
        "layer_types": Follows(lambda d: d.each("full_attention",
        *["sliding_attention"] * d.get("use_sliding_window"))), "rope_parameters": rope()},
    "phi3": {**TRUNK, **OWN_HEADS, "sliding_window": (*WINDOW, None), "head_dim": (ABSENT,),
        "original_max_position_embeddings": (16, 64, 512), "rope_parameters": Follows(longrope)},
    "granite": {**TRUNK, **OWN_HEADS, **GRANITE, **MLP_BIAS, "rope_parameters": rope()},
    "granite_swa": {**TRUNK, **OWN_HEADS, **GRANITE, **MLP_BIAS, **WINDOWS,
        "layer_rope_theta": layers(0, 500.0, 10000.0), "rope_parameters": rope()},
    "olmo2": {**TRUNK, **OWN_HEADS, "rope_parameters": rope()},
    "olmo3": {**TRUNK, **OWN_HEADS, **WINDOWS, "rope_parameters": BY_WINDOW},
    "gemma3_text": {**DENSE, **WINDOWS, "rope_parameters": BY_WINDOW,
        "query_pre_attn_scalar": (16, 64, 100), "final_logit_softcapping": CAP,
        "attn_logit_softcapping": (None, 1.0), "hidden_activation": ("gelu_pytorch_tanh",
        "gelu_pytorch_tanh", "silu", "gelu"), "use_bidirectional_attention": (False, False, True),
        "hidden_act": (ABSENT,)},
    "muse_glimmer_text": {**DENSE, **WINDOWS, "layer_rope_theta": layers(0, 10000.0),
        "final_logit_softcapping": (0.5, 20.0), "output_multiplier": (0.2, 1.0),
        "post_norm_eps": (1e-8, 1e-3), "qk_scale_factor": (1.0, 5.0),
        "hidden_activation": ("silu", "silu", "gelu"), "hidden_act": (ABSENT,)},
    "qwen3_moe": {**DENSE, **STEPS, **experts("num_local_experts"), "norm_topk_prob": BOTH,
        "use_sliding_window": (False, False, True), "sliding_window": WINDOW},
    "qwen2_moe": {**DENSE, **STEPS, **experts("num_experts"), "norm_topk_prob": BOTH,
        **SHARED_WIDTH, "qkv_bias": BOTH, "use_sliding_window": (False, False, True),
        "sliding_window": WINDOW},
    "qwen3_next": {**DENSE, **DELTA, **DELTA_LAYERS, **experts("num_experts"), **SHARED_WIDTH,
        **STEPS, "rope_parameters": rope(*PARTIAL), "norm_topk_prob": BOTH},
    "qwen3_5_moe_text": {**DENSE, **DELTA, **DELTA_LAYERS, **experts("num_experts"),
        **SHARED_WIDTH, "rope_parameters": rope(*PARTIAL)},
    "qwen3_5_text": {**DENSE, **DELTA, **DELTA_LAYERS, "rope_parameters": rope(*PARTIAL)},
    "lara_mini": {**DENSE, **DELTA, **experts("num_experts"), **SHARED_WIDTH,
        "norm_topk_prob": BOTH, "sliding_window": WINDOW,
        "layer_types": layers("linear_attention", "sliding_attention", "full_attention")},
    "mixtral": {**DENSE, **experts("num_local_experts", width=None), "sliding_window": (*WINDOW,
        None)},
    "olmoe": {**TRUNK, **OWN_HEADS, "head_dim": (ABSENT,), **experts("num_experts", width=None),
        "norm_topk_prob": BOTH, "clip_qkv": (None, 1.0), "rope_parameters": rope()},
    "gpt_oss": {**DENSE, **WINDOWS, **experts("num_local_experts", width=None)},
    "mellum": {**DENSE, **WINDOWS, **SPARSE, **experts("num_local_experts"),
        "norm_topk_prob": BOTH, "rope_parameters": BY_WINDOW},
    "flint": {**DENSE, **WINDOWS, **STEPS, **experts("num_experts"), **SHARED_WIDTH,
        "norm_topk_prob": BOTH},
    "kolibri1": {**DENSE, **WINDOWS, **experts("num_local_experts"), **SHARED_WIDTH,
        "norm_topk_prob": BOTH, "sliding_window": WINDOW},
    "granitemoe": {**TRUNK, **OWN_HEADS, **GRANITE, **experts("num_local_experts", width=None),
        "rope_parameters": rope()},
    "granitemoeshared": {**TRUNK, **OWN_HEADS, **GRANITE, **experts("num_local_experts",
        width=None), "shared_intermediate_size": (0, 40, 64), "rope_parameters": rope()},
    "granitemoe_swa": {**TRUNK, **OWN_HEADS, **GRANITE, **WINDOWS, **experts("num_local_experts",
        width=None), "shared_intermediate_size": (0, 40, 64), "layer_rope_theta": layers(0, 500.0,
        10000.0), "rope_parameters": rope()},
    "granitemoehybrid": {**TRUNK, **OWN_HEADS, **GRANITE, **experts("num_local_experts",
        width=None), "shared_intermediate_size": (40, 64),
        "layer_types": layers("linear_attention", "full_attention"),
        "position_embedding_type": ("nope", "rope", None), "rope_parameters": rope(),
        "mamba_n_groups": (1, 2), "mamba_expand": (1, 2, 3), "mamba_d_conv": (2, 3, 4),
        "mamba_n_heads": (2, 4, 8), "mamba_d_state": (8, 16, 24),
        "mamba_d_head": Follows(
            lambda d: d.get("mamba_expand") * d.get("hidden_size") // d.get("mamba_n_heads")),
        "mamba_conv_bias": BOTH, "mamba_proj_bias": (False, False, True), "mamba_chunk_size": (8,
        16, 256), "time_step_limit": ([0.0, 0.5], [0.01, 0.1])},
    "nemotron_h": {**TRUNK, **HEADS, **ROUTED, "num_hidden_layers": (6,), "n_shared_experts": (1,
        1, 2), "layers_block_type": lambda d: d.random.sample(d.get("layers_block_type"), 6),
        "moe_latent_size": (None, 16, 32), "moe_shared_expert_intermediate_size": (32, 96),
        "n_groups": (1, 2, 4), "mamba_num_heads": (4, 8), "mamba_head_dim": (8, 16, 32),
        "ssm_state_size": (8, 16, 32), "conv_kernel": (2, 3, 4), "expand": (1, 2),
        "chunk_size": (8, 16, 128), "use_conv_bias": BOTH, "mamba_proj_bias": (False, False,
        True), "use_bias": (False, False, True), "layer_norm_epsilon": EPS,
        "rms_norm_eps": (ABSENT,), "mlp_bias": (False, False, True), "mlp_hidden_act": ("relu2",
        "relu2", "silu"), "hidden_act": (ABSENT,), "residual_in_fp32": BOTH},
    "lfm2_moe": {**TRUNK, **OWN_HEADS, **experts("num_experts"), **SCALE,
        "layer_types": layers("conv", "full_attention"), "conv_L_cache": (2, 3, 4),
        "conv_bias": (False, False, True), "num_dense_layers": (0, 1, 2), "norm_eps": EPS,
        "rms_norm_eps": (ABSENT,), "use_expert_bias": BOTH, "attention_bias": (ABSENT,),
        "rope_parameters": rope()},
    "llama4_text": {**DENSE, **experts("num_local_experts", width=None),
        "num_experts_per_tok": (1, 1, 2), "attention_chunk_size": (4, 16, 64), "attn_scale": (0.1,
        0.5), "floor_scale": (4, 16), "attn_temperature_tuning": BOTH,
        "interleave_moe_layer_step": (1, 2), "moe_layers": (ABSENT,),
        "intermediate_size_mlp": (64, 96), "use_qk_norm": BOTH, "no_rope_layers": layers(0, 1),
        "layer_types": Follows(lambda d: ["chunked_attention" if turns else "full_attention"
                                          for turns in d.get("no_rope_layers")])},
    "cohere2_moe": {**DENSE, **SPARSE, **experts("num_experts", width=None), **WINDOWS,
        "logit_scale": (0.1, 1.0), "num_shared_experts": (0, 1, 2), "layer_norm_eps": EPS,
        "rms_norm_eps": (None, 1e-5), "expert_selection_fn": ("sigmoid", "softmax"),
        "norm_topk_prob": BOTH, "prefix_dense_intermediate_size": (48, 128),
        "use_qk_norm": (False, False, True), "prefix_dense_sliding_window_pattern": (1, 2),
        "sliding_window_pattern": (2, 4), "shared_expert_combination_strategy": ("average",
        "sum"), "hidden_act": ACTIVATION},
    "ernie4_5_moe": {**TRUNK, **OWN_HEADS, **experts("moe_num_experts", "moe_k"),
        "use_bias": (False, False, True), "moe_layer_start_index": (0, 1, 2),
        "moe_layer_end_index": (-1, 1, 2, 3), "moe_layer_interval": (1, 2),
        "moe_num_shared_experts": (0, 1, 2), "moe_norm_min": (1e-12, 0.3),
        "attention_bias": (ABSENT,), "rope_parameters": rope()},
    "minimax_m2": {**DENSE, **experts("num_local_experts", width=None),
        "attention_bias": (ABSENT,), "rope_parameters": rope(0.5, 1.0)},
    "minimax_m3_vl_text": {**DENSE, **SPARSE, **experts("num_local_experts", width=None),
        "attention_bias": (ABSENT,), "dense_intermediate_size": (64, 128), "index_block_size": (2,
        4, 8), "index_topk_blocks": (1, 2, 4), "index_local_blocks": (1, 1, 2),
        "swiglu_limit": (0.5, 7.0), "swiglu_alpha": (1.0, 1.702), "routed_scaling_factor": (1.0,
        2.5), "shared_intermediate_size": (24, 48), "head_dim": (32,), "num_attention_heads": (4,
        8), "num_key_value_heads": (2, 4), "rope_parameters": rope(0.5),
        "layer_types": layers("full_attention", "minimax_m3_sparse")},
    "mimo_v2_flash": {**DENSE, **WINDOWS, "sliding_window_size": (3, 16, ABSENT), **SPARSE,
        **ROUTED, "n_shared_experts": (ABSENT,), "num_key_value_heads": (1, 2),
        "num_attention_heads": (4, 8), "v_head_dim": (16, 32, 48), "attention_value_scale": (0.5,
        1.0, 0.707), "rope_parameters": rope_by("full_attention", "sliding_attention",
        shares=(0.334, 0.5, 1.0))},
    "step3p5": {**DENSE, **WINDOWS, **SPARSE, **experts("n_routed_experts"),
        "query_pre_attn_scalar": (None, 16, 100), "num_attention_heads": (2, 4, 8),
        "share_expert_dim": (24, 48), "moe_router_scaling_factor": (1.0, 2.5),
        "swiglu_limits": layers(0.0, 0.3, 1.0), "swiglu_limits_shared": layers(0.0, 0.4),
        "num_sliding_attention_heads": (4, 8), "num_key_value_heads": (1, 2),
        "attention_bias": (ABSENT,), "tie_word_embeddings": (False,),
        "rope_parameters": rope_by("full_attention", "sliding_attention", shares=(0.5, 1.0))},
    "afmoe": {**DENSE, **WINDOWS, **experts("num_experts"), "num_dense_layers": (0, 1, 2),
        "mup_enabled": BOTH, "route_scale": (1.0, 2.5), "num_shared_experts": (0, 1, 2),
        "global_attn_every_n_layers": (2, 3)},
    "beam": {**DENSE, **WINDOWS, **SPARSE, **experts("num_experts"), **SCALE, **GROUPS,
        "final_logit_softcapping": CAP, "rope_parameters": lambda d: d.one(BY_WINDOW(d),
        {"full_attention": None, "sliding_attention": rope()(d)})},
    "exaone_moe": {**TRUNK, **HEADS, **WINDOWS, **SPARSE, **experts("num_experts"), **SCALE,
        **GROUPS, "sliding_window": (*WINDOW, None), "num_shared_experts": (1, 2),
        "rope_parameters": rope()},
    "hy_v3": {**DENSE, **SPARSE, **experts("num_experts"), "router_scaling_factor": (1.0, 2.0),
        "num_shared_experts": (1, 2), "mlp_bias": (False, False, True)},
    "laguna": {**DENSE, **WINDOWS, **SPARSE, **experts("num_experts"), **SHARED_WIDTH,
        "moe_routed_scaling_factor": (1.0, 2.0), "num_key_value_heads": (1, 2),
        "moe_router_logit_softcapping": (0.0, 0.7), "head_dim": (16, 32, 64),
        "num_attention_heads_per_layer": layers(2, 4, 6, 8),
        "rope_parameters": rope_by("full_attention", "sliding_attention", shares=(0.5, 1.0)),
        "gating": (True, "per-head", "per-element")},
    "glm4_moe": {**DENSE, **ROUTED, **FIRST_DENSE, "use_qk_norm": BOTH,
        "rope_parameters": rope(*PARTIAL), "partial_rotary_factor": (ABSENT,)},
    "solar_open": {**DENSE, **ROUTED, "rope_parameters": rope(1.0), "intermediate_size": (ABSENT,)},
    "dots1": {**DENSE, **ROUTED, **FIRST_DENSE, "layer_types": SLIDING,
        "sliding_window": Follows(lambda d: d.one(*WINDOW))},
    "sarvam_moe": {**DENSE, **ROUTED, **FIRST_DENSE, "use_qk_norm": BOTH,
        "rope_parameters": rope(1.0)},
    "deepseek_v2": {**TRUNK, **LATENT, **ROUTED, **FIRST_DENSE, **MLP_BIAS,
        "topk_method": ("greedy", "group_limited_greedy"), "rope_parameters": rope()},
    "deepseek_v3": {**TRUNK, **LATENT, **ROUTED, **FIRST_DENSE, **LATENT_ROPE},
    "sarvam_mla": {**TRUNK, **LATENT, **ROUTED, **FIRST_DENSE, **LATENT_ROPE},
    "glm4_moe_lite": {**TRUNK, **LATENT, **ROUTED, **SPARSE, **LATENT_ROPE, "head_dim": (ABSENT,)},
    "axk1": {**TRUNK, **LATENT, **ROUTED, **SPARSE, **LATENT_ROPE},
    "axk2": {**TRUNK, **LATENT, **ROUTED, **SPARSE, **INDEX, "gated_norm_rank": (4, 8),
        "q_lora_rank": (32, 64), "rope_parameters": rope()},
    "mistral4": {**TRUNK, **LATENT, **ROUTED, **FIRST_DENSE, "rope_interleave": BOTH,
        "qk_nope_head_dim": (32,), "qk_rope_head_dim": (16,), "head_dim": Follows(lambda d: 48),
        "n_group": (1,), "topk_group": (1,), "rope_parameters": rope(1 / 3, kinds=("yarn",),
        more={"llama_4_scaling_beta": (0.1, 0.5, 0.0)})},
    "deepseek_v32": {**TRUNK, **LATENT, **ROUTED, **SPARSE, **INDEX, **MLP_BIAS,
        "q_lora_rank": (32, 64), "rope_parameters": rope()},
    "glm_moe_dsa": {**TRUNK, **LATENT, **ROUTED, **SPARSE, **INDEX, **MLP_BIAS,
        "q_lora_rank": (32, 64), "rope_parameters": rope(), "indexer_types": layers("full",
        "shared", last="full")},
    "hy_v4": {**TRUNK, **LATENT, **ROUTED, **SPARSE, **INDEX, "q_lora_rank": (32, 64),
        "indexer_types": layers("full", "shared", last="full"), "hc_mult": (2, 3, 4),
        "hc_magnitude": (1.0, 2.0), "hc_eps": (1e-6, 1e-2), "swiglu_limit": (0.3, 10.0),
        "rope_parameters": rope()},
    "dots3_note_text": {**TRUNK, **LATENT, **ROUTED, **FIRST_DENSE, **INDEX, "q_lora_rank": (32,
        64), "head_dim": (256,), "sliding_window_size": WINDOW,
        "moe_shared_expert_intermediate_size": (24, 48), "layer_types": layers("full_attention",
        "sliding_attention"), "swa_kv_lora_rank": (32, 48), "swa_q_lora_rank": (16, 32),
        "swa_num_attention_heads": (1, 2, 4), "swa_v_head_dim": (16, 48),
        "swa_num_key_value_heads": Follows(lambda d: d.get("swa_num_attention_heads"))},
    "mistral_large4_text": {**TRUNK, **LATENT, **ROUTED, **SPARSE, **INDEX,
        "q_lora_rank": (None,), "num_hidden_layers": (5,), "final_logit_softcapping": (1.0, 30.0),
        "norm_topk_prob": (True,), "tie_word_embeddings": (False,),
        "indexer_types": layers("full", "shared", last="full"),
        "rope_parameters": rope(kinds=("default", "yarn"))},
    "kimi_linear": {**TRUNK, **LATENT, **KDA, **SPARSE, **DELTA_LAYERS, **experts("num_experts",
        "num_experts_per_token"), "moe_renormalize": BOTH, "routed_scaling_factor": (1.0, 2.0),
        "num_shared_experts": (1, 2), **OTHER_GROUPS},
    "bailing_hybrid": {**TRUNK, **LATENT, **KDA, **SPARSE, **DELTA_LAYERS,
        "rope_parameters": rope(kinds=("default", "yarn")),
        "head_dim": Follows(lambda d: d.get("qk_rope_head_dim")),
        "short_conv_kernel_size": Follows(lambda d: d.get("linear_conv_kernel_dim")),
        **experts("num_experts", "num_experts_per_token"), "moe_renormalize": BOTH,
        "routed_scaling_factor": (1.0, 2.0), "num_shared_experts": (1, 2), "kda_safe_gate": BOTH,
        "kda_lower_bound": (-5.0, -1.0), **OTHER_GROUPS},
    "glm5_next_text": {**TRUNK, **LATENT, **KDA, **SPARSE, **ROUTED, "q_lora_rank": (32, 64),
        "layer_types": layers("linear_attention", "deepseek_sparse_attention"),
        "indexer_types": lambda d: ["full"] * d.layers, "index_n_heads": Follows(lambda d: 16),
        "index_head_dim": (32, 64), "index_topk": (8, 16), "index_kpool": (2, 4),
        "qk_rope_head_dim": (0,), "head_dim": (0,), "hc_mult": (2, 4),
        "qk_head_dim": Follows(lambda d: d.get("qk_nope_head_dim")), "linear_lower_bound": (-5.0,
        -1.0), "swiglu_limit": (0.3, 7.0), "hc_eps": (1e-6, 1e-3), "hc_sinkhorn_iters": (1, 5,
        20), "tie_word_embeddings": (False,)},
    "gemma4_text": {**DENSE, **WINDOWS, **experts("num_experts", "top_k_experts"),
        "rope_parameters": (ABSENT,), "attention_k_eq_v": BOTH, "hidden_act": (ABSENT,),
        "final_logit_softcapping": CAP, "per_layer_config": (ABSENT,), "global_head_dim": (32,
        64), "num_global_key_value_heads": (1, 2, None)},
    "gemma4_text_dense": {**DENSE, **WINDOWS, "attention_k_eq_v": BOTH, "hidden_act": (ABSENT,),
        "rope_parameters": lambda d: {"sliding_attention": rope()(d),
        "full_attention": {"rope_type": "proportional", "rope_theta": 1e6,
        "partial_rotary_factor": d.one(0.25, 0.5, 1.0)}}, "final_logit_softcapping": CAP,
        "global_head_dim": (32, 48, 64), "num_global_key_value_heads": (1, 2, None)},
    "gemma4_text_e": {**DENSE, **WINDOWS, "hidden_size_per_layer_input": (8, 16, 32),
        "num_hidden_layers": (6,), "hidden_act": (ABSENT,), "rope_parameters": (ABSENT,),
        "num_kv_shared_layers": (0, 2, 3), "use_double_wide_mlp": BOTH,
        "final_logit_softcapping": CAP, "layer_types": lambda d: d.one(["sliding_attention",
        "full_attention"] * 3, ["full_attention", "sliding_attention", "sliding_attention"] * 2)},
    "muse_spark_text": {**DENSE, **WINDOWS, **SPARSE, **experts("num_local_experts"),
        "layer_rope_theta": layers(0, 10000.0), "output_multiplier": (0.2, 1.0),
        "final_logit_softcapping": (0.5, 20.0), "moe_hidden_size": (16, 48),
        "post_norm_eps": (1e-8, 1e-3), "qk_scale_factor": (1.0, 5.0),
        "residual_gate_temperature": (0.1, 1.0), "routed_scaling_factor": (0.5, 2.0)},
    "inkling2_text": {**TRUNK, **HEADS, **experts("n_routed_experts"), "d_rel": (4, 8),
        "conv_kernel_size": (2, 3, 4), "final_logit_softcapping": (1.0, 20.0),
        "layer_types": layers("hybrid_sliding", "hybrid"), "rel_extent": (4, 24, 64),
        "log_scaling_alpha": (0.0, 0.5), "log_scaling_n_floor": (1, 8), "mlp_gate_softcap": (0.5,
        5.0), "mlp_up_softcap": (0.5, 5.0), "n_layers_per_attn_res_block": (1, 2, 3),
        "qk_l2_clip_threshold": (1.0, 8.0), "rel_l2_clip_threshold": (0.5, 8.0),
        "route_scale": (1.0, 2.5), "sliding_window_size": WINDOW, "swa_head_dim": (16, 32),
        "swa_num_attention_heads": (2, 4), "swa_num_key_value_heads": (1, 2),
        "intermediate_size": (ABSENT,), "unpadded_vocab_size": (90, 100)},
    "inkling_text": {**TRUNK, **HEADS, **experts("n_routed_experts"), "attention_bias": (ABSENT,),
        "d_rel": (4, 8), "dense_intermediate_size": (64, 128), "dense_mlp_idx": (0, 1, 2),
        "intermediate_size": (16, 32, 48), "moe_intermediate_size": (ABSENT,),
        "local_layer_ids": lambda d: [i for i in range(d.layers) if d.random.random() < 0.6],
        "log_scaling_alpha": (0.0, 0.5), "log_scaling_n_floor": (1, 8),
        "logits_mup_width_multiplier": (1.0, 24.0), "n_shared_experts": (1, 2, 3),
        "rel_extent": (4, 24, 64), "rms_norm_eps_moe_gate": (1e-6, 1e-2), "route_scale": (1.0,
        2.5), "sconv_kernel_size": (2, 3, 4), "sliding_window_size": WINDOW, "swa_head_dim": (16,
        32), "swa_num_attention_heads": (2, 4), "swa_num_key_value_heads": (1, 2),
        "unpadded_vocab_size": (90, 100)},
    "zaya": {**TRUNK, **HEADS, **experts("num_experts"), "num_experts_per_tok": (1,),
        "cca_time0": (2, 3), "cca_time1": (2, 3), "router_hidden_size": (16, 48),
        "lm_head_bias": BOTH, "layer_types": layers("hybrid", "hybrid_sliding"),
        "sliding_window": Follows(lambda d: d.one(*WINDOW)), "rope_parameters": rope_by("hybrid",
        "hybrid_sliding", shares=(0.5, 1.0))},
    "deepseek_v4_saved": {**TRUNK, **ROUTED, "n_group": (ABSENT,), "topk_group": (ABSENT,),
        "num_attention_heads": (2, 4, 8), "q_lora_rank": (32, 64), "head_dim": (32, 64),
        "hc_mult": (2, 4), "hc_eps": (1e-6, 1e-3), "hc_sinkhorn_iters": (1, 5, 20),
        "index_head_dim": (32, 64), "index_n_heads": Follows(lambda d: 16),
        "intermediate_size": (ABSENT,), "index_topk": (1, 3, 64), "o_groups": (1, 2),
        "o_lora_rank": (16, 48), "sliding_window": (4, 16, 64), "swiglu_limit": (0.5, 10.0),
        "n_shared_experts": (1,), "layer_types": layers("sliding_attention",
        "compressed_sparse_attention", "heavily_compressed_attention"),
        "mlp_layer_types": lambda d: ["hash_moe"] + ["moe"] * (d.layers - 1)},
    "qwen4_exp_text": {**TRUNK, **HEADS, **DELTA, **experts("num_experts"), **SHARED_WIDTH,
        "rope_parameters": rope(0.25, 0.5), "layer_types": layers("linear_attention",
        "qwen_sparse_attention"), "hc_count": (2, 4), "hc_lowrank": (8, 32), "indexer_budget": (4,
        8, 32), "indexer_compress_ratio": (2, 4), "indexer_head_dim": (32, 64),
        "indexer_n_heads": Follows(lambda d: 16), "output_gate_type": (None, "sigmoid", "swish"),
        "ple_layer_ids": Follows(lambda d: [i for i,
        kind in enumerate(d.get("layer_types"), 1) if kind == "linear_attention"][:d.one(1, 2)]),
        "ple_embed_dim": (32, 64), "ple_conv_kernel_size": (2, 4), "ngram_size": (2, 3),
        "heads_per_ngram": (1, 2)},
}
FAMILIES["inkling2_loop_text"] = FAMILIES["inkling2_text"] | {
    "num_hidden_layers": (6, 8), "n_layers_per_attn_res_block": (1, 2), "loop_layer_index_start":
    (2,), "loop_layer_index_end": (4, 6), "loop_num_passes": (1, 2, 3, 4), "loop_gate_rank": (4,
    8, 16)}
