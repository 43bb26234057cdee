# SPDX-License-Identifier: BSD-3-Clause
"""Warnings that point at the user's line."""

from __future__ import annotations

import os
import sys
import warnings

_PACKAGE = os.path.dirname(__file__)


def warn_user(message: str) -> None:
    """A UserWarning at the innermost line that belongs neither to this package nor to torch.

    Calls arrive over ways of different depth: directly, through torch's dispatcher, from a
    function that torch.compile leaves out. Counting frames would name the user's line in one.
    """
    folders = [_PACKAGE + os.sep]
    torch_file = getattr(sys.modules.get("torch"), "__file__", None)
    if torch_file:
        folders.append(os.path.dirname(torch_file) + os.sep)
    level = 1
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(tuple(folders)):
        frame = frame.f_back
        level += 1
    warnings.warn(message, stacklevel=level)
