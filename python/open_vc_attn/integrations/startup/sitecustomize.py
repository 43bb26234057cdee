# SPDX-License-Identifier: BSD-3-Clause
"""Python imports this at its start in child processes of ``python -m open_vc_attn.run``, whose
PYTHONPATH begins with this folder. It hides no other module of this name."""

import importlib.machinery
import importlib.util
import os
import sys

_FOLDER = os.path.dirname(os.path.abspath(__file__))


def _run_hidden() -> None:
    folders = [path for path in sys.path if os.path.abspath(path) != _FOLDER]
    spec = importlib.machinery.PathFinder.find_spec(__name__, folders)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules[__name__] = module
        spec.loader.exec_module(module)


try:
    _run_hidden()
finally:
    try:
        from open_vc_attn.integrations._program import install_from_environment
    except ImportError:  # another Python, without the package
        pass
    else:
        install_from_environment()
