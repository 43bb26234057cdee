# SPDX-License-Identifier: BSD-3-Clause
"""torch tensors on a GPU: streams, graphs, and agreement with the CPU backend."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import GAUSSIAN_ERROR, LSE_ERROR, random_qkv, relative_l2, softmax_attention

import open_vc_attn
from open_vc_attn import Numerics, attention

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu

# Scores accumulate in binary16 on the GPU: codes flip by one step now and then, which is seen most
# on Gaussian inputs, where all keys weigh alike (docs/numerics.md section 6).
BACKENDS_AGREE = 0.03


@pytest.fixture(autouse=True)
def device():
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    return torch.device("cuda")


def tensors(*shape, dtype=torch.bfloat16, **options):
    return tuple(torch.from_numpy(x).to("cuda", dtype) for x in random_qkv(*shape, **options))


# Field cases B08, C11, E05 and X01.
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("queries, keys", [(1, 1), (129, 300), (300, 77), (1024, 1024)])
@pytest.mark.parametrize("causal", [False, True])
def test_agrees_with_the_cpu_backend(dtype, queries, keys, causal):
    inputs = tensors(queries, keys, dtype=dtype, batch=2)
    out, lse = attention(*inputs, causal=causal, return_lse=True)
    assert (out.shape, out.dtype, out.device) == (inputs[0].shape, dtype, inputs[0].device)
    assert out.is_contiguous()
    expected, expected_lse = attention(*(x.cpu() for x in inputs), causal=causal, return_lse=True)
    assert relative_l2(out.cpu().float(), expected.float()) < BACKENDS_AGREE
    seen = torch.isfinite(expected_lse)
    assert torch.equal(torch.isfinite(lse.cpu()), seen)
    assert (lse.cpu() - expected_lse)[seen].abs().max() < LSE_ERROR
    exact, _ = softmax_attention(*(x.cpu().double().numpy() for x in inputs), causal)
    assert relative_l2(out.cpu().float(), exact) < GAUSSIAN_ERROR


def test_prepared_and_repaired():
    inputs = tensors(500, 700)
    prepared = open_vc_attn.prepare_v_repair(*inputs, budget=0.05, with_lse=True)
    assert prepared.device == inputs[0].device and prepared.repair_rows == 35
    out = open_vc_attn.attention_v_repair(prepared)
    on_cpu = open_vc_attn.prepare_v_repair(*(x.cpu() for x in inputs), budget=0.05)
    assert prepared.plans == on_cpu.plans
    expected = open_vc_attn.attention_v_repair(on_cpu)
    assert relative_l2(out.cpu().float(), expected.float()) < BACKENDS_AGREE


# Field case C09.
def test_strided_views():
    wide = torch.randn(2, 300, 3, 4, 128, device="cuda").bfloat16()
    q, k, v = wide.unbind(2)
    expected = attention(q.contiguous(), k.contiguous(), v.contiguous())
    assert torch.equal(attention(q, k, v), expected)


# Field case D10.
def test_repeatable():
    inputs = tensors(700, 900)
    expected = attention(*inputs)
    assert all(torch.equal(attention(*inputs), expected) for _ in range(5))


# Field case D01.
def test_runs_on_the_current_stream():
    inputs = tensors(2000)
    expected = attention(*(x * 2 for x in inputs))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)  # cycles: a launch elsewhere would read old data
        doubled = [x.mul_(2) for x in inputs]
        out = attention(*doubled)
    stream.synchronize()
    assert torch.equal(out, expected)


def test_threads_with_streams_of_their_own():
    inputs = [tensors(700, seed=seed) for seed in range(8)]
    expected = [attention(*x) for x in inputs]
    torch.cuda.synchronize()

    def attend(i):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            out = [attention(*inputs[i]) for _ in range(20)]
        stream.synchronize()
        return all(torch.equal(x, expected[i]) for x in out)

    with ThreadPoolExecutor(len(inputs)) as pool:
        assert all(pool.map(attend, range(len(inputs))))


def test_plain_tensors_do_not_need_the_operator(monkeypatch):
    from open_vc_attn import _torch_op
    from open_vc_attn._torch_arrays import TORCH

    inputs = tensors(300, 400, batch=2)
    with monkeypatch.context() as patch:
        patch.setattr(_torch_op, "call", None)
        out, lse = attention(*inputs, return_lse=True)
    monkeypatch.setattr(type(TORCH), "can_skip_dispatcher", lambda *_: False)
    expected, expected_lse = attention(*inputs, return_lse=True)
    assert torch.equal(out, expected) and torch.equal(lse, expected_lse)


# Field case D02.
def test_graph_replay_follows_the_data():
    static = tensors(600)
    attention(*static)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = attention(*static)
    for seed in (1, 2):
        fresh = tensors(600, seed=seed)
        for target, source in zip(static, fresh, strict=True):
            target.copy_(source * seed)
        graph.replay()
        assert torch.equal(out, attention(*(x * seed for x in fresh)))


# Field case D03.
def test_every_device():
    for index in range(torch.cuda.device_count()):
        inputs = [x.to(f"cuda:{index}") for x in tensors(200)]
        assert torch.equal(attention(*inputs).cpu(), attention(*tensors(200)).cpu())


# Field case D03.
def test_devices_at_once():
    devices = [
        index
        for index in range(torch.cuda.device_count())
        if torch.cuda.get_device_capability(index) == torch.cuda.get_device_capability(0)
    ]
    if len(devices) < 2:
        pytest.skip("one device")
    expected = attention(*tensors(700, 900)).cpu()

    def run(index):
        inputs = [x.to(f"cuda:{index}") for x in tensors(700, 900)]
        stream = torch.cuda.Stream(device=index)
        stream.wait_stream(torch.cuda.current_stream(index))
        with torch.cuda.stream(stream):
            outputs = [attention(*inputs) for _ in range(10)]
        stream.synchronize()
        return all(torch.equal(out.cpu(), expected) for out in outputs)

    with ThreadPoolExecutor(2 * len(devices)) as pool:
        assert all(pool.map(run, 2 * devices))
    assert torch.cuda.current_device() == 0


def test_more_than_the_device_has():
    inputs = tensors(300)
    expected = attention(*inputs)
    # One stored row, expanded to a problem whose codes alone are 644 GB.
    huge = torch.zeros(1, 1, 128, device="cuda", dtype=torch.bfloat16).expand(1 << 24, 300, 128)
    torch.cuda.synchronize()
    allocated = torch.cuda.memory_allocated()
    for call in (attention, open_vc_attn.prepare_fp8):
        with pytest.raises((MemoryError, torch.cuda.OutOfMemoryError), match=r"(?i)memory"):
            call(huge, huge, huge)
        assert torch.cuda.memory_allocated() == allocated
        assert torch.equal(attention(*inputs), expected)


@pytest.mark.parametrize("error", [MemoryError, torch.cuda.OutOfMemoryError])
def test_every_failed_allocation_reaches_the_caller(monkeypatch, error):
    from open_vc_attn._torch_arrays import TORCH

    inputs = tensors(300)
    expected = attention(*inputs)
    torch.cuda.synchronize()
    allocated = torch.cuda.memory_allocated()
    real = type(TORCH).execution
    left = 0

    def execution(self, origin):
        stream, allocate = real(self, origin)

        def limited(size):
            nonlocal left
            if left == 0:
                raise error("the pool is exhausted")
            left -= 1
            return allocate(size)

        return stream, limited

    failures = 0
    with monkeypatch.context() as patch:
        patch.setattr(type(TORCH), "execution", execution)
        while True:
            left = failures
            try:
                out = attention(*inputs)
                break
            except error as failure:
                assert "the pool is exhausted" in str(failure)
            torch.cuda.synchronize()
            assert torch.cuda.memory_allocated() == allocated
            failures += 1
    assert failures > 0
    assert torch.equal(out, expected)
    assert torch.equal(attention(*inputs), expected)


CHECKED_CALL = """
import torch, open_vc_attn
x = torch.ones(300, 2, 128, device="cuda", dtype=torch.bfloat16)
y = x.clone()
y[17, 1, 3] = {value}
open_vc_attn.attention(x, x, x)  # first use may allocate what a capture must not
torch.cuda.synchronize()
stream = torch.cuda.Stream()
with torch.cuda.{context}:
    open_vc_attn.attention(x, y, x)
"""


# Field case B10.
@pytest.mark.parametrize(
    "value, context, words",
    [
        ("1", "stream(stream)", None),
        ("float('nan')", "stream(stream)", "ValueError: k: element [0, 17, 1, 3] is not finite"),
        ("float('-inf')", "stream(stream)", "ValueError: k: element [0, 17, 1, 3] is not finite"),
        ("1", "graph(torch.cuda.CUDAGraph())", "NotImplementedError: stream: it is being captured"),
    ],
)
def test_check_mode(value, context, words):
    code = CHECKED_CALL.format(value=value, context=context)
    for enabled in ("0", "1"):
        result = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "OPEN_VC_ATTN_CHECK": enabled},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if enabled == "1" and words is not None:
            assert result.returncode == 1 and words in result.stderr, result.stderr
        else:
            assert result.returncode == 0, result.stderr


def test_info_tells_what_ran():
    attention(*tensors(100, 200))
    info = open_vc_attn.info()
    assert info["last_dispatch"].startswith("sm90 on cuda:0: bfloat16, B 1, H 2, Sq 100, Skv 200")
    devices = info["cuda"]["devices"]
    assert len(devices) == torch.cuda.device_count()
    assert devices[0]["name"] == torch.cuda.get_device_name(0)
    assert devices[0]["backend"] == "sm90" and devices[0]["refusal"] == ""
    assert info["cuda"]["driver"] and info["cuda"]["problem"] == ""
    assert devices[0]["name"] in str(info)


# Field cases C03 and C14.
def test_extra_memory_is_bounded():
    inputs = tensors(20_000, heads=8)
    attention(*inputs)
    # Memory comes from torch's allocator, which keeps it, and from nowhere else.
    torch.cuda.synchronize()
    free_before = torch.cuda.mem_get_info()[0]
    # What was asked for: a block that the allocator kept and gives again may be 1 MiB longer.
    held_before = torch.cuda.memory_stats()["requested_bytes.all.current"]
    torch.cuda.reset_peak_memory_stats()
    out = attention(*inputs)
    torch.cuda.synchronize()
    elements = sum(x.numel() for x in inputs)
    # Codes, two planes of residual columns and the workspace of the preparation.
    peak = torch.cuda.memory_stats()["requested_bytes.all.peak"]
    extra = peak - held_before - out.nbytes
    assert elements < extra <= 1.5 * elements
    assert free_before - torch.cuda.mem_get_info()[0] <= out.nbytes


# Field case D04.
def test_compiled():
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda q, k, v: attention(q * 1.5, k, v) + 1, fullgraph=True, dynamic=True
    )
    for tokens in (300, 333):
        q, k, v = tensors(tokens)
        assert (
            relative_l2(
                compiled(q, k, v).cpu().float(), (attention(q * 1.5, k, v) + 1).cpu().float()
            )
            < 0.01
        )


def test_every_plan():
    inputs = tensors(600, 700)
    on_cpu = [x.cpu() for x in inputs]
    for numerics in (
        Numerics(rotation="always"),
        Numerics(max_extra_steps=4, score_error_target=0.0),
        Numerics(max_extra_steps=1, score_error_target=0.0),
        Numerics(smooth_keys=False, smooth_values=False, value_scale="per_head"),
    ):
        out = attention(*inputs, numerics=numerics).cpu().float()
        expected = attention(*on_cpu, numerics=numerics).float()
        assert relative_l2(out, expected) < BACKENDS_AGREE


def test_mixed_devices_are_refused():
    q, k, v = tensors(20)
    with pytest.raises(ValueError, match="devices cuda:0, cpu, cuda:0; expected one"):
        attention(q, k.cpu(), v)
