# SPDX-License-Identifier: BSD-3-Clause
"""The arguments that select keys, key_lengths and key_mask: checked, and as the library reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _openvc
from ._arrays import LARGEST_LENGTH, Arrays, KeyArray
from ._checks import as_whole, shown
from ._frameworks import framework_of, is_compiling

LENGTHS, MASK = "key_lengths", "key_mask"
_LENGTH_TYPES = ("int32", "int64", "int8", "int16", "uint8", "uint16", "uint32")
_MASK_TYPES = ("bool", "uint8")
_INT32_BYTES = 4
_LARGEST_INT64 = 2**63 - 1


def key_operands(
    arrays: Arrays, q: Any, key_lengths: Any, key_mask: Any, *, use: bool = True
) -> tuple[Any, Any]:
    """The two arguments in the form that `arrays` takes; `use` as for Arrays.operands(), without it
    numbers stay numbers.

    Refuses what belongs to another framework, or to none.
    """
    if key_lengths is not None:
        numbers = _numbers(key_lengths)
        if numbers is None:
            key_lengths = _operand(arrays, LENGTHS, key_lengths, use)
        else:
            key_lengths = arrays.lengths(numbers, q) if use else numbers
    if key_mask is not None:
        key_mask = _operand(arrays, MASK, key_mask, use)
    return key_lengths, key_mask


def _numbers(lengths: Any) -> list[int] | None:
    """Lengths that are Python's numbers, limited to what int32 holds; None for arrays."""
    if isinstance(lengths, (list, tuple, range)):
        return [_number(value) for value in lengths]
    is_number = isinstance(lengths, int) or (
        framework_of(LENGTHS, lengths) is None and hasattr(type(lengths), "__index__")
    )
    return [_number(lengths)] if is_number else None


def _number(value: Any) -> int:
    # Compilers keep an int as a symbol only if nothing converts it.
    if type(value) is not int:
        value = as_whole(LENGTHS, value, -_LARGEST_INT64, _LARGEST_INT64)
    return max(0, min(value, LARGEST_LENGTH))


def _operand(arrays: Arrays, name: str, array: Any, use: bool) -> Any:
    found = framework_of(name, array)
    if found is None or found.name != arrays.name:
        also = " or a sequence of ints" if name == LENGTHS else ""
        kind = shown(array) if found is None else f"array of {found.name}"
        raise TypeError(
            f"{name}: {kind}; expected an array of {arrays.name}, as q{also}. Convert it, where q is."
        )
    return arrays.key_operand(name, array, use)


def require_selection(
    arrays: Arrays, q: Any, k: Any, causal: bool, key_lengths: Any, key_mask: Any
) -> None:
    """Refuses what key_operands() gave where it does not fit the call, by types and sizes alone."""
    device = arrays.device_name(q)

    def described(operand: Any) -> KeyArray | None:
        if operand is None:
            return None
        if isinstance(operand, list):
            return KeyArray("int32", device, (len(operand),))
        return arrays.key_array(operand)

    _require(arrays, q.shape, k.shape, device, causal, described(key_lengths), described(key_mask))


def _require(
    arrays: Arrays,
    q_shape: Sequence[int],
    k_shape: Sequence[int],
    device: str,
    causal: bool,
    lengths: KeyArray | None,
    mask: KeyArray | None,
) -> None:
    batch = q_shape[0] if len(q_shape) > 3 else 1
    keys = k_shape[-3]
    if lengths is not None:
        _require_kind(LENGTHS, lengths, causal, device, _LENGTH_TYPES)
        sizes = lengths.shape if len(lengths.shape) else (1,)
        if len(sizes) != 1 or not arrays.same_size(sizes[0], batch):
            raise ValueError(
                f"{LENGTHS}: {shape_text(lengths)}; expected [B], one length for each of the "
                "sequences of q. Give that of each; without a batch axis there is one."
            )
    if mask is not None:
        _require_kind(MASK, mask, causal, device, _MASK_TYPES)
        rank = len(mask.shape)
        fits = (
            rank in (1, 2)
            and arrays.same_size(mask.shape[-1], keys)
            and (
                rank == 1
                or arrays.same_size(mask.shape[0], 1)
                or arrays.same_size(mask.shape[0], batch)
            )
        )
        if not fits:
            raise ValueError(
                f"{MASK}: {shape_text(mask)}; expected [B, Skv], [1, Skv] or [Skv], B sequences of q "
                "and Skv keys. Use mask[:, 0, 0] of a mask [B, 1, 1, Skv]; masks that differ between "
                "queries or heads need another attention function."
            )


def _require_kind(
    name: str, found: KeyArray, causal: bool, device: str, types: Sequence[str]
) -> None:
    if causal:
        raise NotImplementedError(
            f"{name}: together with causal=True; expected one of the two. Leave one out, or use "
            "another attention function for this layer."
        )
    if name == MASK:
        _require_type(
            name, found.dtype, types, f"Use {name} != 0, or for an additive mask {name} == 0"
        )
    else:
        require_integers(name, found.dtype)
    if found.device != device:
        raise ValueError(
            f"{name}: device {found.device}; expected {device}, that of q. Move it there."
        )


def require_integers(name: str, dtype: str) -> None:
    """Refuses element types that are not numbers of tokens."""
    _require_type(name, dtype, _LENGTH_TYPES, "Convert it to int32")


def _require_type(name: str, dtype: str, types: Sequence[str], advice: str) -> None:
    if dtype not in types:
        raise TypeError(f"{name}: element type {dtype}; expected {' or '.join(types)}. {advice}.")


def shape_text(array: KeyArray) -> str:
    """The shape in a message."""
    # Compilers cannot write the sizes that they do not know.
    known = not is_compiling() and all(type(size) is int for size in array.shape)
    return f"shape {list(array.shape)}" if known else f"a shape of {len(array.shape)} axes"


def select_keys(
    arrays: Arrays,
    q: Any,
    views: Sequence[_openvc.Tensor],
    options: _openvc.AttentionOptions,
    key_lengths: Any,
    key_mask: Any,
) -> tuple[_openvc.AttentionOptions, list[Any]]:
    """Options for the keys that key_operands() names, and what has to live until the work with them
    is queued."""
    lengths = None if key_lengths is None else arrays.key_memory(LENGTHS, key_lengths)
    mask = None if key_mask is None else arrays.key_memory(MASK, key_mask)
    device = arrays.device_name(q)
    shapes = views[0].array_shape, views[1].array_shape
    _require(arrays, *shapes, device, options.causal, lengths, mask)
    addresses, memory = [0, 0, 0, 0], []
    if lengths is not None:
        lengths = int32_memory(arrays, LENGTHS, lengths)
        addresses[0] = lengths.address
        memory.append(lengths.memory)
    if mask is not None:
        one_for_all = len(mask.shape) == 1 or mask.shape[0] == 1
        addresses[1:] = mask.address, 0 if one_for_all else mask.strides[0], mask.strides[-1]
        memory.append(mask.memory)
    return options.with_keys(*addresses), memory


def int32_memory(arrays: Arrays, name: str, integers: KeyArray) -> KeyArray:
    """Integers as contiguous int32, limited to what that holds."""
    packed = not integers.shape or integers.shape[0] == 1 or integers.strides == (_INT32_BYTES,)
    if integers.dtype == "int32" and packed and integers.address % _INT32_BYTES == 0:
        return integers
    return arrays.key_memory(name, arrays.as_int32(integers.memory))
