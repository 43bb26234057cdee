# SPDX-License-Identifier: BSD-3-Clause
"""How far a result may be from the exact one, given how far the CPU backend's is.

Both backends quantise to the same bytes; what is left between them are probabilities that take the
neighbouring E4M3 code, 9 % away, because scores accumulate in binary16 on the GPU and are rounded
after every k-step, where the CPU rounds once (docs/numerics.md section 6). Each row is therefore held
to the exact result and allowed what the CPU's row is off, a few flipped codes, and what the last bits
of binary16 are worth at the size of its scores. Rows that rest on many keys average the flips; those
that rest on few are allowed single ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

CODE_STEP = 2 ** (1 / 8) - 1
CODE_UNITS_PER_NAT = 8 / 0.6931471805599453
FLIPPED = 0.05  # share of the probabilities whose code may differ
FEW_FLIPS = 9
ROWS_VARY = 4
ALL_FLIPPED = 0.25  # no row differs more for flips alone
ROUNDING = 0.003  # of outputs to 16 bits, and of the 14-bit accumulator
ROUNDED_SCORES = 3  # last bits of binary16 that a score may be off
CPU_SHARE = 1.2  # of the CPU's own error: two results that are equally wrong are not equal
SMALL_ROW = 0.1  # rows that cancel are compared with this share of the head's usual row
LSE_NATS = 0.13  # a code step and a half


@dataclass(frozen=True)
class Exact:
    """Attention in float64, and what the bounds depend on, per row [B, H, Sq]."""

    out: torch.Tensor  # [B, H, Sq, D]
    lse: torch.Tensor
    effective_keys: torch.Tensor  # 1 / sum(p^2)
    score_error: torch.Tensor  # nats


@dataclass
class Verdict:
    """What is wrong, empty if nothing; how close each kind of limit was, 1 being the limit."""

    fault: str = ""
    shares: dict[str, float] = field(default_factory=dict)
    relative_l2: float = 0.0  # of the output to the exact one
    cpu_relative_l2: float = 0.0


def exact_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool,
    scale: float | None,
    smooth_keys: bool,
) -> Exact:
    """Q, K, V as [B, S, H, D] on any device."""
    q, k, v = (x.transpose(1, 2).double() for x in (q, k, v))
    scores = q @ k.transpose(-1, -2) * (scale if scale is not None else q.shape[-1] ** -0.5)
    centred = scores - scores.mean(-1, keepdim=True) if smooth_keys else scores
    units = centred.abs().amax(-1) * CODE_UNITS_PER_NAT
    last_bit = torch.exp2(torch.floor(torch.log2(units.clamp_min(2.0**-14))) - 10)
    if causal:
        queries, keys = scores.shape[-2:]
        hidden = torch.ones(queries, keys, dtype=torch.bool, device=q.device)
        scores = scores.masked_fill(hidden.triu(keys - queries + 1), float("-inf"))
    lse = torch.logsumexp(scores, -1)
    weights = torch.exp(scores - lse[..., None]).nan_to_num(0.0)
    return Exact(
        out=weights @ v,
        lse=lse,
        effective_keys=1 / weights.square().sum(-1).clamp_min(1e-30),
        score_error=ROUNDED_SCORES * last_bit / CODE_UNITS_PER_NAT,
    )


def _flips(keys: torch.Tensor) -> torch.Tensor:
    """Relative L2 distance that flipped codes of so many keys make."""
    expected = FLIPPED * keys
    flips = expected + 3 * expected.sqrt() + FEW_FLIPS
    return CODE_STEP * (flips / keys).sqrt()


def _worst(found: torch.Tensor, limit: torch.Tensor) -> tuple[float, int]:
    """The largest share of a limit, and where; what is not a number is infinitely far."""
    shares = torch.nan_to_num(found / limit, nan=float("inf"), posinf=float("inf")).flatten()
    place = int(shares.argmax())
    return float(shares[place]), place


def judge(
    out: torch.Tensor,
    lse: torch.Tensor | None,
    cpu_out: torch.Tensor,
    cpu_lse: torch.Tensor | None,
    exact: Exact,
) -> Verdict:
    """Outputs are [B, Sq, H, D], LSEs [B, H, Sq], all on one device."""
    verdict = Verdict()
    found, cpu = (x.transpose(1, 2).double() for x in (out, cpu_out))
    if not torch.isfinite(found).all():
        verdict.fault = "not finite"
        return verdict
    seen = torch.isfinite(exact.lse)  # rows with a key
    if not (found[~seen] == 0).all():
        verdict.fault = "rows without keys are not zero"
        return verdict
    if not seen.any():
        return verdict

    norm = exact.out.norm(dim=-1)
    count = seen.sum(-1, keepdim=True).clamp_min(1)
    usual = (norm.square().sum(-1, keepdim=True) / count).sqrt()
    size = torch.maximum(norm, SMALL_ROW * usual).clamp_min(1e-30)
    error = (found - exact.out).norm(dim=-1)
    cpu_error = (cpu - exact.out).norm(dim=-1)
    keys = torch.where(seen, exact.effective_keys, 1.0)
    coarse = 2 * exact.score_error

    rows = (ROWS_VARY * _flips(keys)).clamp_max(ALL_FLIPPED) + ROUNDING + coarse
    verdict.shares["row"], place = _worst(error, CPU_SHARE * cpu_error + rows * size)
    if verdict.shares["row"] > 1:
        verdict.fault = f"row {_place(seen.shape, place)} {verdict.shares['row']:.2f} of its limit"

    total = norm.square().sum(-1).sqrt().clamp_min(1e-30)
    head_error, head_cpu = (x.square().sum(-1).sqrt() / total for x in (error, cpu_error))
    head_coarse = (coarse * size).square().sum(-1).sqrt() / total
    head_rows = _flips((keys * seen).sum(-1).clamp_min(1.0)) + ROUNDING + head_coarse
    verdict.shares["head"], place = _worst(head_error, CPU_SHARE * head_cpu + head_rows)
    if verdict.shares["head"] > 1 and not verdict.fault:
        verdict.fault = f"head {place} {verdict.shares['head']:.2f} of its limit"
    whole = exact.out.norm().clamp_min(1e-30)
    verdict.relative_l2 = float((found - exact.out).norm() / whole)
    verdict.cpu_relative_l2 = float((cpu - exact.out).norm() / whole)

    if lse is not None and cpu_lse is not None and not verdict.fault:
        if not torch.equal(torch.isfinite(lse), seen):
            verdict.fault = "LSE: other rows without keys"
            return verdict
        difference, cpu_difference = ((x - exact.lse)[seen].abs() for x in (lse, cpu_lse))
        limit = CPU_SHARE * cpu_difference + LSE_NATS + 2 * exact.score_error[seen]
        verdict.shares["lse"], place = _worst(difference, limit)
        if verdict.shares["lse"] > 1:
            verdict.fault = f"LSE off by {float(difference.flatten()[place]):.4f} nats"
    return verdict


def _place(shape: torch.Size, index: int) -> list[int]:
    """[batch, head, query] of a flat index."""
    place = []
    for length in reversed(shape):
        place.append(index % length)
        index //= length
    return place[::-1]
