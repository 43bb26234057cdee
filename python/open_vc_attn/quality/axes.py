# SPDX-License-Identifier: BSD-3-Clause
"""Changes of basis of a head's channels that leave its scores as they are."""

from __future__ import annotations

from functools import lru_cache

import torch

HEAD_DIM = 128
MOMENT_TOKENS = 2048
_MIXING_SEED = 0
_RIDGE = 1e-5  # of the mean moment; balancing divides by moments


@lru_cache
def hadamard(device: torch.device) -> torch.Tensor:
    """The orthogonal Hadamard matrix of 128 rows."""
    matrix = torch.ones(1, 1, device=device)
    while matrix.shape[0] < HEAD_DIM:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix / HEAD_DIM**0.5


@lru_cache
def _mixing(size: int, device: torch.device) -> torch.Tensor:
    generator = torch.Generator().manual_seed(_MIXING_SEED)
    return torch.linalg.qr(torch.randn(size, size, generator=generator))[0].to(device)


def mix_rest(x: torch.Tensor, keep: int) -> torch.Tensor:
    """x with its columns from `keep` on mixed by a fixed orthogonal matrix: equal energies."""
    if keep >= HEAD_DIM:
        return x
    return torch.cat([x[:, :keep], x[:, keep:] @ _mixing(HEAD_DIM - keep, x.device)], 1)


def moments(x: torch.Tensor) -> torch.Tensor:
    """Second moments of the channels, in binary64, from about MOMENT_TOKENS tokens of x."""
    sample = x[:: max(1, x.shape[0] // MOMENT_TOKENS)]
    return (sample.T @ sample).double() / sample.shape[0]


def principal_axes(x: torch.Tensor) -> torch.Tensor:
    """Orthogonal; column i is the direction of the i-th largest second moment of x."""
    return torch.linalg.eigh(moments(x))[1].flip(1).float()


def common_axes(q: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(U, U): principal axes of Cq/tr(Cq) + Ck/tr(Ck), Cq and Ck the moments of q and of k."""
    cq, ck = moments(q), moments(k)
    u = torch.linalg.eigh(cq / cq.trace() + ck / ck.trace())[1].flip(1).float()
    return u, u


def balanced_axes(q: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(A, B) with (q A)(k B)^T = q k^T, after which both have the same diagonal moments.

    Balanced realisation as in model reduction. With R = Ck^(1/2) and R Cq R = U W U^T:
    A = R U W^(-1/4), B = R^(-1) U W^(1/4).
    """
    cq, ck = moments(q), moments(k)
    ridge = torch.eye(HEAD_DIM, device=q.device, dtype=torch.float64) * (_RIDGE / HEAD_DIM)
    cq, ck = cq + ridge * cq.trace(), ck + ridge * ck.trace()
    w, u = torch.linalg.eigh(ck)
    root, inverse = u * w.sqrt() @ u.T, u * w.rsqrt() @ u.T
    w, u = torch.linalg.eigh(root @ cq @ root)
    w, u = w.flip(0), u.flip(1)
    return (root @ u * w**-0.25).float(), (inverse @ u * w**0.25).float()
