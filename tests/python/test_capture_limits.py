# SPDX-License-Identifier: BSD-3-Clause
"""Calls that no capture file can stand for are left out with a warning, or refused by hand; every
file that is written can be read."""

import re
import warnings

import pytest

from open_vc_attn import capture, load_capture

torch = pytest.importorskip("torch", minversion="2.4")

from torch.nn.functional import scaled_dot_product_attention  # noqa: E402

Q = torch.linspace(-1, 1, 2 * 5 * 16).view(1, 2, 5, 16)


def readable(recording):
    return [load_capture(path) for path in recording.files]


LEFT_OUT = {
    "float64": (torch.float64, r"q: element type torch\.float64; expected torch\.bfloat16, "),
    "complex": (torch.complex64, r"q: element type torch\.complex64"),
    "small scale": (dict(scale=1e-50), r"scale=1e-50 is not within 2\^-126"),
    "large scale": (dict(scale=1e38), r"scale=1e\+38 is not within"),
    "scale 0": (dict(scale=0.0), r"scale=0\.0 is not within"),
}


@pytest.mark.parametrize("form", LEFT_OUT)
def test_calls_that_are_left_out(tmp_path, form):
    change, words = LEFT_OUT[form]
    options = change if isinstance(change, dict) else {}
    x = Q if options else Q.to(change)
    with (
        pytest.warns(UserWarning, match="layer 0 is not recorded: .*" + words),
        capture(out=tmp_path) as recording,
    ):
        try:
            scaled_dot_product_attention(x, x, x, **options)
        except RuntimeError:
            assert form == "complex"  # torch has no such call
        scaled_dot_product_attention(Q, Q, Q)
    assert [path.name for path in recording.files] == ["step000_layer001.safetensors"]
    assert len(readable(recording)) == 1


@pytest.mark.parametrize(
    "options",
    [
        dict(dropout_p=0.1),
        dict(dropout_p=1.0),
        dict(dropout_p=1),
        dict(dropout_p=0.5, attn_mask=torch.ones(5, 5) > 0),
        dict(dropout_p=0.5, is_causal=True),
    ],
)
def test_dropout_is_noted(tmp_path, options):
    words = rf"layer 0 is recorded without its dropout_p={float(options['dropout_p'])}, .* eval\(\)"
    with pytest.warns(UserWarning, match=words) as warned, capture(out=tmp_path) as recording:
        for _ in range(3):
            scaled_dot_product_attention(Q, Q, Q, **options)
        scaled_dot_product_attention(Q, Q, Q)
    assert len(warned) == 1
    *dropped, last = readable(recording)
    assert [f"dropout_p={float(options['dropout_p'])}" in x.metadata["note"] for x in dropped] == [
        True
    ] * 3
    assert "note" not in last.metadata
    assert dropped[0].masked == ("attn_mask" in options)


def test_a_model_in_training_mode(tmp_path):
    class Layer(torch.nn.Module):
        def forward(self, x):
            return scaled_dot_product_attention(x, x, x, dropout_p=0.2 if self.training else 0.0)

    layer = Layer()
    with pytest.warns(UserWarning, match=r"dropout_p=0\.2"):
        assert readable(capture(layer, Q, out=tmp_path / "train"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert readable(capture(layer.eval(), Q, out=tmp_path / "eval"))


REFUSED = {
    "float64": ((Q.double(),) * 3, TypeError, "q: element type torch.float64"),
    "float64 of v": ((Q, Q, Q.double()), TypeError, "v: element type torch.float64"),
    "int": ((Q.int(),) * 3, TypeError, "q: element type torch.int32"),
    "float8": ((Q.to(torch.float8_e4m3fn),) * 3, TypeError, "q: element type torch.float8_e4m3fn"),
    "types": ((Q, Q.half(), Q), TypeError, "q, k, v: element types torch.float32, torch.float16"),
    "no axes": ((torch.tensor(1.0),) * 3, ValueError, r"q: shape \[\]; expected \[B, H, S, D\]"),
    "one axis": ((torch.zeros(16),) * 3, ValueError, r"q: shape \[16\]; expected"),
    "one axis of k": ((Q, torch.zeros(16), Q), ValueError, r"k: shape \[16\]; expected"),
    "ranks": ((Q, Q[0], Q[0]), ValueError, r"q, k, v: shapes \[1, 2, 5, 16\], \[2, 5, 16\]"),
    "values": ((Q, Q, Q[..., :8]), ValueError, "q, k, v: shapes .*k and v of one shape"),
    "tokens of values": ((Q, Q, Q[:, :, 1:]), ValueError, "q, k, v: shapes"),
    "channels": ((Q, Q[..., :8], Q[..., :8]), ValueError, "q, k, v: shapes"),
}


@pytest.mark.parametrize("form", REFUSED)
def test_refusals_by_hand(tmp_path, form):
    operands, error, words = REFUSED[form]
    recording = capture(out=tmp_path)
    with pytest.raises(error, match=words):
        recording.record(*operands)
    assert not recording.files and not [*tmp_path.iterdir()]


@pytest.mark.parametrize("rank", range(2, 7))
def test_every_rank_that_is_recorded_can_be_read(tmp_path, rank):
    x = Q[0, 0].expand(*(2, 3, 1, 2)[: rank - 2], 5, 16)
    with capture(out=tmp_path) as recording:
        recording.record(x, x, x)
        scaled_dot_product_attention(x, x, x)
    for found in readable(recording):
        assert found.q.shape[-3:] == (5, 1 if rank == 2 else x.shape[-3], 16)
        assert found.q.numel() == x.numel()


@pytest.mark.parametrize(
    "query, key", [((2, 3), (1, 3)), ((3,), (2, 3)), ((1, 3), (2, 1)), ((), (2, 3)), ((1,), (3,))]
)
def test_axes_that_torch_broadcasts(tmp_path, query, key):
    q, k = torch.randn(*query, 5, 16), torch.randn(*key, 4, 16)
    with capture(out=tmp_path) as recording:
        out = scaled_dot_product_attention(q, k, k)
    (found,) = readable(recording)
    back = [x.transpose(-2, -3) for x in (found.q, found.k, found.v)]
    again = scaled_dot_product_attention(*back)
    torch.testing.assert_close(again, out.reshape(again.shape))


@pytest.mark.filterwarnings("ignore")
def test_calls_that_torch_refuses_are_its_errors(tmp_path):
    for operands, options in (
        ((Q, Q[..., :8], Q), {}),
        ((Q, Q[:, :0], Q[:, :0]), dict(enable_gqa=True)),
        ((Q[0, 0], Q[0], Q[0]), dict(enable_gqa=True)),
        ((torch.randn(3, 4, 16), torch.randn(2, 4, 16), torch.randn(2, 4, 16)), {}),
    ):
        try:
            scaled_dot_product_attention(*operands, **options)
        except Exception as error:
            expected = error
        else:
            continue
        with pytest.raises(type(expected)) as found, capture(out=tmp_path / "new"):
            scaled_dot_product_attention(*operands, **options)
        assert str(found.value) == str(expected)
        for path in (tmp_path / "new").glob("*"):
            path.unlink()


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.project = torch.nn.Linear(16, 16)

    def forward(self, x):
        q = self.project(x)
        return scaled_dot_product_attention(q, x, x, scale=0.3)


def graph(traced):
    """The text without the numbers that torch adds to names that it has used before."""
    text = re.sub(r" # .*", "", str(traced.graph))  # and without the lines of the source
    return re.sub(r"___torch_mangle_\d+\.", "", text)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*deprecated")
@pytest.mark.parametrize("options", [{}, dict(max_tokens=3), dict(heads=[1])])
def test_torch_jit_trace(tmp_path, options):
    """A trace is what it is without a recording, and the recording holds the real call."""
    torch.manual_seed(0)
    block = Block().eval()
    expected = torch.jit.trace(block, (Q,), check_trace=False)
    with capture(block, out=tmp_path, **options) as recording, warnings.catch_warnings():
        warnings.simplefilter("error", torch.jit.TracerWarning)
        traced = torch.jit.trace(block, (Q,), check_trace=False)
    assert graph(traced) == graph(expected)
    longer = torch.randn(1, 2, 9, 16)
    assert torch.equal(traced(longer), expected(longer))
    (found,) = readable(recording)
    assert found.metadata["shapes_bhsd"] == "1x2x5x16 1x2x5x16 1x2x5x16"
    with torch.no_grad():
        q = block.project(Q)[0].transpose(0, 1)[: options.get("max_tokens")]
    assert torch.equal(found.q, q[:, options.get("heads", [0, 1])])
