# SPDX-License-Identifier: BSD-3-Clause
"""What cannot be honoured is refused before any work, with the argument and the remedy named."""

import numpy
import pytest
from conftest import random_qkv

import open_vc_attn
from open_vc_attn import Numerics, attention, exact_attention, is_supported, prepare_v_repair

Q, K, V = random_qkv(20, 30, dtype=numpy.float16)
BATCHED = random_qkv(20, 30, batch=2, dtype=numpy.float16)


def zeros(*shape):
    return numpy.zeros(shape, numpy.float16)


def byte_shifted(x):
    return numpy.zeros(x.nbytes + 1, numpy.uint8)[1:].view(x.dtype).reshape(x.shape)


def odd_strides(x):
    return numpy.lib.stride_tricks.as_strided(x, (4, 2, 128), (513, 256, 2))


INPUTS = [
    # id, q, k, v, error, words of the message
    ("list", [[1.0]], K, V, TypeError, "q: list; expected a torch tensor"),
    ("none", Q, None, V, TypeError, "k: NoneType; expected a torch tensor"),
    ("float64", Q.astype("f8"), K, V, TypeError, r"q: element type float64; expected.*q\.astype"),
    ("int", Q, K, V.astype("i4"), TypeError, "v: element type int32"),
    (
        "mixed types",
        Q.astype("f4"),
        K,
        V,
        TypeError,
        "element types float32, float16, float16; expected one",
    ),
    ("byte order", Q.astype(">f2"), K, V, TypeError, "q: byte order >f2; expected"),
    ("masked", numpy.ma.array(Q), K, V, TypeError, r"q: a masked array; .*q\.filled\(0\)"),
    ("flat", Q[:, 0], K, V, ValueError, r"layout \[S, H, D\] or \[B, S, H, D\]"),
    ("five axes", BATCHED[0][None], K, V, ValueError, r"layout \[S, H, D\]"),
    (
        "mixed ranks",
        BATCHED[0],
        K,
        V,
        ValueError,
        r"shapes \[2, 20, 2, 128\], \[30,.*; expected the layout",
    ),
    ("byte address", byte_shifted(Q), K, V, ValueError, "q: address .*; expected multiples.*copy"),
    ("byte strides", odd_strides(Q), K, V, ValueError, "q: address .* strides of"),
    ("channel stride", zeros(20, 2, 256)[..., ::2], K, V, ValueError, "q: .*channel stride 2"),
    ("reversed channels", Q[..., ::-1], K, V, ValueError, "q: .*channel stride -1"),
    ("no queries", Q[:0], K, V, ValueError, "q: shape .*axis of size 0"),
    ("no keys", Q, K[:0], V[:0], ValueError, "k: shape .*axis of size 0"),
    ("no heads", Q[:, :0], K, V, ValueError, "q: shape .*axis of size 0"),
    (
        "wide head",
        *[zeros(20, 2, 512)] * 3,
        NotImplementedError,
        "D = 512; expected a multiple of 8 up to 128",
    ),
    ("narrow head", *[zeros(20, 2, 60)] * 3, NotImplementedError, "D = 60; .*Pad"),
    ("grouped heads", zeros(20, 3, 128), K, V, ValueError, "2 heads and q has 3; .*divides q's"),
    ("k and v differ", Q, K, V[:29], ValueError, "v: shape .*differs from k's"),
    ("batches differ", BATCHED[0][:1], *BATCHED[1:], ValueError, "k: shape .*has batch 2"),
]

OPTIONS = [
    ("mask", dict(attn_mask=None), TypeError, "attn_mask"),
    ("dropout", dict(dropout_p=0.0), TypeError, "dropout_p"),
    ("causal", dict(causal=1), TypeError, "causal: 1; expected True or False"),
    (
        "scale 0",
        dict(softmax_scale=0),
        ValueError,
        "softmax_scale: 0.0; expected a finite number > 0",
    ),
    (
        "scale -1",
        dict(softmax_scale=-1.0),
        ValueError,
        "softmax_scale: -1.0; expected a finite number > 0",
    ),
    (
        "scale 1e300",
        dict(softmax_scale=1e300),
        ValueError,
        "softmax_scale: 1e\\+300; .*single precision",
    ),
    (
        "scale 1e-300",
        dict(softmax_scale=1e-300),
        ValueError,
        "softmax_scale: 1e-300; .*single precision",
    ),
    ("scale nan", dict(softmax_scale=float("nan")), ValueError, "softmax_scale: nan; expected"),
    ("scale inf", dict(softmax_scale=float("inf")), ValueError, "softmax_scale: inf; expected"),
    ("scale text", dict(softmax_scale="1"), TypeError, "softmax_scale: str; expected a number"),
    ("scale bool", dict(softmax_scale=True), TypeError, "softmax_scale: bool; expected a number"),
    (
        "order",
        dict(key_order="up"),
        ValueError,
        "key_order: 'up'; expected one of mid_window, descending",
    ),
    ("order type", dict(key_order=0), TypeError, "key_order: int; expected a string"),
    (
        "numerics",
        dict(numerics=3),
        TypeError,
        "numerics: int; expected None, a Numerics or a mapping",
    ),
    ("field", dict(numerics={"hadamard": True}), TypeError, "numerics: field hadamard; expected"),
    ("steps", dict(numerics={"max_extra_steps": 3}), ValueError, "steps: 3; expected 0, 1, 2 or 4"),
]


@pytest.mark.parametrize(
    "q, k, v, error, words", [c[1:] for c in INPUTS], ids=[c[0] for c in INPUTS]
)
def test_inputs(q, k, v, error, words):
    for function in (attention, open_vc_attn.prepare_fp8):
        with pytest.raises(error, match=words):
            function(q, k, v)
    support = is_supported(q, k, v)
    assert not support
    with pytest.raises(error) as refusal:
        attention(q, k, v)
    assert support.reason == str(refusal.value)


@pytest.mark.parametrize(
    "options, error, words", [c[1:] for c in OPTIONS], ids=[c[0] for c in OPTIONS]
)
def test_options(options, error, words):
    for function in (attention, open_vc_attn.prepare_fp8):
        with pytest.raises(error, match=words):
            function(Q, K, V, **options)
    if "attn_mask" in options or "dropout_p" in options:
        with pytest.raises(TypeError, match=words):
            is_supported(Q, K, V, **options)
    else:
        assert not is_supported(Q, K, V, **options)


def test_return_lse_must_be_a_bool():
    with pytest.raises(TypeError, match="return_lse: 'yes'; expected True or False"):
        attention(Q, K, V, return_lse="yes")


def test_support_is_true_in_a_condition():
    support = is_supported(Q, K, V, causal=True, softmax_scale=0.1, numerics=Numerics())
    assert support and support.supported and support.reason == ""


@pytest.mark.parametrize("budget", [-0.1, 1, 1.5, float("nan"), float("inf")])
def test_budget_value(budget):
    with pytest.raises(ValueError, match=r"budget: .*; expected 0 <= budget < 1"):
        prepare_v_repair(Q, K, V, budget=budget)


@pytest.mark.parametrize("budget", [None, "0.1", True])
def test_budget_type(budget):
    with pytest.raises(TypeError, match=r"budget: .*; expected a number"):
        prepare_v_repair(Q, K, V, budget=budget)


def test_budget_is_required():
    with pytest.raises(TypeError, match="budget"):
        prepare_v_repair(Q, K, V)


def test_repair_with_a_causal_mask():
    with pytest.raises(NotImplementedError, match="causal mask"):
        prepare_v_repair(Q, K, V, budget=0.1, causal=True)


@pytest.mark.parametrize("row", [-1, 20])
def test_exact_rows(row):
    with pytest.raises(ValueError, match=f"rows: {row}; expected 0 <= row < 20"):
        exact_attention(Q, K, V, [0, row])


@pytest.mark.parametrize(
    "rows, error, message",
    [
        ([1.7], TypeError, "rows: .*; expected ints"),
        ("12", TypeError, "rows: str; expected a sequence of ints"),
        (5, TypeError, "rows: int; expected a sequence of ints"),
        ([], ValueError, "rows: empty"),
    ],
)
def test_exact_rows_are_whole_numbers(rows, error, message):
    with pytest.raises(error, match=message):
        exact_attention(Q, K, V, rows)


def test_exact_rows_of_numpy():
    picked = exact_attention(Q, K, V, numpy.array([3, 0]))
    numpy.testing.assert_array_equal(picked, exact_attention(Q, K, V)[[3, 0]])


@pytest.mark.parametrize(
    "threads, error",
    [
        (-1, ValueError),
        (4097, ValueError),
        (10**30, ValueError),
        (1.5, TypeError),
        (True, TypeError),
    ],
)
def test_threads(threads, error):
    with pytest.raises(error, match=r"threads: .*; expected"):
        open_vc_attn.set_num_threads(threads)


def test_numerics_is_frozen():
    with pytest.raises(AttributeError):
        Numerics().rotation = "never"


def test_a_prepared_object_is_required():
    with pytest.raises(
        TypeError, match=r"prepared: tuple; expected a PreparedFP8. .*prepare_fp8\("
    ):
        open_vc_attn.attention_fp8((Q, K, V))


def test_lse_must_have_been_prepared():
    prepared = open_vc_attn.prepare_fp8(Q, K, V)
    with pytest.raises(ValueError, match="with_lse=True"):
        open_vc_attn.attention_fp8(prepared, return_lse=True)


def test_heads_first_is_warned_of():
    """[B, H, S, D] passes for [B, S, H, D] with very many heads."""
    x = zeros(1, 2, 300, 128)
    for function in (attention, open_vc_attn.prepare_fp8):
        with pytest.warns(UserWarning, match=r"reads as 2 tokens of 300 heads: the layout is"):
            function(x, x, x)


def test_many_heads_of_many_tokens_are_no_reason_to_warn(recwarn):
    x = zeros(300, 300, 128)[:, :, :]
    attention(x, x[:1], x[:1])
    assert not recwarn


def test_numerics_keep_numbers_of_their_own():
    target = numpy.array(0.25)
    numerics = open_vc_attn.Numerics(score_error_target=target)
    target[...] = 5.0
    assert numerics.score_error_target == 0.25
    assert isinstance(numerics.score_error_target, float)
    attention(Q, K, V, numerics=numerics)


@pytest.mark.parametrize("value", [numpy.bool_(True), numpy.array(True), 1, None, "True"])
def test_flags_are_bools(value):
    with pytest.raises(TypeError, match=r"causal: .*; expected True or False. Pass bool\(causal\)"):
        attention(Q, K, V, causal=value)
    if isinstance(value, numpy.bool_):
        with pytest.raises(TypeError, match=r"causal: numpy\.bool"):
            attention(Q, K, V, causal=value)
