# SPDX-License-Identifier: BSD-3-Clause
"""The command ``quality``: arguments, outputs, status. Imports torch only when it runs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import _command_line
from .._command_line import (
    Parser,
    Progress,
    device_name,
    import_torch,
    positive,
    require_outputs,
    torch_device,
)

PROGRAM = "open-vc-attn quality"
SUMMARY = "What a video model's output sees of the numerics of its attention"
RANDOM_MODEL = "random"
TABLE = "table"
# Frames, height and width without --count and --size: 4,400 tokens are minutes on a CPU.
CPU_CLIP, CUDA_CLIP = (20, 176, 320), (44, 360, 640)

_DESCRIPTION = f"""{SUMMARY}: a small video transformer
runs with exact attention and with other numerics, and its outputs are compared. docs/quality.md
defines what is measured."""


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog=PROGRAM, description=_DESCRIPTION, allow_abbrev=False)
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
    add("--count", type=positive, metavar="N", help="frames, a multiple of 4 (20; 44 on a GPU)")
    add(
        "--size",
        type=positive,
        nargs=2,
        metavar=("H", "W"),
        help="height and width in pixels, multiples of 8 (176 320; 360 640 on a GPU)",
    )
    add("--steps", type=positive, default=18, metavar="N", help="denoising steps (default 18)")
    add(
        "--seeds",
        type=positive,
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


def run(words: Sequence[str]) -> int:
    """Runs the command with these arguments; returns the exit status."""
    return _command_line.run(_parser(), words, _run)


def _run(arguments: argparse.Namespace) -> int:
    import_torch()
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
    device = torch_device(arguments.device)
    _require_outputs(arguments)
    report = _measure(arguments, names, device)
    sys.stdout.write(report)
    sys.stdout.flush()
    return 0


def _names(asked: Sequence[str], table: Sequence[str]) -> list[str]:
    """Each name once, in order."""
    parts = [table if name == TABLE else (name,) for name in asked]
    return list(dict.fromkeys(name for part in parts for name in part))


def _require_outputs(arguments: argparse.Namespace) -> None:
    from .model import WEIGHTS_FILE

    require_outputs(
        {"--json": arguments.json, "--html": arguments.html},
        [("--model", Path(arguments.model) / WEIGHTS_FILE), ("--frames", arguments.frames)],
    )


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
    with Progress("quality") as progress:
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
        "device": device_name(device),
    }
    data = to_json(study, outcomes, about)
    if arguments.json:
        text = json.dumps(data, indent=1, allow_nan=False)
        write_atomically(Path(arguments.json), [text.encode(), b"\n"])
    if arguments.html:
        page = to_html(study, outcomes, data)
        write_atomically(Path(arguments.html), [page.encode()])
    return to_table(study, outcomes)
