# SPDX-License-Identifier: BSD-3-Clause
"""A call beyond the stated limits is refused for them, before memory is asked for."""

import numpy
import pytest

from open_vc_attn import attention, exact_attention, is_supported, prepare_fp8

SIZES = [2**31, 2**40, 2**52]
AXES = {"tokens": 0, "heads": 1}


def numpy_array(axis, size):
    shape = [1, 1, 128]
    if axis is not None:
        shape[axis] = size
    zeros = numpy.zeros(128, numpy.float32)
    return numpy.lib.stride_tricks.as_strided(zeros, shape, (0, 0, 4))


def tensor(axis, size):
    torch = pytest.importorskip("torch", minversion="2.4")
    shape = [1, 1, 128]
    if axis is not None:
        shape[axis] = size
    return torch.zeros(1, 1, 128).expand(shape)


CALLS = {
    "attention": attention,
    "attention_with_lse": lambda *x: attention(*x, return_lse=True),
    "exact_attention": exact_attention,
    "exact_attention of a row": lambda *x: exact_attention(*x, rows=[0]),
    "prepare_fp8": prepare_fp8,
}


@pytest.mark.filterwarnings("ignore:q has shape")
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("make", [numpy_array, tensor])
@pytest.mark.parametrize("axis", AXES)
def test_limits_come_first(axis, make, size, call):
    large = make(AXES[axis], size)
    small = make(None, 1)
    operands = (large, small, small) if axis == "tokens" else (large, large, large)
    reason = is_supported(*operands).reason
    assert "expected at most" in reason or "expected batch * heads" in reason
    with pytest.raises(NotImplementedError) as caught:
        CALLS[call](*operands)
    assert str(caught.value) == reason


@pytest.mark.parametrize("make", [numpy_array, tensor])
def test_other_refusals_keep_their_kind(make):
    """The output cannot be allocated, but that is not what is wrong."""
    with pytest.raises(ValueError, match=r"v: shape .* differs from k's"):
        attention(make(0, 2**40), make(None, 1), make(0, 3))
