# SPDX-License-Identifier: BSD-3-Clause
"""Importing the package and torch, in either order, is enough to have the operators."""

import subprocess
import sys

import pytest

pytest.importorskip("torch", minversion="2.4")

ORDERS = {
    "torch first": "import torch, open_vc_attn",
    "torch last": "import open_vc_attn, torch",
    "torch looked for, then imported": (
        "import open_vc_attn, importlib.util; assert importlib.util.find_spec('torch'); import torch"
    ),
    "a part of torch": "import open_vc_attn, torch.nn.functional; import torch",
    "imported twice": (
        "import open_vc_attn, sys\n"
        "for name in [name for name in sys.modules if name.startswith('open_vc_attn')]:\n"
        "    del sys.modules[name]\n"
        "import open_vc_attn, torch"
    ),
    "reloaded": "import open_vc_attn, importlib; importlib.reload(open_vc_attn); import torch",
    "in a thread": (
        "import open_vc_attn, threading\n"
        "def work():\n    import torch\n"
        "threads = [threading.Thread(target=work) for _ in range(3)]\n"
        "[x.start() for x in threads]; [x.join() for x in threads]\n"
        "import torch"
    ),
}


def run(code, folder=None):
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=600, cwd=folder
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with an exported and a traced model."""
    folder = tmp_path_factory.mktemp("saved")
    run(
        "import torch, open_vc_attn\n"
        "class Model(torch.nn.Module):\n"
        "    def forward(self, x): return open_vc_attn.attention(x, x, x)\n"
        "x = torch.ones(5, 2, 128)\n"
        "torch.export.save(torch.export.export(Model(), (x,)), 'model.pt2')\n"
        "torch.jit.save(torch.jit.trace(Model(), x), 'model.pt')",
        folder,
    )
    return folder


# An exported model needs torch's compiler, whose import takes longest; a traced one does not.
EXPORTED = ["torch first", "torch last"]
TRACED = [order for order in ORDERS if order not in EXPORTED]


@pytest.mark.parametrize(
    "order", [*EXPORTED, *(pytest.param(order, marks=pytest.mark.slow) for order in TRACED)]
)
def test_exported_models_find_the_operators(saved, order):
    out = run(
        f"{ORDERS[order]}\n"
        "x = torch.ones(5, 2, 128)\n"
        "exported = torch.export.load('model.pt2').module()(x)\n"
        "traced = torch.jit.load('model.pt')(x)\n"
        "print(torch.equal(exported, traced), torch.equal(traced, open_vc_attn.attention(x, x, x)))",
        saved,
    )
    assert out == "True True\n"


@pytest.mark.parametrize("order", TRACED)
def test_traced_models_find_the_operators(saved, order):
    out = run(
        f"{ORDERS[order]}\n"
        "x = torch.ones(5, 2, 128)\n"
        "traced = torch.jit.load('model.pt')(x)\n"
        "print(torch.equal(traced, open_vc_attn.attention(x, x, x)))",
        saved,
    )
    assert out == "True\n"


@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS)
def test_operators_are_attributes_of_torch(order):
    out = run(
        f"{ORDERS[order]}\nimport sys\n"
        "print(torch.ops.open_vc_attn.attention, torch.ops.open_vc_attn.attention_with_lse)\n"
        "print(type(torch.__spec__.loader).__name__, 'exec_module' in vars(torch.__spec__.loader),\n"
        "      [x for x in sys.meta_path if 'open_vc' in type(x).__module__])"
    )
    assert out == (
        "open_vc_attn.attention open_vc_attn.attention_with_lse\nSourceFileLoader False []\n"
    )


def test_nothing_happens_without_torch():
    out = run(
        "import open_vc_attn, sys, json, xml.dom\nprint('torch' in sys.modules)\n"
        "sys.modules['torch'] = None\nimport importlib; importlib.reload(open_vc_attn)\n"
        "try:\n    import torch\nexcept ImportError:\n    print('none')"
    )
    assert out == "False\nnone\n"


def test_an_import_of_torch_that_fails_can_be_repeated(tmp_path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "torch.py").write_text("raise ImportError('broken')")
    out = run(
        "import sys; sys.path.insert(0, 'broken'); import open_vc_attn\n"
        "for _ in range(2):\n"
        "    try:\n        import torch\n    except ImportError as error:\n        print(error)\n"
        "sys.path.remove('broken'); import torch\n"
        "print(torch.ops.open_vc_attn.attention)",
        tmp_path,
    )
    assert out == "broken\nbroken\nopen_vc_attn.attention\n"
