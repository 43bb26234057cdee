# SPDX-License-Identifier: BSD-3-Clause
"""No order of imports, forks and shutdown ends a process by a signal."""

import os
import subprocess
import sys

import pytest

USE = """
import numpy
def use(package):
    x = numpy.ones((300, 2, 128), numpy.float32)
    prepared = package.prepare_fp8(x, x, x)
    assert (package.attention(x, x, x) == package.attention_fp8(prepared)).all()
    return prepared
"""
COPY = """
import importlib, os, shutil, sys, tempfile
def copy_as(name):
    folder = tempfile.mkdtemp()
    package = os.path.dirname(open_vc_attn.__file__)
    shutil.copytree(package, os.path.join(folder, name))
    libraries = package + '.libs'  # beside the package, where a wheel brings some
    if os.path.isdir(libraries):
        shutil.copytree(libraries, os.path.join(folder, os.path.basename(libraries)))
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
def forget():
    for name in [name for name in sys.modules if name.startswith("open_vc_attn")]:
        del sys.modules[name]
"""
SUBINTERPRETERS = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
def import_inside(legacy):
    options = {"isolated": False} if sys.version_info < (3, 13) else {}
    inside = interpreters.create("legacy") if legacy and not options else interpreters.create(**options)
    code = (
        "try:\\n"
        "    import open_vc_attn\\n"
        "except ImportError as error:\\n"
        "    print('ImportError', error)\\n"
        "else:\\n"
        "    print('imported')\\n"
    )
    interpreters.run_string(inside, code)
    interpreters.destroy(inside)
"""

# Each prints what is expected, one line per step.
ORDERS = {
    "imported again": (
        "import open_vc_attn as first; kept = use(first); forget(); import open_vc_attn as second\n"
        "assert first is not second; use(second)\n"
        "assert (first.attention_fp8(kept) == 1).all(); print('ok')",
        "ok",
    ),
    "imported again often": (
        "for _ in range(5):\n    import open_vc_attn; use(open_vc_attn); forget()\nprint('ok')",
        "ok",
    ),
    "the extension alone again": (
        "import open_vc_attn, open_vc_attn._openvc as first\n"
        "del sys.modules['open_vc_attn._openvc'], open_vc_attn._openvc\n"
        "import open_vc_attn._openvc as second\n"
        "assert first is not second and first.Tensor is second.Tensor; use(open_vc_attn)\n"
        "print('ok')",
        "ok",
    ),
    "the extension under another name": (
        "import importlib.util, open_vc_attn\n"
        "path = open_vc_attn._openvc.__file__\n"
        "for name in ('_openvc', 'elsewhere._openvc'):\n"
        "    spec = importlib.util.spec_from_file_location(name, path)\n"
        "    module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)\n"
        "    assert module.Tensor is open_vc_attn._openvc.Tensor\n"
        "use(open_vc_attn); print('ok')",
        "ok",
    ),
    "reload": (
        "import open_vc_attn; importlib.reload(open_vc_attn._openvc); importlib.reload(open_vc_attn)\n"
        "for name in [name for name in sys.modules if name.startswith('open_vc_attn.')]:\n"
        "    importlib.reload(sys.modules[name])\n"
        "use(open_vc_attn); print('ok')",
        "ok",
    ),
    "a second copy": (
        "import open_vc_attn; use(open_vc_attn); copy_as('open_vc_attn'); forget()\n"
        "try:\n    import open_vc_attn as second\n"
        "except ImportError as error:\n    print(error)",
        "open_vc_attn: this process has loaded ",
    ),
    "a second copy under another name": (
        "import open_vc_attn; copy_as('other_copy')\n"
        "try:\n    import other_copy\n"
        "except ImportError as error:\n    print(error)\n"
        "use(open_vc_attn)",
        "open_vc_attn: this process has loaded ",
    ),
    "the first import of a copy": (
        "import importlib.util\n"
        "class open_vc_attn: __file__ = importlib.util.find_spec('open_vc_attn').origin\n"
        "copy_as('other_copy'); import other_copy; use(other_copy)\n"
        "try:\n    import open_vc_attn\n"
        "except ImportError as error:\n    print(error)",
        "open_vc_attn: this process has loaded ",
    ),
    "threads import at once": (
        "import threading\n"
        "def work():\n    import open_vc_attn; use(open_vc_attn)\n"
        "threads = [threading.Thread(target=work) for _ in range(8)]\n"
        "[x.start() for x in threads]; [x.join() for x in threads]; print('ok')",
        "ok",
    ),
    "objects that outlive the modules": (
        "import builtins, open_vc_attn\n"
        "builtins.kept = use(open_vc_attn); sys.kept = use(open_vc_attn)\n"
        "class Last:\n    def __del__(self, call=open_vc_attn.attention_fp8, of=sys.kept): call(of)\n"
        "builtins.last = Last(); sys.last = Last(); print('ok')",
        "ok",
    ),
    "a thread at exit": (
        "import threading, open_vc_attn; kept = use(open_vc_attn)\n"
        "def work():\n    while True: open_vc_attn.attention_fp8(kept)\n"
        "threading.Thread(target=work, daemon=True).start(); print('ok')",
        "ok",
    ),
    "fork, then use": (
        "import open_vc_attn; kept = use(open_vc_attn); child = os.fork()\n"
        "if child == 0:\n    use(open_vc_attn); open_vc_attn.attention_fp8(kept); sys.exit(0)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))",
        "0",
    ),
    "fork, then import": (
        "child = os.fork()\n"
        "import open_vc_attn; use(open_vc_attn)\n"
        "if child == 0: sys.exit(0)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))",
        "0",
    ),
    "fork, then import again": (
        "import open_vc_attn; use(open_vc_attn); child = os.fork()\n"
        "if child == 0:\n    forget(); import open_vc_attn; use(open_vc_attn); sys.exit(0)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))",
        "0",
    ),
}
SUBINTERPRETER_ORDERS = {
    "isolated or not, before the main one": "import_inside(False); import_inside(True)",
    "after the main one": "import open_vc_attn; use(open_vc_attn); import_inside(True)",
    "before and after": "import_inside(True); import open_vc_attn; use(open_vc_attn); import_inside(True)",
}


def run(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, env=os.environ
    )


@pytest.mark.parametrize("order", ORDERS)
def test_order(order):
    code, expected = ORDERS[order]
    result = run(USE + COPY + code)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(expected), result.stdout
    assert "registered" not in result.stderr


@pytest.mark.parametrize("order", SUBINTERPRETER_ORDERS)
def test_subinterpreters_are_refused(order):
    code = "import sys\n" + USE + SUBINTERPRETERS + SUBINTERPRETER_ORDERS[order]
    result = run(code)
    assert result.returncode == 0, result.stderr
    assert result.stdout and all(
        line.startswith("ImportError") for line in result.stdout.splitlines()
    )


def test_torch_operators_after_another_import():
    pytest.importorskip("torch", minversion="2.4")
    result = run(
        COPY + "import torch, open_vc_attn as first; x = torch.ones(4, 1, 128); forget()\n"
        "import open_vc_attn as second\n"
        "with torch.profiler.profile(): out = second.attention(x, x, x)\n"
        "print(torch.equal(out, first.attention(x, x, x)))"
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == "True\n"
