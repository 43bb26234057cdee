# SPDX-License-Identifier: BSD-3-Clause
"""Entry points of the command line: they run the packaged program ``open-vc-attn``.

The program is C++ and reads safetensors and .npy files. Files that torch wrote (.pt, .pth) are
converted for it into temporary ones here.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from . import _safetensors

_PROGRAM = Path(__file__).parent / "bin" / "open-vc-attn"
_NAMES = ("q", "k", "v")
_TORCH_SUFFIXES = (".pt", ".pth")
_READING_COMMANDS = ("run", "error")
_INPUT_OPTIONS = ("-i", "--input")
_INPUT_PREFIXES = ("--input=", "-i")  # of a value in the same argument
_CONVERTED_FROM = "--converted-from"  # an option that the program's help does not list

_EXIT_FAILURE = 1
_EXIT_USAGE = 2
_EXIT_SIGNAL_BASE = 128  # shells report death by signal n as 128 + n


class _CliError(Exception):
    """A message for the user, and the exit status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def main() -> NoReturn:
    """``open-vc-attn``: all commands."""
    sys.exit(run(sys.argv[1:]))


def main_check() -> NoReturn:
    """``open-vc-attn-check``: the command ``check``."""
    sys.exit(run(["check", *sys.argv[1:]]))


def main_info() -> NoReturn:
    """``open-vc-attn-info``: the command ``info``."""
    sys.exit(run(["info", *sys.argv[1:]]))


def main_bench() -> NoReturn:
    """``open-vc-attn-bench``: the command ``bench``."""
    sys.exit(run(["bench", *sys.argv[1:]]))


def run(arguments: Sequence[str]) -> int:
    """Runs the program with these arguments, on this process's streams.

    Returns:
        Its exit status; 128 + n if signal n ended it.
    """
    try:
        if not _PROGRAM.is_file():
            raise _CliError(
                f"{_PROGRAM} is missing: this installation was built without the command line "
                "program. Way out: pip install --force-reinstall open-vc-attn",
                _EXIT_FAILURE,
            )
        with tempfile.TemporaryDirectory(prefix="open-vc-attn-") as folder:
            return _wait([str(_PROGRAM), *_converted(arguments, Path(folder))])
    except _CliError as error:
        print(f"open-vc-attn: {error}", file=sys.stderr)
        return error.status


def _wait(command: list[str]) -> int:
    process = subprocess.Popen(command)
    previous = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        while True:
            try:
                status = process.wait()
                break
            except KeyboardInterrupt:
                # Ctrl-C of a terminal went to the program too, as a member of the same process group;
                # a signal to this process alone did not. This process reports how it ended.
                process.send_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGTERM, previous)
    return status if status >= 0 else _EXIT_SIGNAL_BASE - status


def _converted(arguments: Sequence[str], folder: Path) -> list[str]:
    """The arguments with input files of torch's replaced by safetensors files in `folder`.

    Three files of one tensor each, one after the other, become one file with q, k and v. The
    program is told what the user gave, for its messages and reports.
    """
    if not arguments or arguments[0] not in _READING_COMMANDS:
        return list(arguments)
    inputs = _input_values(arguments)
    if not any(value and _is_torch_file(value.path) for value in inputs):
        return list(arguments)
    result: list[str] = []
    index = 0
    while index < len(arguments):
        value = inputs[index]
        run = _torch_files(inputs, index)
        if len(run) == len(_NAMES):
            contents = [_load(path) for path in run]
            tensors = [_only_tensor(content) for content in contents]
            if all(tensor is not None for tensor in tensors):
                target = _target(folder, index, run[0])
                named = [
                    _stored(path, name, tensor)
                    for path, name, tensor in zip(run, _NAMES, tensors, strict=True)
                ]
                _save(target, dict(zip(_NAMES, named, strict=True)), {})
                result.append(f"{inputs[index].prefix}{target}")
                index += len(run)
                continue
        if value and run:
            target = _target(folder, index, value.path)
            _save(target, *_named_tensors(value.path, _load(value.path)))
            result.append(f"{value.prefix}{target}")
        else:
            result.append(arguments[index])
        index += 1
    return result + [f"{_CONVERTED_FROM}={value.path}" for value in inputs if value]


class _InputValue(NamedTuple):
    """A file that the user gave as input, and what precedes it within its argument."""

    prefix: str  # "", "-i" or "--input="
    path: Path


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
    return path.suffix in _TORCH_SUFFIXES and path.is_file()


def _torch_files(inputs: Sequence[_InputValue | None], start: int) -> list[Path]:
    """Files of torch's that follow each other from `start` on, behind one option."""
    files: list[Path] = []
    for value in inputs[start:]:
        if value is None or not _is_torch_file(value.path) or (value.prefix and files):
            break
        files.append(value.path)
    return files


def _target(folder: Path, index: int, source: Path) -> Path:
    return folder / str(index) / f"{source.stem}.safetensors"


def _load(source: Path) -> Any:
    try:
        import torch
    except ImportError:
        raise _CliError(
            f"{source}: reading files of torch needs torch, which is not installed. Way out: "
            "pip install torch, or save the tensors as .safetensors or .npy",
            _EXIT_USAGE,
        ) from None
    try:
        return torch.load(source, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds; all mean that the file is unusable
        raise _CliError(f"{source}: torch cannot load it safely: {error}", _EXIT_USAGE) from None


def _only_tensor(content: Any) -> Any:
    """The tensor that a file consists of, None if it holds more or less."""
    import torch

    if isinstance(content, dict) and len(content) == 1:
        (content,) = content.values()
    return content if isinstance(content, torch.Tensor) else None


def _named_tensors(source: Path, content: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """Tensors of a file of torch's, q, k and v where it has no names, and its plain values."""
    import torch

    if isinstance(content, torch.Tensor):
        content = {source.stem: content}
    elif isinstance(content, (list, tuple)) and len(content) == len(_NAMES):
        content = dict(zip(_NAMES, content, strict=True))
    if not isinstance(content, dict):
        raise _CliError(
            f"{source}: expected a tensor, a triple (q, k, v) or a dict of tensors, "
            f"not {type(content).__name__}",
            _EXIT_USAGE,
        )
    tensors = {
        str(name): _stored(source, str(name), x)
        for name, x in content.items()
        if isinstance(x, torch.Tensor)
    }
    if not tensors:
        raise _CliError(f"{source}: holds no tensors", _EXIT_USAGE)
    plain = {
        str(name): str(x).lower() if isinstance(x, bool) else str(x)
        for name, x in content.items()
        if isinstance(x, (bool, int, float, str))
    }
    return tensors, plain


def _stored(source: Path, name: str, tensor: Any) -> _safetensors.StoredTensor:
    """A tensor of a file as the program can read it."""
    import torch

    try:
        if tensor.layout is not torch.strided:
            raise TypeError(f"its layout is {tensor.layout}, and only dense tensors can be read")
        return _safetensors.stored(tensor)
    except (TypeError, ValueError, RuntimeError) as error:  # torch refuses with several kinds
        raise _CliError(
            f"{source}: tensor {name!r} cannot be converted: {error}. Way out: save dense tensors "
            "of the type bfloat16, float16 or float32, and no others beside them",
            _EXIT_USAGE,
        ) from None


def _save(target: Path, tensors: dict[str, Any], metadata: dict[str, str]) -> None:
    try:
        _safetensors.save(target, tensors, metadata)
    except OSError as error:
        raise _CliError(
            f"{target}: this copy for the program cannot be written: {error.strerror}. Way out: "
            "set TMPDIR to a folder with space",
            _EXIT_FAILURE,
        ) from None
