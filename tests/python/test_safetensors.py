# SPDX-License-Identifier: BSD-3-Clause
"""The safetensors reader and writer."""

import json
import os
import struct
from pathlib import Path

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from open_vc_attn import _safetensors
from open_vc_attn._safetensors import StoredTensor, load, save

EXAMPLE = Path(__file__).parents[2] / "examples/captures/minidit_vtest_L0_sigma0.9.safetensors"


def test_numpy_round_trip(tmp_path, bfloat16):
    path = tmp_path / "new" / "folder" / "a.safetensors"
    arrays = {
        "a": numpy.arange(6, dtype=numpy.float32).reshape(2, 3),
        "strided": numpy.arange(8, dtype=numpy.int64)[::-2],
        "b": numpy.ones((2, 1), bfloat16),
        "empty": numpy.zeros((0, 3), numpy.float16),
        "scalar": numpy.array(7, numpy.uint8),
    }
    save(path, arrays, {"origin": "test"})
    tensors, metadata = load(path)
    assert metadata == {"origin": "test"}
    assert list(tensors) == list(arrays)
    for name, array in arrays.items():
        numpy.testing.assert_array_equal(tensors[name].numpy(), array)
        assert tensors[name].numpy().dtype == array.dtype
    assert os.listdir(path.parent) == [path.name]


def test_torch_round_trip(tmp_path, torch):
    path = tmp_path / "a.safetensors"
    tensors = {
        "a": torch.randn(3, 4).bfloat16().T,
        "empty": torch.zeros(0, 2),
        "n": torch.tensor(3),
    }
    save(path, tensors)
    loaded, metadata = load(path)
    assert metadata == {}
    for name, tensor in tensors.items():
        assert torch.equal(loaded[name].torch(), tensor)
        assert loaded[name].torch().dtype == tensor.dtype


def test_agrees_with_the_reference_implementation(tmp_path):
    reference = pytest.importorskip("safetensors.numpy")
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    arrays = {"x": numpy.arange(6.0).reshape(3, 2), "y": numpy.ones(5, numpy.float16)}
    save(ours, arrays)
    reference.save_file(arrays, theirs)
    for name, array in reference.load_file(ours).items():
        numpy.testing.assert_array_equal(array, arrays[name])
    for name, tensor in load(theirs)[0].items():
        numpy.testing.assert_array_equal(tensor.numpy(), arrays[name])


def test_example_capture():
    tensors, metadata = load(EXAMPLE)
    assert {name: (t.dtype, t.shape) for name, t in tensors.items()} == dict.fromkeys(
        "qkv", ("BF16", (2520, 2, 128))
    )
    assert float(metadata["softmax_scale"]) == 128**-0.5


def test_failed_writes_leave_nothing_behind(tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(b"before")
    with pytest.raises(TypeError, match="complex"):
        save(path, {"a": numpy.zeros(3, complex)})
    with pytest.raises(TypeError):
        _safetensors.write_atomically(path, [b"x", "text"])
    assert path.read_bytes() == b"before"
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("links", [True, False])
def test_writing_can_refuse_existing_files(tmp_path, monkeypatch, links):
    """With hard links or, as on some file systems, without."""

    def no_link(*_):
        raise PermissionError

    if not links:
        monkeypatch.setattr(os, "link", no_link)
    path = tmp_path / "a.safetensors"
    save(path, {}, {"n": "1"}, overwrite=False)
    with pytest.raises(FileExistsError, match=path.name):
        save(path, {}, {"n": "2"}, overwrite=False)
    assert load(path)[1] == {"n": "1"} and os.listdir(tmp_path) == [path.name]


def file(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"a": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


@pytest.mark.parametrize(
    "content, words",
    [
        (b"", "too few"),
        (b"1234567", "too few"),
        (file({}, length=3), "claims 3"),
        (file({}, length=2**63), "claims"),
        (file(b"{"), "not JSON"),
        (file(b"\xff\xfe"), "not JSON"),
        (file([]), "not a JSON object"),
        (file({"a": 3}), "needs dtype"),
        (file({"a": {"dtype": "F32"}}), "needs dtype"),
        (file(entry("F31"), bytes(9)), "9 data bytes, but the last tensor ends at 8"),
        (file(entry(offsets=(0, 9)), bytes(8)), "lie outside the 8 data bytes"),
        (file(entry(offsets=(8, 0)), bytes(8)), "lie outside"),
        (file(entry(offsets=(-8, 0)), bytes(8)), "must be integers"),
        (file(entry(offsets=(0, True)), bytes(8)), "must be integers"),
        (file(entry(offsets=(0, 8, 9)), bytes(8)), "needs dtype"),
        (file(entry(shape=(3,)), bytes(8)), "does not fill"),
        (file(entry(shape=(2.0,)), bytes(8)), "must be integers"),
        (file(entry(shape=(-2, -1)), bytes(8)), "must be integers"),
        (file(entry(shape=(2**40, 2**40)), bytes(8)), "no tensor has a shape"),
        (file(entry(shape=(0, 2**62), offsets=(0, 0))), "no tensor has a shape"),
        (file(entry(shape=(1,) * 65, offsets=(0, 4)), bytes(4)), "no tensor has a shape"),
        (file(entry(shape={}, offsets=(0, 4)), bytes(4)), "must be arrays"),
        (file(entry(dtype=[]), bytes(8)), "dtype must be a string"),
        (file({"a": {**entry()["a"], "extra": 1}}, bytes(8)), "only"),
        (file(entry(), bytes(9)), "9 data bytes, but the last tensor ends at 8"),
        (file({}, bytes(1)), "1 data bytes, but the last tensor ends at 0"),
        (file(entry(offsets=(4, 12)), bytes(12)), "a: begins at data byte 4, .* ends at 0"),
        (
            file(
                entry() | {"b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}, bytes(12)
            ),
            "b: begins at data byte 4, .* ends at 8",
        ),
        (file(b'{"a":1,"a":2}'), "'a' appears twice"),
        (file('{"__metadata__":{}}'.encode("utf-16")), "not JSON"),
        (file(b"[" * 100_000), "not JSON"),
        (file({"__metadata__": []}), "must map names to strings"),
        (file({"__metadata__": {"causal": True}}), "must map names to strings"),
    ],
)
def test_malformed_files(tmp_path, content, words):
    path = tmp_path / "bad.safetensors"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=words):
        load(path)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damaged_files_never_crash(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("damaged") / "a.safetensors"
    save(path, {"a": StoredTensor("F32", (2,), bytes(8)), "b": StoredTensor("U8", (3,), b"abc")})
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        tensors, _ = load(path)
    except ValueError:
        return
    for tensor in tensors.values():
        if tensor.dtype not in _safetensors.ITEM_SIZES:
            continue
        assert len(tensor.data) == _safetensors.ITEM_SIZES[tensor.dtype] * numpy.prod(tensor.shape)
