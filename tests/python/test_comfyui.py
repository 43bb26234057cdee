# SPDX-License-Identifier: BSD-3-Clause
"""The adapter of ComfyUI on a double of its calling conventions; the nodes; the installer."""

import copy
import importlib.util
import json
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", minversion="2.4")

import comfyui_double as double  # noqa: E402
from comfyui_double import HEAD_DIM, HEADS, OVERRIDE, sample  # noqa: E402
from video_models import difference  # noqa: E402

from open_vc_attn import Numerics, Policy, Recipe, RecipePart, cli, enable  # noqa: E402
from open_vc_attn.integrations import _comfyui_attention, comfyui  # noqa: E402
from open_vc_attn.integrations._native import sdpa  # noqa: E402
from open_vc_attn.integrations.comfyui_nodes import (  # noqa: E402
    NODE_CLASS_MAPPINGS,
    OpenVCAttention,
    OpenVCAttentionReport,
)

SHORT = Policy(min_keys=1, min_queries=1)
FP8_ERROR = 0.01
SELF_CALLS = 3 * 2  # blocks, model calls of sample()


@pytest.fixture
def attention(monkeypatch):
    return double.install(monkeypatch)


def fp8_calls(switch):
    return sum(record.count for record in switch.calls if record.fp8)


def test_a_switched_model_and_its_other_clones(attention):
    model = double.patcher()
    expected = sample(model)
    clone = model.clone()
    switch = enable(clone, policy=SHORT)
    assert 0 < difference(sample(clone), expected) < FP8_ERROR
    assert fp8_calls(switch) == SELF_CALLS
    assert {record.layer for record in switch.calls if not record.fp8} == {
        f"blocks.{i}.cross_attn" for i in range(3)
    }
    assert torch.equal(sample(model), expected)
    assert not any(vars(x).get("_open_vc_layer") for x in model.model.diffusion_model.modules())
    switch.disable()
    assert torch.equal(sample(clone), expected)
    assert OVERRIDE not in clone.model_options["transformer_options"]
    assert clone.wrappers == {"apply_model": {"open_vc": []}}


def test_clones_with_policies_of_their_own(attention):
    model = double.patcher()
    a, b = model.clone(), model.clone()
    with (
        enable(a, policy=SHORT) as switch_a,
        enable(b, policy=Policy(layers="blocks.1.*", min_keys=1, min_queries=1)) as switch_b,
    ):
        sample(a), sample(b)
        assert (fp8_calls(switch_a), fp8_calls(switch_b)) == (SELF_CALLS, SELF_CALLS // 3)
        later = a.clone()  # a node behind ours
        sample(later)
        assert fp8_calls(switch_a) == 2 * SELF_CALLS


def test_enabling_again(attention):
    model = double.patcher()
    first = enable(model, policy=SHORT)
    second = enable(model, policy=SHORT)
    with pytest.raises(RuntimeError, match="a later enable"):
        first.disable()
    sample(model)
    assert (fp8_calls(first), fp8_calls(second)) == (0, SELF_CALLS)
    third = enable(clone := model.clone(), policy=SHORT)  # that of the original stays on
    sample(clone), sample(model)
    assert (fp8_calls(second), fp8_calls(third)) == (2 * SELF_CALLS, SELF_CALLS)
    second.disable()
    assert OVERRIDE not in model.model_options["transformer_options"]


def test_policy_on_steps(attention):
    model = double.patcher()
    policy = Policy(min_keys=1, min_queries=1, first_steps=1, last_steps=2)
    with enable(model, policy=policy) as switch:
        sample(model, 4, halfway=True)
        assert fp8_calls(switch) == 3 * 2
        steps = []
        switch.policy = Policy(min_keys=1, min_queries=1, steps=lambda i, n: steps.append((i, n)))
        sample(model, 4, halfway=True)
        assert steps[:: 3 * 2] == [(i, 4) for i in range(4)]


@pytest.mark.parametrize(
    "schedule, now, index",
    [
        ([4.0, 2.0, 1.0, 0.0], 4.0, 0),
        ([4.0, 2.0, 1.0, 0.0], 2.00001, 1),
        ([4.0, 2.0, 1.0, 0.0], 1.5, 1),
        ([4.0, 2.0, 1.0, 0.0], 9.0, 0),
        ([0.0, 1.0, 2.0], 0.0, 0),
        ([0.0, 1.0, 2.0], 1.5, 1),
    ],
)
def test_step_of_a_noise_level(attention, schedule, now, index):
    from open_vc_attn.integrations._comfyui_attention import _step

    found = _step({"sample_sigmas": torch.tensor(schedule), "sigmas": torch.tensor([now])})
    assert found == (index, len(schedule) - 1, pytest.approx(now))
    assert _step({"sigmas": torch.tensor([now])}) is None


def test_recipe(attention):
    model = double.patcher()
    # The second of the two attention calls of a block is cross-attention.
    recipe = Recipe("toy", HEADS, HEAD_DIM, {i: [RecipePart(Numerics())] for i in (0, 4)})
    with enable(model, policy=SHORT, recipe=recipe) as switch:
        sample(model)
        fp8 = [record.layer for record in switch.calls if record.fp8]
        assert fp8 == ["blocks.0.self_attn", "blocks.2.self_attn"]


def test_the_override_before_serves_what_fp8_does_not(attention):
    model, seen = double.patcher(), []

    def other(q, k, v, heads, **kwargs):
        seen.append(k.shape[1])
        return attention.optimized_attention(q, k, v, heads, **kwargs)

    model.set_model_optimized_attention(other)
    before = model.model_options["transformer_options"][OVERRIDE]
    switch = enable(model, policy=SHORT)
    sample(model)
    assert seen == [10] * SELF_CALLS  # cross-attention
    switch.disable()
    assert model.model_options["transformer_options"][OVERRIDE] is before
    switch = enable(model, policy=SHORT)
    model.set_model_optimized_attention(other)
    last = model.model_options["transformer_options"][OVERRIDE]
    switch.disable()
    assert model.model_options["transformer_options"][OVERRIDE] is last


def heads_first(count=40, heads=HEADS, size=HEAD_DIM, dtype=torch.bfloat16, seed=2):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(1, heads, count, size, generator=generator).to(dtype)


@pytest.mark.parametrize("merged_in", [False, True])
@pytest.mark.parametrize("merged_out", [False, True])
def test_layouts(attention, merged_in, merged_out):
    q, k, v = (heads_first(seed=i) for i in range(3))
    if merged_in:
        q, k, v = (x.transpose(1, 2).flatten(-2) for x in (q, k, v))
    model = double.patcher()
    arguments = {"skip_reshape": not merged_in, "skip_output_reshape": not merged_out}
    expected = attention.optimized_attention(q, k, v, HEADS, **arguments)
    with enable(model, policy=SHORT) as switch:
        options = model.model_options["transformer_options"]
        found = attention.optimized_attention(
            q, k, v, HEADS, transformer_options=options, **arguments
        )
        assert found.shape == expected.shape
        assert 0 < difference(found, expected) < 0.08
        assert fp8_calls(switch) == 1


PADDING = (torch.arange(40) < 30)[None, None, None]


@pytest.mark.parametrize(
    "reason, arguments",
    [
        ("low_precision_attention=False", {"low_precision_attention": False}),
        ("attn_precision torch.float32", {"attn_precision": torch.float32}),
        ("argument sinks", {"sinks": 3}),
        ("scale -1.0", {"scale": -1.0}),
        ("mask that differs", {"mask": torch.zeros(1, 40, 40, dtype=torch.bfloat16)}),
        ("mask that differs", {"mask": torch.ones(40, 40, dtype=torch.bool).tril()}),
        ("", {"enable_gqa": True}),
        ("", {"mask": PADDING}),
        ("", {"mask": PADDING.expand(1, 1, 40, 40)[:, 0]}),
        ("", {"scale": 0.05, "low_precision_attention": True}),
    ],
)
def test_arguments(attention, reason, arguments):
    q, k, v = (heads_first(seed=i) for i in range(3))
    if "enable_gqa" in arguments:
        k, v = k[:, :1], v[:, :1]
    model = double.patcher()
    expected = attention.optimized_attention(q, k, v, HEADS, skip_reshape=True, **arguments)
    switch = enable(model, policy=SHORT, otherwise="native")
    options = model.model_options["transformer_options"]
    with pytest.warns(UserWarning) if reason else pytest.MonkeyPatch.context():
        found = attention.optimized_attention(
            q, k, v, HEADS, skip_reshape=True, transformer_options=options, **arguments
        )
    (record,) = switch.calls
    assert record.reason.startswith(reason) and record.fp8 == (not reason)
    assert torch.equal(found, expected) if reason else 0 < difference(found, expected) < 0.08


def test_groups_of_queries_in_compiled_functions(attention):
    q, k, v = (heads_first(heads=4, seed=i).transpose(1, 2) for i in range(3))
    k, v = k[:, :, :2], v[:, :, :2]
    found = _comfyui_attention._native(None, q, k, v)
    assert torch.equal(found, sdpa(q, k, v))


def test_compiled_models(attention):
    from torch._dynamo.testing import CompileCounter

    model = double.patcher(blocks=2)
    expected = sample(model)
    torch._dynamo.reset()
    with enable(model, policy=SHORT) as switch:
        in_fp8 = sample(model)
        switch.reset()
        original = model.model.diffusion_model
        counter = CompileCounter()
        model.model.diffusion_model = torch.compile(original, fullgraph=True, backend=counter)
        assert torch.equal(sample(model), in_fp8)
        assert counter.frame_count == 1
        assert fp8_calls(switch) == 2 * 2
        switch.policy = Policy(min_keys=1, min_queries=1, first_steps=2)
        assert torch.equal(sample(model), expected)
        assert counter.frame_count == 1


def test_refusals(attention, monkeypatch):
    with pytest.raises(
        ValueError, match="heads of 256 channels; expected a multiple of 8 up to 128"
    ):
        enable(double.patcher(heads=1))
    monkeypatch.setattr(sys.modules["comfyui_version"], "__version__", "0.3.59")
    with pytest.raises(NotImplementedError, match=r"0\.3\.59; expected 0\.3\.60"):
        enable(double.patcher())


def test_attention_function_by_name(attention):
    comfyui.register()
    comfyui.register()
    function = attention.REGISTERED_ATTENTION_FUNCTIONS["open_vc"]
    model = double.patcher()
    expected = sample(model)
    model.set_model_optimized_attention(function)
    assert torch.equal(sample(model), expected)  # too short for the policy
    attention.optimized_attention = function  # as packs of nodes do
    q = torch.ones(1, 40, HEADS * HEAD_DIM)
    attention.optimized_attention = double.attention_pytorch
    assert torch.equal(function(q, q, q, HEADS), double.attention_pytorch(q, q, q, HEADS))


def defaults(node):
    required = node.INPUT_TYPES()["required"]
    return {name: spec[1]["default"] for name, spec in required.items() if "default" in spec[-1]}


def test_nodes(attention):
    model = double.patcher()
    values = defaults(OpenVCAttention) | {"min_tokens": 1}
    (switched,) = OpenVCAttention().switch_on(model, **values)
    samples = {"samples": sample(switched, 4)}
    shown = OpenVCAttentionReport().report(switched, samples)
    assert shown["result"] == (samples, shown["ui"]["text"][0])
    # one block and one step are left of three blocks, four steps
    assert "2 calls in FP8" in shown["result"][1]
    (off,) = OpenVCAttention().switch_on(switched, **(values | {"enabled": False}))
    assert comfyui.switch_of_model(off) is None and not off.wrappers["apply_model"]["open_vc"]
    assert comfyui.switch_of_model(switched).enabled
    assert "no Open-VC Attention" in OpenVCAttentionReport().report(model, samples)["result"][1]
    copy.deepcopy(switched.wrappers)


def test_installer(attention, tmp_path, capsys):
    assert cli.run(["comfyui", "install", str(tmp_path)]) == 2
    assert "expected the folder of ComfyUI" in capsys.readouterr().err
    (tmp_path / "custom_nodes").mkdir()
    for _ in range(2):
        assert cli.run(["comfyui", "install", str(tmp_path)]) == 0
    file = tmp_path / "custom_nodes" / "open_vc_attn" / "__init__.py"
    spec = importlib.util.spec_from_file_location("custom", file)
    nodes = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(nodes)
    assert set(nodes.NODE_CLASS_MAPPINGS) == set(nodes.NODE_DISPLAY_NAME_MAPPINGS)
    assert "open_vc" in attention.REGISTERED_ATTENTION_FUNCTIONS
    assert cli.run(["comfyui", "remove", str(tmp_path)]) == 0
    assert not file.parent.exists()
    assert cli.run(["comfyui", "remove", str(tmp_path)]) == 0
    file.parent.mkdir()
    assert cli.run(["comfyui", "install", str(tmp_path)]) == 2
    assert "not written by this command" in capsys.readouterr().err


def test_example_workflow():
    folder = Path(__file__).parents[2] / "examples" / "comfyui"
    if not folder.is_dir():
        pytest.skip("the examples are not here")
    nodes = json.loads((folder / "wan_text_to_video.json").read_text())
    for node in nodes.values():
        for source in node["inputs"].values():
            assert not isinstance(source, list) or source[0] in nodes
    ours = {node["class_type"]: node["inputs"] for node in nodes.values()}
    for name, kind in NODE_CLASS_MAPPINGS.items():
        assert list(ours[name]) == list(kind.INPUT_TYPES()["required"])
    assert ours["OpenVCAttention"].items() >= defaults(OpenVCAttention).items()
