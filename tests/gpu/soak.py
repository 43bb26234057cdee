# SPDX-License-Identifier: BSD-3-Clause
"""Random calls on a GPU against the CPU backend, for as long as asked.

    python tests/gpu/soak.py --seconds 180 [--seed 1]

Shapes, strides, element types, masks, plans, repair budgets, streams and kinds of input are drawn at
random; every call runs twice, on two streams, and must give the same bits. Ends with the line
'N passed, N failed'.
"""

from __future__ import annotations

import argparse
import random
import sys
import time

import torch

from open_vc_attn import (
    Numerics,
    attention,
    attention_fp8,
    attention_v_repair,
    exact_attention,
    prepare_fp8,
    prepare_v_repair,
)

# Scores accumulate in binary16 on the GPU, rounded after every k-step; the CPU rounds once. Codes flip
# now and then, which rows of few keys show most, and scores of a thousand code units and more differ
# by whole codes of 0.087 nats (docs/numerics.md section 6).
AGREEMENT = 0.08
FEW_KEYS = 64
FEW_KEYS_AGREEMENT = 0.2
LSE_AGREEMENT = 0.1  # nats, and as large a share of the largest value as the next line says
LSE_RELATIVE_AGREEMENT = 5e-3
MAX_SCORES = 40_000_000  # of a case, for the CPU's sake


def draw_lengths(rng: random.Random) -> tuple[int, int, int, int]:
    """Batch, heads, queries and keys."""
    special = [1, 2, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1000, 4097]
    while True:
        batch, heads = rng.choice([1, 1, 2, 3]), rng.choice([1, 2, 3, 7])
        queries, keys = (
            rng.choice(special) if rng.random() < 0.5 else int(2 ** rng.uniform(0, 14))
            for _ in range(2)
        )
        if batch * heads * queries * keys <= MAX_SCORES:
            return batch, heads, queries, keys


def draw_tensor(rng: random.Random, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """[B, S, H, 128] in a random memory layout, NaN around it."""
    batch, length, heads, channels = shape
    layout = rng.choice(["contiguous", "heads first", "slice of a fused projection", "padded rows"])
    if layout == "heads first":
        storage = torch.full((batch, heads, length + 1, channels), float("nan"))
        view = storage[:, :, :length].transpose(1, 2)
    elif layout == "slice of a fused projection":
        storage = torch.full((batch, length, 3 * heads, channels), float("nan"))
        view = storage[:, :, heads : 2 * heads]
    elif layout == "padded rows":
        storage = torch.full((batch, length + 2, heads, channels + 8), float("nan"))
        view = storage[:, 1 : length + 1, :, :channels]
    else:
        view = storage = torch.empty(shape)
    values = torch.randn(shape)
    kind = rng.choice(["plain", "plain", "sharp", "offset", "outlier channels", "tiny", "constant"])
    if kind == "sharp":
        values *= 4
    elif kind == "offset":
        values += 3 * torch.randn(channels)
    elif kind == "outlier channels":
        values[..., rng.sample(range(channels), 3)] *= 20
    elif kind == "tiny":
        values *= 1e-3
    elif kind == "constant":
        values[:] = values[:, :1]
    storage_on_gpu = storage.to("cuda", dtype)
    gpu_view = storage_on_gpu.as_strided(view.shape, view.stride(), view.storage_offset())
    gpu_view.copy_(values.to("cuda", dtype))
    return gpu_view


def relative_l2(actual: torch.Tensor, expected: torch.Tensor) -> float:
    norm = expected.norm().item()
    return (actual - expected).norm().item() / (norm if norm > 0 else 1.0)


def one_case(rng: random.Random) -> str:
    """Empty if the backends agree."""
    batch, heads, queries, keys = draw_lengths(rng)
    dtype = rng.choice([torch.bfloat16, torch.float16])
    q = draw_tensor(rng, (batch, queries, heads, 128), dtype)
    k = draw_tensor(rng, (batch, keys, heads, 128), dtype)
    v = draw_tensor(rng, (batch, keys, heads, 128), dtype)
    causal = rng.random() < 0.25
    budget = rng.choice([0.0, 0.0, 0.005, 0.1]) if not causal else 0.0
    numerics = Numerics(
        max_extra_steps=rng.choice([0, 1, 2, 4]),
        rotation=rng.choice(["never", "automatic"]),
        tail_correction=rng.choice(["never", "automatic", "always"]),
        centre_values=rng.random() < 0.8,
    )
    options = dict(numerics=numerics, key_order=rng.choice(["mid_window", "descending"]))
    in_two_steps = rng.random() < 0.3
    torch.cuda.synchronize()

    def run(q, k, v):
        if budget > 0:
            prepared = prepare_v_repair(q, k, v, budget=budget, **options)
            return attention_v_repair(prepared), None
        if in_two_steps:
            prepared = prepare_fp8(q, k, v, causal=causal, with_lse=True, **options)
            return attention_fp8(prepared, return_lse=True)
        return attention(q, k, v, causal=causal, return_lse=True, **options)

    out, lse = run(q, k, v)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        again, lse_again = run(q, k, v)
    torch.cuda.synchronize()
    case = (
        f"B{batch} H{heads} Sq{queries} Skv{keys} {dtype} causal={causal} budget={budget} {options}"
    )
    if not torch.equal(out.nan_to_num(), again.nan_to_num()):
        return f"two runs differ: {case}"
    if lse is not None and not torch.equal(lse, lse_again):
        return f"the LSE of two runs differs: {case}"
    expected, expected_lse = run(q.cpu(), k.cpu(), v.cpu())
    actual, expected = out.cpu().double(), expected.double()
    if not torch.isfinite(actual).all():
        return f"not finite: {case}"
    bound = FEW_KEYS_AGREEMENT if keys <= FEW_KEYS else AGREEMENT
    error = relative_l2(actual, expected)
    if error > bound:
        # Scores of thousands of code units: two keys within one step of binary16 may change places.
        # The exact result tells whether the GPU is further from it than the CPU.
        exact = exact_attention(q.cpu(), k.cpu(), v.cpu(), causal=causal)
        if relative_l2(actual, exact) > 1.2 * relative_l2(expected, exact) + bound / 4:
            return f"relative L2 {error:.4f}: {case}"
    if lse is not None:
        seen = torch.isfinite(expected_lse)
        difference = (lse.cpu() - expected_lse)[seen].abs()
        largest = expected_lse[seen].abs().max().item() if seen.any() else 0.0
        bound = LSE_AGREEMENT + LSE_RELATIVE_AGREEMENT * largest
        if difference.numel() and difference.max().item() > bound:
            return f"LSE off by {difference.max().item():.4f}: {case}"
        if not torch.equal(torch.isfinite(lse.cpu()), seen):
            return f"other rows without keys: {case}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    torch.manual_seed(arguments.seed)
    passed = failed = 0
    start = report = time.monotonic()
    while time.monotonic() - start < arguments.seconds:
        fault = one_case(rng)
        if fault:
            failed += 1
            print(fault, flush=True)
        else:
            passed += 1
        if time.monotonic() - report > 15:
            report = time.monotonic()
            print(f"soak: {report - start:.0f} s, {passed} passed, {failed} failed", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
