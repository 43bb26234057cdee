# SPDX-License-Identifier: BSD-3-Clause
"""A small video diffusion transformer ("minidit"), whose attention is a function that it is given.

Tokens are 4 x 8 x 8 pixels in 64 whitened PCA channels, a linear stand-in for a video autoencoder.
Heads of 128 channels, RMS norm of Q and K over all heads, interleaved 3D RoPE, adaLN-zero,
rectified flow: the output is the velocity, noise minus data. Depth and width are those of the
weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from .._safetensors import load

WEIGHTS_FILE = "minidit_weights.safetensors"
TOKEN_FRAMES, TOKEN_HEIGHT, TOKEN_WIDTH = 4, 8, 8
TOKEN_VALUES = TOKEN_FRAMES * TOKEN_HEIGHT * TOKEN_WIDTH * 3
CHANNELS = 64
HEAD_DIM = 128
ROPE_DIMS = (44, 42, 42)
"""Channels of a head that t, h and w rotate."""
ROPE_BASE = TIME_BASE = 10000.0
TIME_SCALE = 1000.0
MLP_RATIO = 4
RMS_EPSILON = 1e-6
RANDOM_STD = 0.3  # of random modulations, so that every layer takes part

LayerAttention = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""(layer, q, k, v) to the output; all [1, S, H, 128], q, k, v in bfloat16."""


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.float()
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + RMS_EPSILON) * self.weight


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.qn, self.kn = RMSNorm(width), RMSNorm(width)
        self.fc1 = nn.Linear(width, MLP_RATIO * width)
        self.fc2 = nn.Linear(MLP_RATIO * width, width)
        self.table = nn.Parameter(torch.zeros(6, width))

    def forward(
        self,
        x: torch.Tensor,
        modulation: torch.Tensor,
        rope: tuple[torch.Tensor, torch.Tensor],
        attend: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor],
    ) -> torch.Tensor:
        width = x.shape[-1]
        shift1, scale1, gate1, shift2, scale2, gate2 = (
            (modulation + self.table).unsqueeze(1).unbind(2)
        )
        h = functional.layer_norm(x, (width,)) * (1 + scale1) + shift1
        q, k, v = self.qkv(h).chunk(3, -1)
        q, k, v = (x.unflatten(-1, (-1, HEAD_DIM)) for x in (self.qn(q), self.kn(k), v))
        q, k, v = (x.bfloat16() for x in (rotate(q, rope), rotate(k, rope), v))
        x = x + gate1 * self.proj(attend(q, k, v).float().flatten(2))
        h = functional.layer_norm(x, (width,)) * (1 + scale2) + shift2
        return x + gate2 * self.fc2(functional.gelu(self.fc1(h), approximate="tanh"))


class VideoTransformer(nn.Module):
    def __init__(self, depth: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.register_buffer("pix_mean", torch.zeros(TOKEN_VALUES))
        self.register_buffer("pix_basis", torch.zeros(CHANNELS, TOKEN_VALUES))
        self.register_buffer("pix_std", torch.ones(CHANNELS))
        self.inp = nn.Linear(CHANNELS, width)
        self.t1, self.t2 = nn.Linear(width, width), nn.Linear(width, width)
        self.tproj = nn.Linear(width, 6 * width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.table = nn.Parameter(torch.zeros(2, width))
        self.out = nn.Linear(width, CHANNELS)

    @property
    def layers(self) -> int:
        return len(self.blocks)

    @property
    def heads(self) -> int:
        return self.width // HEAD_DIM

    def encode(self, pixels: torch.Tensor) -> torch.Tensor:
        """[B, T, H, W, 3] in [-1, 1] to latents [B, T/4, H/8, W/8, 64]."""
        b, t, h, w, c = pixels.shape
        x = pixels.reshape(
            *(b, t // TOKEN_FRAMES, TOKEN_FRAMES, h // TOKEN_HEIGHT, TOKEN_HEIGHT),
            *(w // TOKEN_WIDTH, TOKEN_WIDTH, c),
        )
        x = x.permute(0, 1, 3, 5, 2, 4, 6, 7).flatten(4)
        return (x - self.pix_mean) @ self.pix_basis.T / self.pix_std

    def decode(self, latents: torch.Tensor) -> torch.Tensor:
        """Latents to pixels [B, T, H, W, 3], clipped to [-1, 1]."""
        b, t, h, w, _ = latents.shape
        x = (latents * self.pix_std) @ self.pix_basis + self.pix_mean
        x = x.reshape(b, t, h, w, TOKEN_FRAMES, TOKEN_HEIGHT, TOKEN_WIDTH, 3)
        x = x.permute(0, 1, 4, 2, 5, 3, 6, 7)
        x = x.reshape(b, t * TOKEN_FRAMES, h * TOKEN_HEIGHT, w * TOKEN_WIDTH, 3)
        return x.clamp(-1, 1)

    def forward(self, z: torch.Tensor, sigma: float, attention: LayerAttention) -> torch.Tensor:
        """The velocity at latents z [1, T, H, W, 64] of noise level sigma."""
        embedding = self._time_embedding(sigma)
        modulation = self.tproj(functional.silu(embedding)).float().unflatten(-1, (6, self.width))
        rope = rope_table(tuple(z.shape[1:4]), z.device)
        x = self.inp(z.flatten(1, 3)).float()
        for layer, block in enumerate(self.blocks):
            x = block(x, modulation, rope, lambda q, k, v, i=layer: attention(i, q, k, v))
        shift, scale = (embedding.float()[:, None] + self.table).unsqueeze(1).unbind(2)
        x = functional.layer_norm(x, (self.width,)) * (1 + scale) + shift
        return self.out(x).float().view(z.shape)

    def _time_embedding(self, sigma: float) -> torch.Tensor:
        half = self.width // 2
        steps = torch.arange(half, device=self.pix_mean.device)
        angles = TIME_SCALE * sigma * torch.exp(-math.log(TIME_BASE) * steps / half)[None]
        return self.t2(functional.silu(self.t1(torch.cat([angles.cos(), angles.sin()], -1))))


def rope_table(grid: tuple[int, ...], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines, [1, S, 1, 64]; tokens in raster order of t, h, w."""
    axes = [torch.arange(n, device=device, dtype=torch.float64) for n in grid]
    angles = []
    for position, dims in zip(torch.meshgrid(*axes, indexing="ij"), ROPE_DIMS, strict=True):
        channels = torch.arange(0, dims, 2, device=device, dtype=torch.float64)
        angles.append(position.reshape(-1, 1) * ROPE_BASE ** (-channels / dims))
    joined = torch.cat(angles, 1)
    return joined.cos().float()[None, :, None], joined.sin().float()[None, :, None]


def rotate(x: torch.Tensor, rope: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    cos, sin = rope
    a, b = x.float().unflatten(-1, (HEAD_DIM // 2, 2)).unbind(-1)
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


def load_model(folder: str | Path, device: str | torch.device) -> VideoTransformer:
    """The model whose weights are in the folder.

    Raises:
        ValueError: no such file, or one that does not hold this model; the text names the tensor.
        OSError: the file cannot be read.
    """
    path = Path(folder) / WEIGHTS_FILE
    if not path.is_file():
        raise ValueError(
            f"{path}: no such file; expected the weights of the model there. Name the folder "
            "that holds them, or 'random'."
        )
    stored, _ = load(path)
    depth = len({name.split(".")[1] for name in stored if name.startswith("blocks.")})
    shape = stored["inp.weight"].shape if "inp.weight" in stored else ()
    if len(shape) != 2 or shape[0] % HEAD_DIM or not shape[0]:
        found = f"shape {list(shape)}" if shape else "missing"
        raise ValueError(
            f"{path}: inp.weight: {found}; expected [heads x {HEAD_DIM}, {CHANNELS}]. Name a "
            "folder with the weights of this model."
        )
    with torch.device("meta"):
        wanted = VideoTransformer(depth, shape[0]).state_dict()
    state = {}
    for name in [*wanted, *stored]:
        if name not in stored or name not in wanted or stored[name].shape != wanted[name].shape:
            found = f"shape {list(stored[name].shape)}" if name in stored else "missing"
            expected = f"shape {list(wanted[name].shape)}" if name in wanted else "no such tensor"
            raise ValueError(
                f"{path}: {name}: {found}; expected {expected}. Name a folder with the weights "
                "of this model."
            )
        try:
            state[name] = stored[name].torch().float()
        except TypeError as error:
            raise ValueError(f"{path}: {name}: {error}") from None
    model = VideoTransformer(depth, shape[0])
    model.load_state_dict(state)
    return model.to(device).eval()


def random_model(
    device: str | torch.device, depth: int = 2, width: int = 2 * HEAD_DIM, seed: int = 0
) -> VideoTransformer:
    """The same architecture with random weights: it shows that everything runs, and nothing else."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = VideoTransformer(depth, width)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name.endswith("table"):
                    parameter.normal_(0, RANDOM_STD)
            # The first channels are a token's mean colour, so that decoded clips show something.
            colours = torch.eye(3).repeat(TOKEN_VALUES // 3, 1)
            patterns = torch.randn(TOKEN_VALUES, CHANNELS - 3)
            basis = torch.linalg.qr(torch.cat([colours, patterns], 1))[0]
            model.pix_basis.copy_(basis.T)
            model.pix_std[:3] = math.sqrt(TOKEN_VALUES / 3) / 2
    return model.to(device).eval()
