# SPDX-License-Identifier: BSD-3-Clause
"""Warnings name the line of the caller, whatever way a call takes."""

import inspect

import numpy
import pytest

import open_vc_attn

torch = pytest.importorskip("torch", minversion="2.4")

# Reads as 2 tokens of 300 heads.
SHAPE = (2, 300, 128)


def profiled(x):
    with torch.profiler.profile():
        return open_vc_attn.attention(x, x, x)


def parameters(x):
    with torch.no_grad():
        return open_vc_attn.attention(*map(torch.nn.Parameter, (x, x, x)))


class Module(torch.nn.Module):
    def forward(self, x):
        return open_vc_attn.attention(x, x, x)


WAYS = {
    "numpy": lambda x: open_vc_attn.attention(x.numpy(), x.numpy(), x.numpy()),
    "direct": lambda x: open_vc_attn.attention(x, x, x),
    "operator": profiled,
    "parameters": parameters,
    "module": Module(),
    "mapped": lambda x: torch.vmap(lambda y: open_vc_attn.attention(y, y, y))(x[None]),
    "prepared": lambda x: open_vc_attn.prepare_fp8(x, x, x),
    "prepared arrays": lambda x: open_vc_attn.prepare_v_repair(*[x.numpy()] * 3, budget=0.1),
    "compiled": torch.compile(lambda x: open_vc_attn.prepare_fp8(x, x, x).nbytes, backend="eager"),
}


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("way", WAYS)
def test_the_layout_warning_names_the_line_of_the_caller(way):
    with pytest.warns(UserWarning, match="reads as 2 tokens of 300 heads") as caught:
        WAYS[way](torch.from_numpy(numpy.zeros(SHAPE, numpy.float16)))
    (warning,) = [x for x in caught if "reads as" in str(x.message)]
    assert warning.filename == __file__
    line = inspect.getsource(inspect.getmodule(Module)).splitlines()[warning.lineno - 1]
    assert "open_vc_attn." in line
