# SPDX-License-Identifier: BSD-3-Clause
"""The program open-vc-attn from the outside: exit status, streams, files."""

import html.parser
import json
import os
import re
import signal
import subprocess
import time
import xml.etree.ElementTree

import numpy
import pytest
from conftest import random_qkv, relative_l2, softmax_attention
from program_runner import complaint_of, find_program, output_of, run

from open_vc_attn import _safetensors, cli


@pytest.fixture
def capture(tmp_path):
    """A safetensors file with q, k and v, written by another implementation of the format."""
    safetensors = pytest.importorskip("safetensors.numpy")
    q, k, v = random_qkv(queries=90, keys=130, heads=3)
    path = tmp_path / "capture.safetensors"
    safetensors.save_file({"q": q, "k": k, "v": v}, path, {"softmax_scale": "0.05"})
    return path, (q, k, v)


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["bogus"], "unknown command 'bogus'; the commands are info, check, run, error, bench"),
        (["run"], "no input: give --input FILE or --family NAME"),
        (["run", "--family", "gausian"], "gausian not in"),
        (["run", "--family", "gaussian", "--tokens", "0"], "'0' is not a whole number from 1"),
        (["run", "--family", "gaussian", "--repair-budget", "1"], "0 <= x < 1"),
        (["run", "--family", "gaussian", "--seed=-1"], "'-1' is not a whole number from 0"),
        (["run", "--family", "gaussian", "--seed", "1e3"], "'1e3' is not a whole number from 0"),
        (["error", "--family", "gaussian", "--seed", "18446744073709551616"], "2^64 - 1"),
        (["run", "--family", "gaussian", "--repair-budget", "nan"], "0 <= x < 1"),
        (["run", "--family", "gaussian", "--softmax-scale=-1"], "not a number from 2^-126"),
        (["run", "--family", "gaussian", "--max-extra-steps", "3"], "--max-extra-steps"),
        (["run", "--family", "gaussian", "--nope"], "--nope"),
        (["run", "--family", "gaussian", "-o", ""], "--output: '' is not the path of a file"),
        (["run", "-i", ""], "--input: '' is not the path of a file"),
        (["error", "--family", "gaussian", "--json", ""], "--json: '' is not the path"),
        (["error", "--family", "gaussian", "--html", ""], "--html: '' is not the path"),
        (["bench", "--json", ""], "--json: '' is not the path"),
        (["error", "--family", "gaussian", "--input", "x"], "excludes"),
        (["check", "--threads", "many"], "--threads"),
        (["bench", "--tokens", "12,x"], "--tokens"),
    ],
)
def test_wrong_arguments(arguments, words):
    assert words in complaint_of(2, *arguments)


def test_no_arguments_shows_the_commands():
    result = run()
    assert result.returncode == 2
    for command in ("info", "check", "run", "error", "bench"):
        assert re.search(rf"^  {command} ", result.stderr, re.MULTILINE)


@pytest.mark.parametrize("command", [[], ["info"], ["check"], ["run"], ["error"], ["bench"]])
def test_help(command):
    assert "Usage: " in output_of(*command, "--help") or "OPTIONS" in output_of(*command, "--help")


def test_version_is_that_of_the_package():
    import open_vc_attn

    assert output_of("--version").strip() == open_vc_attn.__version__


def test_missing_file(tmp_path):
    assert "none.safetensors" in complaint_of(1, "run", "--input", tmp_path / "none.safetensors")


@pytest.mark.parametrize("size", [0, 7, 8, 60, 1000])
def test_truncated_files(capture, tmp_path, size):
    path = tmp_path / "cut.safetensors"
    path.write_bytes(capture[0].read_bytes()[:size])
    assert str(path) in complaint_of(1, "run", "--input", path)


def test_huge_header_length(tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes((2**63).to_bytes(8, "little") + b"{}")
    complaint_of(1, "error", "--input", path)


def test_unknown_tensor_names_list_the_known_ones(capture):
    message = complaint_of(1, "run", "--input", capture[0], "--tensors", "block.")
    assert all(name in message for name in ("'block.q'", "'q'", "'k'", "'v'"))


def test_shapes_that_attention_refuses(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "x.safetensors"
    for command, size, heads, expected in (
        ("run", 60, 2, "expected a multiple of 8 up to 128"),
        ("error", 60, 2, "expected a multiple of 8 up to 128"),
        ("error", 64, 2, "expected D = 128"),
        ("error", 128, 1, "as many heads of k"),
    ):
        q = numpy.zeros((4, 2, size), numpy.float32)
        k = numpy.ascontiguousarray(q[:, :heads])
        safetensors.save_file({"q": q, "k": k, "v": k}, path)
        assert expected in complaint_of(1, command, "--input", path)


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "--input", "none.safetensors", "--output"],
        ["error", "--input", "none.safetensors", "--json"],
        ["error", "--input", "none.safetensors", "--html"],
        # Computing first would outlast the time limit.
        ["bench", "--tokens", "4096", "--repeats", "1000000", "--json"],
    ],
)
def test_outputs_that_cannot_be_written_are_refused_before_any_work(arguments):
    message = complaint_of(1, *arguments, "/no/such/folder/out")
    assert "/no/such/folder/out: found that the system cannot create a file" in message


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
@pytest.mark.parametrize(
    "arguments",
    [
        ["info"],
        ["info", "--json"],
        ["check", "--smoke"],
        ["check", "--smoke", "--json"],
        ["run", "--family", "gaussian", "--tokens", "20"],
        ["error", "--family", "gaussian", "--tokens", "20", "--no-options"],
        ["--help"],
        ["--version"],
    ],
)
def test_lost_standard_output_is_a_failure(arguments):
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [find_program(), *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=300,
        )
    assert result.returncode == 1
    assert "standard output cannot be written" in result.stderr


@pytest.mark.parametrize("option", ["tokens", "keys", "heads", "batch", "seed", "type"])
@pytest.mark.parametrize("command", ["run", "error"])
def test_options_of_families_are_refused_for_files(capture, command, option):
    value = "float32" if option == "type" else "1"
    message = complaint_of(2, command, "-i", capture[0], f"--{option}", value)
    assert f"--{option} describes made-up input" in message


def save_npy(folder, name, dtype=numpy.float32):
    path = folder / f"{name}.npy"
    numpy.save(path, numpy.zeros((4, 2, 128), dtype))
    return path


@pytest.mark.parametrize("count", [1, 2])
def test_too_few_npy_files(tmp_path, count):
    message = complaint_of(1, "run", "-i", *[save_npy(tmp_path, "q")] * count)
    assert f"found {count} .npy file" in message
    assert "expected three, in the order q, k, v" in message


def test_uint16_arrays_name_their_option(tmp_path):
    paths = [save_npy(tmp_path, name, numpy.uint16) for name in "qkv"]
    assert "--uint16-as-bfloat16" in complaint_of(1, "run", "-i", *paths)
    output_of("run", "-i", *paths, "--uint16-as-bfloat16")


def test_npz_archives(tmp_path):
    numpy.savez(tmp_path / "x.npz", q=numpy.zeros(3))
    message = complaint_of(1, "run", "-i", tmp_path / "x.npz")
    assert "a NumPy .npz archive" in message and "numpy.save" in message
    assert "PyTorch" not in message


def test_converted_files_are_called_what_they_were_converted_from(capture, tmp_path):
    read, given = capture[0], ["--converted-from=a.pt", "--converted-from=b.pt"]
    message = complaint_of(1, "run", "-i", read, *given[:1], "--tensors", "x.")
    assert message.startswith("open-vc-attn: a.pt: found no tensor") and str(read) not in message
    # One file with the tensors of several.
    message = complaint_of(1, "run", "-i", read, *given, "--tensors", "x.")
    assert message.startswith("open-vc-attn: a.pt, b.pt: found no tensor")
    target = tmp_path / "study.json"
    options = ["--rows", 4, "--no-options", "--no-backend", "--json", target]
    assert str(read) not in output_of("error", "-i", read, *given, *options)
    parsed = json.loads(target.read_text())
    assert parsed["command"].startswith("open-vc-attn error --input a.pt b.pt --")
    assert parsed["input"]["source"] == "a.pt"
    assert "--converted-from" not in output_of("run", "--help")


def test_errors_of_torch_files_name_the_file(tmp_path, torch, monkeypatch, capfd):
    monkeypatch.setattr(cli, "_PROGRAM", find_program())
    path = tmp_path / "x.pt"
    torch.save({"q": torch.zeros(4, 2, 128)}, path)
    assert cli.run(["run", f"-i{path}"]) == 1
    assert capfd.readouterr().err.startswith(f"open-vc-attn: {path}: found no tensor 'k'")


def test_run_computes_attention(capture, tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    path, qkv = capture
    target = tmp_path / "out.safetensors"
    text = output_of("run", "--input", path, "-o", target, "--lse", "--verify")
    found = safetensors.load_file(target)
    expected, lse = softmax_attention(*qkv, scale=0.05)
    assert found["out"].shape == expected.shape
    assert relative_l2(found["out"], expected) < 0.08
    assert numpy.abs(found["lse"] - lse).max() < 0.1
    assert "Error against float64 on 90 queries per head" in text


def test_run_reads_npy_files_and_masks(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    qkv = random_qkv(queries=40, keys=60, heads=2, batch=2)
    paths = [tmp_path / f"{n}.npy" for n in range(3)]
    for path, x in zip(paths, qkv, strict=True):
        numpy.save(path, x)
    target = tmp_path / "out.safetensors"
    output_of("run", "--input", *paths, "--causal", "-o", target)
    expected, _ = softmax_attention(*qkv, causal=True)
    assert relative_l2(safetensors.load_file(target)["out"], expected) < 0.08


def test_run_keeps_the_stored_layout(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    qkv = random_qkv(queries=40, heads=3)
    path, target = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    swapped = {
        n: numpy.ascontiguousarray(x.swapaxes(0, 1)) for n, x in zip("qkv", qkv, strict=True)
    }
    safetensors.save_file(swapped, path)
    output_of("run", "--input", path, "--layout", "hsd", "-o", target)
    expected, _ = softmax_attention(*qkv)
    assert relative_l2(safetensors.load_file(target)["out"].swapaxes(0, 1), expected) < 0.08


def test_causal_captures_stay_causal(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    qkv = random_qkv(queries=50, heads=1)
    path, target = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    safetensors.save_file(dict(zip("qkv", qkv, strict=True)), path, {"causal": "true"})
    for arguments, causal in (([], True), (["--no-causal"], False)):
        output_of("run", "--input", path, "-o", target, *arguments)
        expected, _ = softmax_attention(*qkv, causal=causal)
        assert relative_l2(safetensors.load_file(target)["out"], expected) < 0.08


def test_masked_captures_are_computed_with_a_warning(tmp_path):
    """The file holds no mask and the library offers none: nobody may take the result for more."""
    safetensors = pytest.importorskip("safetensors.numpy")
    qkv = random_qkv(queries=50, heads=1)
    path, target = tmp_path / "in.safetensors", tmp_path / "out.safetensors"
    json_path, page = tmp_path / "study.json", tmp_path / "study.html"
    commands = [
        ("run", "--output", target),
        ("error", "--no-options", "--no-backend", "--json", json_path, "--html", page),
    ]
    for masked in ("false", "true"):
        safetensors.save_file(dict(zip("qkv", qkv, strict=True)), path, {"masked": masked})
        words = "the recorded call had an attention mask" if masked == "true" else None
        for name, *options in commands:
            result = run(name, "--input", path, *options)
            assert result.returncode == 0, result.stderr
            if words is None:
                assert result.stderr == "" and "Note:" not in result.stdout
                continue
            assert result.stderr.startswith(f"open-vc-attn: warning: {path.name}: {words}")
            assert f"Note: {words}" in result.stdout
        note = _safetensors.load(target)[1].get("note", "")
        assert note == "" if words is None else words in note
        note = json.loads(json_path.read_text())["input"]["note"]
        assert note == "" if words is None else words in note
        assert (f"<strong>Note:</strong> {words}" in page.read_text()) == (words is not None)


def test_info():
    import open_vc_attn

    parsed = json.loads(output_of("info", "--json"))
    assert parsed["version"] == open_vc_attn.__version__
    assert parsed["backends"][0]["name"] == "cpu"
    assert parsed["last_dispatch"] == ""
    of_python = open_vc_attn.info()
    assert of_python.keys() - {"commit", "python", "platform", "torch", "numpy"} == parsed.keys()
    assert of_python["backends"] == parsed["backends"] and of_python["cuda"] == parsed["cuda"]
    text = output_of("info")
    assert f"numerics contract {parsed['contract_version']}" in text
    assert "Last call of this process: none" in text
    # Field cases E10 and F07: what would run on each device, or why there is none.
    cuda = parsed["cuda"]
    assert bool(cuda["devices"]) != bool(cuda["problem"])
    assert cuda["problem"] in text
    for device in cuda["devices"]:
        assert bool(device["backend"]) != bool(device["refusal"])
        assert device["name"] in text and device["compute_capability"] in text


def test_check_smoke():
    parsed = json.loads(output_of("check", "--smoke", "--json"))
    assert parsed["schema"] == "openvc.check" and parsed["passed"] is True
    assert {c["group"] for c in parsed["checks"]} == {"codec", "accuracy", "identity", "call"}
    assert all(c["measured"] <= c["limit"] for c in parsed["checks"])
    text = output_of("check", "--smoke")
    assert re.search(r"^(\d+) of \1 checks passed$", text, re.MULTILINE)
    # A line for each backend, and one for each GPU that none of them serves.
    assert re.search(r"^cpu: (\d+) of \1 passed$", text, re.MULTILINE)
    devices = json.loads(output_of("info", "--json"))["cuda"]["devices"]
    assert [t["device"] for t in parsed["targets"]] == [
        "cpu",
        *(f"cuda:{device['index']}" for device in devices),
    ]
    assert ("no GPU was checked" in text) == (not devices)
    for device in devices:
        line = f"cuda:{device['index']} ({device['name']})"
        if device["backend"]:
            assert re.search(
                rf"^{device['backend']} on {re.escape(line)}: (\d+) of \1 passed$", text, re.M
            )
            calls = [c for c in parsed["checks"] if c["device"] == f"cuda:{device['index']}"]
            assert {c["name"] for c in calls} >= {"cross-attention", "float16", "log-sum-exp"}
        else:
            assert f"{line} was not checked: {device['refusal']}" in text


def test_bench(tmp_path):
    target = tmp_path / "bench.json"
    arguments = ["--tokens", "64,96", "--heads", "1", "--repeats", "2", "--json", target]
    text = output_of("bench", *arguments)
    parsed = json.loads(target.read_text())
    assert [r["tokens"] for r in parsed["results"]] == [64, 96]
    for result in parsed["results"]:
        for call in ("complete_call", "prepared_call"):
            times = result[call]
            assert 0 < times["p10_ms"] <= times["p50_ms"] <= times["p90_ms"]
            assert times["gflops"] > 0
    assert "GFLOP/s" in text


def test_names_of_the_program_select_commands(tmp_path):
    link = tmp_path / "open-vc-attn-info"
    link.symlink_to(find_program())
    result = run("--json", program=link)
    assert result.returncode == 0 and json.loads(result.stdout)["backends"]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Table, JSON and page of a small study."""
    folder = tmp_path_factory.mktemp("study")
    table = output_of(
        *("error", "--family", "channel_outliers", "--tokens", 200, "--heads", 2, "--rows", 40),
        *("--json", folder / "study.json", "--html", folder / "page.html"),
    )
    return (
        table,
        json.loads((folder / "study.json").read_text()),
        (folder / "page.html").read_text(),
    )


def test_study_forms_agree(study):
    table, parsed, page = study
    error = 100 * parsed["summary"]["error"]["rms"]
    assert f"{error:.2f} %" in table
    assert f"{error:.2f}<small>" in page
    assert parsed["input"]["source"] == "family channel_outliers"
    assert "--family channel_outliers" in parsed["command"]


def test_study_beats_the_reference_numerics(study):
    summary = study[1]["summary"]
    assert summary["error"]["rms"] < 0.5 * summary["reference"]["rms"]


def test_study_of_chosen_budgets(tmp_path):
    target = tmp_path / "study.json"
    output_of(
        *("error", "--family", "v_outlier_tokens", "--tokens", 300, "--no-options", "--no-backend"),
        *("--budgets", 0, 0.5, "--json", target),
    )
    parsed = json.loads(target.read_text())
    assert [b["budget"] for b in parsed["summary"]["budgets"]] == [0, 0.5]
    assert parsed["output_from"] == "emulation" and parsed["summary"]["variants"] == []


def test_study_of_a_causal_call_leaves_repair_out(tmp_path):
    output_of("error", "--family", "gaussian", "--tokens", 100, "--causal", "--no-options")
    message = complaint_of(
        1, "error", "--family", "gaussian", "--tokens", 100, "--causal", "--budgets", 0.1
    )
    assert "with a causal mask; expected 0" in message


class Outline(html.parser.HTMLParser):
    """Checks that elements are closed in order, and collects the attributes that load something."""

    VOID = frozenset({"meta", "br"})

    def __init__(self):
        super().__init__()
        self.open, self.loads = [], []

    def handle_starttag(self, tag, attributes):
        self.loads += [value for name, value in attributes if name in ("src", "href", "data")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attributes):
        pass


def test_page_is_well_formed_and_loads_nothing(study):
    outline = Outline()
    outline.feed(study[2])
    outline.close()
    assert outline.open == [] and outline.loads == []
    assert "<script" not in study[2] and "url(" not in study[2]


def test_plots_are_well_formed(study):
    plots = re.findall(r"<svg.*?</svg>", study[2], re.DOTALL)
    assert len(plots) == 8
    for plot in plots:
        root = xml.etree.ElementTree.fromstring(plot)
        _, _, width, height = map(float, root.get("viewBox").split())
        for element in root.iter():
            for name in ("x", "y", "cx", "cy", "x1", "x2", "y1", "y2", "width", "height"):
                value = float(element.get(name, "0"))
                assert -1 <= value <= max(width, height) + 1
        assert root.get("aria-label")


def test_every_class_of_the_page_has_a_style(study):
    page = study[2]
    styles = set(
        re.findall(r"\.([a-z][\w-]*)", page[page.index("<style>") : page.index("</style>")])
    )
    used = {c for names in re.findall(r'class="([^"]*)"', page) for c in names.split()}
    assert used - styles <= {"label"}  # the plain text of the plots


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_end_it_at_once(tmp_path, sent):
    command = ["bench", "--tokens", "100000", "--heads", "8", "--json", tmp_path / "report.json"]
    process = subprocess.Popen(
        [find_program(), *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Tests that run in the background may have been started with the signal ignored.
        preexec_fn=lambda: signal.signal(sent, signal.SIG_DFL),
    )
    try:
        time.sleep(1)
        assert process.poll() is None
        start = time.monotonic()
        process.send_signal(sent)
        assert process.wait(timeout=60) == 128 + sent
        assert time.monotonic() - start < 5
    finally:
        process.kill()
    assert list(tmp_path.iterdir()) == []


def test_ignored_signals_stay_ignored():
    """As nohup and shells start programs in the background."""
    command = f"trap '' HUP INT; exec '{find_program()}' bench --tokens 3000 --heads 2 --repeats 1"
    process = subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE)
    time.sleep(0.3)
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 0
