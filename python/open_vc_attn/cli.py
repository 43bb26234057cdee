# SPDX-License-Identifier: BSD-3-Clause
"""Entry points of the command line: they run the packaged program ``open-vc-attn``.

The program is C++ and reads safetensors and .npy files. Files that torch wrote (.pt, .pth) are
converted for it into temporary ones. The commands ``quality``, ``plan``, ``frameworks`` and
``comfyui`` run in this process; the first two need torch.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import NoReturn

from . import _comfyui_command, _frameworks_command, _torch_files
from ._command_line import EXIT_FAILURE, EXIT_USAGE, complain
from ._paths import PROGRAM as _PROGRAM
from .planning import command as _plan
from .quality import command as _quality

_READING_COMMANDS = ("run", "error")
_OWN_COMMANDS = {
    "quality": _quality,
    "plan": _plan,
    "frameworks": _frameworks_command,
    "comfyui": _comfyui_command,
}
_HELP = ("-h", "--help")
_ONLY_CHECK = "--only-check"  # an option that the program's help does not list

_EXIT_SIGNAL_BASE = 128  # shells report death by signal n as 128 + n


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
    if arguments and arguments[0] in _OWN_COMMANDS:
        return _OWN_COMMANDS[arguments[0]].run(arguments[1:])
    if not _PROGRAM.is_file():
        return complain(
            f"{_PROGRAM}: found no program; expected it beside the extension. Install the package "
            "again: pip install --force-reinstall open-vc-attn, or pip install . in its source "
            "tree.",
            EXIT_FAILURE,
        )
    reads = bool(arguments) and arguments[0] in _READING_COMMANDS
    if not (reads and _torch_files.has_torch_files(arguments)):
        status = _wait([str(_PROGRAM), *arguments])
        if status == 0 and len(arguments) == 1 and arguments[0] in _HELP:
            # The program knows its own commands alone.
            print("\nIn the Python package:")
            for name, command in _OWN_COMMANDS.items():
                print(f"  {name:<27} {command.SUMMARY}")
        return status
    # Nothing is loaded for arguments that are wrong, or that would overwrite what is loaded.
    # Help, which it prints on standard output, comes with the second run.
    status = _wait([str(_PROGRAM), *arguments, _ONLY_CHECK], stdout=subprocess.DEVNULL)
    if status != 0:
        return status
    try:
        with _torch_files.Conversion() as conversion:
            return _wait([str(_PROGRAM), *conversion.converted(arguments)])
    except _torch_files.ConversionError as error:
        return complain(str(error), EXIT_USAGE)
    except _torch_files.NoSpaceError as error:
        return complain(str(error), EXIT_FAILURE)


def _wait(command: list[str], stdout: int | None = None) -> int:
    try:
        process = subprocess.Popen(command, stdout=stdout)
    except (OSError, ValueError) as error:  # too many arguments; a null character in one
        return complain(f"{command[0]}: the program cannot be started: {error}", EXIT_FAILURE)
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
