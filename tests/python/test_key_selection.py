# SPDX-License-Identifier: BSD-3-Clause
"""key_lengths and key_mask: keys that do not take part do not exist."""

import numpy
import pytest
from conftest import as_bytes, random_qkv

from open_vc_attn import attention, is_supported, prepare_fp8

BATCH, QUERIES, KEYS = 3, 40, 150
Q, K, V = random_qkv(QUERIES, KEYS, 4, BATCH, numpy.float16, key_heads=2, head_dim=64)
LENGTHS = numpy.array([70, 150, 1], numpy.int32)
MASK = numpy.random.default_rng(5).random((BATCH, KEYS)) < 0.6


def without_others(mask, q=Q, k=K, v=V):
    """Output and LSE of calls that have nothing but the keys of a mask [B, Skv]."""
    parts = [
        attention(q[i], k[i, mask[i]], v[i, mask[i]], return_lse=True) for i in range(len(mask))
    ]
    return [numpy.stack(x) for x in zip(*parts, strict=True)]


def first(lengths):
    return numpy.arange(KEYS) < numpy.reshape(lengths, (-1, 1))


def assert_equal(found, expected):
    for x, y in zip(found, expected, strict=True):
        assert as_bytes(x) == as_bytes(y)


FORMS_OF_LENGTHS = {
    "int32": LENGTHS,
    "int64": LENGTHS.astype("i8"),
    "uint8": LENGTHS.astype("u1"),
    "uint32": LENGTHS.astype("u4"),
    "other byte order": LENGTHS.astype(">i4"),
    "strided": numpy.repeat(LENGTHS, 2)[::2],
    "byte address": numpy.frombuffer(b"\0" + LENGTHS.tobytes(), "i4", offset=1),
    "list": LENGTHS.tolist(),
    "tuple of numpy's": tuple(LENGTHS),
    "beyond all keys": numpy.array([70, 2**33, 1]),
    "list beyond all keys": [70, 2**70 // 2**10, 1],
}


@pytest.mark.parametrize("form", FORMS_OF_LENGTHS)
def test_lengths(form):
    lengths = FORMS_OF_LENGTHS[form]
    before = numpy.array(lengths)
    found = attention(Q, K, V, return_lse=True, key_lengths=lengths)
    assert_equal(found, without_others(first(LENGTHS)))
    assert numpy.array_equal(lengths, before)
    assert is_supported(Q, K, V, return_lse=True, key_lengths=lengths)


FORMS_OF_MASKS = {
    "bool": MASK,
    "uint8": MASK * numpy.uint8(200),
    "transposed": numpy.ascontiguousarray(MASK.T).T,
    "strided": numpy.repeat(MASK, 3, 1)[:, ::3],
    "reversed": MASK[::-1, ::-1].copy()[::-1, ::-1],
    "as others": numpy.broadcast_to(MASK[:1], MASK.shape),
    "one for all": MASK[:1],
    "without batch": MASK[0],
    "one key for all": numpy.broadcast_to(numpy.array(True), MASK.shape),
}


@pytest.mark.parametrize("form", FORMS_OF_MASKS)
def test_masks(form):
    mask = FORMS_OF_MASKS[form]
    expected = without_others(numpy.broadcast_to(mask, MASK.shape) != 0)
    assert_equal(attention(Q, K, V, return_lse=True, key_mask=mask), expected)
    assert is_supported(Q, K, V, key_mask=mask)


def test_both_and_what_hidden_keys_hold():
    k, v = K.copy(), V.copy()
    both = MASK & first(LENGTHS)
    both[2] = MASK[2]
    lengths = [70, 150, 200]
    k[~both], v[~both] = numpy.nan, numpy.inf
    found = attention(Q, k, v, return_lse=True, key_lengths=lengths, key_mask=MASK)
    assert_equal(found, without_others(both))


@pytest.mark.parametrize(
    "lengths", [77, [77], numpy.int64(77), numpy.array(77), numpy.array([77])], ids=str
)
def test_one_sequence(lengths):
    expected = attention(Q[0], K[0, :77], V[0, :77])
    assert as_bytes(attention(Q[0], K[0], V[0], key_lengths=lengths)) == as_bytes(expected)
    mask = first([77])
    for key_mask in (mask, mask[0]):
        found = attention(Q[0], K[0], V[0], key_mask=key_mask)
        assert as_bytes(found) == as_bytes(expected)


def test_sequences_without_keys():
    for arguments in ({"key_lengths": [0, 150, -3]}, {"key_mask": first([0, 150, 0])}):
        out, lse = attention(Q, K, V, return_lse=True, **arguments)
        expected = attention(Q[1], K[1], V[1], return_lse=True)
        assert_equal((out[1], lse[1]), expected)
        assert not out[::2].any() and (lse[::2] == -numpy.inf).all()


REFUSED = {
    "text": (dict(key_lengths="3"), TypeError, "key_lengths: .*expected an array of numpy"),
    "lists": (dict(key_mask=MASK.tolist()), TypeError, "key_mask: list; expected an array of num"),
    "float list": (dict(key_lengths=[1.0] * 3), TypeError, "key_lengths: 1.0; expected a whole"),
    "bool list": (dict(key_lengths=[True] * 3), TypeError, "key_lengths: True; expected a whole"),
    "float": (dict(key_lengths=LENGTHS * 1.0), TypeError, "key_lengths: element type float64; exp"),
    "uint64": (dict(key_lengths=LENGTHS.astype("u8")), TypeError, "type uint64; .*Convert it"),
    "additive": (
        dict(key_mask=MASK * numpy.float16(1)),
        TypeError,
        "key_mask: element type float16; expected bool or uint8. .*== 0",
    ),
    "int64": (dict(key_mask=MASK * 1), TypeError, "key_mask: element type int64"),
    "two lengths": (
        dict(key_lengths=[1, 2]),
        ValueError,
        r"key_lengths: shape \[2\]; expected \[B\]",
    ),
    "one length": (dict(key_lengths=5), ValueError, r"key_lengths: shape \[1\]; expected \[B\]"),
    "no lengths": (dict(key_lengths=[]), ValueError, r"key_lengths: shape \[0\]"),
    "column": (dict(key_lengths=LENGTHS[:, None]), ValueError, r"key_lengths: shape \[3, 1\]"),
    "too few keys": (
        dict(key_mask=MASK[:, 1:]),
        ValueError,
        r"key_mask: shape \[3, 149\]; expected",
    ),
    "two masks": (dict(key_mask=MASK[:2]), ValueError, r"key_mask: shape \[2, 150\]"),
    "four axes": (
        dict(key_mask=MASK[:, None, None]),
        ValueError,
        r"key_mask: shape \[3, 1, 1, 150\]; .*mask\[:, 0, 0\]",
    ),
    "no axes": (dict(key_mask=numpy.array(True)), ValueError, r"key_mask: shape \[\]"),
    "masked array": (dict(key_mask=numpy.ma.array(MASK)), TypeError, "key_mask: a masked array"),
    "causal": (
        dict(key_mask=MASK, causal=True),
        NotImplementedError,
        "key_mask: together with causal=True; expected one of the two",
    ),
    "causal lengths": (
        dict(key_lengths=LENGTHS, causal=True),
        NotImplementedError,
        "key_lengths: together with causal=True",
    ),
}


@pytest.mark.parametrize("form", REFUSED)
def test_refused(form):
    arguments, error, text = REFUSED[form]
    with pytest.raises(error, match=text) as refusal:
        attention(Q, K, V, **arguments)
    assert is_supported(Q, K, V, **arguments).reason == str(refusal.value)


OBJECTS = [object(), "x", {}, type, 2.5, [[1]], [None] * 3]


@pytest.mark.parametrize("name", ["key_lengths", "key_mask"])
@pytest.mark.parametrize("index", range(len(OBJECTS)))
def test_any_object_is_answered(name, index):
    value = OBJECTS[index]
    support = is_supported(Q, K, V, **{name: value})
    assert not support and support.reason.startswith(name)


def test_preparation_has_no_such_argument():
    with pytest.raises(TypeError, match="key_mask"):
        prepare_fp8(Q, K, V, key_mask=MASK)


class Foreign:
    """An array that speaks DLPack and nothing else."""

    def __init__(self, array):
        self.array, self.asked = array, 0

    def __dlpack__(self, **options):
        self.asked += 1
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("form", ["int32", "int64", "uint8", "strided", "list"])
def test_lengths_through_dlpack(form):
    lengths = FORMS_OF_LENGTHS[form]
    lengths = lengths if form == "list" else Foreign(lengths)
    inputs = [Foreign(x) for x in (Q, K, V)]
    found = attention(*inputs, return_lse=True, key_lengths=lengths)
    assert_equal(map(numpy.from_dlpack, found), without_others(first(LENGTHS)))
    assert is_supported(*inputs, key_lengths=lengths)


@pytest.mark.parametrize("form", ["bool", "uint8", "strided", "without batch"])
def test_masks_through_dlpack(form):
    mask = FORMS_OF_MASKS[form]
    inputs, mask = [Foreign(x) for x in (Q, K, V)], Foreign(mask)
    found = attention(*inputs, return_lse=True, key_mask=mask)
    assert mask.asked == 1
    expected = without_others(numpy.broadcast_to(mask.array, MASK.shape) != 0)
    assert_equal(map(numpy.from_dlpack, found), expected)
    assert is_supported(*inputs, key_mask=mask)


def test_refused_through_dlpack():
    inputs = [Foreign(x) for x in (Q, K, V)]
    for arguments, text in (
        (dict(key_mask=MASK), "key_mask: array of numpy; expected an array of DLPack"),
        (dict(key_mask=Foreign(MASK * 1.0)), "key_mask: element type float64"),
        (dict(key_lengths=Foreign(MASK[0])), "key_lengths: element type bool"),
    ):
        with pytest.raises(TypeError, match=text) as refusal:
            attention(*inputs, **arguments)
        assert is_supported(*inputs, **arguments).reason == str(refusal.value)
