# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's Mixtral of a given shape, trained for a few steps; called by scripts/bench in
an environment with torch and transformers. Prints one line of JSON.

Argument, as JSON: shape (the deck's values), precision (fp32; bf16: weights and moments too;
autocast: fp32 weights, bf16 products), experts (grouped_mm or eager), compile, warm_up, steps,
threads.
"""
import json
import statistics
import sys
import time

import torch
from transformers import MixtralConfig, MixtralForCausalLM


def flops_per_token(shape):
    """6 per active parameter that multiplies, and causal attention's products."""
    hidden, width = shape["hidden"], shape["heads"] * shape["head_dim"]
    projections = 2 * hidden * (width + shape["kv_heads"] * shape["head_dim"])
    experts = hidden * shape["experts"] + shape["top_k"] * 3 * hidden * shape["ffn"]
    active = shape["layers"] * (projections + experts) + shape["vocab"] * hidden
    return 6 * active + 6 * shape["layers"] * width * shape["sequence"]


def make_model(shape, setting):
    torch.manual_seed(0)
    model = MixtralForCausalLM(MixtralConfig(
        vocab_size=shape["vocab"], hidden_size=shape["hidden"], intermediate_size=shape["ffn"],
        num_hidden_layers=shape["layers"], num_attention_heads=shape["heads"],
        num_key_value_heads=shape["kv_heads"], head_dim=shape["head_dim"],
        num_local_experts=shape["experts"], num_experts_per_tok=shape["top_k"],
        max_position_embeddings=shape["sequence"], use_cache=False,
        attn_implementation="sdpa", experts_implementation=setting["experts"]))
    if setting["precision"] == "bf16":
        model = model.bfloat16()
    return model.train()


def make_optimizer(model):
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    return torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1},
                              {"params": vectors, "weight_decay": 0.0}],
                             lr=1e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)


def main():
    setting = json.loads(sys.argv[1])
    shape = setting["shape"]
    torch.set_num_threads(setting["threads"])
    model = make_model(shape, setting)
    optimizer = make_optimizer(model)
    forward = torch.compile(model, dynamic=False) if setting.get("compile") else model
    autocast = setting["precision"] == "autocast"
    seconds = []
    for _ in range(setting["warm_up"] + setting["steps"]):
        tokens = torch.randint(0, shape["vocab"], (shape["micro"], shape["sequence"] + 1))
        inputs, labels = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
        start = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            loss = forward(input_ids=inputs, labels=labels, shift_labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - start)
    step = statistics.median(seconds[setting["warm_up"]:])
    rate = shape["micro"] * shape["sequence"] / step
    print(json.dumps({"tokens_per_second": rate, "flops": rate * flops_per_token(shape),
                      "seconds": step, "loss": loss.item(), "torch": torch.__version__}))


if __name__ == "__main__":
    main()
