# SPDX-License-Identifier: BSD-3-Clause
"""attention_varlen(): packed sequences are calls of their own, in NumPy and torch."""

import itertools

import numpy
import pytest
from conftest import as_bytes, random_qkv

from open_vc_attn import Numerics, attention, attention_varlen

OF_Q, OF_K = [0, 30, 30, 38, 50], [0, 70, 90, 150, 150]
TOKENS = 53  # three behind the last sequence
Q, K, V = random_qkv(TOKENS, 160, 4, None, numpy.float16, key_heads=2, head_dim=64)
LONGEST = (30, 70)


def alone(q, k, v, of_q=OF_Q, of_k=OF_K, **options):
    """Output and LSE of calls of their own, zero and -inf elsewhere."""
    out, lse = numpy.zeros_like(q), numpy.full((4, len(q)), -numpy.inf, numpy.float32)
    for (a, b), (c, d) in zip(itertools.pairwise(of_q), itertools.pairwise(of_k), strict=True):
        if a < b and c < d:
            one = attention(q[a:b], k[c:d], v[c:d], return_lse=True, **options)
            out[a:b], lse[:, a:b] = one
    return out, lse


EXPECTED = alone(Q, K, V)


def assert_equal(found, expected):
    for x, y in zip(found, expected, strict=True):
        assert as_bytes(numpy.asarray(x)) == as_bytes(y)


FORMS = {
    "list": (OF_Q, OF_K),
    "tuple of numpy's": (tuple(numpy.array(OF_Q)), OF_K),
    "int32": (numpy.array(OF_Q, "i4"), numpy.array(OF_K, "i4")),
    "int64": (numpy.array(OF_Q, "i8"), numpy.array(OF_K, "u2")),
    "strided": (numpy.repeat(numpy.array(OF_Q, "i4"), 2)[::2], OF_K),
}


@pytest.mark.parametrize("form", FORMS)
def test_equal_to_calls_of_their_own(form):
    assert_equal(attention_varlen(Q, K, V, *FORMS[form], return_lse=True), EXPECTED)
    assert_equal([attention_varlen(Q, K, V, *FORMS[form], *LONGEST)], EXPECTED[:1])


def test_causal_and_options():
    options = {"causal": True, "softmax_scale": 0.2, "budget": "fast", "key_order": "descending"}
    found = attention_varlen(Q, K, V, OF_Q, OF_K, return_lse=True, **options)
    assert_equal(found, alone(Q, K, V, **options))


class Dlpack:
    """An array of no framework that the package knows."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **arguments):
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_arrays_that_speak_dlpack():
    q, k, v, of_q, of_k = map(Dlpack, (Q, K, V, numpy.array(OF_Q), numpy.array(OF_K)))
    found = attention_varlen(q, k, v, of_q, of_k, *LONGEST, return_lse=True)
    assert_equal([numpy.from_dlpack(x) for x in found], EXPECTED)


def refusals():
    falling = numpy.array([0, 30, 20, 38, 50])
    return {
        "batch": (lambda: attention_varlen(Q[None], K[None], V[None], OF_Q, OF_K), ValueError, r"q: 4 axes; expected \[T, H, D\]"),
        "first": (lambda: attention_varlen(Q, K, V, [1, 50], [0, 60]), ValueError, "cu_seqlens_q: starts with 1; expected 0"),
        "falling": (lambda: attention_varlen(Q, K, V, falling, OF_K, *LONGEST), ValueError, "cu_seqlens_q: 20 at index 2 follows 30"),
        "end": (lambda: attention_varlen(Q, K, V, [0, 53], [0, 161]), ValueError, "cu_seqlens_k: ends with 161; expected at most 160"),
        "longest": (lambda: attention_varlen(Q, K, V, OF_Q, OF_K, 29, 70), ValueError, "max_seqlen_q: 29; expected at least 30"),
        "negative": (lambda: attention_varlen(Q, K, V, OF_Q, OF_K, -1, 70), ValueError, "max_seqlen_q: -1; expected 0 <="),
        "number": (lambda: attention_varlen(Q, K, V, OF_Q, OF_K, 3.5, 70), TypeError, "max_seqlen_q: 3.5; expected a whole number"),
        "unlike": (lambda: attention_varlen(Q, K, V, OF_Q, OF_K[1:]), ValueError, r"cu_seqlens_k: shape \[4\]; expected the shape"),
        "one": (lambda: attention_varlen(Q, K, V, [0], [0]), ValueError, r"cu_seqlens_q: shape \[1\]; expected \[B \+ 1\], two"),
        "none": (lambda: attention_varlen(Q, K, V, [], []), ValueError, r"cu_seqlens_q: shape \[0\]; expected \[B \+ 1\], two"),
        "axes": (lambda: attention_varlen(Q, K, V, falling[None], OF_K, 9, 70), ValueError, r"cu_seqlens_q: shape \[1, 5\]"),
        "floats": (lambda: attention_varlen(Q, K, V, falling * 1.0, OF_K), TypeError, "cu_seqlens_q: element type float64"),
        "float": (lambda: attention_varlen(Q, K, V, [0, 50.0], [0, 9]), TypeError, "cu_seqlens_q: 50.0; expected a whole number"),
        "nothing": (lambda: attention_varlen(Q, K, V, None, OF_K), TypeError, "cu_seqlens_q: None; expected an array of numpy"),
        "unknown": (lambda: attention_varlen(Q, K, V, falling[None], OF_K), ValueError, "max_seqlen_q: None; expected a number"),
    }  # fmt: skip


@pytest.mark.parametrize("case", refusals())
def test_refused(case):
    call, error, text = refusals()[case]
    with pytest.raises(error, match=text):
        call()


# ---- torch ---------------------------------------------------------------------------------------

torch = pytest.importorskip("torch", minversion="2.4")

from open_vc_attn import _torch_arrays, _torch_op  # noqa: E402 - needs torch

TENSORS = [torch.from_numpy(x) for x in (Q, K, V)]
BOUNDARIES = [torch.tensor(x, dtype=torch.int32) for x in (OF_Q, OF_K)]
OPTIONS = (False, None, "mid_window", *vars(Numerics()).values())


@pytest.fixture(params=[True, False], ids=["direct", "operator"])
def direct(request, monkeypatch):
    """Whether calls may leave torch's dispatcher out."""
    if request.param:
        if _torch_arrays._PLAIN_KEYS is not None:
            monkeypatch.delattr(_torch_op, "call")
    else:
        monkeypatch.setattr(type(_torch_arrays.TORCH), "can_skip_dispatcher", lambda *_: False)


def test_torch(direct):
    for boundaries in (BOUNDARIES, [x.long() for x in BOUNDARIES], (OF_Q, OF_K)):
        for longest in ((), LONGEST):
            found = attention_varlen(*TENSORS, *boundaries, *longest, return_lse=True)
            assert_equal(found, EXPECTED)
    with pytest.raises(TypeError, match="cu_seqlens_q: array of numpy; expected an array of torch"):
        attention_varlen(*TENSORS, numpy.array(OF_Q), OF_K)
    with pytest.raises(ValueError, match="cu_seqlens_k: ends with 161"):
        attention_varlen(*TENSORS, [0, 53], torch.tensor([0, 161]))


def test_operators_by_name():
    operators = torch.ops.open_vc_attn
    packed = dict(zip(("cu_seqlens_q", "cu_seqlens_k"), BOUNDARIES, strict=True))
    packed |= {"max_seqlen_q": 30, "max_seqlen_k": 70}
    found = operators.attention_with_lse(*TENSORS, *OPTIONS, **packed)
    assert_equal(found, EXPECTED)
    with pytest.raises(TypeError, match="cu_seqlens_q, cu_seqlens_k: one of them"):
        operators.attention(*TENSORS, *OPTIONS, cu_seqlens_k=BOUNDARIES[1])
    with pytest.raises(NotImplementedError, match="together with cu_seqlens_q"):
        operators.attention(*TENSORS, *OPTIONS, key_lengths=BOUNDARIES[0], **packed)
    with pytest.raises(ValueError, match="cu_seqlens_q: 38 at index 2 follows 50"):
        packed["cu_seqlens_q"] = torch.tensor([0, 50, 38, 50, 50])
        operators.attention(*TENSORS, *OPTIONS, **packed | {"max_seqlen_q": 50})


def test_compiled_with_other_lengths():
    from torch._dynamo.testing import CompileCounterWithBackend

    counter = CompileCounterWithBackend("aot_eager")

    @torch.compile(backend=counter, fullgraph=True)
    def compiled(of_q, of_k):
        return attention_varlen(*TENSORS, of_q, of_k, 60, 160, return_lse=True)

    for of_q, of_k in (
        BOUNDARIES,
        [torch.tensor([0, 9, 9, 50, 53]), torch.tensor([0, 9, 90, 95, 99])],
    ):
        of_q, of_k = of_q.int(), of_k.int()
        assert_equal(compiled(of_q, of_k), alone(Q, K, V, of_q.tolist(), of_k.tolist()))
    assert counter.frame_count == 1


def test_fake_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(x) for x in (*TENSORS, *BOUNDARIES)]
        out, lse = attention_varlen(*fakes, 60, 160, return_lse=True)
        assert (out.shape, out.dtype) == (TENSORS[0].shape, torch.float16)
        assert (lse.shape, lse.dtype) == ((4, TOKENS), torch.float32)
        with pytest.raises(ValueError, match="max_seqlen_q: None; expected a number"):
            attention_varlen(*fakes)
        with pytest.raises(ValueError, match="cu_seqlens_k: shape"):
            attention_varlen(*fakes[:4], fakes[4][:2], 60, 160)
