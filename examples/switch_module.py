#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Any torch module that calls scaled_dot_product_attention, with FP8 attention; also compiled.

python examples/switch_module.py
"""

import torch
from torch.nn.functional import scaled_dot_product_attention

import open_vc_attn

HEADS, HEAD_DIM, TOKENS, BLOCKS = 2, 128, 600, 4


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        width = HEADS * HEAD_DIM
        self.norm = torch.nn.LayerNorm(width)
        self.qkv = torch.nn.Linear(width, 3 * width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, HEADS, HEAD_DIM)).permute(2, 0, 3, 1, 4)
        return x + scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


@torch.inference_mode()
def main():
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(Block() for _ in range(BLOCKS))).bfloat16()
    x = torch.randn(1, TOKENS, HEADS * HEAD_DIM).bfloat16()
    expected = model(x)
    policy = open_vc_attn.Policy(layers=["1*", "2*"], min_keys=1, min_queries=1)
    with open_vc_attn.enable(model, policy=policy) as switch:
        out = model(x)
        error = (out - expected).float().norm() / expected.float().norm()
        print(f"error of the model's output: {100 * error:.2f} %")
        print(switch.report())
        # The policy is asked at run time: nothing is compiled again when it changes.
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        for layers in (["*"], []):
            switch.reset()
            switch.policy = open_vc_attn.Policy(layers=layers, min_keys=1, min_queries=1)
            compiled(x)
            print(f"\ncompiled, layers={layers}")
            print(switch.report())
    print("as before:", torch.equal(model(x), expected))


if __name__ == "__main__":
    main()
