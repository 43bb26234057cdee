# SPDX-License-Identifier: BSD-3-Clause
"""Recording of attention inputs of torch models."""

import threading
import warnings

import pytest

from open_vc_attn import _safetensors, attention, capture, load_capture

torch = pytest.importorskip("torch")
functional = torch.nn.functional

CHANNELS = 2 * 128


class Attention(torch.nn.Module):
    def __init__(self, causal=False):
        super().__init__()
        self.qkv = torch.nn.Linear(CHANNELS, 3 * CHANNELS)
        self.causal = causal
        self.seen = []

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 128)).permute(2, 0, 3, 1, 4)
        self.seen.append((q, k, v))
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal, scale=0.25)
        return out.transpose(1, 2).flatten(2)


class Model(torch.nn.Module):
    def __init__(self, depth=3):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Attention(causal=n == 1) for n in range(depth))

    def forward(self, x, *, fail=False):
        for block in self.blocks:
            x = x + block(x)
        if fail:
            raise ArithmeticError
        return x


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Model().requires_grad_(False)


def tokens(batch=1, length=10):
    return torch.randn(batch, length, CHANNELS, generator=torch.Generator().manual_seed(1))


def names(recording):
    return [path.name for path in recording.files]


def load(path):
    tensors, metadata = _safetensors.load(path)
    return [tensors[name].torch() for name in "qkv"], metadata


def test_one_call(model, tmp_path):
    original = functional.scaled_dot_product_attention
    x = tokens()
    recording = capture(model, x, out=tmp_path)
    assert functional.scaled_dot_product_attention is original
    assert names(recording) == [f"step000_layer00{n}.safetensors" for n in range(3)]
    assert sorted(tmp_path.iterdir()) == recording.files
    assert torch.equal(recording.result, model(x))
    for n, path in enumerate(recording.files):
        saved, metadata = load(path)
        for found, seen in zip(saved, model.blocks[n].seen[0], strict=True):
            assert torch.equal(found, seen[0].transpose(0, 1))
        assert metadata["module"] == f"blocks.{n}"
        assert metadata["causal"] == str(n == 1).lower()
        assert metadata["softmax_scale"] == "0.25"
        assert (metadata["layer"], metadata["step"], metadata["layout"]) == (str(n), "0", "SHD")
        assert metadata["shapes_bhsd"] == "1x2x10x128 1x2x10x128 1x2x10x128"
        assert metadata["masked"] == "false"


def test_a_capture_can_be_computed(model, tmp_path):
    captured = load_capture(capture(model, tokens(), out=tmp_path).files[1])
    assert (captured.causal, captured.softmax_scale) == (True, 0.25)
    assert captured.metadata["module"] == "blocks.1"
    q, k, v = captured[:3]
    out = attention(q, k, v, causal=captured.causal, softmax_scale=captured.softmax_scale)
    assert out.shape == (10, 2, 128)


def test_loading_other_files(tmp_path):
    path = tmp_path / "x.safetensors"
    x = torch.zeros(2, 1, 64)
    _safetensors.save(path, dict(q=x, k=x, v=x))
    assert load_capture(path)[3:] == (False, 0.125, {}, False)
    _safetensors.save(path, dict(q=x, k=x, v=x), {"layout": "HSD"})
    assert load_capture(path).q.shape == (1, 2, 64)
    _safetensors.save(path, dict(q=x, value=x))
    with pytest.raises(ValueError, match="has no tensor k, v, only q, value"):
        load_capture(path)


def test_every_forward_call_is_a_step(model, tmp_path):
    with capture(model, out=tmp_path, layers=[0, 2], steps={1, 3}) as recording:
        for _ in range(5):
            model(tokens())
            functional.scaled_dot_product_attention(
                *[torch.zeros(1, 1, 4, 8)] * 3
            )  # not of the model
    expected = [f"step00{step}_layer00{layer}.safetensors" for step in (1, 3) for layer in (0, 2)]
    assert names(recording) == expected
    model(tokens())
    assert len(recording.files) == 4


def test_all_calls_of_this_thread(tmp_path):
    q = torch.randn(1, 2, 6, 16)
    with capture(out=tmp_path) as recording:
        functional.scaled_dot_product_attention(q, q, q)
        recording.next_step()
        functional.scaled_dot_product_attention(query=q, key=q, value=q, is_causal=True)
        thread = threading.Thread(
            target=functional.scaled_dot_product_attention, args=(q[:, :1],) * 3
        )
        thread.start()
        thread.join()
    assert names(recording) == ["step000_layer000.safetensors", "step001_layer000.safetensors"]
    metadata = load(recording.files[1])[1]
    assert (metadata["causal"], metadata["module"]) == ("true", "")
    assert float(metadata["softmax_scale"]) == 0.25


def test_a_function(tmp_path, model):
    recording = capture(
        lambda x, times: [model(x) for _ in range(times)], tokens(), out=tmp_path, times=2
    )
    assert len(recording.files) == 6 and len(recording.result) == 2


def test_selection_of_tokens_and_heads(model, tmp_path):
    recording = capture(model, tokens(batch=2), out=tmp_path, max_tokens=4, heads=[1], layers=[0])
    (saved, _, _), metadata = load(recording.files[0])
    q = model.blocks[0].seen[0][0]
    assert torch.equal(saved, q[:, 1:, :4].transpose(1, 2))
    assert (metadata["layout"], metadata["heads"]) == ("BSHD", "1")


def test_grouped_heads_and_masks(tmp_path):
    q, k = torch.randn(1, 4, 6, 16), torch.randn(1, 2, 6, 16)
    mask = torch.ones(6, 6, dtype=torch.bool)
    with capture(out=tmp_path) as recording:
        functional.scaled_dot_product_attention(q, k, k, mask, enable_gqa=True)
    assert load_capture(recording.files[0]).masked
    saved, metadata = load(recording.files[0])
    assert torch.equal(saved[1], k[0].repeat_interleave(2, 0).transpose(0, 1))
    assert metadata["masked"] == "true"


def test_names_imported_elsewhere_are_seen(tmp_path):
    from torch.nn.functional import scaled_dot_product_attention

    with capture(out=tmp_path) as recording:
        scaled_dot_product_attention(*[torch.zeros(2, 3, 4)] * 3)
    assert load(recording.files[0])[0][0].shape == (3, 2, 4)


def test_recording_by_hand(tmp_path):
    q = torch.randn(1, 2, 5, 128)
    with capture(out=tmp_path) as recording:
        recording.record(q, q, q, softmax_scale=0.5)
        # By hand the diagonal is attention()'s: nothing to convert.
        recording.record(q[:, :, :3], q, q, causal=True)
    assert load(recording.files[0])[1]["softmax_scale"] == "0.5"
    assert load_capture(recording.files[1]).causal


def test_causal_calls_with_another_diagonal_are_left_out(tmp_path):
    """torch aligns the diagonal of is_causal with the first key, attention() with the last."""
    long, short = torch.randn(1, 2, 9, 16), torch.randn(1, 2, 5, 16)
    with (
        capture(out=tmp_path) as recording,
        pytest.warns(UserWarning, match="layer 1 is not recorded: is_causal with 5 queries and 9"),
    ):
        functional.scaled_dot_product_attention(long, long, long, is_causal=True)
        functional.scaled_dot_product_attention(short, long, long, is_causal=True)
        functional.scaled_dot_product_attention(short, long, long)
    assert names(recording) == ["step000_layer000.safetensors", "step000_layer002.safetensors"]
    with (
        capture(out=tmp_path / "cut", max_tokens=7) as recording,
        pytest.warns(UserWarning, match="max_tokens=7 would shift the diagonal"),
    ):
        recording.record(short, long, long, causal=True)
        recording.record(long, long, long, causal=True)
    assert names(recording) == ["step000_layer001.safetensors"]


def test_warnings_name_the_module(tmp_path):
    class Cross(torch.nn.Module):
        def forward(self, x):
            return functional.scaled_dot_product_attention(x[:, :2], x, x, is_causal=True)

    model = torch.nn.Sequential(torch.nn.Identity(), Cross())
    with (
        pytest.warns(UserWarning, match=r"layer 0 \(1\) is not recorded"),
        pytest.warns(UserWarning, match="nothing was recorded"),
    ):
        capture(model, torch.zeros(1, 4, 8), out=tmp_path)


@pytest.mark.parametrize("scale", [0.0, -1.0, 1e-60])
def test_calls_with_scales_that_attention_refuses_are_left_out(tmp_path, scale):
    q = torch.randn(1, 2, 4, 16)
    with (
        pytest.warns(UserWarning, match=r"nothing was recorded: .* \(1, up to step 0\)"),
        pytest.warns(UserWarning, match=f"layer 0 is not recorded: scale={scale!r}"),
        capture(out=tmp_path),
    ):
        functional.scaled_dot_product_attention(q, q, q, scale=scale)


def test_compiled_models_run_uncompiled_meanwhile(model, tmp_path):
    compiled = torch.compile(model, backend="eager")
    compiled(tokens())
    recording = capture(compiled, tokens(), out=tmp_path)
    assert len(recording.files) == 3
    compiled(tokens())
    assert len(recording.files) == 3


@pytest.mark.parametrize("form", ["call", "context"])
def test_restored_after_an_exception(model, tmp_path, form):
    with pytest.raises(ArithmeticError):
        if form == "call":
            capture(model, tokens(), out=tmp_path, fail=True)
        else:
            with capture(model, out=tmp_path):
                model(tokens(), fail=True)
    assert len(list(tmp_path.iterdir())) == 3
    for path in tmp_path.iterdir():
        path.unlink()
    model(tokens())
    assert not list(tmp_path.iterdir())
    assert not model._forward_hooks and not model.blocks[0]._forward_pre_hooks
    assert not torch.overrides._get_current_function_mode_stack()


def test_a_recording_can_run_again_but_not_twice_at_once(model, tmp_path):
    recording = capture(model, out=tmp_path)
    for _ in range(2):
        with recording:
            model(tokens())
            with pytest.raises(RuntimeError, match="running already"):
                recording.__enter__()
    assert len(recording.files) == 6
    assert names(recording)[3] == "step001_layer000.safetensors"


def test_nothing_is_ever_overwritten(model, tmp_path):
    """Field case of lost data: two recordings, one after the other or at once, into one folder."""
    with capture(model, out=tmp_path / "c"):
        with (
            pytest.raises(FileExistsError, match="another recording is writing to this folder"),
            capture(Model(), out=tmp_path / "x" / ".." / "c"),
        ):
            pytest.fail("the model must not run")
        model(tokens())
    before = {path: path.read_bytes() for path in (tmp_path / "c").iterdir()}
    calls = len(model.blocks[0].seen)
    with pytest.raises(FileExistsError, match=r"c'.* such as step000_layer000\.safetensors"):
        capture(model, tokens(), out=tmp_path / "c")
    assert len(model.blocks[0].seen) == calls
    assert before == {path: path.read_bytes() for path in (tmp_path / "c").iterdir()}
    capture(model, tokens(), out=tmp_path / "d")


def test_other_processes_cannot_be_overwritten(tmp_path):
    q = torch.zeros(1, 1, 2, 8)
    path = tmp_path / "step000_layer000.safetensors"
    with capture(out=tmp_path) as recording:
        path.write_bytes(b"of another process")
        with pytest.raises(FileExistsError):
            recording.record(q, q, q)
        recording.record(q, q, q)
    assert path.read_bytes() == b"of another process"


def test_folders_are_free_again(model, tmp_path):
    with pytest.raises(ArithmeticError):
        capture(model, tokens(), out=tmp_path, fail=True)
    for path in tmp_path.iterdir():
        path.unlink()
    assert len(capture(model, tokens(), out=tmp_path).files) == 3


def test_a_recording_of_nothing_warns(model, tmp_path):
    with (
        pytest.warns(UserWarning, match="no call of scaled_dot_product_attention was seen"),
        capture(model, out=tmp_path),
    ):
        pass
    with pytest.warns(
        UserWarning, match=r"\(3, up to step 0\), none is selected by layers and steps"
    ):
        capture(model, tokens(), out=tmp_path, layers=[3])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ArithmeticError), capture(model, out=tmp_path):
            raise ArithmeticError
        capture(model, tokens(), out=tmp_path)


def test_heads_that_a_call_lacks(model, tmp_path):
    words = r"heads: 7; expected ints from 0 to 1: q of layer 0 \(blocks.0\) has 2 heads"
    with pytest.raises(ValueError, match=words):
        capture(model, tokens(), out=tmp_path, heads=[0, 7])
    q = torch.zeros(1, 2, 4, 8)
    with (
        pytest.raises(
            ValueError, match=r"heads: 1; expected ints from 0 to 0: k of layer 0 has 1 head\."
        ),
        capture(out=tmp_path, heads=[1]) as recording,
    ):
        recording.record(q, q[:, :1], q[:, :1])


@pytest.mark.parametrize(
    "options, error, words",
    [
        (dict(softmax_scale=0), ValueError, "softmax_scale: 0; expected a number from 2"),
        (dict(softmax_scale=-1.0), ValueError, "softmax_scale: -1.0; expected"),
        (dict(softmax_scale=float("nan")), ValueError, "softmax_scale: nan; expected"),
        (dict(softmax_scale=1e39), ValueError, "softmax_scale: 1e[+]39; expected"),
        (dict(softmax_scale=True), TypeError, "softmax_scale: True; expected a number"),
        (dict(softmax_scale="1"), TypeError, "softmax_scale: '1'; expected a number"),
        (dict(causal=5), TypeError, "causal: 5; expected True or False"),
        (dict(masked=None), TypeError, "masked: None; expected True or False"),
        (dict(v=[1.0]), TypeError, "v: list; expected a torch tensor"),
    ],
)
def test_refusals_by_hand(tmp_path, options, error, words):
    q = torch.zeros(1, 1, 4, 8)
    recording = capture(out=tmp_path)
    with pytest.raises(error, match=words):
        recording.record(**{**dict(q=q, k=q, v=q), **options})
    assert not recording.files


@pytest.mark.parametrize(
    "key, value, words",
    [
        ("layout", "XYZ", "found layout 'XYZ'; expected SHD, BSHD, HSD, BHSD"),
        ("causal", "maybe", "found causal 'maybe'; expected true or false"),
        ("causal", "TRUE", "found causal 'TRUE'; expected true or false"),
        ("masked", "", "found masked ''; expected true or false"),
        ("is_causal", "true", "found the parameter 'is_causal' of attention; expected the name"),
        ("window", "5", "found the parameter 'window' of attention; expected softmax_scale"),
        *(
            ("softmax_scale", text, f"found softmax_scale '{text}'; expected a number from 2^-126")
            for text in ("-1", "0", "abc", "", "nan", "inf", " 1", "1_0", "0x1", "1e999", "1e-60")
        ),
    ],
)
def test_loading_refuses_metadata_that_the_program_refuses(tmp_path, key, value, words):
    path = tmp_path / "x.safetensors"
    x = torch.zeros(2, 1, 64)
    _safetensors.save(path, dict(q=x, k=x, v=x), {key: value})
    with pytest.raises(ValueError) as refusal:
        load_capture(path)
    assert str(refusal.value).startswith(f"{path}: {words}")


@pytest.mark.parametrize(
    "wrong, words",
    [
        (torch.zeros(2, 1, 64, dtype=torch.int32), "tensor v has the element type I32, not one"),
        (torch.zeros(2, 1, 64, dtype=torch.float64), "tensor v has the element type F64, not one"),
        (torch.zeros(2, 64), "tensor v must be .* not of shape \\[2, 64\\]"),
        (torch.zeros(1, 1, 2, 1, 64), "tensor v must be"),
    ],
)
def test_loading_refuses_tensors_that_the_program_refuses(tmp_path, wrong, words):
    path = tmp_path / "x.safetensors"
    x = torch.zeros(2, 1, 64)
    _safetensors.save(path, dict(q=x, k=x, v=wrong))
    with pytest.raises(ValueError, match=f"x.safetensors: {words}"):
        load_capture(path)


@pytest.mark.parametrize(
    "options, error, words",
    [
        (dict(layers=[True]), ValueError, "layers: True; expected ints >= 0"),
        (dict(heads=[]), ValueError, "heads: empty; expected at least one"),
        (dict(steps=()), ValueError, "steps: empty; expected at least one"),
        (dict(max_tokens=True), ValueError, "max_tokens: True; expected an int >= 1"),
        (dict(layers=3), TypeError, "layers: 3; expected a collection of ints"),
        (dict(steps="12"), TypeError, "steps: '12'; expected a collection"),
        (dict(heads=[-1]), ValueError, "heads: -1; expected ints >= 0"),
        (dict(layers=[0.5]), ValueError, "layers: 0.5; expected ints"),
        (dict(max_tokens=0), ValueError, "max_tokens: 0; expected an int >= 1"),
        (
            dict(sigma=1),
            TypeError,
            "module: None, with the arguments sigma; expected something to call",
        ),
    ],
)
def test_refusals(tmp_path, options, error, words):
    with pytest.raises(error, match=words):
        capture(out=tmp_path, **options)


def test_module_must_be_callable(tmp_path):
    with pytest.raises(TypeError, match="module: int; expected a torch module or a function"):
        capture(3, out=tmp_path)


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor(0.5),
        torch.tensor([0.5], dtype=torch.float64),
        torch.tensor(0.5, dtype=torch.bfloat16),
        torch.tensor(0.5, dtype=torch.float16),
    ],
)
def test_scales_as_tensors(tmp_path, value):
    path, x = tmp_path / "x.safetensors", torch.zeros(2, 1, 64)
    _safetensors.save(path, dict(q=x, k=x, v=x, softmax_scale=value))
    assert load_capture(path).softmax_scale == 0.5
    _safetensors.save(path, dict(q=x, k=x, v=x, softmax_scale=value), {"softmax_scale": "0.50"})
    assert load_capture(path).softmax_scale == 0.5
    _safetensors.save(path, dict(q=x, k=x, v=x, softmax_scale=value), {"softmax_scale": "0.25"})
    with pytest.raises(ValueError, match="expected one value"):
        load_capture(path)


@pytest.mark.parametrize("name", ["causal", "masked"])
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float32])
def test_flags_as_tensors(tmp_path, name, dtype):
    path, x = tmp_path / "x.safetensors", torch.zeros(2, 1, 64)
    for value in (True, False):
        tensors = {"q": x, "k": x, "v": x, name: torch.tensor(value).to(dtype)}
        _safetensors.save(path, tensors)
        assert getattr(load_capture(path), name) is value


@pytest.mark.parametrize("key", ["causal", "softmax_scale", "attn_mask", "dropout_p"])
def test_other_tensors_about_the_call_are_refused(tmp_path, key):
    path, x = tmp_path / "x.safetensors", torch.zeros(2, 1, 64)
    _safetensors.save(path, {"q": x, "k": x, "v": x, key: torch.zeros(2, 2)})
    with pytest.raises(ValueError, match=key):
        load_capture(path)


def test_the_program_has_the_same_list_of_foreign_parameters():
    import re
    from pathlib import Path

    from open_vc_attn._capture_file import _FOREIGN_PARAMETERS

    source = Path(__file__).parents[2] / "src" / "study" / "stored_call.cpp"
    text = source.read_text(encoding="utf-8")
    table = text[text.index("kForeignParameters = ") : text.index("});")]
    assert dict(re.findall(r'\{"(\w+)", "(\w*)"\}', table)) == _FOREIGN_PARAMETERS


LAYERS = {
    "MultiheadAttention": (
        lambda torch: torch.nn.MultiheadAttention(256, 2, batch_first=True),
        lambda layer, x: layer(x, x, x, need_weights=False),
        1,
    ),
    "TransformerDecoderLayer": (
        lambda torch: torch.nn.TransformerDecoderLayer(256, 2, dropout=0.0, batch_first=True),
        lambda layer, x: layer(x, x),
        2,
    ),
    "TransformerEncoderLayer": (
        lambda torch: torch.nn.TransformerEncoderLayer(256, 2, dropout=0.0, batch_first=True),
        lambda layer, x: layer(x),
        1,
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_torch_are_seen(torch, name, tmp_path):
    make, call, count = LAYERS[name]
    layer, x = make(torch), torch.randn(1, 10, 256)
    with capture(out=tmp_path) as recording:
        call(layer, x)
    assert len(recording.files) == count
    assert load_capture(recording.files[0]).q.shape == (10, 2, 128)
