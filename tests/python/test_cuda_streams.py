# SPDX-License-Identifier: BSD-3-Clause
"""Prepared inputs on CUDA streams: used on others, dropped early, in graphs."""

import pytest
from conftest import random_qkv

from open_vc_attn import attention_fp8, prepare_fp8

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.gpu

DELAY = 100_000_000
"""Cycles, about 50 ms: what is not ordered behind the delay runs before it ends."""


@pytest.fixture(autouse=True)
def device():
    if not torch.cuda.is_available():
        pytest.skip("no GPU")


@pytest.fixture
def inputs():
    return tuple(torch.from_numpy(x).to("cuda", torch.bfloat16) for x in random_qkv(700, 900))


@pytest.fixture
def expected(inputs):
    out, lse = attention_fp8(prepare_fp8(*inputs, with_lse=True), return_lse=True)
    torch.cuda.synchronize()
    return out, lse


def overwrite_free_memory(inputs, stream):
    """Fills what torch's allocator has free for `stream` in the size of prepared inputs."""
    nbytes = prepare_fp8(*(x.cpu() for x in inputs), with_lse=True).nbytes
    with torch.cuda.stream(stream):
        # The workspace comes on top on a GPU, so that sizes around it are taken too.
        return [
            torch.full((int(nbytes * scale),), 0xFF, dtype=torch.uint8, device="cuda")
            for scale in (1, 1.05, 1.1, 1.15, 1.2, 1.3, 1.5)
        ]


def assert_same(result, expected):
    torch.cuda.synchronize()
    for found, wanted in zip(result, expected, strict=True):
        assert torch.equal(found, wanted)


def test_another_stream_waits_for_the_preparation(inputs, expected):
    preparing, running = torch.cuda.Stream(), torch.cuda.Stream()
    del overwrite_free_memory(inputs, preparing)[:]
    torch.cuda.synchronize()
    with torch.cuda.stream(preparing):
        torch.cuda._sleep(DELAY)
        prepared = prepare_fp8(*inputs, with_lse=True)
    with torch.cuda.stream(running):
        result = attention_fp8(prepared, return_lse=True)
    assert not preparing.query(), "the calls waited on the host"
    assert_same(result, expected)


@pytest.mark.parametrize("same_stream", [True, False])
def test_dropped_while_a_stream_reads_it(inputs, expected, same_stream):
    preparing = torch.cuda.Stream()
    running = preparing if same_stream else torch.cuda.Stream()
    with torch.cuda.stream(preparing):
        prepared = prepare_fp8(*inputs, with_lse=True)
    torch.cuda.synchronize()
    nbytes = prepared.nbytes
    with torch.cuda.stream(running):
        torch.cuda._sleep(DELAY)
        result = attention_fp8(prepared, return_lse=True)
    del prepared
    assert not running.query(), "the drop waited on the host"
    with torch.cuda.stream(preparing):
        for _ in range(4):
            torch.full((nbytes,), 0xFF, dtype=torch.uint8, device="cuda")
    assert_same(result, expected)


def test_plans_wait_for_the_preparation(inputs):
    on_cpu = prepare_fp8(*(x.cpu() for x in inputs))
    preparing = torch.cuda.Stream()
    with torch.cuda.stream(preparing):
        torch.cuda._sleep(DELAY)
        prepared = prepare_fp8(*inputs)
    assert prepared.plans == on_cpu.plans


def test_prepared_before_a_graph(inputs, expected):
    preparing = torch.cuda.Stream()
    with torch.cuda.stream(preparing):
        prepared = prepare_fp8(*inputs, with_lse=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = attention_fp8(prepared, return_lse=True)
    for _ in range(2):
        for x in result:
            x.fill_(float("nan"))
        graph.replay()
        assert_same(result, expected)


def test_prepared_in_a_graph(inputs, expected):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        prepared = prepare_fp8(*inputs, with_lse=True)
        inside = attention_fp8(prepared, return_lse=True)
    graph.replay()
    outside = attention_fp8(prepared, return_lse=True)
    assert_same(inside, expected)
    assert_same(outside, expected)
    assert prepared.plans == prepare_fp8(*(x.cpu() for x in inputs)).plans
    del prepared
    graph.replay()
    assert_same(inside, expected)
