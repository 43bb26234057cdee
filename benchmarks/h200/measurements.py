# SPDX-License-Identifier: BSD-3-Clause
"""The steps of the benchmark. Each returns plain data for results.json."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from accuracy import ExactRows
from contender_names import OPENVC_CALL, OPENVC_KERNEL
from contenders import Call, Contender
from gpu_monitor import GpuMonitor
from inputs import HEAD_DIM, Inputs, attention_flops, gaussian
from paired_timing import (
    Launch,
    Plan,
    estimate_ms,
    median_ratio,
    paired_rounds,
    round_seconds,
    warm_up,
)
from results import DeviceLost, Results

import open_vc_attn

FIRST_USE_SECONDS = 60.0  # a contender that takes longer hangs; FlashAttention-4 compiles
WARM_UP_SECONDS = 1.0
MIN_ROUNDS = 3
SHORT_TIMED_SECONDS = 0.03


def shape_name(tokens: int, heads: int) -> str:
    return f"{tokens}x{heads}"


def affordable_rounds(seconds: float, round_seconds: float, wanted: int) -> int:
    """As many rounds as fit, up to what is wanted; never fewer than a median needs."""
    return max(MIN_ROUNDS, min(wanted, math.floor(seconds / round_seconds)))


class Benchmark:
    """The contenders that are installed, the monitor and the record of one run."""

    def __init__(
        self, contenders: Sequence[Contender], monitor: GpuMonitor, results: Results
    ) -> None:
        self._monitor = monitor
        self._results = results
        self.versions: dict[str, str] = {}
        self.absent: dict[str, str] = {}
        self._contenders: list[Contender] = []
        for contender in contenders:
            if contender.name in results.excluded:
                continue
            try:
                self.versions[contender.name] = contender.version()
                self._contenders.append(contender)
            except Exception as error:
                self.absent[contender.name] = f"{type(error).__name__}: {error}"

    def copy_bandwidth(self) -> dict[str, Any]:
        """A large device-to-device copy, bytes read and written."""
        source = torch.randn(1 << 30, device="cuda", dtype=torch.bfloat16)
        target = torch.empty_like(source)

        def launch() -> None:
            target.copy_(source)

        timing = self._time({"copy": launch}, Plan(5, 0.1, 0.05), [2.0 * source.nbytes])["copy"]
        timing["bytes_per_second"] = 2.0 * source.nbytes / (timing["p50_ms"] * 1e-3)
        return timing

    def accuracy(self, inputs: Inputs) -> dict[str, Any]:
        """Relative L2 error of every contender on inputs that are not timed."""
        exact = ExactRows(inputs)
        errors: dict[str, float] = {}
        failures: dict[str, str] = {}
        plans = []
        for contender in self._contenders:
            call = self._set_up(contender, inputs, failures)
            if call is None:
                continue
            with contender.context():
                errors[contender.name] = exact.describe(call.decode(call.launch()))["rel_l2"]
            if contender.name == OPENVC_KERNEL and call.plans is not None:
                plans = call.plans()
            del call
            torch.cuda.empty_cache()
        return {"rel_l2": errors, "failures": failures, "plans": plans}

    def speed(
        self,
        inputs: Inputs,
        plan: Plan,
        seconds: float,
        leave_out: Collection[str] = (),
    ) -> dict[str, Any]:
        """Error and time of the contenders on the same tensors; times in shuffled rounds, as many
        as fit into the seconds."""
        begin = time.monotonic()
        exact = ExactRows(inputs)
        failures: dict[str, str] = {}
        calls: dict[str, Call] = {}
        estimates: dict[str, float] = {}
        found: dict[str, dict[str, Any]] = {}
        contexts = {}
        for contender in self._contenders:
            name = contender.name
            call = None if name in leave_out else self._set_up(contender, inputs, failures)
            if call is None:
                continue
            calls[name] = call
            contexts[name] = contender.context
            with contender.context():
                found[name] = exact.describe(call.decode(call.launch()))
            if call.plans is not None:
                found[name]["plans"] = call.plans()
            estimates[name] = estimate_ms(call.launch, contender.context())
        del exact
        launches = {name: call.launch for name, call in calls.items()}
        left = seconds - (time.monotonic() - begin) - WARM_UP_SECONDS
        rounds = affordable_rounds(left, round_seconds(estimates, plan), plan.rounds)
        plan = Plan(rounds, plan.timed_seconds, plan.lead_in_seconds)
        first = next(iter(launches))
        with contexts[first]():
            warm_up(launches[first], estimates[first], WARM_UP_SECONDS)
        timings = paired_rounds(launches, estimates, plan, self._monitor, contexts=contexts)
        result: dict[str, Any] = {
            "tokens": inputs.tokens,
            "heads": inputs.heads,
            "causal": inputs.causal,
            "flops": inputs.flops,
            "rounds": rounds,
            "contenders": {
                name: timing.describe(self._monitor, inputs.flops) | found[name]
                for name, timing in timings.items()
            },
            "failures": failures,
        }
        if OPENVC_KERNEL in timings and OPENVC_CALL in timings:
            ratio = median_ratio(timings[OPENVC_CALL], timings[OPENVC_KERNEL])
            result["call_overhead_percent"] = round(100 * (ratio - 1), 3)
        return result

    def lengths(self, tokens: Sequence[int], heads: int) -> dict[str, Any]:
        """The kernel at neighbouring lengths: a cliff would show here."""
        prepared = {n: open_vc_attn.prepare_fp8(*gaussian(n, heads).tensors) for n in tokens}
        launches: dict[str, Launch] = {
            str(n): lambda p=p: open_vc_attn.attention_fp8(p) for n, p in prepared.items()
        }
        flops = [attention_flops(n, n, heads) for n in tokens]
        return self._time(launches, Plan(5, 0.1, 0.1), flops)

    def preparation(self, shapes: Sequence[tuple[int, int]], bandwidth: float) -> dict[str, Any]:
        """Preparation alone, beside the kernel and the time to move its bytes."""
        result = {}
        for tokens, heads in shapes:
            inputs = gaussian(tokens, heads)
            prepared = open_vc_attn.prepare_fp8(*inputs.tensors)
            launches: dict[str, Launch] = {
                "preparation": lambda x=inputs: open_vc_attn.prepare_fp8(*x.tensors),
                "kernel": lambda p=prepared: open_vc_attn.attention_fp8(p),
            }
            timings = self._time(launches, Plan(5, 0.06, 0.03), [inputs.flops] * 2)
            values = tokens * heads * HEAD_DIM
            # Q, K and V are read once in two bytes and written once in one; residual columns too.
            residuals = 2 * 32 * tokens * sum(plan.extra_steps for plan in prepared.plans)
            floor_ms = (3 * 2 * values + 3 * values + residuals) / bandwidth * 1e3
            milliseconds = timings["preparation"]["p50_ms"]
            result[shape_name(tokens, heads)] = {
                "prep_ms": milliseconds,
                "floor_ms": floor_ms,
                "floor_ratio": milliseconds / floor_ms,
                "percent_of_kernel": 100 * milliseconds / timings["kernel"]["p50_ms"],
                "timings": timings,
            }
            del inputs, prepared, launches
            torch.cuda.empty_cache()
        return result

    def short_calls(self, tokens: Sequence[int], heads: int) -> dict[str, Any]:
        """Complete calls from Python, back to back and as CUDA graphs."""
        result: dict[str, Any] = {}
        names = [c for c in self._contenders if c.kind == "bf16" or c.name == OPENVC_CALL]
        for n in tokens:
            inputs = gaussian(n, heads)
            failures: dict[str, str] = {}
            eager: dict[str, Launch] = {}
            replay: dict[str, Launch] = {}
            contexts = {}
            for contender in names:
                call = self._set_up(contender, inputs, failures)
                if call is None:
                    continue
                eager[contender.name] = call.launch
                contexts[contender.name] = contender.context
                try:
                    with contender.context():
                        replay[contender.name] = _as_graph(call.launch)
                except Exception as error:
                    failures[f"{contender.name}, graph"] = str(error)[:500]
            plan = Plan(5, SHORT_TIMED_SECONDS, SHORT_TIMED_SECONDS / 3)
            flops = inputs.flops
            result[str(n)] = {
                "eager": self._time(eager, plan, [flops] * len(eager), contexts),
                "graph": self._time(replay, plan, [flops] * len(replay)),
                "failures": failures,
            }
        return result

    def repair(self, inputs: Inputs, title: str, budgets: Sequence[float]) -> dict[str, Any]:
        """What V residual repair costs and gains, both on the same inputs."""

        def repaired(budget: float) -> torch.Tensor:
            prepared = open_vc_attn.prepare_v_repair(*inputs.tensors, budget=budget)
            return open_vc_attn.attention_v_repair(prepared)

        launches: dict[str, Launch] = {"0.0": lambda: repaired(0.0)}
        launches |= {str(budget): lambda b=budget: repaired(b) for budget in budgets}
        estimates = {name: estimate_ms(launch) for name, launch in launches.items()}
        timings = paired_rounds(launches, estimates, Plan(5, 0.15, 0.1), self._monitor)
        exact = ExactRows(inputs)
        errors = {name: exact.describe(launch()) for name, launch in launches.items()}
        return {
            "shape": shape_name(inputs.tokens, inputs.heads),
            "inputs": title,
            "cost_percent": {
                str(budget): round(
                    100 * (median_ratio(timings[str(budget)], timings["0.0"]) - 1), 3
                )
                for budget in budgets
            },
            "rel_l2": {title: {name: error["rel_l2"] for name, error in errors.items()}},
            "heads": {name: error["rel_l2_heads"] for name, error in errors.items()},
        }

    def _set_up(
        self, contender: Contender, inputs: Inputs, failures: dict[str, str]
    ) -> Call | None:
        """The contender on these inputs, after one launch that went well."""
        if contender.name in self._results.excluded:
            return None
        try:
            with (
                self._results.first_use(contender.name, FIRST_USE_SECONDS),
                contender.context(),
            ):
                call = contender.set_up(inputs)
                call.launch()
            return call
        except DeviceLost:
            raise
        except Exception as error:
            failures[contender.name] = f"{type(error).__name__}: {str(error)[:500]}"
            return None

    def _time(
        self,
        launches: dict[str, Launch],
        plan: Plan,
        flops: Sequence[float],
        contexts: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        estimates = {
            name: estimate_ms(launch, contexts[name]() if contexts else nullcontext())
            for name, launch in launches.items()
        }
        timings = paired_rounds(launches, estimates, plan, self._monitor, contexts=contexts)
        return {
            name: timing.describe(self._monitor, work)
            for (name, timing), work in zip(timings.items(), flops, strict=True)
        }


def _as_graph(launch: Launch) -> Launch:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    graph.replay()
    torch.cuda.synchronize()
    return graph.replay
