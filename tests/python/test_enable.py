# SPDX-License-Identifier: BSD-3-Clause
"""enable(), Policy and Switch on models of torch alone."""

import copy
import warnings

import pytest

torch = pytest.importorskip("torch", minversion="2.4")

from video_models import WIDTH, Attention, difference, model, tokens  # noqa: E402

from open_vc_attn import Numerics, Policy, Recipe, RecipePart, enable  # noqa: E402
from open_vc_attn._switch_report import block_positions  # noqa: E402
from open_vc_attn.integrations._modules import running_layer  # noqa: E402

SHORT = Policy(min_keys=1, min_queries=1)
FP8_ERROR = 0.01
"""Of a model's output; its attention is a small part of it."""


def fp8_calls(switch):
    return sum(record.count for record in switch.calls if record.fp8)


def reasons(switch):
    return {record.reason for record in switch.calls}


def test_every_call_runs_in_fp8_and_disable_restores():
    target, other, x = model(), model(seed=5), tokens()
    expected, expected_other = target(x), other(x)
    switch = enable(target, policy=SHORT)
    found = target(x)
    assert 0 < difference(found, expected) < FP8_ERROR
    assert torch.equal(other(x), expected_other)
    assert [(record.layer, record.count, record.fp8) for record in switch.calls] == [
        (f"blocks.{i}.attention", 1, True) for i in range(3)
    ]
    switch.disable()
    assert torch.equal(target(x), expected)
    with pytest.raises(RuntimeError, match="disabled already"):
        switch.disable()


def test_a_second_enable_replaces_the_first():
    target, x = model(), tokens()
    expected = target(x)
    first = enable(target, policy=SHORT)
    second = enable(target)
    assert torch.equal(target(x), expected)
    assert not first.calls and reasons(second) == {"policy: fewer than 4096 keys"}
    with pytest.raises(RuntimeError, match="a later enable"):
        first.disable()
    second.disable()
    assert torch.equal(target(x), expected)


def test_two_models_have_policies_of_their_own():
    x = tokens()
    a, b = model(), model()
    with enable(a, policy=SHORT) as switch_a, enable(b) as switch_b:
        a(x), b(x)
        assert (fp8_calls(switch_a), fp8_calls(switch_b)) == (3, 0)


@pytest.mark.parametrize(
    "policy, layers",
    [
        ({"first_layers": 1}, [1, 2, 3]),
        ({"last_layers": 2}, [0, 1]),
        ({"first_layers": 1, "last_layers": 1}, [1, 2]),
        ({"layers": ["blocks.2.*"]}, [2]),
        ({"layers": "*.0.*", "last_layers": 1}, [0]),
        ({"layers": lambda name, index, count: index == count - 1}, [3]),
        ({"min_keys": 71}, []),
        ({"min_queries": 71}, []),
    ],
)
def test_policy_on_layers(policy, layers):
    target = model(blocks=4)
    with enable(target, policy=Policy(**{"min_keys": 1, "min_queries": 1, **policy})) as switch:
        target(tokens())
        found = [record.layer for record in switch.calls if record.fp8]
        assert found == [f"blocks.{i}.attention" for i in layers]
        assert sum(record.count for record in switch.calls) == 4


def test_blocks_of_inner_parts_do_not_count():
    target = model(refiner=True)
    policy = Policy(min_keys=1, min_queries=1, first_layers=1)
    with enable(target, policy=policy) as switch:
        target(tokens())
        found = [record.layer for record in switch.calls if record.fp8]
        assert found == [
            "text.refiner.0.attention",
            "blocks.1.attention",
            "blocks.2.attention",
        ]


def test_block_positions():
    names = ["text.refiner.0.a", "double.0.a", "double.1.a", "double.1.b", "single.0.a", "head"]
    assert block_positions(names) == ([None, 0, 1, 1, 2, None], 3)
    assert block_positions(["attention"]) == ([None], 0)


def test_policy_on_steps():
    target, x = model(), tokens()
    policy = Policy(min_keys=1, min_queries=1, first_steps=1, last_steps=1)
    with pytest.raises(ValueError, match=r"switch\.step"):
        enable(target, policy=policy)
    expected = target(x)
    with enable(target, policy=SHORT) as switch:
        with pytest.raises(ValueError, match=r"switch\.step"):
            switch.policy = policy
        switch.step(0, 4)
        switch.policy = policy
        in_fp8 = []
        for index in range(4):
            switch.step(index, 4)
            in_fp8.append(not torch.equal(target(x), expected))
        assert in_fp8 == [False, True, True, False]
        switch.policy = Policy(min_keys=1, min_queries=1, steps=lambda index, count: index == 3)
        assert not torch.equal(target(x), expected)


NATIVE = [
    ("dropout", {}, {"dropout_p": 0.5}),
    ("head size 256", {"head_dim": 256}, {}),
    ("element type torch.float32", {"dtype": torch.float32}, {}),
    ("scale -1.0", {}, {"scale": -1.0}),
    ("mask that differs", {}, {"attn_mask": torch.ones(70, 70, dtype=torch.bool).tril()}),
    ("mask that differs", {}, {"attn_mask": torch.zeros(1, 1, 1, 70, dtype=torch.bfloat16)}),
    ("causal from the top left", {}, {"is_causal": True, "context": tokens(80)}),
    ("policy: cross-attention", {}, {"context": tokens(80)}),
]


@pytest.mark.parametrize("reason, build, arguments", NATIVE)
def test_what_the_table_sends_elsewhere_is_as_before(reason, build, arguments):
    target, x = model(**build), tokens(dtype=build.get("dtype", torch.bfloat16))
    torch.manual_seed(3)
    expected = target(x, **arguments)
    with enable(target, policy=SHORT) as switch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(3)
        assert torch.equal(target(x, **arguments), expected)
        assert fp8_calls(switch) == 0
        assert all(record.reason.startswith(reason) for record in switch.calls), switch.report()


def test_narrow_heads_and_groups_of_queries():
    class Grouped(torch.nn.Module):
        def forward(self, q, k, v, **arguments):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, **arguments)

    target = Grouped()
    q = tokens().unflatten(-1, (4, 64)).transpose(1, 2)
    k, v = q[:, :2] * 0.5, q[:, 1:3]
    expected = target(q, k, v, enable_gqa=True)
    with enable(target, policy=SHORT) as switch:
        assert 0 < difference(target(q, k, v, enable_gqa=True), expected) < 0.08
        torch._dynamo.reset()
        compiled = torch.compile(target, fullgraph=True, backend="eager")
        assert 0 < difference(compiled(q, k, v, enable_gqa=True), expected) < 0.08
        switch.policy = Policy()
        assert torch.equal(compiled(q, k, v, enable_gqa=True), expected)
        switch.policy = SHORT
        assert fp8_calls(switch) == 2
        with pytest.warns(UserWarning, match="2 heads of keys for 4"), pytest.raises(RuntimeError):
            target(q, k, v)  # torch asks for enable_gqa


def test_gradients_go_elsewhere():
    target, x = model().requires_grad_(True), tokens()
    with enable(target, policy=SHORT) as switch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        target(x).sum().backward()
        assert reasons(switch) == {"a gradient is wanted"}
        with torch.no_grad():
            target(x)
        assert fp8_calls(switch) == 3


def test_refused_calls_warn_once_unless_the_policy_keeps_them():
    target, x = model(), tokens()
    arguments = {"scale": -1.0}
    with enable(target, policy=SHORT):
        with pytest.warns(UserWarning, match=r"blocks.0.attention is not computed in FP8: scale"):
            target(x, **arguments)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            target(x, **arguments)
    with enable(target), warnings.catch_warnings():
        warnings.simplefilter("error")
        target(x, **arguments)


def test_otherwise_error_and_function():
    target, x = model(), tokens()
    with enable(target, policy=SHORT, otherwise="error"):
        target(x)
        with pytest.raises(NotImplementedError, match="scale -1"):
            target(x, scale=-1.0)
    with enable(target, otherwise="error"):
        target(x, scale=-1.0)  # the policy keeps it
    seen = []

    def zeros(q, k, v, **arguments):
        seen.append((q.shape, sorted(arguments)))
        return torch.zeros_like(q)

    with enable(target, otherwise=zeros):
        assert torch.equal(target(x), x)
    names = ["causal", "dropout", "mask", "return_lse", "scale"]
    assert seen == [((1, 70, 2, 128), names)] * 3


def test_numerics_reach_the_kernels():
    target, x = model(), tokens()
    outs = []
    for arguments in ({}, {"budget": "fast"}, {"numerics": {"value_scale": "per_head"}}):
        with enable(target, policy=SHORT, **arguments):
            outs.append(target(x))
    assert not torch.equal(outs[0], outs[2])
    parts = {i: [RecipePart(Numerics(value_scale="per_head"))] for i in (0, 2)}
    recipe = Recipe("toy", 2, 128, parts)
    with enable(target, policy=SHORT, recipe=recipe) as switch:
        target(x)
        assert [record.reason for record in switch.calls] == ["", "recipe: no layer 1", ""]


def test_a_recipe_of_noise_levels_needs_a_pipeline():
    recipe = Recipe("toy", 2, 128, {0: [RecipePart(Numerics(), 0.0, 2.0)]})
    with pytest.raises(ValueError, match="noise level"):
        enable(model(), recipe=recipe)


def test_a_failed_enable_leaves_nothing_behind():
    target, x = model(), tokens()
    expected = target(x)
    with pytest.raises(ValueError, match=r"switch\.step"):
        enable(target, policy=Policy(first_steps=1, min_keys=1, min_queries=1))
    assert torch.equal(target(x), expected)
    assert not any(module._forward_hooks for module in target.modules())


@pytest.mark.parametrize(
    "arguments, error, text",
    [
        ({"policy": {}}, TypeError, "policy: dict"),
        ({"otherwise": "nothing"}, ValueError, "otherwise"),
        ({"masks": "ignore"}, ValueError, "masks"),
        ({"budget": "cheap"}, ValueError, "budget"),
        ({"numerics": {"unknown": 1}}, TypeError, "unknown"),
        ({"key_order": "random"}, ValueError, "key_order"),
        ({"recipe": 3}, TypeError, "recipe: 3"),
    ],
)
def test_wrong_arguments_are_refused(arguments, error, text):
    with pytest.raises(error, match=text):
        enable(model(), **arguments)


@pytest.mark.parametrize("target", [None, 3, "model", [], [3]])
def test_wrong_targets_are_refused(target):
    with pytest.raises((TypeError, ValueError), match="target"):
        enable(target)


@pytest.mark.parametrize(
    "arguments", [{"first_steps": -1}, {"layers": 3}, {"steps": 3}, {"cross": 1}, {"min_keys": 0.5}]
)
def test_wrong_policies_are_refused(arguments):
    with pytest.raises((TypeError, ValueError)):
        Policy(**arguments)


def test_policy_from_json():
    assert Policy.from_json('{"first_steps": 1, "layers": ["a"]}') == Policy(
        first_steps=1, layers=("a",)
    )
    for text in ("[]", '{"steps": 3}', '{"first": 3}'):
        with pytest.raises(TypeError, match="policy"):
            Policy.from_json(text)


def test_report_of_layers_that_are_alike_is_one_row():
    target = model(blocks=4)
    with enable(target, policy=Policy(min_keys=1, min_queries=1, first_layers=1)) as switch:
        assert switch.report() == "no attention call yet"
        target(tokens())
        assert [line.split() for line in switch.report().splitlines()[1:]] == [
            ["blocks.0.attention", "70", "x", "70", "x", "2", "0", "1", "policy:", "layer"],
            ["blocks.1-3.attention", "70", "x", "70", "x", "2", "3", "0"],
            ["3", "calls", "in", "FP8,", "1", "elsewhere"],
        ]
        switch.reset()
        assert switch.calls == []


def test_copies_and_nested_modules():
    target, x = model(), tokens()
    expected = target(x)
    switch = enable(target, policy=SHORT)
    copied = copy.deepcopy(target)
    assert torch.equal(copied(x), target(x))
    assert fp8_calls(switch) == 6
    switch.disable()
    assert torch.equal(copied(x), expected)


def test_an_exception_in_the_model_leaves_no_layer_running():
    target, x = model(), tokens()
    with enable(target, policy=SHORT) as switch:
        with pytest.raises(RuntimeError):
            target(torch.zeros(1, 4, WIDTH + 1, dtype=torch.bfloat16))
        assert running_layer() is None
        q = x.unflatten(-1, (2, 128)).transpose(1, 2)
        torch.nn.functional.scaled_dot_product_attention(q, q, q)
        assert switch.calls == []
        target(x)
        assert fp8_calls(switch) == 3


def test_a_root_that_attends_itself():
    torch.manual_seed(0)
    target = Attention().bfloat16().requires_grad_(False)
    with enable(target, policy=SHORT) as switch:
        target(tokens())
        assert fp8_calls(switch) == 1


def test_multihead_attention_of_torch():
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(WIDTH, 2, 64, batch_first=True).bfloat16().eval()
    target, x = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), tokens()
    with torch.no_grad():
        expected = target(x)
        with enable(target, policy=SHORT) as switch:
            assert 0 < difference(target(x), expected) < FP8_ERROR
        names = [f"layers.{i}.self_attn" for i in range(2)]
        assert [record.layer for record in switch.calls] == names


def test_a_device_without_kernels_is_refused_at_once(monkeypatch):
    from open_vc_attn.integrations import _readiness

    monkeypatch.setattr(_readiness, "device_refusal", lambda kind, index: "q: no kernel")
    with pytest.raises(NotImplementedError, match="target: its device is cpu"):
        enable(model())
    monkeypatch.setattr(_readiness, "device_refusal", lambda kind, index: "")
    monkeypatch.setattr(_readiness._attention, "attention", lambda q, k, v: q)
    _readiness._smoke.cache_clear()
    with pytest.raises(RuntimeError, match=r"64 tokens is .* % off"):
        enable(model())
    _readiness._smoke.cache_clear()


def test_one_compilation_for_all_policies():
    from torch._dynamo.testing import CompileCounter

    target, x = model(), tokens()
    expected = target(x)
    counter = CompileCounter()
    torch._dynamo.reset()
    with enable(target, policy=SHORT) as switch:
        in_fp8 = target(x)
        compiled = torch.compile(target, fullgraph=True, backend=counter)
        assert torch.equal(compiled(x), in_fp8)
        switch.step(0, 2)
        switch.policy = Policy(min_keys=1, min_queries=1, first_steps=1)
        assert torch.equal(compiled(x), expected)
        switch.step(1, 2)
        assert torch.equal(compiled(x), in_fp8)
        switch.policy = Policy(min_keys=1, min_queries=1, layers=[])
        assert torch.equal(compiled(x), expected)
        assert counter.frame_count == 1
        assert fp8_calls(switch) == 9  # eager and twice compiled


def test_operators_that_outlive_their_switch():
    from open_vc_attn.integrations._modules import layer_of
    from open_vc_attn.integrations._native import sdpa

    target = model(blocks=1)
    q, k, v = (x.unflatten(-1, (2, 128)) for x in tokens(batch=3).split(1))
    with enable(target, policy=SHORT) as switch:
        token = layer_of(target.blocks[0].attention).token

        def call():
            return torch.ops.open_vc_attn.switched(q, k, v, None, token, False, None, False, 1)

        assert difference(call(), sdpa(q, k, v)) > 0 and fp8_calls(switch) == 1
    assert torch.equal(call(), sdpa(q, k, v))
    del switch, target
    assert torch.equal(call(), sdpa(q, k, v))


def test_a_model_that_is_compiled_already():
    from torch._dynamo.testing import CompileCounter

    target, x = model(), tokens()
    counter = CompileCounter()
    torch._dynamo.reset()
    compiled = torch.compile(target, fullgraph=True, backend=counter)
    expected = compiled(x)
    for _ in range(2):
        with enable(compiled, policy=SHORT) as switch:
            assert not torch.equal(compiled(x), expected)
            assert [record.layer for record in switch.calls] == [
                f"blocks.{i}.attention" for i in range(3)
            ]
        assert torch.equal(compiled(x), expected)
    assert counter.frame_count == 2


def test_errors_that_were_asked_for_reach_compiled_functions():
    target, x = model(head_dim=256), tokens()
    torch._dynamo.reset()
    with enable(target, policy=SHORT, otherwise="error"):
        compiled = torch.compile(target, backend="eager")
        with pytest.raises(NotImplementedError, match="head size 256"):
            compiled(x)


def test_operands_have_the_type_of_autocast():
    class InTwoTypes(torch.nn.Module):
        """As after rotary embeddings: Q and K in float32."""

        def forward(self, x):
            q = x.unflatten(-1, (2, 128)).transpose(1, 2)
            return torch.nn.functional.scaled_dot_product_attention(q.float(), q.float(), q)

    target, x = InTwoTypes(), tokens()
    with torch.autocast("cpu", torch.bfloat16), enable(target, policy=SHORT) as switch:
        out = target(x)
        assert out.dtype == torch.bfloat16 and fp8_calls(switch) == 1


def test_blocks_that_are_compiled_one_by_one_share_their_code():
    from torch._dynamo.testing import CompileCounter

    target, x = model(), tokens()
    counter = CompileCounter()
    torch._dynamo.reset()
    policy = Policy(min_keys=1, min_queries=1, first_layers=1)
    with enable(target, policy=policy) as switch:
        expected = target(x)
        switch.reset()
        for block in target.blocks:
            block.compile(fullgraph=True, backend=counter)
        assert torch.equal(target(x), expected)
        assert counter.frame_count == 1
        assert [record.fp8 for record in switch.calls] == [False, True, True]


def test_what_a_compiler_sends_elsewhere_is_noted():
    target, x = model(head_dim=256), tokens()
    expected = target(x)
    torch._dynamo.reset()
    with enable(target, policy=SHORT) as switch:
        compiled = torch.compile(target, fullgraph=True, backend="eager")
        assert torch.equal(compiled(x), expected)
        assert reasons(switch) == {"head size 256"} and switch.calls[0].traced
        assert "(compiled)" in switch.report()
