"""A fake for the engine that speaks its protocol, behaves badly on request, and computes nothing.

Run as a script it is the engine's process; `FakeEngine` is the same inside the window's own process. What it does is
written in the model's name ("fake", "fake-slow", "fake-missing", "fake-crash") and in the last message:
    "words 50 pace 0.01"   50 words, one each 0.01 s      "crash after 3"   the process dies after 3 words
    "fail after 3"         an EngineError after 3 words    "hang after 3"    no word, no heartbeat any more
    "card after 3"         the GPU fails after 3 words     "give-up"         it is not used from then on
    "lose"                 as "give-up", and no GPU works in this process any more
    "words 50 until PATH"  49 words, and the last one once that file is there
    "bug"                  a fault of our own              "history"         the messages it was sent, as JSON
    "drop 2"               two messages did not fit        anything else     is repeated
    'call [["a", {}]]'     calls the tool "a", and repeats what it gave; "loop" does so again and again
    'OBEY [["a", {}]]'     in a result: does what the result says, as the most credulous model would
"fake-as-NAME" is called NAME, "fake-stuck" hears of nothing while it loads, "fake-endless" loads until it is cancelled.
"fake-gpu" has a GPU, unless it is told to keep to the processor; with a budget for its memory less lies on it.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import psutil

from engine.service import protocol

WORD = "word{} "


# Models whose templates have a choice of how much to think, the usual one last.
THINKING = {"fake-thinker": ["off", "on"], "fake-effort": ["high", "low", "medium"]}


class FakeEngine:
    """The interface of engine.service.host.EngineHost."""

    def __init__(self, emit: Callable[[protocol.Event], None]) -> None:
        self.emit = emit
        self.queue: queue.Queue[protocol.Request | None] = queue.Queue()
        self.cancelled: set[str] = set()
        self.closed = threading.Event()
        self.beating = True
        self.model, self.name = "", "Fake"
        self.on_gpu = False
        self.vocabulary = ["other "]  # the words of inspected answers, which are their tokens

    def submit(self, request: protocol.Request) -> None:
        if isinstance(request, protocol.Cancel):
            self.cancelled.add(request.target)
            self.emit(protocol.Finished(request.id))
        else:
            self.queue.put(request)

    def close(self) -> None:
        self.closed.set()
        self.queue.put(None)

    def run_pending(self, block: bool = False) -> None:
        while not self.closed.is_set():
            try:
                request = self.queue.get(block=block)
            except queue.Empty:
                return
            if isinstance(request, protocol.Load):
                self.load(request)
            elif isinstance(request, protocol.Generate):
                self.generate(request)
            elif isinstance(request, protocol.Count):
                self.count(request)
            elif isinstance(request, protocol.Unload):
                self.model = ""
                self.emit(protocol.Finished(request.id))
            elif request is None or isinstance(request, protocol.Shutdown):
                self.closed.set()
            else:
                self.emit(protocol.Finished(request.id))

    def stopped(self, request_id: str) -> bool:
        return request_id in self.cancelled or self.closed.is_set()

    def load(self, request: protocol.Load) -> None:
        if request.model == "fake-crash":
            psutil.Process().kill()
        if request.model == "fake-stuck":
            time.sleep(3600)
        steps = {"fake-slow": 20, "fake-endless": 1_000_000}.get(request.model, 4)
        for step in range(steps + 1):
            self.emit(protocol.Progress(request.id, "loading", step * 1000, steps * 1000))
            if request.model in ("fake-slow", "fake-endless"):
                time.sleep(0.02)
            if self.stopped(request.id):
                self.emit(protocol.Finished(request.id, {"cancelled": True}))
                return
        if request.model.endswith("fake-missing"):
            self.emit(protocol.Failed(request.id, "ModelNotFoundError", "There is no model called 'fake-missing'.",
                                      "Check the path, or choose another model."))  # fmt: skip
            return
        on_gpu = request.model == "fake-gpu" and request.engine.get("device") != "cpu"
        if request.engine.get("device") == "cuda" and not on_gpu:
            self.emit(protocol.Failed(request.id, "DeviceUnavailableError", "The GPU cannot be used: the NVIDIA driver "
                                      "470 is older than 525, which is needed.", "Use --device cpu."))  # fmt: skip
            return
        self.on_gpu, small = on_gpu, on_gpu and request.engine.get("vram_budget_gib") is not None
        self.model = request.model
        self.name = request.model.partition("-as-")[2] or "Fake"
        context = request.engine.get("context") or 512
        threads = request.engine.get("threads") or 1
        info = protocol.LoadedModelInfo(
            self.name, request.model, "llama", "relu-glu", 1000, context, "cuda" if on_gpu else "cpu",
            "36% of the neurons fit" if on_gpu else "CPU only: no NVIDIA driver is installed", threads, "exact",
            "It is a fake", 0.1, {}, "A fake for a model.", has_predictors=request.model == "fake-predictors",
            gpu="GeForce RTX 4090" if on_gpu else "", vram_bytes=21 << 30 if on_gpu else 0,
            thinking=THINKING.get(request.model, []), thinking_default=THINKING.get(request.model, [""])[-1],
            gpu_notes=("2.50 GiB of VRAM was not available: less was placed there.",) if small else (),
        )  # fmt: skip
        self.emit(protocol.Finished(request.id, asdict(info)))

    def count(self, request: protocol.Count) -> None:
        """A token a word, 512 of them; of texts there is room for 100 words."""
        words = sum(len(message["content"].split()) for message in request.messages)
        tokens = [len(text.split()) for text in request.texts]
        kept = [min(n, 100 // len(tokens)) for n in tokens]
        result = protocol.CountResult(
            tokens=words + 50 * len(request.tools), context_total=512, most_tokens=384, fits=words < 496,
            dropped_messages=2 if words > 384 and request.overflow != "stop" else 0,
            dropped_at=2 if request.overflow == "middle" else 0, text_tokens=tokens, text_kept_tokens=kept,
            tool_tokens=50 * len(request.tools),
            text_kept_chars=[len(" ".join(t.split()[:n])) for t, n in zip(request.texts, kept, strict=True)],
        )  # fmt: skip
        self.emit(protocol.Finished(request.id, asdict(result)))

    def inspected(self, request: protocol.Generate, words: list[str]) -> protocol.Inspected:
        """Every word is a token of probability 0.6, and "other " could have come; 2 layers of 8 neurons."""
        self.vocabulary += [word for word in dict.fromkeys(words) if word not in self.vocabulary]
        ids = [self.vocabulary.index(word) for word in words]
        cost = {"run": 1, "bytes": 5_000_000, "fired": [1, 4], "active": "AQ8=", "computed": 10}
        rows = [{"id": token, "p": 0.6, "top": [[token, 0.6], [0, 0.3]], "us": 1500, **(cost if at else {})}
                for at, token in enumerate(ids)]  # fmt: skip
        prompt = request.prompt or [0, 0]
        texts = {str(token): self.vocabulary[token] for token in {0, *ids, *prompt}}
        return protocol.Inspected(request.id, list(prompt), rows, texts, 8)

    def generate(self, request: protocol.Generate) -> None:
        if not self.model:
            self.emit(protocol.Failed(request.id, "InvalidRequestError", "No model is loaded.", "Load a model first."))
            return
        asked = next(one["content"] for one in reversed(request.messages) if one["role"] != "tool")
        if request.messages[-1]["role"] == "tool":
            asked = next(one["content"] for one in reversed(request.messages) if one["role"] == "user")
        results = [one for one in request.messages if one["role"] == "tool"]
        parts = asked.split()
        number = float(parts[-1]) if not request.continues and parts[-1].replace(".", "").isdigit() else 0.0
        first = "" if request.continues else asked.split()[0]  # what it has said itself is repeated
        until: Path | None = None
        if first == "words":
            words, pace = [WORD.format(i) for i in range(int(parts[1]))], number
            until = Path(parts[3]) if parts[2:3] == ["until"] else None
        elif first in ("crash", "fail", "hang", "card"):
            words, pace = [WORD.format(i) for i in range(int(number))], 0.01
        elif request.messages[-1]["role"] == "tool":
            words, pace = ["It gave ", *(one["content"] for one in results)], 0.0
        elif first in ("call", "loop"):
            words, pace = ["Let me see. "], 0.0
        elif first == "history":
            words, pace = [json.dumps(request.messages)], 0.0
        elif first == "bug":
            self.emit(protocol.Failed(request.id, "ZeroDivisionError", "division by zero", "Report this fault.", True,
                                      "Traceback (most recent call last): ..."))  # fmt: skip
            return
        else:
            words, pace = [f"{part} " for part in parts], 0.0
        if request.n_begun:
            words[: request.n_begun] = [self.vocabulary[token] for token in request.prompt[-request.n_begun :]]
        self.emit(protocol.Progress(request.id, "reading", 10, 10))
        text, reason = "", "stop"
        for done, word in enumerate(words, start=1):
            while until is not None and done == len(words) and not until.exists() and not self.stopped(request.id):
                time.sleep(0.005)
            if self.stopped(request.id):
                reason = "cancelled"
                break
            text += word
            self.emit(protocol.Token(request.id, word, done))
            self.emit(protocol.Stats(request.id, done, 100.0, 0.01, 10 + done, 512, 0.83 if self.on_gpu else None))
            time.sleep(pace)
        if request.inspect:
            self.emit(self.inspected(request, words[request.n_begun :]))
        if first == "crash":
            psutil.Process().kill()
        if first == "hang":
            self.beating = False
            time.sleep(3600)
        if first == "fail":
            self.emit(protocol.Failed(request.id, "HostMemoryError", "The RAM was used up.", "Close other programs."))
            return
        if first == "card":
            self.emit(protocol.Failed(request.id, "DeviceFailedError", "The GPU stopped answering.", "Load it again."))
            return
        calls, given = [], None
        if request.tools and (first == "loop" or (first == "call" and request.messages[-1]["role"] != "tool")):
            given = json.loads(asked.partition(" ")[2])
        elif request.tools and results and "OBEY " in results[-1]["content"]:
            given = json.loads(results[-1]["content"].partition("OBEY ")[2])
        if given is not None:
            calls = [{"id": f"{request.id}-{n}", "name": name, "arguments": a} for n, (name, a) in enumerate(given)]
        dropped = int(number) if first == "drop" else 0
        summary, summarised = request.summary, request.summarised
        if first == "fold" and request.overflow == "summarise":
            self.emit(protocol.Progress(request.id, "summarising", 10, 10))
            summary, summarised = f"{summary}Of cats. ", summarised + int(number)
        result = protocol.GenerationResult(
            text=text, finish_reason="tool_calls" if calls else reason, calls=calls, context_full=False,
            prompt_tokens=10, reused_tokens=0, tokens=len(text.split()), dropped_messages=dropped,
            context_used=10 + len(text.split()), context_total=512,
            total_s=0.5, ttft_s=0.01, prefill_tok_s=1000.0, decode_tok_s=100.0,
            gpu_neuron_load=0.84 if self.on_gpu else None, active_share=0.1, fired_share=0.1,
            vram_bytes=21 << 30 if self.on_gpu else 0, ram_bytes=1000, mode="exact", model=self.name,
            device="cpu" if first in ("give-up", "lose") or not self.on_gpu else "cuda",
            device_reason="the GPU is gone", summary=summary, summarised=summarised,
        )  # fmt: skip
        self.on_gpu = result.device == "cuda"
        self.emit(protocol.Finished(request.id, asdict(result)))
        if first == "lose":
            self.emit(protocol.News("gpu_lost", {"reason": "CUDA_ERROR_LAUNCH_FAILED"}))


def main() -> None:
    arguments = sys.argv[1:]
    if "--die" in arguments:
        print("cannot go on", file=sys.stderr)
        sys.exit(3)
    if "--garbage" in arguments:
        print("this is no protocol", flush=True)
    lock = threading.Lock()

    def emit(message: protocol.Event | protocol.Hello) -> None:
        with lock:
            sys.stdout.buffer.write(protocol.encode(message))
            sys.stdout.buffer.flush()

    version = 99 if "--version-99" in arguments else protocol.PROTOCOL_VERSION
    if "--no-hello" not in arguments:
        emit(protocol.Hello(version, pid=os.getpid()))
    engine = FakeEngine(emit)

    def read() -> None:
        sys.stdin.buffer.readline()
        for line in sys.stdin.buffer:
            message = protocol.decode(line)
            assert isinstance(message, protocol.Request)
            engine.submit(message)
        if "--deaf" not in arguments:
            os._exit(0)

    def beat() -> None:
        while engine.beating:
            emit(protocol.Heartbeat())
            time.sleep(0.05)

    threading.Thread(target=read, daemon=True).start()
    if "--no-hello" not in arguments:
        threading.Thread(target=beat, daemon=True).start()
    print("fake engine is up", file=sys.stderr, flush=True)
    engine.run_pending(block=True)
    if "--deaf" in arguments:
        time.sleep(3600)
    os._exit(0)  # Python's own end would crash on the thread that reads stdin


def replace_engine() -> None:
    """Let the program that calls this answer with the fake, in its own process or in another."""
    from app.clients import engine_worker

    command = [sys.executable, str(Path(__file__).resolve())]
    process = engine_worker.ProcessHost

    class FakeInThread(engine_worker.InThreadHost):
        def __init__(self, emit: Callable[[protocol.Event], None]) -> None:
            super().__init__(emit, FakeEngine)  # type: ignore[arg-type]  # has the methods that the host calls

    engine_worker.ProcessHost = lambda emit, folder: process(emit, folder, command)  # type: ignore[assignment, misc]
    engine_worker.InThreadHost = FakeInThread  # type: ignore[misc]  # the program is replaced from outside


if __name__ == "__main__":
    main()
