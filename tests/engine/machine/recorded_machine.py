"""A machine out of a recording under tests/data/hardware: its NVML, its psutil and its /proc and /sys."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pynvml

RECORDINGS = Path(__file__).resolve().parents[2] / "data" / "hardware"
NAMES = sorted(path.stem for path in RECORDINGS.glob("*.json"))


class RecordedNvml:
    """pynvml's functions with recorded answers; `{"error": code}` is raised as pynvml raises it.

    Any function that was not recorded is an AttributeError, so that a question nobody expected (PCIe throughput)
    fails the test. `errors` puts an error on a function, for all GPUs or for one.
    """

    NVMLError = pynvml.NVMLError
    NVML_TEMPERATURE_GPU = pynvml.NVML_TEMPERATURE_GPU

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.errors: dict[tuple[str, int | None], int] = {}
        self.calls: list[str] = []
        self.open = 0

    def fail(self, function: str, code: int, index: int | None = None) -> None:
        self.errors[function, index] = code

    def __getattr__(self, name: str) -> Callable[..., Any]:
        devices = self.answers.get("devices", [])
        if name == "nvmlShutdown" or name == "nvmlDeviceGetHandleByIndex" or name in self.answers:
            return lambda *arguments: self._answer(name, *arguments)
        if any(name in device for device in devices):
            return lambda handle, *_: self._answer(name, handle)
        raise AttributeError(name)

    def _answer(self, name: str, index: int | None = None) -> Any:
        self.calls.append(name)
        code = self.errors.get((name, index), self.errors.get((name, None)))
        if code is not None:
            raise pynvml.NVMLError(code)
        if name == "nvmlShutdown":
            self.open -= 1
            return None
        if self.open == 0 and name != "nvmlInit":
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)
        if name == "nvmlDeviceGetHandleByIndex":
            return index
        value = self.answers[name] if index is None else self.answers["devices"][index][name]
        if isinstance(value, dict) and "error" in value:
            raise pynvml.NVMLError(value["error"])
        if name == "nvmlInit":
            self.open += 1
        if isinstance(value, list) and name.endswith("Processes"):
            return [SimpleNamespace(**process) for process in value]
        if isinstance(value, dict):
            return SimpleNamespace(**value)
        return tuple(value) if isinstance(value, list) else value


class RecordedPsutil:
    """psutil's answers on the recorded machine; processes and times are set by the test."""

    Error = psutil.Error

    def __init__(self, ram: dict[str, int], logical: int) -> None:
        self.ram, self.logical = ram, logical
        self.times = SimpleNamespace(user=0.0, system=0.0, idle=0.0, iowait=0.0, guest=0.0)
        self.processes: dict[int, tuple[float, int]] = {}  # seconds spent, bytes resident
        self.refused: set[int] = set()  # pids that raise a plain OSError
        self.helpers: list[int] = []  # pids of what this process started, and of what those started

    def virtual_memory(self) -> SimpleNamespace:
        return SimpleNamespace(**self.ram)

    def cpu_count(self, logical: bool = True) -> int:
        return self.logical if logical else max(1, self.logical // 2)

    def cpu_times(self) -> Any:
        return _Times(self.times)

    def Process(self, pid: int) -> Any:
        machine = self

        class Process:
            def __init__(self) -> None:
                self.pid = pid

            def children(self, recursive: bool = False) -> list[Any]:
                return [machine.Process(one) for one in machine.helpers if recursive and one in machine.processes]

            def cpu_times(self) -> SimpleNamespace:
                return SimpleNamespace(user=machine._process(pid)[0], system=0.0)

            def memory_info(self) -> SimpleNamespace:
                return SimpleNamespace(rss=machine._process(pid)[1])

        self._process(pid)
        return Process()

    def _process(self, pid: int) -> tuple[float, int]:
        if pid in self.refused:
            raise OSError(87, "The parameter is incorrect")
        if pid not in self.processes:
            raise psutil.NoSuchProcess(pid)
        return self.processes[pid]


class _Times(tuple[float, ...]):
    """A named tuple as psutil makes it, with whatever fields the system has."""

    def __new__(cls, fields: SimpleNamespace) -> _Times:
        made = super().__new__(cls, vars(fields).values())
        made.__dict__.update(vars(fields))
        return made


class RecordedMachine:
    def __init__(self, name: str, root: Path) -> None:
        recording = json.loads((RECORDINGS / f"{name}.json").read_text(encoding="utf-8"))
        self.source = recording["source"]
        self.nvml = RecordedNvml(recording["nvml"])
        self.cpus = range(recording["cpus"])
        self.psutil = RecordedPsutil(recording["ram"], recording["cpus"])
        self.environment: dict[str, str] = {}
        self.root = root
        for path, content in recording["files"].items():
            self.write(path, content)

    def write(self, path: str, content: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")

    def keywords(self) -> dict[str, Any]:
        """What engine.machine.hardware.probe takes for this machine."""
        return {"nvml": self.nvml, "psutil": self.psutil, "root": self.root, "cpus": self.cpus,
                "environment": self.environment}  # fmt: skip
