# SPDX-License-Identifier: BSD-3-Clause
"""Threads of calls on the CPU: how many, after fork(), and how Ctrl-C ends a call."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy
import pytest

import open_vc_attn

AT_ONCE = 5.0  # seconds, on a loaded machine; the calls below would take far longer


def run(code, **environment):
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


@pytest.mark.parametrize(
    "value, threads", [("3", 3), ("5,2", 5), (" 2 ", 2), ("100000", 4096), ("1", 1)]
)
def test_omp_num_threads(value, threads):
    code = (
        "import open_vc_attn as o; i = o.info(); print(i['cpu_threads'], i['cpu_threads_reason'])"
    )
    assert run(code, OMP_NUM_THREADS=value) == f"{threads} OMP_NUM_THREADS is {value}".strip()


@pytest.mark.parametrize("value", ["0", "-2", "many", "4,", "2.5"])
def test_omp_num_threads_that_is_no_number_is_ignored(value):
    code = (
        "import os, open_vc_attn as o; i = o.info()\n"
        "assert 1 <= i['cpu_threads'] <= len(os.sched_getaffinity(0)); print(i)"
    )
    assert f"OMP_NUM_THREADS is '{value}'" in run(code, OMP_NUM_THREADS=value)


def test_info_tells_what_was_set():
    open_vc_attn.set_num_threads(3)
    try:
        info = open_vc_attn.info()
    finally:
        open_vc_attn.set_num_threads(0)
    assert (info["cpu_threads"], info["cpu_threads_reason"]) == (3, "set_num_threads(3)")
    assert open_vc_attn.info()["cpu_threads_reason"] != "set_num_threads(3)"


def test_threads_of_other_numbers_end():
    x = numpy.ones((300, 2, 128), numpy.float32)
    try:
        open_vc_attn.set_num_threads(1)
        open_vc_attn.attention(x, x, x)
        before = len(os.listdir("/proc/self/task"))
        for threads in (*range(2, 10), 1):
            open_vc_attn.set_num_threads(threads)
            open_vc_attn.attention(x, x, x)
        assert len(os.listdir("/proc/self/task")) == before
    finally:
        open_vc_attn.set_num_threads(0)


FORK = """
import os, sys, threading, numpy, open_vc_attn
rng = numpy.random.default_rng(0)
x = rng.standard_normal((700, 2, 128)).astype(numpy.float32)
open_vc_attn.set_num_threads(3)
expected = open_vc_attn.attention(x, x, x).tobytes()

def child(depth):
    pid = os.fork()
    if pid == 0:
        same = open_vc_attn.attention(x, x, x).tobytes() == expected
        threads = len(os.listdir("/proc/self/task")) == 3
        os._exit(0 if same and threads and (depth == 0 or child(depth - 1)) else 1)
    return os.waitpid(pid, 0)[1] == 0

assert child(1)
stop = False
def work():
    while not stop:
        open_vc_attn.attention(x, x, x)
workers = [threading.Thread(target=work) for _ in range(2)]
for worker in workers: worker.start()
results = [child(0) for _ in range(5)]
stop = True
for worker in workers: worker.join()
assert all(results), results
print("fine")
"""


def test_fork_while_others_compute():
    assert run(FORK) == "fine"


def test_multiprocessing_fork():
    code = """
import multiprocessing, numpy, open_vc_attn
x = numpy.ones((500, 2, 128), numpy.float32)
def call(_):
    return open_vc_attn.attention(x, x, x).tobytes()
if __name__ == "__main__":
    expected = call(0)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(call, range(4)) == [expected] * 4
    print("fine")
"""
    assert run(code) == "fine"


@pytest.mark.parametrize("name", ["attention", "exact_attention"])
@pytest.mark.parametrize("threads", [1, 2])
def test_interrupt(name, threads):
    x = numpy.ones((120_000, 4, 128), numpy.float16)
    calls = {
        "attention": lambda: open_vc_attn.attention(x, x, x),
        "exact_attention": lambda: open_vc_attn.exact_attention(x, x, x, rows=range(20_000)),
    }
    open_vc_attn.set_num_threads(threads)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    start = time.monotonic()
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            calls[name]()
        assert time.monotonic() - start < AT_ONCE
        small = x[:200]
        numpy.testing.assert_array_equal(open_vc_attn.attention(small, small, small), small)
    finally:
        timer.cancel()
        open_vc_attn.set_num_threads(0)


def test_handlers_of_other_signals_run_during_a_call():
    class Expired(Exception):
        pass

    def expire(*_):
        raise Expired

    x = numpy.ones((120_000, 4, 128), numpy.float16)
    former = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    start = time.monotonic()
    try:
        with pytest.raises(Expired):
            open_vc_attn.attention(x, x, x)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
    assert time.monotonic() - start < AT_ONCE


def test_a_handler_that_returns_changes_nothing():
    x = numpy.random.default_rng(1).standard_normal((3000, 2, 128)).astype(numpy.float32)
    expected = open_vc_attn.attention(x, x, x)
    ticks = []
    former = signal.signal(signal.SIGALRM, lambda *_: ticks.append(0))
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    try:
        actual = open_vc_attn.attention(x, x, x)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
    numpy.testing.assert_array_equal(actual, expected)
    assert ticks


def test_interrupt_of_a_call_of_another_thread_waits_for_nobody():
    """Ctrl-C is the main thread's affair; a call of another thread goes on."""
    x = numpy.ones((4000, 2, 128), numpy.float32)
    results = []
    worker = threading.Thread(target=lambda: results.append(open_vc_attn.attention(x, x, x)))
    worker.start()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
        time.sleep(1)
    worker.join()
    numpy.testing.assert_array_equal(results[0], x)
