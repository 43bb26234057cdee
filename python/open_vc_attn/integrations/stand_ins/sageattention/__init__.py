# SPDX-License-Identifier: BSD-3-Clause
"""In place of the package sageattention; open_vc_attn.integrations.sageattention describes it."""

from .core import *  # noqa: F403
from .core import __all__ as __all__

__version__ = "2.2.0"  # the interface
