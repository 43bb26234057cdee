# SPDX-License-Identifier: BSD-3-Clause
"""The command ``frameworks``: what is installed here and how FP8 attention is switched on."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from . import _command_line
from ._command_line import Parser

SUMMARY = "What FP8 attention can be switched on in, here, and how"


def run(words: Sequence[str]) -> int:
    """Runs the command with these arguments; returns the exit status."""
    parser = Parser(
        prog=f"{_command_line.PROGRAM} frameworks", description=f"{SUMMARY}.", allow_abbrev=False
    )
    return _command_line.run(parser, words, _list)


def _list(_: argparse.Namespace) -> int:
    from .integrations._program import adapters

    for name, adapter in adapters().items():
        framework = adapter.FRAMEWORK
        version = framework.installed_version()
        found = "not installed" if version is None else version or "installed"
        obstacle = "" if version is None else framework.obstacle()
        print(f"{name:<14} {found:<14} {framework.title}")
        print(f"{'':<29} {obstacle or framework.switch}")
    return 0
