# SPDX-License-Identifier: BSD-3-Clause
"""A minimal safetensors reader and writer that needs neither NumPy nor torch.

Format: 8 bytes of little-endian header length, a JSON header, tensor data. The header maps names to
``{"dtype", "shape", "data_offsets"}``, and ``__metadata__`` to a map of strings. Tensors follow
each other without gaps.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import struct
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

ITEM_SIZES = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "I16": 2,
    "U16": 2,
    "F16": 2,
    "BF16": 2,
    "I32": 4,
    "U32": 4,
    "F32": 4,
    "I64": 8,
    "U64": 8,
    "F64": 8,
}
"""Bytes per element of the types that this module knows."""

_TYPES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "int16": "I16",
    "uint16": "U16",
    "float16": "F16",
    "bfloat16": "BF16",
    "int32": "I32",
    "uint32": "U32",
    "float32": "F32",
    "int64": "I64",
    "uint64": "U64",
    "float64": "F64",
}
_NAMES = {stored: name for name, stored in _TYPES.items()}

_LENGTH = struct.Struct("<Q")
_HEADER_ALIGNMENT = 8
_MAX_HEADER_BYTES = 100_000_000  # the limit of the reference implementation
_METADATA = "__metadata__"


class StoredTensor(NamedTuple):
    """A tensor as a file holds it: C-contiguous, little-endian."""

    dtype: str  # a key of ITEM_SIZES
    shape: tuple[int, ...]
    data: Any  # bytes-like

    def numpy(self) -> Any:
        """As a NumPy array; bfloat16 and the 8-bit floats need the package ml_dtypes."""
        import numpy

        name = _NAMES[self.dtype]
        if not hasattr(numpy, name):
            import ml_dtypes

            return numpy.frombuffer(self.data, getattr(ml_dtypes, name)).reshape(self.shape)
        return numpy.frombuffer(self.data, name).reshape(self.shape)

    def torch(self) -> Any:
        """As a torch tensor that owns a copy."""
        import torch

        if not math.prod(self.shape):
            return torch.empty(self.shape, dtype=getattr(torch, _NAMES[self.dtype]))
        flat = torch.frombuffer(bytearray(self.data), dtype=getattr(torch, _NAMES[self.dtype]))
        return flat.reshape(self.shape)


def stored(tensor: Any) -> StoredTensor:
    """A torch tensor or NumPy array in the form that a file holds.

    Raises:
        TypeError: neither of the two, or an element type that the format does not have.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tensor, torch.Tensor):
        tensor = tensor.detach().cpu().contiguous()
        name = str(tensor.dtype).removeprefix("torch.")
        size = tensor.numel() * tensor.element_size()
        data = ctypes.string_at(tensor.data_ptr(), size) if size else b""
        return StoredTensor(_stored_type(name), tuple(tensor.shape), data)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(tensor, numpy.ndarray):
        name = tensor.dtype.name
        return StoredTensor(_stored_type(name), tensor.shape, tensor.tobytes())
    raise TypeError(f"expected a torch tensor or a NumPy array, not {type(tensor).__name__}")


def save(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Any],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes torch tensors, NumPy arrays or StoredTensors to a file, which appears complete.

    Raises:
        TypeError: a tensor of an unknown kind or element type.
        OSError: the file cannot be written; nothing is left behind.
    """
    header: dict[str, Any] = {}
    if metadata:
        header[_METADATA] = dict(metadata)
    chunks, offset = [], 0
    for name, tensor in tensors.items():
        entry = tensor if isinstance(tensor, StoredTensor) else stored(tensor)
        end = offset + len(entry.data)
        header[name] = {
            "dtype": entry.dtype,
            "shape": list(entry.shape),
            "data_offsets": [offset, end],
        }
        chunks.append(entry.data)
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _HEADER_ALIGNMENT)
    write_atomically(Path(path), [_LENGTH.pack(len(text)), text, *chunks])


def load(path: str | os.PathLike[str]) -> tuple[dict[str, StoredTensor], dict[str, str]]:
    """All tensors of a file, and its metadata.

    Raises:
        ValueError: the file is no well-formed safetensors file; the text says where.
        OSError: the file cannot be read.
    """
    content = memoryview(Path(path).read_bytes())
    if len(content) < _LENGTH.size:
        raise ValueError(f"{path}: {len(content)} bytes are too few for a safetensors file")
    (length,) = _LENGTH.unpack(content[: _LENGTH.size])
    if length > min(len(content) - _LENGTH.size, _MAX_HEADER_BYTES):
        raise ValueError(f"{path}: the header claims {length} bytes, more than there are")
    start = _LENGTH.size + length
    try:
        header = json.loads(bytes(content[_LENGTH.size : start]))
    except ValueError as error:
        raise ValueError(f"{path}: the header is not JSON ({error})") from None
    if not isinstance(header, dict):
        raise ValueError(f"{path}: the header is no JSON object")
    metadata = header.pop(_METADATA, {})
    data = content[start:]
    tensors = {name: _entry(f"{path}: {name}", entry, data) for name, entry in header.items()}
    return tensors, metadata


def write_atomically(path: Path, chunks: list[Any]) -> None:
    """Writes a file beside `path` and moves it there, so that no reader sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            for chunk in chunks:
                file.write(chunk)
        # mkstemp makes files private; give this one what an ordinary open() would.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _stored_type(name: str) -> str:
    if name not in _TYPES:
        raise TypeError(f"safetensors files have no element type {name}")
    return _TYPES[name]


def _entry(where: str, entry: Any, data: memoryview) -> StoredTensor:
    try:
        dtype, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
    except (TypeError, KeyError, ValueError):
        raise ValueError(f"{where}: the entry needs dtype, shape and two data_offsets") from None
    if dtype not in ITEM_SIZES:
        raise ValueError(f"{where}: unknown element type {dtype!r}")
    if not all(type(n) is int and n >= 0 for n in (*shape, begin, end)):
        raise ValueError(f"{where}: sizes and offsets must be integers >= 0")
    if not begin <= end <= len(data):
        raise ValueError(f"{where}: bytes {begin}..{end} lie outside the {len(data)} data bytes")
    if end - begin != math.prod(shape) * ITEM_SIZES[dtype]:
        raise ValueError(f"{where}: shape {list(shape)} of {dtype} does not fill its bytes")
    return StoredTensor(dtype, shape, data[begin:end])
