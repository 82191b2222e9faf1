# SPDX-License-Identifier: Apache-2.0
"""The three model families of Hugging Face in plain numpy and float64, written from the
formulas of tests/golden/README.md: what a model folder means, whatever its shape.

Legend: B sequences, S positions, T = B S tokens, H hidden, N heads, D head dim.
`config` is the dictionary of a config.json, `weights` maps names of tensors to arrays.
"""
import numpy as np

EXPERT = {"mixtral": ("w1", "w3", "w2")}
EXPERT["qwen2_moe"] = EXPERT["qwen3_moe"] = ("gate_proj", "up_proj", "down_proj")


def is_moe(config, layer):
    if config["model_type"] == "mixtral":
        return True
    return (layer not in config.get("mlp_only_layers", ())
            and (layer + 1) % config.get("decoder_sparse_step", 1) == 0)


def heads_of(config):
    """Query heads, key and value heads, elements of a head."""
    heads = config["num_attention_heads"]
    return (heads, config.get("num_key_value_heads") or heads,
            config.get("head_dim") or config["hidden_size"] // heads)


def experts_of(config):
    return config.get("num_experts", config.get("num_local_experts"))


def rope_theta(config):
    return config.get("rope_theta") or config["rope_parameters"]["rope_theta"]


def moe_prefix(config, layer):
    block = "block_sparse_moe" if config["model_type"] == "mixtral" else "mlp"
    return f"model.layers.{layer}.{block}."


def attention_shapes(config, prefix):
    hidden = config["hidden_size"]
    heads, kv_heads, dim = heads_of(config)
    for name, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
        yield f"{prefix}{name}_proj.weight", (count * dim, hidden)
        if config["model_type"] == "qwen2_moe" and config.get("qkv_bias", True):
            yield f"{prefix}{name}_proj.bias", (count * dim,)
    yield f"{prefix}o_proj.weight", (hidden, heads * dim)
    if config["model_type"] == "qwen3_moe":
        yield f"{prefix}q_norm.weight", (dim,)
        yield f"{prefix}k_norm.weight", (dim,)


def ffn_shapes(config, prefix, names, ffn):
    hidden = config["hidden_size"]
    for name, shape in zip(names, ((ffn, hidden), (ffn, hidden), (hidden, ffn))):
        yield f"{prefix}{name}.weight", shape


def moe_shapes(config, prefix):
    names = EXPERT[config["model_type"]]
    ffn = config.get("moe_intermediate_size", config["intermediate_size"])
    yield f"{prefix}gate.weight", (experts_of(config), config["hidden_size"])
    for expert in range(experts_of(config)):
        yield from ffn_shapes(config, f"{prefix}experts.{expert}.", names, ffn)
    if config["model_type"] == "qwen2_moe":
        yield from ffn_shapes(config, f"{prefix}shared_expert.", names,
                              config["shared_expert_intermediate_size"])
        yield f"{prefix}shared_expert_gate.weight", (1, config["hidden_size"])


def tensor_shapes(config):
    """Name and shape of every tensor."""
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    yield "model.embed_tokens.weight", (vocab, hidden)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm.weight", (hidden,)
        yield from attention_shapes(config, prefix + "self_attn.")
        yield prefix + "post_attention_layernorm.weight", (hidden,)
        if is_moe(config, layer):
            yield from moe_shapes(config, moe_prefix(config, layer))
        else:
            yield from ffn_shapes(config, prefix + "mlp.", EXPERT["qwen3_moe"],
                                  config["intermediate_size"])
    yield "model.norm.weight", (hidden,)
    if not config.get("tie_word_embeddings", False):
        yield "lm_head.weight", (vocab, hidden)


def rms_norm(x, weight, eps):
    return weight * x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)


def log_sum_exp(x):
    largest = x.max(-1)
    return largest + np.log(np.exp(x - largest[..., None]).sum(-1))


def softmax(x):
    return np.exp(x - log_sum_exp(x)[..., None])


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def rotate(x_BNSD, theta):
    """Element i turns with element i + D/2."""
    positions, dim = x_BNSD.shape[-2:]
    angle = np.outer(np.arange(positions), theta ** (-np.arange(0, dim, 2) / dim))
    a, b = x_BNSD[..., : dim // 2], x_BNSD[..., dim // 2 :]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle),
                           b * np.cos(angle) + a * np.sin(angle)], -1)


def attention(config, weights, prefix, y_BSH):
    heads, kv_heads, dim = heads_of(config)
    batch, positions, _ = y_BSH.shape

    def project(name, count):
        x = y_BSH @ weights[f"{prefix}{name}_proj.weight"].T
        x = x + weights.get(f"{prefix}{name}_proj.bias", 0.0)
        x = x.reshape(batch, positions, count, dim).transpose(0, 2, 1, 3)
        norm = weights.get(f"{prefix}{name}_norm.weight")
        return x if norm is None else rms_norm(x, norm, config["rms_norm_eps"])

    q = rotate(project("q", heads), rope_theta(config))
    k = rotate(project("k", kv_heads), rope_theta(config))
    k, v = (np.repeat(x, heads // kv_heads, 1) for x in (k, project("v", kv_heads)))
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(dim)
    scores = np.where(np.tril(np.ones((positions, positions), bool)), scores, -np.inf)
    out = (softmax(scores) @ v).transpose(0, 2, 1, 3)
    out = out.reshape(batch, positions, heads * dim)
    return out @ weights[f"{prefix}o_proj.weight"].T


def swiglu(weights, prefix, names, y_TH):
    gate, up, down = (weights[f"{prefix}{name}.weight"] for name in names)
    a = y_TH @ gate.T
    return (a * sigmoid(a) * (y_TH @ up.T)) @ down.T


def moe(config, weights, prefix, y_TH):
    """Output, load-balancing loss and z-loss, both without coefficients."""
    names = EXPERT[config["model_type"]]
    experts, top_k = experts_of(config), config["num_experts_per_tok"]
    logits = y_TH @ weights[f"{prefix}gate.weight"].T
    scores = softmax(logits)
    chosen = np.argsort(-scores, 1, kind="stable")[:, :top_k]
    weight = np.take_along_axis(scores, chosen, 1)
    if config["model_type"] == "mixtral" or config.get("norm_topk_prob", False):
        weight = weight / weight.sum(1, keepdims=True)
    out = np.zeros_like(y_TH)
    for expert in range(experts):
        token, slot = np.nonzero(chosen == expert)
        result = swiglu(weights, f"{prefix}experts.{expert}.", names, y_TH[token])
        out[token] += weight[token, slot, None] * result
    if config["model_type"] == "qwen2_moe":
        gate = sigmoid(y_TH @ weights[f"{prefix}shared_expert_gate.weight"].T)
        out += gate * swiglu(weights, f"{prefix}shared_expert.", names, y_TH)
    share = np.bincount(chosen.ravel(), minlength=experts) / chosen.size
    balance = experts * (share * scores.mean(0)).sum()
    return out, balance, (log_sum_exp(logits) ** 2).mean()


def losses(config, weights, tokens_BS, labels_BS):
    """Cross-entropy; load-balancing and z-loss of all layers, without coefficients."""
    eps, hidden = config["rms_norm_eps"], config["hidden_size"]
    x_BSH = weights["model.embed_tokens.weight"][tokens_BS]
    balance = z = 0.0
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        y = rms_norm(x_BSH, weights[prefix + "input_layernorm.weight"], eps)
        x_BSH = x_BSH + attention(config, weights, prefix + "self_attn.", y)
        y = rms_norm(x_BSH, weights[prefix + "post_attention_layernorm.weight"], eps)
        y_TH = y.reshape(-1, hidden)
        if is_moe(config, layer):
            out, *found = moe(config, weights, moe_prefix(config, layer), y_TH)
            balance, z = balance + found[0], z + found[1]
        else:
            out = swiglu(weights, prefix + "mlp.", EXPERT["qwen3_moe"], y_TH)
        x_BSH = x_BSH + out.reshape(x_BSH.shape)
    head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    logits = rms_norm(x_BSH, weights["model.norm.weight"], eps) @ head.T
    picked = np.take_along_axis(logits, labels_BS[..., None], -1)[..., 0]
    return (log_sum_exp(logits) - picked).mean(), balance, z
