"""Other programs on the same GPU: one that holds memory there, and another engine that answers.

Each is a process of its own that is asked line by line, in JSON. The one that holds memory knows the driver alone.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from native_kernels.cuda.runtime.driver import CudaOutOfMemoryError, Device, Stream  # noqa: E402 - by that line
from native_kernels.cuda.runtime.memory import DeviceMemory  # noqa: E402 - by that line

_LESS_BYTES = 32 << 20  # is asked for where the driver does not give all that it says is free


class Neighbour:
    """A process that answers questions. `close` ends it."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, str(Path(__file__)), *arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **question: Any) -> dict[str, Any]:
        """Raises: RuntimeError where the process has ended."""
        self.begin(**question)
        return self.answer()

    def begin(self, **question: Any) -> None:
        """Asks; `answer` waits for what comes back."""
        assert self._process.stdin is not None, "it is a pipe"
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Raises: RuntimeError where the process has ended."""
        assert self._process.stdout is not None, "it is a pipe"
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"another program on the GPU ended with code {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """A second time does nothing."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Holder(Neighbour):
    """Another program that holds memory of a GPU, as large games and trainings do."""

    def __init__(self, uuid: str) -> None:
        super().__init__("hold", uuid)

    def take(self, leave_bytes: int) -> tuple[int, int]:
        """It takes what is free but for so much: bytes that it holds now, and bytes that are free then."""
        found = self.ask(leave=leave_bytes)
        return found["held"], found["free"]


class OtherEngine(Neighbour):
    """Another engine with the same model. Questions: prompt (tokens), tokens (of the answer)."""

    def __init__(self, model: Path | str, device: str, context: int) -> None:
        super().__init__("answer", str(model), device, str(context))


def hold(device: Device, questions: Iterator[str], answers: IO[str]) -> None:
    """Holds what it is asked to, until there are no more questions."""
    device.enter()
    stream = Stream(device)
    held: list[DeviceMemory] = []
    for line in questions:
        wanted = device.memory()[0] - int(json.loads(line)["leave"])
        while wanted > 0:
            try:
                held.append(DeviceMemory(device, wanted))
            except CudaOutOfMemoryError:
                wanted -= _LESS_BYTES
                continue
            stream.fill(held[-1].address, 1, wanted)
            stream.synchronize()
            break
        _say(answers, {"held": sum(one.n_bytes for one in held), "free": device.memory()[0]})
    for one in held:
        one.free()
    stream.close()
    device.close()


def answer(model: str, device: str, context: int, questions: Iterator[str], answers: IO[str]) -> None:
    """Answers greedily what it is asked."""
    from engine.config import EngineConfig, SamplingConfig
    from engine.session.chat_session import ChatSession
    from engine.session.loaded_model import LoadedModel

    loaded = LoadedModel.load(model, EngineConfig(device=device, context=context))  # type: ignore[arg-type]
    try:
        for line in questions:
            question = json.loads(line)
            sampling = SamplingConfig().changed({"temperature": 0, "max_tokens": question["tokens"]})
            events = list(ChatSession(loaded).generate(question["prompt"], sampling))
            found = [event.token_id for event in events if event.token_id is not None]
            stats = events[-1].stats
            words = {"device": loaded.device, "vram_bytes": loaded.vram_bytes, "decode_tok_s": stats.decode_tok_s}
            _say(answers, {"tokens": found, **words})
    finally:
        loaded.close()


def _say(answers: IO[str], words: dict[str, Any]) -> None:
    answers.write(json.dumps(words) + "\n")
    answers.flush()


def main() -> int:
    role, *rest = sys.argv[1:]
    if role == "hold":
        from native_kernels.cuda.runtime.driver import driver

        gpus = map(Device, range(driver().n_devices))
        hold(next(one for one in gpus if one.uuid == rest[0]), iter(sys.stdin), sys.stdout)
    else:
        answer(rest[0], rest[1], int(rest[2]), iter(sys.stdin), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
