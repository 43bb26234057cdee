# SPDX-License-Identifier: BSD-3-Clause
"""The record of a benchmark run: on disk after every step, so that a crash costs one step."""

from __future__ import annotations

import faulthandler
import json
import os
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

SCHEMA = "openvc.h200"
SCHEMA_VERSION = 2


class DeviceLost(RuntimeError):
    """The CUDA context is unusable: only a new process can go on."""


class Results:
    """results.json in a folder, and what the run may still spend."""

    def __init__(self, folder: Path, budget_seconds: float, resume: bool) -> None:
        self._path = folder / "results.json"
        self.data: dict[str, Any] = {
            "schema": SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "started": time.time(),
            "excluded": {},
            "running": None,
            "steps": {},
            "seconds": {},
            "failures": [],
        }
        folder.mkdir(parents=True, exist_ok=True)
        if resume and self._path.exists():
            self.data = json.loads(self._path.read_text())
            if self.data.get("schema_version") != SCHEMA_VERSION:
                raise SystemExit(
                    f"{self._path}: version {self.data.get('schema_version')} of the record; "
                    f"expected {SCHEMA_VERSION}; start without --resume"
                )
            self.data["failures"] = []  # of steps that get another chance now
            culprit = self.data["running"]
            if culprit is not None:
                self.data["excluded"][culprit] = "ended the process that it first ran in"
                self.data["running"] = None
        self._deadline = time.time() + budget_seconds
        self.save()

    @property
    def steps(self) -> dict[str, Any]:
        return self.data["steps"]

    @property
    def excluded(self) -> dict[str, str]:
        """Contenders that must not run again, and why."""
        return self.data["excluded"]

    def describe(self, **about: Any) -> None:
        """What the whole record is of. Steps of another commit or machine may not join it."""
        if self.steps:
            for name in ("commit", "driver", "gpu", "torch"):
                before, now = (x["environment"][name] for x in (self.data, about))
                if before != now:
                    raise SystemExit(
                        f"{self._path}: {name}: measured with {before}, now {now}; "
                        "start without --resume"
                    )
        self.data |= about
        self.save()

    def remaining_seconds(self) -> float:
        return self._deadline - time.time()

    def save(self) -> None:
        partial = self._path.with_suffix(".partial")
        partial.write_text(json.dumps(self.data, indent=1, allow_nan=True) + "\n")
        os.replace(partial, self._path)

    def step(self, name: str, measure: Callable[[], Any], *, needs_seconds: float = 0.0) -> None:
        """Runs one step unless it is done; an exception is recorded, not raised."""
        if name in self.steps:
            return
        if self.remaining_seconds() < needs_seconds:
            self._fail(name, "left out: the time budget is spent")
            return
        begin = time.monotonic()
        try:
            self.steps[name] = measure()
        except DeviceLost:
            raise
        except Exception:
            self._fail(name, traceback.format_exc(limit=4))
            require_device()
        finally:
            self.data["seconds"][name] = round(time.monotonic() - begin, 2)
            self.save()
            torch.cuda.empty_cache()
        print(f"{name}: {self.data['seconds'][name]:.1f} s", flush=True)

    @contextmanager
    def first_use(self, contender: str, seconds: float) -> Iterator[None]:
        """Names the culprit in case the process does not survive what happens inside."""
        self.data["running"] = contender
        self.save()
        faulthandler.dump_traceback_later(seconds, exit=True)
        try:
            yield
            if torch.cuda.is_available():
                torch.cuda.synchronize()
        except Exception:
            require_device()  # raises if the contender took the context with it
            self._nobody_runs()
            raise
        finally:
            faulthandler.cancel_dump_traceback_later()
        self._nobody_runs()

    def _nobody_runs(self) -> None:
        self.data["running"] = None
        self.save()

    def _fail(self, name: str, reason: str) -> None:
        self.data["failures"].append({"step": name, "reason": reason})
        print(f"{name}: FAILED\n{reason}", flush=True)
        self.save()


def require_device() -> None:
    """Raises DeviceLost if the last error was one that ends the CUDA context."""
    if not torch.cuda.is_available():
        return
    try:
        torch.cuda.synchronize()
    except Exception as error:
        raise DeviceLost(str(error)) from error
