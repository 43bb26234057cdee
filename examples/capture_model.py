#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Records the attention inputs of a torch model and measures what FP8 does to them.

    python examples/capture_model.py captures/

The model here is a stand-in with random weights; put your own transformer in its place. Everything
below works the same inside a diffusers pipeline:

    with open_vc_attn.capture(pipe.transformer, out="captures", layers=[0, 20], steps=[10]):
        pipe(prompt)
"""

import argparse
from pathlib import Path

import torch
from torch.nn.functional import scaled_dot_product_attention

import open_vc_attn

HEADS, HEAD_DIM, TOKENS, LAYERS = 2, 128, 1000, 3
MEASURED_QUERIES = 64


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        width = HEADS * HEAD_DIM
        self.norm = torch.nn.LayerNorm(width)
        self.qkv = torch.nn.Linear(width, 3 * width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, HEADS, HEAD_DIM)).permute(2, 0, 3, 1, 4)
        return x + scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


def relative_error(path):
    """Relative L2 error of FP8 attention on a capture, from some of its queries."""
    captured = open_vc_attn.load_capture(path)
    q, k, v = captured[:3]
    options = dict(causal=captured.causal, softmax_scale=captured.softmax_scale)
    rows = torch.linspace(0, len(q) - 1, MEASURED_QUERIES).long().tolist()
    exact = open_vc_attn.exact_attention(q, k, v, rows, **options)
    out = open_vc_attn.attention(q, k, v, **options)[rows].double()
    return float((out - exact).norm() / exact.norm())


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default="captures",
        help="where the captures go; %(default)s if absent",
    )
    folder = parser.parse_args().folder
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(Block() for _ in range(LAYERS))).bfloat16()
    with torch.no_grad(), open_vc_attn.capture(model, out=folder, layers=[0, 2]) as recording:
        model(torch.randn(1, TOKENS, HEADS * HEAD_DIM, dtype=torch.bfloat16))
    for path in recording.files:
        print(f"{path}  relative L2 error {100 * relative_error(path):.2f} %")


if __name__ == "__main__":
    main()
