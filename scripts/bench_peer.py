# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's Mixtral of the shape of inputs/bench-s.toml, trained for a few steps; called by
scripts/bench in an environment with torch and transformers. Prints one line of JSON.

Argument, as JSON: experts (grouped_mm or eager), compile, warm_up, steps, threads.
"""
import json
import statistics
import sys
import time

import torch
from transformers import MixtralConfig, MixtralForCausalLM

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM = 4, 512, 8, 4, 64
FFN, EXPERTS, TOP_K, VOCAB = 1024, 8, 2, 8192
SEQUENCE, BATCH = 512, 4


def flops_per_token():
    """6 per active parameter that multiplies, and causal attention's products."""
    projections = HIDDEN * HEAD_DIM * (2 * HEADS + 2 * KV_HEADS)
    experts = HIDDEN * EXPERTS + TOP_K * 3 * HIDDEN * FFN
    active = LAYERS * (projections + experts) + VOCAB * HIDDEN
    return 6 * active + 6 * LAYERS * HEADS * HEAD_DIM * SEQUENCE


def make_model(experts):
    torch.manual_seed(0)
    model = MixtralForCausalLM(MixtralConfig(
        vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=FFN, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM,
        num_local_experts=EXPERTS, num_experts_per_tok=TOP_K, max_position_embeddings=SEQUENCE,
        use_cache=False,
        attn_implementation="sdpa", experts_implementation=experts))
    return model.train()


def make_optimizer(model):
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    return torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1},
                              {"params": vectors, "weight_decay": 0.0}],
                             lr=1e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)


def main():
    setting = json.loads(sys.argv[1])
    torch.set_num_threads(setting["threads"])
    model = make_model(setting["experts"])
    optimizer = make_optimizer(model)
    forward = torch.compile(model, dynamic=False) if setting.get("compile") else model
    seconds = []
    for _ in range(setting["warm_up"] + setting["steps"]):
        tokens = torch.randint(0, VOCAB, (BATCH, SEQUENCE + 1))
        inputs, labels = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
        start = time.perf_counter()
        loss = forward(input_ids=inputs, labels=labels, shift_labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - start)
    step = statistics.median(seconds[setting["warm_up"]:])
    rate = BATCH * SEQUENCE / step
    print(json.dumps({"tokens_per_second": rate, "flops": rate * flops_per_token(),
                      "seconds": step, "loss": loss.item(), "torch": torch.__version__}))


if __name__ == "__main__":
    main()
