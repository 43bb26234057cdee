# SPDX-License-Identifier: BSD-3-Clause
"""The command ``quality``: arguments, outputs, status. Imports torch only when it runs."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

PROGRAM = "open-vc-attn quality"
SUMMARY = "What a video model's output sees of the numerics of its attention"
EXIT_FAILURE, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130
RANDOM_MODEL = "random"
TABLE = "table"
# Frames, height and width without --count and --size: 4,400 tokens are minutes on a CPU.
CPU_CLIP, CUDA_CLIP = (20, 176, 320), (44, 360, 640)

_DESCRIPTION = f"""{SUMMARY}: a small video transformer
runs with exact attention and with other numerics, and its outputs are compared. docs/quality.md
defines what is measured."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        _complain(f"{message}\nRun with --help for the arguments.")
        raise SystemExit(EXIT_USAGE)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog=PROGRAM, description=_DESCRIPTION, allow_abbrev=False)
    add = parser.add_argument
    add(
        "--model",
        metavar="FOLDER",
        help=f"holds minidit_weights.safetensors; '{RANDOM_MODEL}' for "
        "random weights, which show that everything runs and nothing else",
    )
    add(
        "--numerics",
        metavar="NAME",
        nargs="+",
        action="extend",
        help="what to measure; --list "
        f"names the choices, '{TABLE}' is every row of docs/quality.md",
    )
    add("--list", action="store_true", help="print the names of numerics and end")
    add(
        "--frames",
        metavar="CLIP",
        default="synthetic",
        help="a video, a pattern of image files, a "
        ".npy file of uint8 [N, H, W, 3], or 'synthetic' (default)",
    )
    add("--start", type=int, default=0, metavar="N", help="first frame (default 0)")
    add("--count", type=_positive, metavar="N", help="frames, a multiple of 4 (20; 44 on a GPU)")
    add(
        "--size",
        type=_positive,
        nargs=2,
        metavar=("H", "W"),
        help="height and width in pixels, multiples of 8 (176 320; 360 640 on a GPU)",
    )
    add("--steps", type=_positive, default=18, metavar="N", help="denoising steps (default 18)")
    add(
        "--seeds",
        type=_positive,
        default=1,
        metavar="N",
        help="samples of the noise (default 1; one alone is good to about 1 dB)",
    )
    add("--device", help="a torch device (cuda if there is one, else cpu)")
    add(
        "--dtype",
        choices=("float32", "bfloat16"),
        help="of the model outside of attention (bfloat16 on a GPU, else float32)",
    )
    add("--json", metavar="FILE", help="write everything measured to this file")
    add("--html", metavar="FILE", help="write a page with pictures and charts to this file")
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{value}; expected 1 or more")
    return value


_positive.__name__ = "whole number"  # argparse names the type by it


def run(words: Sequence[str]) -> int:
    """Runs the command with these arguments; returns the exit status."""
    try:
        arguments = _parser().parse_args(words)
    except SystemExit as end:
        return int(end.code or 0)
    try:
        return _run(arguments)
    except BrokenPipeError:
        # Nobody reads; the interpreter must not try again when it ends.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILURE
    except ValueError as error:
        return _complain(str(error), EXIT_USAGE)
    except (OSError, MemoryError, RuntimeError, NotImplementedError) as error:
        return _complain(str(error) or type(error).__name__, EXIT_FAILURE)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _run(arguments: argparse.Namespace) -> int:
    try:
        import torch
    except ImportError as error:
        return _complain(
            f"needs torch, which cannot be imported ({error}). Install it: pip install torch",
            EXIT_FAILURE,
        )
    from . import numerics

    if arguments.list:
        print(f"names: {', '.join(numerics.NAMES)}")
        print(f"also: {numerics.choices()}\n{TABLE}:")
        print("\n".join(f"  {name}" for name in numerics.TABLE), flush=True)
        return 0
    names = _names(arguments.numerics or numerics.DEFAULT, numerics.TABLE)
    for name in names:
        numerics.parse(name).steps(arguments.steps)
    if arguments.model is None:
        raise ValueError(
            "--model: not given; expected the folder with the weights of the model. They do not "
            f"come with the package; '{RANDOM_MODEL}' tries the command without them."
        )
    device = _device(torch, arguments.device)
    _require_outputs(arguments)
    report = _measure(arguments, names, device)
    sys.stdout.write(report)
    sys.stdout.flush()
    return 0


def _names(asked: Sequence[str], table: Sequence[str]) -> list[str]:
    """Each name once, in order."""
    parts = [table if name == TABLE else (name,) for name in asked]
    return list(dict.fromkeys(name for part in parts for name in part))


def _device(torch: Any, asked: str | None) -> Any:
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


def _require_outputs(arguments: argparse.Namespace) -> None:
    """Refuses, before anything is read, to overwrite an input or the other output."""
    from .model import WEIGHTS_FILE

    taken = {"--model": Path(arguments.model) / WEIGHTS_FILE, "--frames": Path(arguments.frames)}
    for option, text in (("--json", arguments.json), ("--html", arguments.html)):
        if text is None:
            continue
        path = Path(text)
        if not path.parent.is_dir() or (path.exists() and not path.is_file()):
            raise ValueError(f"{option}: {text}; expected a file in a folder that exists")
        for other, used in taken.items():
            if path.absolute() == used.absolute() or (
                path.exists() and used.exists() and path.samefile(used)
            ):
                raise ValueError(f"{option}: {text} is also {other}; expected another file")
        taken[option] = path


def _measure(arguments: argparse.Namespace, names: Sequence[str], device: Any) -> str:
    from .. import _openvc
    from .._safetensors import write_atomically
    from .clip import load_clip
    from .model import load_model, random_model
    from .report import to_json, to_table
    from .report_html import to_html
    from .study import Settings, Study

    on_cuda = device.type == "cuda"
    count, height, width = CUDA_CLIP if on_cuda else CPU_CLIP
    count = arguments.count or count
    height, width = arguments.size or (height, width)
    dtype = arguments.dtype or ("bfloat16" if on_cuda else "float32")
    if arguments.model == RANDOM_MODEL:
        model = random_model(device)
    else:
        model = load_model(arguments.model, device)
    clip = load_clip(arguments.frames, arguments.start, count, height, width)
    settings = Settings(arguments.steps, arguments.seeds, dtype)
    with _Progress() as progress:
        study = Study(model, clip, settings, progress)
        outcomes = study.measure(names)
    about = {
        "version": _openvc.version,
        "model": arguments.model,
        "layers": model.layers,
        "heads": model.heads,
        "clip": {
            "source": arguments.frames,
            "start": arguments.start,
            "frames": count,
            "height": height,
            "width": width,
        },
        "device": _device_name(device),
    }
    data = to_json(study, outcomes, about)
    if arguments.json:
        text = json.dumps(data, indent=1, allow_nan=False)
        write_atomically(Path(arguments.json), [text.encode(), b"\n"])
    if arguments.html:
        page = to_html(study, outcomes, data)
        write_atomically(Path(arguments.html), [page.encode()])
    return to_table(study, outcomes)


def _device_name(device: Any) -> str:
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu, {torch.get_num_threads()} threads"


class _Progress:
    """One line on a terminal that is written again and again; nothing elsewhere but a line for
    each numerics."""

    def __init__(self) -> None:
        self._live = sys.stderr is not None and sys.stderr.isatty()
        self._width, self._subject = 0, ""

    def __call__(self, text: str) -> None:
        subject = text.partition(": ")[0]
        if self._live:
            self._show(f"\r{text.ljust(self._width)}")
            self._width = len(text)
        elif subject != self._subject:
            self._show(f"quality: {subject}\n")
        self._subject = subject

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live and self._width:
            self._show("\r" + " " * self._width + "\r")

    @staticmethod
    def _show(text: str) -> None:
        if sys.stderr is not None:
            with contextlib.suppress(OSError):
                sys.stderr.write(text)
                sys.stderr.flush()


def _complain(message: str, status: int = EXIT_USAGE) -> int:
    if sys.stderr is not None:
        with contextlib.suppress(OSError):  # the status still tells
            print(f"open-vc-attn: {message}", file=sys.stderr, flush=True)
    return status
