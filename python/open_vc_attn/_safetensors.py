# SPDX-License-Identifier: BSD-3-Clause
"""A minimal safetensors reader and writer that needs neither NumPy nor torch.

Not the package ``safetensors``: this one adds no dependency, keeps files readable that hold types
it does not know, refuses what hides data (repeated names, trailing bytes), and can refuse to
overwrite.

Format: 8 bytes of little-endian header length, a JSON header, tensor data. The header maps names to
``{"dtype", "shape", "data_offsets"}``, and ``__metadata__`` to a map of strings. Tensors follow
each other without gaps.
"""

from __future__ import annotations

import ctypes
import errno
import json
import math
import os
import stat
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
    "F8_E8M0": 1,
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
    "C64": 8,
}
"""Bytes per element of the types that this module knows."""

_TYPES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
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
    "complex64": "C64",
}
_NAMES = {stored: name for name, stored in _TYPES.items()}

_LENGTH = struct.Struct("<Q")
_HEADER_ALIGNMENT = 8
_MAX_HEADER_BYTES = 100_000_000  # the limit of the reference implementation
_METADATA = "__metadata__"
_ENTRY_KEYS = ("dtype", "shape", "data_offsets")
_MAX_RANK = 64  # NumPy's limit
_MAX_ELEMENTS = 2**60  # 8 bytes each: sizes fit 63 bits


class StoredTensor(NamedTuple):
    """A tensor as a file holds it: C-contiguous, little-endian."""

    dtype: str  # a key of ITEM_SIZES, else a type that this module does not know
    shape: tuple[int, ...]
    data: Any  # bytes-like

    def numpy(self) -> Any:
        """As a NumPy array; bfloat16 and the 8-bit floats need the package ml_dtypes."""
        import numpy

        name = _known_name(self.dtype)
        if not hasattr(numpy, name):
            import ml_dtypes

            return numpy.frombuffer(self.data, getattr(ml_dtypes, name)).reshape(self.shape)
        return numpy.frombuffer(self.data, name).reshape(self.shape)

    def torch(self) -> Any:
        """As a torch tensor that owns a copy."""
        import torch

        dtype = getattr(torch, _known_name(self.dtype), None)
        if dtype is None:
            raise TypeError(f"this version of torch has no element type {self.dtype}")
        if not math.prod(self.shape):
            return torch.empty(self.shape, dtype=dtype)
        flat = torch.frombuffer(bytearray(self.data), dtype=dtype)
        return flat.reshape(self.shape)


def stored(tensor: Any) -> StoredTensor:
    """A torch tensor or NumPy array in the form that a file holds.

    Raises:
        TypeError: neither of the two, or an element type that the format does not have.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tensor, torch.Tensor):
        tensor = tensor.detach().cpu().contiguous().resolve_neg()
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
    *,
    overwrite: bool = True,
) -> None:
    """Writes torch tensors, NumPy arrays or StoredTensors to a file, which appears complete.

    Raises:
        TypeError: a tensor of an unknown kind or element type.
        ValueError: a name or text that UTF-8 cannot encode.
        FileExistsError: without `overwrite`, if the file exists.
        OSError: the file cannot be written; nothing is left behind.
    """
    write_atomically(Path(path), chunks(tensors, metadata), overwrite=overwrite)


def chunks(tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> list[Any]:
    """The bytes of a file that save() would write, in parts."""
    header: dict[str, Any] = {}
    if metadata:
        header[_METADATA] = dict(metadata)
    data: list[Any] = []
    offset = 0
    for name, tensor in tensors.items():
        entry = tensor if isinstance(tensor, StoredTensor) else stored(tensor)
        end = offset + len(entry.data)
        header[name] = {
            "dtype": entry.dtype,
            "shape": list(entry.shape),
            "data_offsets": [offset, end],
        }
        data.append(entry.data)
        offset = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _HEADER_ALIGNMENT)
    return [_LENGTH.pack(len(text)), text, *data]


def load(path: str | os.PathLike[str]) -> tuple[dict[str, StoredTensor], dict[str, str]]:
    """All tensors of a file, and its metadata.

    Raises:
        ValueError: the file is not a well-formed safetensors file; the text says where.
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
        text = str(content[_LENGTH.size : start], "utf-8")
        header = json.loads(text, object_pairs_hook=unique_names)
        # Escapes can spell half a surrogate pair, which is no text.
        json.dumps(header, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: the header is not JSON ({error})") from None
    if not isinstance(header, dict):
        raise ValueError(f"{path}: the header is not a JSON object")
    metadata = header.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(x, str) for x in metadata.values()):
        raise ValueError(f"{path}: {_METADATA} must map names to strings")
    data = content[start:]
    tensors = {name: _entry(f"{path}: {name}", entry, data) for name, entry in header.items()}
    _check_coverage(path, header, len(data))
    return tensors, metadata


def write_atomically(path: Path, chunks: list[Any], *, overwrite: bool = True) -> None:
    """Writes a file beside `path` and moves it there, so that no reader sees half of it.

    A link stays one: what it leads to is replaced.

    Raises:
        FileExistsError: without `overwrite`, if `path` exists.
        OSError: the file cannot be written; nothing is left behind.
    """
    if overwrite and path.is_symlink():
        path = path.resolve()
    if overwrite and path.exists() and not path.is_file():
        # To replace a device would break the machine.
        raise OSError(errno.EINVAL, "found a folder, pipe or device; expected a file", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            for chunk in chunks:
                file.write(chunk)
        _give_permissions(temporary, path)
        if overwrite:
            os.replace(temporary, path)
        else:
            _move_to_free_path(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _give_permissions(temporary: str, path: Path) -> None:
    """Those of the file that is replaced, else what an ordinary open() gives: mkstemp makes files
    private."""
    try:
        replaced = os.stat(path)
    except OSError:
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        return
    mode = stat.S_IMODE(replaced.st_mode) & 0o777
    owners = ((replaced.st_uid, replaced.st_gid), (-1, replaced.st_gid))
    if not any(_chown(temporary, *owner) for owner in owners):
        mode &= ~stat.S_IRWXG  # of another group
    os.chmod(temporary, mode)


def _chown(path: str, user: int, group: int) -> bool:
    try:
        os.chown(path, user, group)
    except OSError:
        return False
    return True


def _move_to_free_path(temporary: str, path: Path) -> None:
    try:
        os.link(temporary, path)  # unlike a renaming, refuses an existing target
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        os.replace(temporary, path)
    else:
        os.unlink(temporary)


def unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; json.loads() alone would keep the last of several equal names."""
    content: dict[str, Any] = {}
    for name, value in pairs:
        if name in content:
            raise ValueError(f"the name {name!r} appears twice in an object")
        content[name] = value
    return content


def _check_coverage(path: Any, header: dict[str, Any], data_bytes: int) -> None:
    """Refuses gaps and overlaps, which hide data or let a tensor show the bytes of another."""
    covered = 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        if begin != covered:
            raise ValueError(
                f"{path}: {name}: begins at data byte {begin}, but the tensor before it ends at "
                f"{covered}: gaps and overlaps are not allowed"
            )
        covered = end
    if covered != data_bytes:
        raise ValueError(
            f"{path}: there are {data_bytes} data bytes, but the last tensor ends at {covered}"
        )


def _known_name(dtype: str) -> str:
    if dtype not in _NAMES:
        raise TypeError(
            f"the element type {dtype!r} is not known here; known are {', '.join(_NAMES)}"
        )
    return _NAMES[dtype]


def _stored_type(name: str) -> str:
    if name not in _TYPES:
        raise TypeError(f"safetensors files have no element type {name}")
    return _TYPES[name]


def _entry(where: str, entry: Any, data: memoryview) -> StoredTensor:
    try:
        dtype, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
    except (TypeError, KeyError, ValueError):
        raise ValueError(f"{where}: the entry needs dtype, shape and two data_offsets") from None
    if len(entry) != len(_ENTRY_KEYS):
        raise ValueError(f"{where}: the entry may have {', '.join(_ENTRY_KEYS)} only")
    if not (isinstance(entry["shape"], list) and isinstance(entry["data_offsets"], list)):
        raise ValueError(f"{where}: shape and data_offsets must be arrays")
    if not isinstance(dtype, str):
        raise ValueError(f"{where}: dtype must be a string")
    if not all(type(n) is int and n >= 0 for n in (*shape, begin, end)):
        raise ValueError(f"{where}: sizes and offsets must be integers >= 0")
    if not begin <= end <= len(data):
        raise ValueError(f"{where}: bytes {begin}..{end} lie outside the {len(data)} data bytes")
    # A dimension of 0 must not hide the others, which strides are made of.
    if len(shape) > _MAX_RANK or math.prod(max(n, 1) for n in shape) > _MAX_ELEMENTS:
        raise ValueError(f"{where}: no tensor has a shape like {list(shape)[:_MAX_RANK]}")
    # How many bytes an element of an unknown type has, nobody can tell.
    if dtype in ITEM_SIZES and end - begin != math.prod(shape) * ITEM_SIZES[dtype]:
        raise ValueError(f"{where}: shape {list(shape)} of {dtype} does not fill its bytes")
    return StoredTensor(dtype, shape, data[begin:end])
