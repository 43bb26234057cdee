# SPDX-License-Identifier: BSD-3-Clause
"""What the commands share that run in this process: arguments, outputs, progress, status."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TextIO

PROGRAM = "open-vc-attn"
EXIT_FAILURE, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130


class Parser(argparse.ArgumentParser):
    """Complains as the program does."""

    def error(self, message: str) -> NoReturn:
        complain(f"{message}\nRun with --help for the arguments.")
        raise SystemExit(EXIT_USAGE)


def positive(text: str) -> int:
    """The type of an argument: a whole number from 1 on."""
    value = int(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{value}; expected 1 or more")
    return value


positive.__name__ = "whole number"  # argparse names the type by it


def run(
    parser: argparse.ArgumentParser,
    words: Sequence[str],
    command: Callable[[argparse.Namespace], int],
) -> int:
    """Runs a command with these arguments; returns the exit status."""
    try:
        arguments = parser.parse_args(words)
    except SystemExit as end:
        return int(end.code or 0)
    try:
        return command(arguments)
    except BrokenPipeError:
        _abandon(sys.stdout)  # nobody reads
        return EXIT_FAILURE
    except ValueError as error:
        return complain(str(error), EXIT_USAGE)
    except (OSError, MemoryError, RuntimeError, NotImplementedError) as error:
        return complain(str(error) or type(error).__name__, EXIT_FAILURE)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _abandon(stream: TextIO) -> None:
    """Lets what a stream still holds be lost. The interpreter tries to write it once more when it
    ends, and changes the status if it cannot."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _tell(text: str) -> None:
    """Writes to standard error, if anybody reads that."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        _abandon(sys.stderr)


def complain(message: str, status: int = EXIT_USAGE) -> int:
    """Says on standard error what is wrong, if anybody reads that; returns the status."""
    _tell(f"{PROGRAM}: {message}\n")
    return status


def import_torch() -> Any:
    """torch, without which these commands cannot run.

    Raises:
        RuntimeError: it cannot be imported.
    """
    try:
        import torch
    except ImportError as error:
        raise RuntimeError(
            f"needs torch, which cannot be imported ({error}). Install it: pip install torch"
        ) from None
    return torch


def torch_device(asked: str | None) -> Any:
    """The device of the option --device; without it a GPU if there is one."""
    import torch

    if asked is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(asked)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"--device: {asked!r}; expected a device that is there ({reason})"
        ) from None
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"--device: {asked!r}; expected cpu or cuda")
    return device


def device_name(device: Any) -> str:
    """A torch device in words."""
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu, {torch.get_num_threads()} threads"


def require_outputs(
    outputs: Mapping[str, str | None], inputs: Sequence[tuple[str, str | os.PathLike[str]]]
) -> None:
    """Refuses, before anything is read, to overwrite an input or another output.

    Args:
        outputs: options and the files that they name; None for those that are not given.
        inputs: options and the files that they name.
    """
    taken = [(option, Path(path)) for option, path in inputs]
    for option, text in outputs.items():
        if text is None:
            continue
        path = Path(text)
        if not path.parent.is_dir() or (path.exists() and not path.is_file()):
            raise ValueError(f"{option}: {text}; expected a file in a folder that exists")
        for other, used in taken:
            if path.absolute() == used.absolute() or (
                path.exists() and used.exists() and path.samefile(used)
            ):
                raise ValueError(f"{option}: {text} is also {other}; expected another file")
        taken.append((option, path))


class Progress:
    """One line on a terminal that is written again and again; elsewhere a line for each subject,
    which is what stands before the colon."""

    def __init__(self, command: str) -> None:
        self._command = command
        self._live = sys.stderr is not None and sys.stderr.isatty()
        self._width, self._subject = 0, ""

    def __call__(self, text: str) -> None:
        subject = text.partition(": ")[0]
        if self._live:
            _tell(f"\r{text.ljust(self._width)}")
            self._width = len(text)
        elif subject != self._subject:
            _tell(f"{self._command}: {subject}\n")
        self._subject = subject

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live and self._width:
            _tell("\r" + " " * self._width + "\r")
