# SPDX-License-Identifier: BSD-3-Clause
"""Importing and running in fresh interpreters."""

import os
import subprocess
import sys
import time

import pytest

IMPORT_MODULES = 150  # a tenth of those of torch; about 40 ms of a machine that nothing else uses


def run(code, *flags, **environment):
    return subprocess.run(
        [sys.executable, *flags, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )


def test_import_loads_no_framework_and_prints_nothing():
    result = run(
        "import sys, open_vc_attn\n"
        "loaded = {'torch', 'numpy', 'ml_dtypes', 'jax'} & sys.modules.keys()\n"
        "sys.exit(f'loaded {loaded}' if loaded else 0)"
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_import_loads_few_modules():
    code = "import sys; before = len(sys.modules); import open_vc_attn; print(len(sys.modules) - before)"
    assert int(run(code).stdout) < IMPORT_MODULES


def test_import_needs_neither_numpy_nor_torch():
    result = run(
        "import sys\n"
        "sys.modules['numpy'] = sys.modules['torch'] = None\n"
        "import open_vc_attn\n"
        "print(open_vc_attn.info()['version'] == open_vc_attn.__version__)\n"
        "print(open_vc_attn.is_supported(1, 2, 3).reason)\n"
        "try:\n    open_vc_attn.enable(1)\nexcept TypeError as error:\n    print(error)"
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("True\nq: int; expected a torch tensor")
    assert "\ntarget: int; expected a pipeline" in result.stdout


def test_import_initialises_no_cuda():
    pytest.importorskip("torch")
    result = run(
        "import torch, open_vc_attn, numpy\n"
        "x = torch.zeros(4, 1, 128, dtype=torch.bfloat16)\n"
        "open_vc_attn.attention(x, x, x), open_vc_attn.info()\n"
        "print(torch.cuda.is_initialized())"
    )
    assert result.stdout == "False\n", result.stderr


def test_checks_survive_optimised_python():
    result = run(
        "import numpy, open_vc_attn\n"
        "x = numpy.zeros((4, 1, 60), numpy.float16)\n"
        "y = numpy.zeros((4, 1, 128), numpy.float16)\n"
        "for call in (\n"
        "    lambda: open_vc_attn.attention(x, x, x),\n"
        "    lambda: open_vc_attn.attention(y, y, y[0]),\n"
        "    lambda: open_vc_attn.attention(y, y, y, softmax_scale=-1),\n"
        "    lambda: open_vc_attn.attention_fp8(y),\n"
        "):\n"
        "    try:\n"
        "        call()\n"
        "    except (ValueError, TypeError, NotImplementedError) as error:\n"
        "        print(type(error).__name__)\n"
        "print(float(abs(open_vc_attn.attention(y, y, y)).max()))",
        "-O",
    )
    expected = ["NotImplementedError", "ValueError", "ValueError", "TypeError", "0.0"]
    assert result.stdout.split() == expected, result.stderr


def test_package_contains_no_assert_statement():
    from ast import Assert, parse, walk
    from pathlib import Path

    import open_vc_attn

    for path in Path(open_vc_attn.__file__).parent.glob("*.py"):
        assert not any(isinstance(node, Assert) for node in walk(parse(path.read_text()))), path


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_works_in_a_forked_child():
    result = run(
        "import os, numpy, open_vc_attn\n"
        "x = numpy.ones((300, 2, 128), numpy.float32)\n"
        "open_vc_attn.set_num_threads(3)\n"
        "expected = open_vc_attn.attention(x, x, x).tobytes()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os._exit(open_vc_attn.attention(x, x, x).tobytes() != expected)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    assert result.stdout == "0\n", result.stderr


@pytest.mark.parametrize("bad", [("q",), ("k",), ("v",), ("k", "v"), ("q", "k", "v")])
def test_the_check_mode_names_the_first_non_finite_tensor_and_element(bad):
    code = (
        "import numpy, open_vc_attn\n"
        "qkv = {name: numpy.ones((300, 2, 128), numpy.float32) for name in 'qkv'}\n"
        f"for name in {bad}: qkv[name][17:, 1, 3] = numpy.nan\n"
        "open_vc_attn.attention(**qkv)"
    )
    assert run(code).returncode == 0
    result = run(code, OPEN_VC_ATTN_CHECK="1")
    assert result.returncode == 1
    message = result.stderr.splitlines()[-1]
    assert message.startswith(f"ValueError: {bad[0]}: element [0, 17, 1, 3] is not finite;")


def test_info():
    result = run("import open_vc_attn as o; i = o.info(); print(i); print(sorted(i))")
    assert result.returncode == 0, result.stderr
    assert "contract version" in result.stdout and "backend cpu" in result.stdout
    assert "last dispatch" in result.stdout


def test_exits_promptly_while_a_thread_computes():
    start = time.perf_counter()
    result = run(
        "import threading, numpy, open_vc_attn\n"
        "x = numpy.ones((20000, 4, 128), numpy.float16)\n"
        "call = lambda: open_vc_attn.attention(x, x, x)\n"
        "threading.Thread(target=call, daemon=True).start()\n"
        "import time; time.sleep(0.3)"
    )
    assert result.returncode == 0, result.stderr
    assert time.perf_counter() - start < 30
