# SPDX-License-Identifier: BSD-3-Clause
"""The stand-in for sageattention, and programs that run with it."""

import importlib.util
import inspect
import os
import subprocess
import sys
import types

import pytest

torch = pytest.importorskip("torch", minversion="2.4")

from torch.nn.functional import scaled_dot_product_attention  # noqa: E402
from video_models import HEAD_DIM, difference  # noqa: E402

from open_vc_attn import Policy  # noqa: E402
from open_vc_attn.integrations import _default  # noqa: E402
from open_vc_attn.integrations import sageattention as stand_in  # noqa: E402
from open_vc_attn.integrations.sageattention import sageattn, sageattn_varlen  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.* not computed in FP8")

FP8_ERROR = 0.08  # N(0,1), conftest.py


@pytest.fixture
def switch(monkeypatch):
    """The switch of this process, for short calls."""
    monkeypatch.setattr(_default, "_state", {})
    monkeypatch.setattr(_default, "_layers", {})
    switch = _default.default_switch()
    switch.policy = Policy(min_keys=1, min_queries=1)
    return switch


def heads_first(tokens=60, keys=None, heads=2, head_dim=HEAD_DIM, dtype=torch.bfloat16):
    generator = torch.Generator().manual_seed(0)
    shapes = [(2, heads, n, head_dim) for n in (tokens, keys or tokens, keys or tokens)]
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def fp8_calls(switch):
    return sum(record.count for record in switch.calls if record.fp8)


def test_layouts_scale_and_lse(switch):
    q, k, v = heads_first()
    expected = scaled_dot_product_attention(q, k, v, scale=0.1)
    out, lse = sageattn(q, k, v, sm_scale=0.1, return_lse=True)
    assert 0 < difference(out, expected) < FP8_ERROR
    scores = q.float() @ k.float().mT * 0.1
    torch.testing.assert_close(lse, scores.logsumexp(-1), rtol=0, atol=0.09)
    tokens_first = [x.transpose(1, 2) for x in (q, k, v)]
    other = sageattn(*tokens_first, tensor_layout="NHD", sm_scale=0.1)
    assert torch.equal(other.transpose(1, 2), out)
    assert fp8_calls(switch) == 2
    causal = sageattn(q, k, v, is_causal=True)
    assert difference(causal, scaled_dot_product_attention(q, k, v, is_causal=True)) < FP8_ERROR
    assert fp8_calls(switch) == 3


@pytest.mark.parametrize(
    "operands, arguments",
    [
        ({"head_dim": 256}, {}),
        ({"dtype": torch.float32}, {}),
        ({}, {"attn_mask": torch.ones(60, 60, dtype=torch.bool).tril()}),
        ({"keys": 70}, {"is_causal": True}),
        ({"keys": 70}, {}),
    ],
)
def test_the_rest_is_torchs_attention(switch, operands, arguments):
    q, k, v = heads_first(**operands)
    expected = scaled_dot_product_attention(q, k, v, **arguments)
    assert torch.equal(sageattn(q, k, v, **arguments), expected)
    assert fp8_calls(switch) == 0


def test_groups_of_queries_and_unlike_types(switch):
    q, k, v = heads_first(heads=4)
    k, v = k[:, :2], v[:, :2]
    expected = scaled_dot_product_attention(q, k, v, enable_gqa=True)
    assert 0 < difference(sageattn(q, k, v), expected) < FP8_ERROR
    assert fp8_calls(switch) == 1
    switch.policy = Policy()
    assert torch.equal(sageattn(q, k, v), expected)
    assert sageattn(q, k, v, return_lse=True)[1].shape == (2, 4, 60)
    switch.policy = Policy(min_keys=1, min_queries=1)
    q, k, v = heads_first()
    out = sageattn(q.float(), k.float(), v)
    assert out.dtype == torch.float32 and torch.equal(out.bfloat16(), sageattn(q, k, v))


def test_a_mask_that_hides_keys_is_honoured(switch):
    q, k, v = heads_first()
    mask = (torch.arange(60) < 41).expand(2, 1, 1, 60)
    out = sageattn(q, k, v, attn_mask=mask)
    k[:, :, 41:] = 9
    assert torch.equal(sageattn(q, k, v, attn_mask=mask), out)
    assert difference(out, scaled_dot_product_attention(q, k, v, attn_mask=mask)) < FP8_ERROR
    assert fp8_calls(switch) == 2


def test_packed_sequences(switch):
    q, k, v = (x[0].transpose(0, 1) for x in heads_first(tokens=90))
    bounds = torch.tensor([0, 40, 40, 80])
    out = sageattn_varlen(q, k, v, bounds, bounds, 40, 40)
    for part in (slice(0, 40), slice(40, 80)):
        alone = [x[None, part] for x in (q, k, v)]
        assert torch.equal(out[part], sageattn(*alone, tensor_layout="NHD")[0])
    assert not out[80:].any()


def test_arguments_that_nobody_knows_are_refused():
    q, k, v = heads_first()
    with pytest.raises(TypeError, match="window"):
        sageattn(q, k, v, window=3)
    with pytest.raises(ValueError, match="tensor_layout: 'DHN'; expected HND or NHD"):
        sageattn(q, k, v, tensor_layout="DHN")
    assert "attn_mask" in inspect.signature(sageattn).parameters  # ComfyUI looks for it


def test_install_and_uninstall(monkeypatch):
    if importlib.util.find_spec("sageattention") is not None:
        pytest.skip("sageattention is installed")
    monkeypatch.setattr(sys, "path", list(sys.path))
    stand_in.install()
    stand_in.install()
    assert importlib.util.find_spec("sageattention").name == "sageattention"
    from sageattention import sageattn as imported
    from sageattention.core import sageattn_varlen as imported_varlen

    assert (imported, imported_varlen) == (sageattn, sageattn_varlen)
    stand_in.uninstall()
    assert "sageattention" not in sys.modules
    assert importlib.util.find_spec("sageattention") is None
    monkeypatch.setitem(sys.modules, "sageattention", types.ModuleType("sageattention"))
    with pytest.raises(RuntimeError, match="loaded already"):
        stand_in.install()
    stand_in.install(replace=True)
    import sageattention

    assert sageattention.sageattn is sageattn
    stand_in.uninstall()


PROGRAM = """
import subprocess, sys
import torch
from sageattention import sageattn

x = torch.randn(1, 2, 40, 128).bfloat16()
sageattn(x, x, x)
if sys.argv[1:] != ["child"]:
    child = subprocess.run([sys.executable, __file__, "child"])
    print(sys.argv[1:], child.returncode)
"""


@pytest.mark.slow
def test_run_reaches_child_processes(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    report = tmp_path / "report.txt"
    (tmp_path / "sitecustomize.py").write_text("print('hidden')")
    command = [sys.executable, "-m", "open_vc_attn.run", "--as", "sageattention"]
    command += ["--policy", '{"min_keys": 1, "min_queries": 1}', "--numerics", '{"budget": "fast"}']
    command += ["--report", str(report), str(script), "--with", "an argument"]
    result = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == ["hidden", "hidden", "['--with', 'an argument'] 0"]
    reports = sorted(tmp_path.glob("report*.txt"))
    assert len(reports) == 2 and report in reports
    for path in reports:
        assert path.read_text().endswith("1 calls in FP8, 0 elsewhere\n")


@pytest.mark.parametrize(
    "words, text",
    [
        (["--with", "nothing", "x.py"], "--with: 'nothing'; expected one of"),
        ([], "nothing to run"),
        (["-m"], "nothing to run"),
        (["--policy", "{", "x.py"], "Expecting property name"),
        (["--policy", '{"steps": 1}', "x.py"], "policy: steps; expected"),
        (["--numerics", '{"budget": "cheap"}', "x.py"], "budget: 'cheap'"),
    ],
)
def test_run_refuses(words, text, capsys, monkeypatch):
    from open_vc_attn import run

    for name in (_default.POLICY_VARIABLE, _default.NUMERICS_VARIABLE):
        monkeypatch.setenv(name, "")
    assert run.main(words) == 2
    assert text in capsys.readouterr().err


def test_command_frameworks(capsys):
    from open_vc_attn import cli

    assert cli.run(["frameworks"]) == 0
    out = capsys.readouterr().out
    assert f"torch_sdpa     {torch.__version__.split('+')[0]}" in out
    assert "open_vc_attn.enable(pipe)" in out
