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
from typing import Any, NoReturn

from . import _safetensors

_PROGRAM = Path(__file__).parent / "bin" / "open-vc-attn"
_NAMES = ("q", "k", "v")
_TORCH_SUFFIXES = (".pt", ".pth")
_OUTPUT_OPTIONS = ("-o", "--out", "--output")

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
                # Ctrl-C went to the program too, as a member of the same process group. It decides
                # what to do about it; this process only reports how it ended.
                continue
    finally:
        signal.signal(signal.SIGTERM, previous)
    return status if status >= 0 else _EXIT_SIGNAL_BASE - status


def _converted(arguments: Sequence[str], folder: Path) -> list[str]:
    """The arguments with input files of torch's replaced by safetensors files in `folder`.

    Three files of one tensor each, one after the other, become one file with q, k and v.
    """
    result: list[str] = []
    index = 0
    while index < len(arguments):
        run = _torch_files(arguments, index)
        if len(run) == len(_NAMES):
            contents = [_load(path) for _, path in run]
            tensors = [_only_tensor(content) for content in contents]
            if all(tensor is not None for tensor in tensors):
                target = _target(folder, index, run[0][1])
                _safetensors.save(target, dict(zip(_NAMES, tensors, strict=True)))
                result.append(f"{run[0][0]}{target}")
                index += len(run)
                continue
        if run:
            prefix, source = run[0]
            target = _target(folder, index, source)
            _safetensors.save(target, *_named_tensors(source, _load(source)))
            result.append(f"{prefix}{target}")
        else:
            result.append(arguments[index])
        index += 1
    return result


def _target(folder: Path, index: int, source: Path) -> Path:
    """A path that keeps the name of the source, which the program prints."""
    return folder / str(index) / f"{source.stem}.safetensors"


def _torch_files(arguments: Sequence[str], start: int) -> list[tuple[str, Path]]:
    """Input files of torch's that follow each other from `start` on, with their ``--option=``."""
    files: list[tuple[str, Path]] = []
    for index in range(start, len(arguments)):
        option, separator, value = arguments[index].rpartition("=")
        previous = arguments[index - 1] if index else ""
        is_file = value.endswith(_TORCH_SUFFIXES) and Path(value).is_file()
        if not is_file or (option or previous) in _OUTPUT_OPTIONS or (separator and files):
            break
        files.append((option + separator, Path(value)))
    return files


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
    tensors = {str(name): x for name, x in content.items() if isinstance(x, torch.Tensor)}
    if not tensors:
        raise _CliError(f"{source}: holds no tensors", _EXIT_USAGE)
    plain = {
        str(name): str(x).lower() if isinstance(x, bool) else str(x)
        for name, x in content.items()
        if isinstance(x, (bool, int, float, str))
    }
    return tensors, plain
