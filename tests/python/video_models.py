# SPDX-License-Identifier: BSD-3-Clause
"""Tiny models whose attention is switched in tests."""

import torch
from torch.nn.functional import scaled_dot_product_attention

HEADS, HEAD_DIM = 2, 128
WIDTH = HEADS * HEAD_DIM


class Attention(torch.nn.Module):
    def __init__(self, head_dim=HEAD_DIM):
        super().__init__()
        self.head_dim = head_dim
        self.qkv = torch.nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x, context=None, **arguments):
        q, k, v = self.qkv(x).chunk(3, -1)
        if context is not None:
            _, k, v = self.qkv(context).chunk(3, -1)
        q, k, v = (y.unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for y in (q, k, v))
        out = scaled_dot_product_attention(q, k, v, **arguments)
        return out.transpose(1, 2).flatten(-2)


class Block(torch.nn.Module):
    def __init__(self, head_dim=HEAD_DIM):
        super().__init__()
        self.attention = Attention(head_dim)

    def forward(self, x, **arguments):
        return x + self.attention(x, **arguments)


class Model(torch.nn.Module):
    """Blocks behind a text refiner, whose block is none of the model's."""

    def __init__(self, blocks=3, head_dim=HEAD_DIM, refiner=False):
        super().__init__()
        self.text = torch.nn.Module()
        self.text.refiner = torch.nn.ModuleList([Block(head_dim)] if refiner else [])
        self.blocks = torch.nn.ModuleList([Block(head_dim) for _ in range(blocks)])

    def forward(self, x, **arguments):
        for block in (*self.text.refiner, *self.blocks):
            x = block(x, **arguments)
        return x


def model(dtype=torch.bfloat16, seed=0, **arguments):
    torch.manual_seed(seed)
    return Model(**arguments).to(dtype).eval().requires_grad_(False)


def tokens(count=70, batch=1, dtype=torch.bfloat16, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, count, WIDTH, generator=generator).to(dtype)


def difference(found, expected):
    found, expected = found.float(), expected.float()
    return float((found - expected).norm() / expected.norm())
