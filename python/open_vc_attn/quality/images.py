# SPDX-License-Identifier: BSD-3-Clause
"""Distances between clips, and PNG files."""

from __future__ import annotations

import math
import struct
import zlib

import torch
from torch.nn import functional

PIXEL_RANGE = 2.0
"""Pixels lie in [-1, 1]."""
# Wang et al., Image Quality Assessment: From Error Visibility to Structural Similarity (2004).
SSIM_WINDOW, SSIM_SIGMA = 11, 1.5
SSIM_K1, SSIM_K2 = 0.01, 0.03

_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PNG_BITS, _PNG_RGB = 8, 2
_PNG_FILTER_NONE = b"\0"


def psnr(found: torch.Tensor, expected: torch.Tensor) -> float:
    """10 log10(range^2 / mean squared error), in dB; infinity where nothing differs."""
    error = float((found.double() - expected.double()).square().mean())
    return 10 * math.log10(PIXEL_RANGE**2 / error) if error > 0 else math.inf


def ssim(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Mean structural similarity of the colour planes of [N, H, W, 3], a Gaussian window of 11."""
    size = min(SSIM_WINDOW, *found.shape[1:3])
    offsets = torch.arange(size, device=found.device, dtype=torch.float32) - (size - 1) / 2
    window = torch.exp(-offsets.square() / (2 * SSIM_SIGMA**2))
    window = window / window.sum()

    def blur(x: torch.Tensor) -> torch.Tensor:
        x = functional.conv2d(x, window.view(1, 1, -1, 1))
        return functional.conv2d(x, window.view(1, 1, 1, -1))

    c1, c2 = (SSIM_K1 * PIXEL_RANGE) ** 2, (SSIM_K2 * PIXEL_RANGE) ** 2
    sums = []
    for a, b in zip(found, expected, strict=True):
        a, b = (x.float().permute(2, 0, 1)[:, None] for x in (a, b))
        mean_a, mean_b = blur(a), blur(b)
        var_a = blur(a * a) - mean_a.square()
        var_b = blur(b * b) - mean_b.square()
        covariance = blur(a * b) - mean_a * mean_b
        likeness = (2 * mean_a * mean_b + c1) * (2 * covariance + c2)
        likeness = likeness / ((mean_a.square() + mean_b.square() + c1) * (var_a + var_b + c2))
        sums.append(likeness.double().mean())
    return float(torch.stack(sums).mean())


def to_bytes(pixels: torch.Tensor) -> torch.Tensor:
    """[-1, 1] to uint8."""
    return ((pixels.float() + 1) * 127.5).round().clamp(0, 255).to(torch.uint8).cpu()


def png(image: torch.Tensor) -> bytes:
    """A PNG file of uint8 [H, W, 3]."""
    height, width, _ = image.shape
    row_bytes = image.contiguous().reshape(height, -1).tolist()
    raw = b"".join(_PNG_FILTER_NONE + bytes(row) for row in row_bytes)
    header = struct.pack(">IIBBBBB", width, height, _PNG_BITS, _PNG_RGB, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(raw, 9)), (b"IEND", b""))
    return _PNG_SIGNATURE + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    checksum = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)
