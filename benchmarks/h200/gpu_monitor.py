# SPDX-License-Identifier: BSD-3-Clause
"""Clock, power and limits of a GPU while something runs on it."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Any, NamedTuple

SAMPLE_PERIOD = 0.02  # seconds

# NVML's clock event reasons, of which several can hold at once.
REASONS = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clocks",
}


class Sample(NamedTuple):
    time: float  # time.perf_counter()
    sm_clock_mhz: int
    power_watts: float
    temperature_celsius: int
    reasons: int


class GpuMonitor:
    """Samples a GPU's sensors in a thread. Without NVML it records nothing."""

    def __init__(self, ordinal: int = 0) -> None:
        self._samples: list[Sample] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._nvml: Any = None
        self.driver = ""
        self.power_limit_watts = 0.0
        try:
            import pynvml

            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByIndex(ordinal)
            self.driver = str(pynvml.nvmlSystemGetDriverVersion())
            self.power_limit_watts = pynvml.nvmlDeviceGetEnforcedPowerLimit(self._handle) * 1e-3
            self._nvml = pynvml
        except Exception as error:  # without NVML the figures stand, without their circumstances
            self.failure = f"{type(error).__name__}: {error}"

    def __enter__(self) -> GpuMonitor:
        if self._nvml is not None:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def energy_joules(self) -> float | None:
        """Energy that the GPU has used since the driver was loaded."""
        if self._nvml is None:
            return None
        return self._query(self._nvml.nvmlDeviceGetTotalEnergyConsumption) * 1e-3 or None

    def describe(self, periods: list[tuple[float, float]]) -> dict[str, Any]:
        """Medians over the samples in these periods of time.perf_counter()."""
        samples = [
            sample
            for begin, end in periods
            for sample in self._samples
            if begin <= sample.time <= end
        ]
        if not samples:
            return {}
        share = {
            name: sum(bool(sample.reasons & bit) for sample in samples) / len(samples)
            for bit, name in REASONS.items()
        }
        return {
            "samples": len(samples),
            "sm_clock_mhz": _median([sample.sm_clock_mhz for sample in samples]),
            "power_watts": round(_median([sample.power_watts for sample in samples]), 1),
            "temperature_celsius": _median([sample.temperature_celsius for sample in samples]),
            "limits": {name: round(value, 2) for name, value in share.items() if value > 0},
        }

    def _run(self) -> None:
        while not self._stop.wait(SAMPLE_PERIOD):
            self._samples.append(self._read())

    def _read(self) -> Sample:
        nvml = self._nvml
        return Sample(
            time.perf_counter(),
            self._query(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
            self._power(),
            self._query(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
            self._query(nvml.nvmlDeviceGetCurrentClocksThrottleReasons),
        )

    def _power(self) -> float:
        # nvmlDeviceGetPowerUsage is an average over the last second: longer than what is timed.
        nvml = self._nvml
        fields = self._query(nvml.nvmlDeviceGetFieldValues, [nvml.NVML_FI_DEV_POWER_INSTANT])
        if fields and fields[0].nvmlReturn == nvml.NVML_SUCCESS:
            return fields[0].value.uiVal * 1e-3
        return self._query(nvml.nvmlDeviceGetPowerUsage) * 1e-3

    def _query(self, function: Any, *arguments: Any) -> Any:
        """What NVML answers; 0 for a sensor that this GPU does not have."""
        try:
            return function(self._handle, *arguments)
        except self._nvml.NVMLError:
            return 0


def _median(values: list[Any]) -> Any:
    return sorted(values)[len(values) // 2]
