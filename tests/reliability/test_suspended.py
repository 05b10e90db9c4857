"""An engine's process that the system stops in mid-answer, as a suspended PC does, and lets go on: nothing is lost."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from engine.service import protocol

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stops with SIGSTOP")


class Child:
    """`python -m engine host`, or what `arguments` start instead, spoken to line by line."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, *(arguments or ("-m", "engine", "host"))]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()
        self.say(protocol.Hello(pid=os.getpid()))

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)

    def say(self, message: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(protocol.encode(message))
        self.process.stdin.flush()

    def until(self, type_: str, id: str) -> dict[str, Any]:
        while True:
            message: dict[str, Any] = json.loads(self.lines.get(timeout=120))
            if message["type"] == "failed":
                raise AssertionError(message)
            if message["type"] == type_ and message.get("id") == id:
                return message


@pytest.fixture
def child() -> Iterator[Child]:
    made = Child()
    yield made
    made.process.kill()
    made.process.communicate()


def test_stopped_in_mid_answer_it_goes_on_where_it_was(child: Child) -> None:
    child.say(protocol.Load("load", "starter-chat", {"device": "cpu", "threads": 1}))
    child.until("finished", "load")
    messages = [{"role": "user", "content": "Tell me a story about a fox who lived by the sea."}]
    sampling = {"temperature": 0, "max_tokens": 60}
    child.say(protocol.Generate("whole", messages, sampling))
    wanted = child.until("finished", "whole")["result"]["text"]
    child.say(protocol.Generate("stopped", messages, sampling, fresh=True))
    child.until("token", "stopped")
    os.kill(child.process.pid, signal.SIGSTOP)
    while psutil.Process(child.process.pid).status() != psutil.STATUS_STOPPED:
        time.sleep(0.01)
    time.sleep(0.3)  # it would have said more by now
    os.kill(child.process.pid, signal.SIGCONT)
    assert child.until("finished", "stopped")["result"]["text"] == wanted


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads are not pinned on this system")
def test_all_on_one_cpu_that_others_use_too(child: Child) -> None:
    """More threads than processors, none of which it has for itself: slower, and never stuck."""
    one = {min(os.sched_getaffinity(0))}
    os.sched_setaffinity(child.process.pid, one)
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        os.sched_setaffinity(busy.pid, one)
        child.say(protocol.Load("load", "starter-chat", {"device": "cpu", "threads": 3}))
        child.until("finished", "load")
        messages = [{"role": "user", "content": "Hello"}]
        child.say(protocol.Generate("answer", messages, {"temperature": 0, "max_tokens": 8}))
        assert child.until("finished", "answer")["result"]["tokens"] > 0
    finally:
        busy.kill()
        busy.wait()
