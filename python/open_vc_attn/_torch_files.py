# SPDX-License-Identifier: BSD-3-Clause
"""Conversion of files that torch wrote (.pt, .pth) into safetensors files for the program."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from . import _safetensors

_NAMES = ("q", "k", "v")
_SUFFIXES = (".pt", ".pth")
_INPUT_OPTIONS = ("-i", "--input")
_INPUT_PREFIXES = ("--input=", "-i")  # of a value in the same argument
_CONVERTED_FROM = "--converted-from"  # an option that the program's help does not list


class ConversionError(Exception):
    """A file that cannot be converted; the text says why and what to do."""


class NoSpaceError(Exception):
    """The converted copy cannot be written."""


class _InputValue(NamedTuple):
    """A file that the user gave as input, and what precedes it within its argument."""

    prefix: str  # "", "-i" or "--input="
    path: Path


class Conversion:
    """The converted copies of one call of the program; a context manager that removes them."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._folder: Path | None = None

    def __enter__(self) -> Conversion:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def converted(self, arguments: Sequence[str]) -> list[str]:
        """The arguments with input files of torch's replaced by safetensors files.

        Three files of one tensor each, one after the other, become one file with q, k and v. The
        program is told what the user gave, for its messages and reports.
        """
        inputs = _input_values(arguments)
        result: list[str] = []
        index = 0
        while index < len(arguments):
            value = inputs[index]
            run = _torch_files(inputs, index)
            if len(run) == len(_NAMES):
                contents = [_load(path) for path in run]
                tensors = [_only_tensor(content) for content in contents]
                if all(tensor is not None for tensor in tensors):
                    named = {
                        name: _stored(path, name, tensor)
                        for path, name, tensor in zip(run, _NAMES, tensors, strict=True)
                    }
                    target = self._save(index, run[0], named, {})
                    result.append(f"{inputs[index].prefix}{target}")
                    index += len(run)
                    continue
            if value and run:
                target = self._save(index, value.path, *_contents(value.path, _load(value.path)))
                result.append(f"{value.prefix}{target}")
            else:
                result.append(arguments[index])
            index += 1
        return result + [f"{_CONVERTED_FROM}={value.path}" for value in inputs if value]

    def _save(
        self,
        index: int,
        source: Path,
        tensors: dict[str, _safetensors.StoredTensor],
        metadata: dict[str, str],
    ) -> Path:
        if self._folder is None:
            self._folder = self._temporary_folder()
        try:
            if self._folder is not None:
                target = self._folder / str(index) / f"{source.stem}.safetensors"
                _safetensors.save(target, tensors, metadata)
                return target
            return self._save_in_memory(tensors, metadata)
        except UnicodeEncodeError:
            raise ConversionError(
                f"{source}: found a name or text that is not valid Unicode; expected text that "
                "UTF-8 can encode. Rename it in the file."
            ) from None
        except OSError as error:
            raise NoSpaceError(
                f"{source}: found that the copy for the program cannot be written "
                f"({error.strerror}); expected space for {_size(tensors)} bytes. Set TMPDIR to a "
                "folder with space."
            ) from None

    def _temporary_folder(self) -> Path | None:
        try:
            return Path(
                self._stack.enter_context(tempfile.TemporaryDirectory(prefix="open-vc-attn-"))
            )
        except OSError:  # no writable folder for temporary files
            return None

    def _save_in_memory(
        self, tensors: dict[str, _safetensors.StoredTensor], metadata: dict[str, str]
    ) -> Path:
        descriptor = os.memfd_create("open-vc-attn")
        file = self._stack.enter_context(os.fdopen(descriptor, "wb"))
        for chunk in _safetensors.chunks(tensors, metadata):
            file.write(chunk)
        file.flush()
        return Path(f"/proc/{os.getpid()}/fd/{descriptor}")


def has_torch_files(arguments: Sequence[str]) -> bool:
    """Whether an input file of these arguments needs a conversion."""
    return any(value and _is_torch_file(value.path) for value in _input_values(arguments))


def _input_values(arguments: Sequence[str]) -> list[_InputValue | None]:
    """For each argument the input file that it names, None for all other arguments."""
    values: list[_InputValue | None] = []
    follows_option = False
    for argument in arguments:
        prefix = next((p for p in _INPUT_PREFIXES if argument.startswith(p)), "")
        if argument in _INPUT_OPTIONS:
            values.append(None)
            follows_option = True
        elif prefix:
            values.append(_InputValue(prefix, Path(argument.removeprefix(prefix))))
            follows_option = True
        elif argument.startswith("-"):
            values.append(None)
            follows_option = False
        else:
            values.append(_InputValue("", Path(argument)) if follows_option else None)
    return values


def _is_torch_file(path: Path) -> bool:
    try:
        return path.suffix in _SUFFIXES and path.is_file()
    except (OSError, ValueError):  # too long, say: the program refuses it
        return False


def _torch_files(inputs: Sequence[_InputValue | None], start: int) -> list[Path]:
    """Files of torch's that follow each other from `start` on, behind one option."""
    files: list[Path] = []
    for value in inputs[start:]:
        if value is None or not _is_torch_file(value.path) or (value.prefix and files):
            break
        files.append(value.path)
    return files


def _size(tensors: dict[str, _safetensors.StoredTensor]) -> int:
    return sum(len(tensor.data) for tensor in tensors.values())


def _load(source: Path) -> Any:
    try:
        import torch
    except ImportError:
        raise ConversionError(
            f"{source}: found a file of torch, which is not installed; expected torch to read it. "
            "Install it (pip install torch), or save the tensors as .safetensors or .npy."
        ) from None
    try:
        with _numpy_values(torch):
            return torch.load(source, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds; all mean that the file is unusable
        raise ConversionError(
            f"{source}: found a file that torch cannot load safely ({error}); expected tensors and "
            "plain values. Save these alone: torch.save({'q': q, 'k': k, 'v': v}, path)."
        ) from None


def _numpy_values(torch: Any) -> Any:
    """Lets torch.load() take NumPy's numbers and arrays, which run no code of the file's."""
    try:
        import numpy

        core = getattr(numpy, "_core", None) or numpy.core
        kinds = [type(numpy.dtype(code)) for code in "?bBhHiIlLqQefd"]
        allowed = [
            numpy.dtype,
            numpy.ndarray,
            core.multiarray.scalar,
            core.multiarray._reconstruct,
            *kinds,
        ]
        return torch.serialization.safe_globals(allowed)
    except (ImportError, AttributeError):  # no NumPy, or a torch before 2.5
        return nullcontext()


def _only_tensor(content: Any) -> Any:
    """The tensor that a file consists of, None if it holds more or less."""
    if isinstance(content, dict) and len(content) == 1:
        (content,) = content.values()
    return content if _is_tensor(content) else None


def _is_tensor(value: Any) -> bool:
    import sys

    import torch

    numpy = sys.modules.get("numpy")
    return isinstance(value, torch.Tensor) or (
        numpy is not None and isinstance(value, numpy.ndarray)
    )


def _contents(
    source: Path, content: Any
) -> tuple[dict[str, _safetensors.StoredTensor], dict[str, str]]:
    """Tensors of a file of torch's, q, k and v where it has no names, and its plain values.

    What the values mean, the program decides. A tensor that no file can hold becomes one that the
    program refuses if anybody asks for it.
    """
    if _is_tensor(content):
        name = source.stem.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        return {name: _stored(source, name, content)}, {}
    if isinstance(content, (list, tuple)) and len(content) == len(_NAMES):
        content = dict(zip(_NAMES, content, strict=True))
    if not isinstance(content, dict):
        raise ConversionError(
            f"{source}: found {type(content).__name__}; expected a tensor, a triple (q, k, v) or a "
            "dict of tensors. Save one of these with torch.save()."
        )
    tensors: dict[str, _safetensors.StoredTensor] = {}
    plain: dict[str, str] = {}
    for key, value in content.items():
        name = str(key)
        if name in tensors or name in plain:
            raise ConversionError(
                f"{source}: found two keys that read {name!r}; expected names that differ. Rename "
                "one of them."
            )
        if _is_tensor(value):
            tensors[name] = _stored_or_placeholder(value)
        elif value is not None:  # which says nothing
            plain[name] = _text(source, name, value)
    if not tensors:
        raise ConversionError(
            f"{source}: found no tensors; expected q, k and v. Save them as a dict: "
            "torch.save({'q': q, 'k': k, 'v': v}, path)."
        )
    return tensors, plain


def _text(source: Path, name: str, value: Any) -> str:
    import sys

    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        value = value.item()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float, str)):
        return str(value)
    raise ConversionError(
        f"{source}: found {name!r} of type {type(value).__name__}; expected tensors, numbers and "
        "text, which alone can be passed on. Leave it out, or save it as one of these."
    )


def _stored(source: Path, name: str, tensor: Any) -> _safetensors.StoredTensor:
    """A tensor of a file as the program can read it."""
    try:
        return _convert(tensor)
    except (TypeError, ValueError, RuntimeError) as error:  # torch refuses with several kinds
        raise ConversionError(
            f"{source}: found tensor {name!r} that cannot be converted ({error}); expected a dense "
            "tensor of bfloat16, float16 or float32. Save it as such: "
            "torch.save(x.to_dense().to(torch.bfloat16), path)."
        ) from None


def _stored_or_placeholder(tensor: Any) -> _safetensors.StoredTensor:
    try:
        return _convert(tensor)
    except (TypeError, ValueError, RuntimeError):
        layout = str(getattr(tensor, "layout", "")).removeprefix("torch.")
        device = getattr(getattr(tensor, "device", None), "type", "cpu")
        words = [str(tensor.dtype).removeprefix("torch.")]
        words += [word for word in (layout, device) if word not in ("", "strided", "cpu")]
        return _safetensors.StoredTensor(" ".join(words), tuple(tensor.shape), b"")


def _convert(tensor: Any) -> _safetensors.StoredTensor:
    import torch

    if isinstance(tensor, torch.Tensor) and tensor.layout is not torch.strided:
        raise TypeError(f"its layout is {tensor.layout}")
    return _safetensors.stored(tensor)
