# SPDX-License-Identifier: BSD-3-Clause
"""Reports of files with strange names, and files that hold types nobody knows."""

import html.parser
import json
import os
import struct
import subprocess
import xml.etree.ElementTree

import numpy
import pytest
from program_runner import find_program

from open_vc_attn import _safetensors, load_capture

NAMES = {
    "not UTF-8": b"\xff\xfe.safetensors",
    "half a character": b"caf\xc3.safetensors",
    "half a surrogate pair": b"\xed\xa0\x80.safetensors",
    "Latin-1": "é.safetensors".encode("latin-1"),
    "UTF-8": "é 猫 😀.safetensors".encode(),
    "quotes": b'it\'s "x".safetensors',
    "newlines": b"a\nb\r\nc\t.safetensors",
    "control characters": b"\x01\x1b[2J\x7f.safetensors",
    "control characters beyond ASCII": "\x85\x9b.safetensors".encode(),
    "not a character": "\ufffe\uffff.safetensors".encode(),
    "markup": b"<script>alert(1)<",
    "end of a script": b"<!--]]>&amp;&#0;{}%s.safetensors",
    "backslashes": rb"a\b\u0041\x.safetensors",
}


class Text(html.parser.HTMLParser):
    """The text of the elements that are closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.text = [], {}

    def handle_starttag(self, tag, attributes):
        assert tag != "script"
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open:
            self.text[self.open[-1]] = self.text.get(self.open[-1], "") + data


def write(path):
    x = numpy.random.default_rng(0).standard_normal((8, 1, 128)).astype(numpy.float32)
    _safetensors.save(path, {"q": x, "k": x, "v": x})


def study(folder, name):
    page, data = folder / "page", folder / "json"
    result = subprocess.run(
        [
            *(find_program(), "error", "-i", name, "--rows", "4", "--no-options", "--no-backend"),
            *("--html", page, "--json", data),
        ],
        capture_output=True,
        timeout=300,
        cwd=folder,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout, page.read_bytes(), data.read_bytes()


@pytest.mark.parametrize("kind", NAMES)
def test_reports_of_any_name(tmp_path, kind):
    name = NAMES[kind]
    write(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
    table, page, data = study(tmp_path, name)
    parsed = json.loads(data.decode("utf-8"))
    shown = name.decode("utf-8", "replace")
    try:
        exact = name.decode("utf-8")
    except UnicodeDecodeError:
        exact = None
        assert "\ufffd" in parsed["input"]["source"]
    if exact is not None:
        assert parsed["input"]["source"] == exact
    text = Text()
    text.feed(page.decode("utf-8"))
    text.close()
    assert text.open == []
    assert not any(
        (ord(c) < 32 and c != "\n") or 0x7F <= ord(c) < 0xA0 or ord(c) in (0xFFFE, 0xFFFF)
        for c in page.decode("utf-8")
    )
    for plot in page.decode("utf-8").split("<svg")[1:]:
        xml.etree.ElementTree.fromstring("<svg" + plot[: plot.index("</svg>")] + "</svg>")
    visible = "".join(c for c in shown if c.isalnum() and c.isascii())
    heading = "".join(c for c in text.text["h1"] if c.isalnum() and c.isascii())
    assert heading == visible
    assert b"\x1b" not in table and b"\r" not in table
    table.decode("utf-8")


def test_the_command_of_a_report_can_be_pasted(tmp_path):
    name = 'it\'s "a" $(x) b.safetensors'
    write(tmp_path / name)
    _, _, data = study(tmp_path, name)
    command = json.loads(data)["command"]
    listed = subprocess.run(
        ["sh", "-c", command.replace("open-vc-attn", "printf '%s\\n'", 1)],
        capture_output=True,
        text=True,
    )
    assert name in listed.stdout.splitlines()


def file_with(entries, data):
    header = json.dumps(entries).encode()
    return struct.pack("<Q", len(header)) + header + data


@pytest.mark.parametrize("dtype", ["F4", "F6_E2M3", "F8_E4M3FNUZ", "C128", "", "I4"])
def test_tensors_of_unknown_types_that_nobody_asks_for(tmp_path, torch, dtype):
    size = 4 * 2 * 128 * 4
    entries = {
        name: {"dtype": "F32", "shape": [4, 2, 128], "data_offsets": [i * size, (i + 1) * size]}
        for i, name in enumerate("qkv")
    }
    entries["odd"] = {"dtype": dtype, "shape": [9], "data_offsets": [3 * size, 3 * size + 5]}
    path = tmp_path / "x.safetensors"
    path.write_bytes(file_with(entries, bytes(3 * size + 5)))
    program = find_program()
    assert subprocess.run([program, "run", "-i", path], stdout=subprocess.DEVNULL).returncode == 0
    asked = subprocess.run(
        [program, "run", "-i", path, "--k-name", "odd"], capture_output=True, text=True
    )
    assert asked.returncode == 1 and f"tensor 'odd' of type '{dtype}'" in asked.stderr
    assert load_capture(path).q.shape == (4, 2, 128)
    odd = _safetensors.load(path)[0]["odd"]
    assert len(odd.data) == 5
    for convert in (odd.torch, odd.numpy):
        with pytest.raises(TypeError, match="is not known here"):
            convert()


@pytest.mark.parametrize("text", ["\udcff", "a\ud800", "\udfff"])
def test_text_that_is_not_unicode_is_not_written(tmp_path, text):
    x = numpy.zeros(2, numpy.float32)
    for tensors, metadata in (({text: x}, {}), ({"q": x}, {"k": text}), ({"q": x}, {text: "v"})):
        with pytest.raises(ValueError):
            _safetensors.save(tmp_path / "x", tensors, metadata)
    assert os.listdir(tmp_path) == []


def test_text_that_is_not_unicode_is_not_read(tmp_path):
    path = tmp_path / "x.safetensors"
    for header in (rb'{"__metadata__":{"k":"\ud800"}}', rb'{"__metadata__":{"\udcff":"v"}}'):
        path.write_bytes(struct.pack("<Q", len(header)) + header)
        with pytest.raises(ValueError, match="not JSON"):
            _safetensors.load(path)
