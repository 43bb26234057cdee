# SPDX-License-Identifier: BSD-3-Clause
"""key_lengths and key_mask of torch tensors: directly, through the operators, compiled, exported."""

import io
import warnings

import numpy
import pytest
from conftest import random_qkv

from open_vc_attn import Numerics, attention, is_supported

torch = pytest.importorskip("torch", minversion="2.4")

from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402 - needs torch

from open_vc_attn import _torch_arrays, _torch_op  # noqa: E402 - needs torch

BATCH, QUERIES, KEYS = 2, 40, 150
Q, K, V = (
    torch.from_numpy(x).bfloat16()
    for x in random_qkv(QUERIES, KEYS, 4, BATCH, key_heads=2, head_dim=64)
)
LENGTHS = torch.tensor([70, 150], dtype=torch.int32)
MASK = torch.from_numpy(numpy.random.default_rng(5).random((BATCH, KEYS)) < 0.6)
OPTIONS = (False, None, "mid_window", *vars(Numerics()).values())


def without_others(mask):
    parts = [attention(Q[i], K[i, mask[i]], V[i, mask[i]]) for i in range(len(mask))]
    return torch.stack(parts)


def first(lengths):
    return torch.arange(KEYS) < torch.as_tensor(lengths)[:, None]


OF_LENGTHS, OF_MASK = without_others(first(LENGTHS)), without_others(MASK)


@pytest.fixture(params=[True, False], ids=["direct", "operator"])
def direct(request, monkeypatch):
    """Whether calls may leave torch's dispatcher out."""
    if not request.param:
        monkeypatch.setattr(type(_torch_arrays.TORCH), "can_skip_dispatcher", lambda *_: False)
    return request.param


FORMS_OF_LENGTHS = {
    **{str(x): LENGTHS.to(x) for x in (torch.int32, torch.int64, torch.int16, torch.uint8)},
    "strided": LENGTHS.repeat_interleave(2)[::2],
    "list": [70, 150],
    "beyond all keys": torch.tensor([70, 2**40]),
}


@pytest.mark.parametrize("form", FORMS_OF_LENGTHS)
def test_lengths(form, direct):
    lengths = FORMS_OF_LENGTHS[form]
    assert torch.equal(attention(Q, K, V, key_lengths=lengths), OF_LENGTHS)
    assert is_supported(Q, K, V, key_lengths=lengths)


FORMS_OF_MASKS = {
    "bool": MASK,
    "uint8": MASK.byte() * 3,
    "transposed": MASK.T.contiguous().T,
    "strided": MASK.repeat_interleave(2, 1)[:, ::2],
    "of four axes": MASK[:, None, None].expand(BATCH, 4, QUERIES, KEYS)[:, 0, 0],
}


@pytest.mark.parametrize("form", FORMS_OF_MASKS)
def test_masks(form, direct):
    mask = FORMS_OF_MASKS[form]
    assert torch.equal(attention(Q, K, V, key_mask=mask), OF_MASK)
    assert is_supported(Q, K, V, key_mask=mask)
    for one in (mask[0], mask[:1]):
        expected = without_others(MASK[:1].expand_as(MASK))
        assert torch.equal(attention(Q, K, V, key_mask=one), expected)


def test_usual_masks_leave_the_operator_out(monkeypatch):
    if _torch_arrays._PLAIN_KEYS is None:
        pytest.skip("this torch does not tell who watches a call")
    monkeypatch.delattr(_torch_op, "call")
    attention(Q, K, V, key_lengths=LENGTHS, key_mask=MASK)


class Watched(torch.Tensor):
    """A subclass with operators of its own."""

    seen = ()

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        Watched.seen = (*Watched.seen, str(function))
        plain = [x.plain if isinstance(x, Watched) else x for x in args]
        return function(*plain, **(kwargs or {}))


def test_masks_with_operators_of_their_own_see_the_call():
    mask = torch.Tensor._make_wrapper_subclass(Watched, MASK.shape, dtype=torch.bool)
    mask.plain = MASK
    assert torch.equal(attention(Q, K, V, key_mask=mask), OF_MASK)
    assert "open_vc_attn.attention.default" in Watched.seen


REFUSED = {
    "float lengths": (dict(key_lengths=LENGTHS.float()), TypeError, "key_lengths: element type float32"),
    "uint64": (dict(key_lengths=LENGTHS.to(torch.uint64)), TypeError, "type uint64"),
    "additive": (dict(key_mask=MASK.bfloat16()), TypeError, "key_mask: element type bfloat16"),
    "lengths": (dict(key_lengths=LENGTHS[:1]), ValueError, r"key_lengths: shape \[1\]; expected"),
    "keys": (dict(key_mask=MASK[:, 1:]), ValueError, r"key_mask: shape \[2, 149\]; expected"),
    "items": (dict(key_mask=MASK.repeat(2, 1)), ValueError, r"key_mask: shape \[4, 150\]"),
    "numpy": (dict(key_mask=MASK.numpy()), TypeError, "key_mask: array of numpy; expected an array of torch"),
    "list": (dict(key_mask=[True]), TypeError, "key_mask: list; expected an array of torch"),
    "meta": (dict(key_mask=MASK.to("meta")), NotImplementedError, "key_mask: a meta tensor"),
    "sparse": (dict(key_mask=MASK.to_sparse()), NotImplementedError, "key_mask: layout"),
    "causal": (dict(key_mask=MASK, causal=True), NotImplementedError, "key_mask: together with ca"),
}  # fmt: skip


@pytest.mark.parametrize("form", REFUSED)
def test_refused(form, direct):
    arguments, error, text = REFUSED[form]
    with pytest.raises(error, match=text) as refusal:
        attention(Q, K, V, **arguments)
    assert is_supported(Q, K, V, **arguments).reason == str(refusal.value)


@pytest.mark.parametrize("name", ["attention", "attention_with_lse"])
def test_operators_by_name(name):
    operator = getattr(torch.ops.open_vc_attn, name)
    for lengths, mask, expected in ((LENGTHS.long(), None, OF_LENGTHS), (None, MASK, OF_MASK)):
        out = operator(Q, K, V, *OPTIONS, key_lengths=lengths, key_mask=mask)
        assert torch.equal(out[0] if name.endswith("lse") else out, expected)
    for arguments, text in (
        (dict(key_lengths=LENGTHS[:1]), "key_lengths: shape"),
        (dict(key_mask=MASK.float()), "key_mask: element type"),
    ):
        with pytest.raises((TypeError, ValueError), match=text):
            operator(Q, K, V, *OPTIONS, **arguments)


def test_fake_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        q, k, v, mask, lengths = map(mode.from_tensor, (Q, K, V, MASK, LENGTHS))
        out, lse = attention(q, k, v, return_lse=True, key_mask=mask, key_lengths=lengths)
        assert (out.shape, lse.shape) == (Q.shape, (BATCH, 4, QUERIES))
        assert is_supported(q, k, v, key_mask=mask)
        for arguments in (
            {"key_mask": mask[:, 1:]},
            {"key_lengths": lengths[:1]},
            {"key_mask": mask, "causal": True},
        ):
            assert not is_supported(q, k, v, **arguments)
            with pytest.raises((NotImplementedError, ValueError), match="key_"):
                attention(q, k, v, **arguments)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled(backend, dynamic):
    torch._dynamo.reset()
    counter = CompileCounterWithBackend(backend)

    def attend(q, k, v, lengths, mask):
        fits = is_supported(q, k, v, key_mask=mask, key_lengths=lengths)
        return attention(q, k, v, key_mask=mask, key_lengths=lengths) if fits else q

    compiled = torch.compile(attend, fullgraph=True, backend=counter, dynamic=dynamic)
    every = torch.full((BATCH,), KEYS)
    for mask, lengths in ((MASK, every), (first(LENGTHS), every), (MASK, LENGTHS.long())):
        expected = attention(Q, K, V, key_mask=mask, key_lengths=lengths)
        assert torch.equal(compiled(Q, K, V, lengths, mask), expected)
    frames = counter.frame_count
    if dynamic:
        arguments = Q[:, 1:], K[:, 3:], V[:, 3:], every, MASK[:, 3:]
        arguments = [x.contiguous() for x in arguments]
        assert torch.equal(compiled(*arguments), attend(*arguments))
    assert counter.frame_count == frames
    assert torch.equal(compiled(Q, K, V, every, MASK[:, 1:]), Q)  # refused


def test_compiled_numpy_arrays():
    torch._dynamo.reset()
    inputs = [x.float().numpy() for x in (Q, K, V)]
    compiled = torch.compile(
        lambda q, k, v, m: attention(q, k, v, key_mask=m), fullgraph=True, backend="eager"
    )
    expected = attention(*inputs, key_mask=MASK.numpy())
    assert numpy.array_equal(compiled(*inputs, MASK.numpy()), expected)


def test_opcheck():
    torch.library.opcheck(
        torch.ops.open_vc_attn.attention_with_lse, (Q, K, V, *OPTIONS, LENGTHS.long(), MASK)
    )


def test_compiled_lists_of_lengths():
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(
        lambda q, k, v, n: attention(q, k, v, key_lengths=[n, n + 1]),
        fullgraph=True,
        backend=counter,
    )
    for n in (20, 21, 33, 50):
        assert torch.equal(compiled(Q, K, V, n), attention(Q, K, V, key_lengths=[n, n + 1]))
    assert counter.frame_count == 2  # the first takes the number for a constant


def test_compiled_mask_of_kept_tokens():
    """A number of keys that depends on numbers."""
    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        kept = torch.arange(KEYS) % 3 > 0

        def attend(q, k, v, mask, kept):
            k, v, mask = k[:, kept], v[:, kept], mask[:, kept.clone()]
            return attention(q, k, v, key_mask=mask) if is_supported(q, k, v, key_mask=mask) else q

        compiled = torch.compile(attend, fullgraph=True, backend="eager")
        expected = without_others(MASK & kept)
        assert torch.equal(compiled(Q, K, V, MASK, kept), expected)


class Masked(torch.nn.Module):
    def forward(self, q, k, v, mask):
        return attention(q, k, v, key_mask=mask)


class Plain(torch.nn.Module):
    def forward(self, q, k, v):
        return attention(q, k, v)


def saved_and_loaded(program):
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return torch.export.load(file)


def operator_nodes(program):
    return [x for x in program.graph.nodes if "open_vc_attn" in str(x.target)]


@pytest.mark.filterwarnings("ignore")
def test_exported():
    program = saved_and_loaded(torch.export.export(Masked(), (Q, K, V, MASK)))
    assert torch.equal(program.module()(Q, K, V, MASK), OF_MASK)
    # Calls without a selection say nothing of it, as models did that were saved before it existed.
    program = saved_and_loaded(torch.export.export(Plain(), (Q, K, V)))
    (node,) = operator_nodes(program)
    assert (len(node.args), node.kwargs) == (3 + len(OPTIONS), {})
    assert torch.equal(program.module()(Q, K, V), attention(Q, K, V))


def test_vmap():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mapped = torch.vmap(lambda q, k, v, n, m: attention(q, k, v, key_lengths=n, key_mask=m))
        assert torch.equal(mapped(Q, K, V, LENGTHS, MASK), without_others(MASK & first(LENGTHS)))
        shared = torch.vmap(lambda q, k, v: attention(q, k, v, key_mask=MASK[0]))
        assert torch.equal(shared(Q, K, V), without_others(MASK[:1].expand_as(MASK)))
        masks = torch.vmap(lambda m: attention(Q, K, V, key_mask=m))
        assert torch.equal(masks(MASK[None]), OF_MASK[None])
        none = torch.vmap(lambda q, m: attention(q, K[0], V[0], key_mask=m))(Q[:0], MASK[:0])
        assert none.shape == Q[:0].shape


def test_autocast_and_inference_mode():
    with torch.autocast("cpu", torch.bfloat16), torch.inference_mode():
        assert torch.equal(attention(Q, K, V, key_mask=MASK), OF_MASK)
        assert torch.equal(attention(Q, K, V, key_lengths=LENGTHS.long()), OF_LENGTHS)


def test_nothing_of_the_caller_changes():
    mask, lengths = MASK.clone(), LENGTHS.long()
    attention(Q, K, V, key_mask=mask, key_lengths=lengths)
    assert torch.equal(mask, MASK) and torch.equal(lengths, LENGTHS.long())


def test_storages_that_were_resized():
    mask = MASK.clone()
    mask.untyped_storage().resize_(10)
    with pytest.raises(ValueError, match="key_mask: a storage of 10 bytes"):
        attention(Q, K, V, key_mask=mask)


class Wrapped(torch.Tensor):
    """A subclass that says something else about itself."""

    @property
    def shape(self):
        return torch.Size((BATCH, KEYS))


def test_subclasses_that_lie():
    short = MASK[:, :3].as_subclass(Wrapped)
    with pytest.raises(ValueError, match=r"key_mask: shape \[2, 3\]"):
        attention(Q, K, V, key_mask=short)
