# SPDX-License-Identifier: BSD-3-Clause
"""The arguments that divide packed tensors into sequences: checked, and as the library reads them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from . import _openvc
from ._arrays import LARGEST_LENGTH, Arrays, KeyArray
from ._checks import as_whole, shown
from ._frameworks import framework_of, is_compiling
from ._key_selection import int32_memory, require_integers, shape_text

_BOUNDARIES = ("cu_seqlens_q", "cu_seqlens_k")
_LONGEST = ("max_seqlen_q", "max_seqlen_k")
_ADVICE = "Pass the running sums of the lengths, behind a 0."


class Sequences(NamedTuple):
    """Packed sequences of a call, as the torch operators take them."""

    cu_seqlens_q: Any
    cu_seqlens_k: Any
    max_seqlen_q: int
    max_seqlen_k: int


class _Side(NamedTuple):
    """What belongs to queries or to keys."""

    operand: Any
    numbers: list[int] | None  # where the host knows them
    longest: int


def sequence_operands(
    arrays: Arrays, q: Any, k: Any, boundaries: tuple[Any, Any], longest: tuple[Any, Any]
) -> Sequences:
    """The four arguments in the form that the other functions take.

    Refuses what belongs to another framework, or to none, and numbers that are on the host and fit
    no tensors.
    """
    of_q, of_k = (
        _side(arrays, q, *arguments)
        for arguments in zip(_BOUNDARIES, boundaries, _LONGEST, longest, strict=True)
    )
    known = [side.numbers for side in (of_q, of_k) if side.numbers is not None]
    if known and not is_compiling():
        nothing = [0] * len(known[0])  # stands for what only the device knows
        numbers = [nothing if side.numbers is None else side.numbers for side in (of_q, of_k)]
        if len(numbers[0]) == len(numbers[1]) > 1:
            tokens = [array.shape[-3] for array in (q, k)]
            _openvc.check_sequences(*numbers, of_q.longest, of_k.longest, *tokens)
    return Sequences(of_q.operand, of_k.operand, of_q.longest, of_k.longest)


def _side(
    arrays: Arrays, q: Any, name: str, boundaries: Any, longest_name: str, longest: Any
) -> _Side:
    if isinstance(boundaries, (list, tuple, range)):
        numbers = [as_whole(name, value, 0, LARGEST_LENGTH) for value in boundaries]
        operand = None
    else:
        found = framework_of(name, boundaries)
        if found is None or found.name != arrays.name:
            kind = shown(boundaries) if found is None else f"array of {found.name}"
            raise TypeError(
                f"{name}: {kind}; expected an array of {arrays.name}, as q, or a sequence of ints. "
                f"{_ADVICE}"
            )
        operand = arrays.key_operand(name, boundaries, True)
        require_integers(name, arrays.key_array(operand).dtype)
        numbers = arrays.host_numbers(operand)
        if numbers is not None:
            numbers = [max(-LARGEST_LENGTH, min(x, LARGEST_LENGTH)) for x in numbers]
    if longest is not None:
        # Compilers keep an int as a symbol only if nothing converts it.
        if type(longest) is not int or not 0 <= longest <= LARGEST_LENGTH:
            longest = as_whole(longest_name, longest, 0, LARGEST_LENGTH)
    elif numbers is None:
        raise ValueError(
            f"{longest_name}: None; expected a number, because {name} is not read on the host. Pass "
            "the number of tokens of the longest sequence, or more."
        )
    else:
        longest = max([0, *(end - start for start, end in itertools.pairwise(numbers))])
    on_another_device = (
        operand is not None
        and numbers is not None
        and arrays.key_array(operand).device != arrays.device_name(q)
    )
    if numbers is not None and (operand is None or on_another_device):
        operand = arrays.lengths([max(0, x) for x in numbers], q)
    return _Side(operand, numbers, longest)


def require_sequences(arrays: Arrays, q: Any, k: Any, sequences: Sequences) -> None:
    """Refuses what sequence_operands() gave where it does not fit the call, by types and sizes alone."""
    described = [arrays.key_array(x) for x in sequences[:2]]
    _require(arrays, q.shape, arrays.device_name(q), described)


def _require(
    arrays: Arrays, q_shape: Sequence[int], device: str, boundaries: Sequence[KeyArray]
) -> None:
    if len(q_shape) != 3:
        raise ValueError(
            f"q: {len(q_shape)} axes; expected [T, H, D], the tokens of all sequences behind each "
            "other. Use q.reshape(-1, H, D), and attention() for sequences of one length."
        )
    for name, found in zip(_BOUNDARIES, boundaries, strict=True):
        require_integers(name, found.dtype)
        if found.device != device:
            raise ValueError(
                f"{name}: device {found.device}; expected {device}, that of q. Move it there."
            )
        if len(found.shape) != 1:
            raise ValueError(
                f"{name}: {shape_text(found)}; expected [B + 1], B sequences. {_ADVICE}"
            )
    of_q, of_k = boundaries
    if not arrays.same_size(of_q.shape[0], of_k.shape[0]):
        raise ValueError(
            f"{_BOUNDARIES[1]}: {shape_text(of_k)}; expected the shape of {_BOUNDARIES[0]}, which "
            f"divides q into as many sequences as k. {_ADVICE}"
        )


def divide(
    arrays: Arrays,
    q: Any,
    views: Sequence[_openvc.Tensor],
    options: _openvc.AttentionOptions,
    sequences: Sequences,
) -> tuple[_openvc.AttentionOptions, list[Any]]:
    """Options for packed sequences, and what has to live until the work with them is queued."""
    boundaries = [
        arrays.key_memory(name, x) for name, x in zip(_BOUNDARIES, sequences[:2], strict=True)
    ]
    _require(arrays, views[0].array_shape, arrays.device_name(q), boundaries)
    boundaries = [
        int32_memory(arrays, name, x) for name, x in zip(_BOUNDARIES, boundaries, strict=True)
    ]
    count = boundaries[0].shape[0] - 1
    if count < 1:
        raise ValueError(
            f"{_BOUNDARIES[0]}: {shape_text(boundaries[0])}; expected [B + 1], two numbers or more. "
            f"{_ADVICE}"
        )
    addresses = [x.address for x in boundaries]
    return (
        options.with_sequences(count, *addresses, *sequences[2:]),
        [x.memory for x in boundaries],
    )
