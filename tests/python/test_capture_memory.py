# SPDX-License-Identifier: BSD-3-Clause
"""Recording of tensors that have no numbers in memory, or not there."""

import pytest
from test_capture import load, names

from open_vc_attn import capture

torch = pytest.importorskip("torch")
functional = torch.nn.functional


def fake(x):
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode().from_tensor(x)


WITHOUT_MEMORY = {
    "fake": (fake, "a fake tensor"),
    "meta": (lambda x: x.to("meta"), "a meta tensor"),
    "nested": (lambda x: torch.nested.nested_tensor(list(x)), "a nested tensor"),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested")
@pytest.mark.parametrize("kind", WITHOUT_MEMORY)
def test_tensors_without_memory_are_left_out(tmp_path, kind):
    change, words = WITHOUT_MEMORY[kind]
    plain = torch.randn(2, 2, 5, 16)
    x = change(plain)
    with (
        pytest.warns(UserWarning, match=f"layer 1 is not recorded: q: {words}"),
        capture(out=tmp_path) as recording,
    ):
        functional.scaled_dot_product_attention(plain, plain, plain)
        functional.scaled_dot_product_attention(x, x, x)
        with pytest.raises(ValueError, match=f"k: {words}"):
            recording.record(plain, x, plain)
    assert names(recording) == ["step000_layer000.safetensors"]


def attend(x):
    # The only implementation that has every derivative.
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return functional.scaled_dot_product_attention(x, x, x)


TRANSFORMATIONS = {
    "vmap": lambda x: torch.vmap(attend)(x),
    "grad": lambda x: torch.func.grad(lambda y: attend(y).sum())(x),
    "jvp": lambda x: torch.func.jvp(attend, (x,), (x,)),
    "functionalize": lambda x: torch.func.functionalize(attend)(x),
}


@pytest.mark.parametrize("transformation", TRANSFORMATIONS)
def test_calls_inside_transformations_are_left_out(tmp_path, transformation):
    x = torch.randn(2, 2, 5, 16)
    expected = TRANSFORMATIONS[transformation](x)
    with (
        pytest.warns(UserWarning, match="layer 0 is not recorded: q: a wrapper of torch.func"),
        pytest.warns(UserWarning, match="nothing was recorded"),
        capture(out=tmp_path) as recording,
    ):
        found = TRANSFORMATIONS[transformation](x)
    torch.testing.assert_close(found, expected)
    assert not recording.files


def test_what_is_differentiated_outside_is_recorded(tmp_path):
    x = torch.randn(1, 2, 5, 16)
    with capture(out=tmp_path) as recording, torch.autograd.forward_ad.dual_level():
        attend(x.clone().requires_grad_())
        attend(torch.autograd.forward_ad.make_dual(x, x))
        attend(torch._neg_view(-x))
    assert len(recording.files) == 3
    for path in recording.files:
        assert torch.equal(load(path)[0][0], x[0].transpose(0, 1))


def test_warnings_point_at_the_call(tmp_path):
    x = torch.randn(1, 2, 5, 16, device="meta")
    with pytest.warns(UserWarning) as warned, capture(out=tmp_path):
        attend(x)
    assert all(warning.filename == __file__ for warning in warned)
