# SPDX-License-Identifier: BSD-3-Clause
"""The command ``comfyui``: puts the nodes into a ComfyUI folder, and takes them out again."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from . import _command_line
from ._command_line import Parser

SUMMARY = "Installs the ComfyUI nodes into a ComfyUI folder, or removes them"

_NODES = "custom_nodes"
_FOLDER = "open_vc_attn"
_FILE = "__init__.py"
_MARK = "# Written by open-vc-attn comfyui install; open-vc-attn comfyui remove deletes it."
_TEXT = f"""{_MARK}
from open_vc_attn.integrations.comfyui import register
from open_vc_attn.integrations.comfyui_nodes import (
    NODE_CLASS_MAPPINGS,
    NODE_DISPLAY_NAME_MAPPINGS,
)

register()
__all__ = ["NODE_CLASS_MAPPINGS", "NODE_DISPLAY_NAME_MAPPINGS"]
"""


def run(words: Sequence[str]) -> int:
    """Runs the command with these arguments; returns the exit status."""
    parser = Parser(
        prog=f"{_command_line.PROGRAM} comfyui",
        description=f"{SUMMARY}. ComfyUI must run with the Python in which this package is installed.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="action", required=True, metavar="install | remove")
    for name, text in (("install", "write the nodes"), ("remove", "delete them")):
        command = commands.add_parser(name, help=text, description=f"{text}.".capitalize())
        command.add_argument("folder", metavar="FOLDER", help="of ComfyUI, with main.py in it")
    return _command_line.run(parser, words, _change)


def _change(arguments: argparse.Namespace) -> int:
    nodes = Path(arguments.folder) / _NODES
    if not nodes.is_dir():
        raise ValueError(
            f"{arguments.folder}: no folder {_NODES} in it; expected the folder of ComfyUI. Pass the "
            "one with main.py."
        )
    folder = nodes / _FOLDER
    file = folder / _FILE
    foreign = file.exists() and not file.read_text(encoding="utf-8").startswith(_MARK)
    if foreign or (folder.exists() and not file.exists()):
        raise ValueError(
            f"{folder}: not written by this command; expected nothing there. Move it away."
        )
    if arguments.action == "install":
        folder.mkdir(exist_ok=True)
        file.write_text(_TEXT, encoding="utf-8")
        print(f'wrote {file}; restart ComfyUI, and add the node "Open-VC Attention"')
    elif file.exists():
        _remove(folder)
        print(f"removed {folder}; restart ComfyUI")
    else:
        print(f"nothing to remove in {nodes}")
    return 0


def _remove(folder: Path) -> None:
    compiled = folder / "__pycache__"
    if compiled.is_dir():
        for path in compiled.glob("*.pyc"):
            path.unlink()
        compiled.rmdir()
    (folder / _FILE).unlink()
    folder.rmdir()
