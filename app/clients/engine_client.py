"""The engine for the window: one model, one answer at a time, one status.

Turns protocol events into an EngineStatus and signals. Knows no chats.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from PySide6.QtCore import QObject, QTimer, Signal, Slot

from app.clients.answer_request import Answered, AnswerRequest
from app.clients.engine_process import EngineDied, EngineStarted
from app.clients.engine_status import EngineStatus, Phase, sentence, short_name, why_there
from app.clients.engine_worker import EngineWorker
from app.engine_text import plain_figures
from app.later import Later
from app.translation import tr_n

if TYPE_CHECKING:
    from engine.service import protocol
else:
    protocol = Later("engine.service.protocol")

log = logging.getLogger(__name__)

TELL_MS = 60  # minimum interval of updates during an answer: nobody reads faster
SHARE_AFTER_S = 1.0  # of prefill, after which its progress is shown
_NO_DRAFT = {"draft": "", "draft_reason": ""}
CANCEL_WITHIN_MS = 800  # an engine that has not cancelled a load by then is restarted


class EngineClient(QObject):
    """Sends requests to the worker and receives its events on the main thread."""

    status_changed = Signal(EngineStatus)
    ready = Signal()  # a model is loaded and idle
    text = Signal(str)
    answered = Signal(object)  # Answered, with its result
    failed = Signal(object)  # protocol.Failed, of the answer
    loaded = Signal(object)  # protocol.LoadedModelInfo
    load_failed = Signal(object)  # protocol.Failed
    died = Signal(object)  # EngineDied
    unloaded = Signal()  # no model is loaded or loading
    gpu_lost = Signal()  # no GPU works in the loaded model's process any more; `load` starts a new one
    noted = Signal(str)  # what happened to the loaded model, in one sentence
    lived = Signal(object)  # protocol.Live, while `watch` is on
    counted = Signal(object)  # protocol.CountResult of the last request, or None if counting failed
    served = Signal(object)  # protocol.ServerState: the local server's current state
    serve_failed = Signal(object)  # protocol.Failed: the local server could not be started
    load_wanted = Signal(str, str)  # the model that a program asks the local server for, and the program's name
    unload_wanted = Signal()  # nothing has used the model for the time that `serve` gave
    process_started = Signal(int)  # its pid; 0 in the window's own process

    def __init__(self, worker: EngineWorker) -> None:
        super().__init__()
        self._worker = worker
        self._numbers = itertools.count(1)
        self._load_id = ""  # of the current load, running or done
        self._answer_id = ""  # of the running answer
        self._inspected: protocol.Inspected | None = None  # of the answer, which ends
        self._asked_at = 0.0  # time.monotonic() of its start
        self._count_id = ""  # of the last count
        self._counts_aside: dict[str, Callable[[protocol.CountResult | None], None]] = {}
        self._embeds: dict[str, Callable[[protocol.EmbedResult | None], None]] = {}
        self._aside: tuple[str, Callable[[str], None]] = ("", lambda said: None)  # a request beside the answers
        # A load that waits for the answer to end; "unload": unload instead.
        self._wanted: tuple[str, dict[str, Any], str] | Literal["unload"] | None = None
        self._loaded = False
        self.status = self._emitted = EngineStatus()  # the current status, and the last one emitted
        self._pause_after_emit = QTimer(self, singleShot=True, interval=TELL_MS)
        self._pause_after_emit.timeout.connect(self._emit_soon)
        self._cancel_timer = QTimer(self, singleShot=True, interval=CANCEL_WITHIN_MS)
        self._cancel_timer.timeout.connect(self._end_the_load)
        self._notes: tuple[str, ...] = ()  # the last notes on placement
        self._is_gpu_lost = False  # to this process
        self._watching = False
        self._keeps: protocol.StorePrompts | None = None  # the last one
        self._serve_id = ""  # of the last request to the local server
        self._threads = ""  # number of threads, as text
        worker.happened.connect(self._on_event)

    @property
    def is_ready(self) -> bool:
        """Whether an answer could start now."""
        return self._loaded and not self._answer_id

    # --- asking

    def load(self, model: str, engine: dict[str, Any], name: str = "") -> None:
        """Load a model in place of the current one, after the running answer.

        name: to show until the model reports its own; empty: unknown.
        """
        if self._answer_id:
            self._wanted = (model, engine, name)
            return
        if self._is_gpu_lost:
            self.restart()
        if self._load_id and not self._loaded:
            self._worker.cancel(self._load_id)
        self._cancel_timer.stop()
        self._leave_aside()
        self._loaded = False
        self._load_id = f"load-{next(self._numbers)}"
        self._set(phase=Phase.LOADING, model=name, is_base=False, done=0, total=0, compiling=False, cancelling=False,
                  placement={}, **_NO_DRAFT)  # fmt: skip
        self._worker.submit(protocol.Load(self._load_id, model, engine))

    def cancel_load(self) -> None:
        """Cancel the running load, or drop the waiting one. No model is loaded then."""
        if self._wanted not in (None, "unload"):
            self._wanted = None
        elif self._load_id and not self._loaded and not self.status.cancelling:
            self._set(cancelling=True)
            self._worker.cancel(self._load_id)
            self._cancel_timer.start()

    def unload(self) -> None:
        """Free the model's memory, after the running answer."""
        if self._answer_id:
            self._wanted = "unload"
        elif self._load_id and not self._loaded:
            self.cancel_load()
        else:
            self._let_go()

    def keep(self) -> None:
        """Drop a waiting load or unload."""
        self._wanted = None

    @property
    def has_model(self) -> bool:
        """Whether a model is loaded, answering or not."""
        return self._loaded

    @property
    def is_waiting(self) -> bool:
        """Whether a load or unload waits for the answer to end."""
        return self._wanted is not None

    def _let_go(self) -> None:
        """Unload. The engine is told in any case, so that no model returns after a crash."""
        self._cancel_timer.stop()
        self._loaded, self._load_id = False, ""
        self._worker.submit(protocol.Unload(f"unload-{next(self._numbers)}"))
        self._rest()

    def _rest(self) -> None:
        self._set(phase=Phase.OFF, model="", description="", is_base=False, device="", device_reason="", gpu="",
                  done=0, total=0, compiling=False, cancelling=False, placement={}, **_NO_DRAFT, vram_bytes=None,
                  gpu_share=None, tok_s=None, context_used=None, context_total=None, load_s=None)  # fmt: skip
        self.unloaded.emit()

    def _end_the_load(self) -> None:
        """Restart an engine that is busy with something it cannot interrupt."""
        log.info("the engine did not let go of a load within %d ms: it is started anew", CANCEL_WITHIN_MS)
        self._loaded, self._load_id = False, ""
        self._worker.restart()
        self._rest()

    def ask(self, request: AnswerRequest) -> None:
        """Start an answer; only if `is_ready`."""
        self._leave_aside()
        self._answer_id = f"answer-{next(self._numbers)}"
        self._asked_at, self._count_id, self._inspected = time.monotonic(), "", None
        self._set(phase=Phase.THINKING, done=0, total=0, tok_s=None, tokens=0)
        self._worker.submit(
            protocol.Generate(
                self._answer_id, request.messages, request.sampling, request.mode,
                continues=request.continues, overflow=request.overflow, fresh=request.fresh,
                chat=request.chat,
                summary=request.summary, summarised=request.summarised, tools=list(request.tools),
                inspect=request.inspect, prompt=list(request.prompt), n_begun=request.n_begun,
            )
        )  # fmt: skip

    def count(self, request: AnswerRequest, texts: list[str]) -> None:
        """Count the tokens of a prompt as protocol.Count does; only if `is_ready`. `counted` follows, unless another
        count or an answer comes first."""
        self._count_id = f"count-{next(self._numbers)}"
        self._worker.submit(_count_of(self._count_id, request, texts))

    def count_aside(
        self, request: AnswerRequest, texts: list[str], then: Callable[[protocol.CountResult | None], None]
    ) -> None:
        """Count the tokens of a prompt that the composer does not show, after running requests; only with a model.

        `then` gets the count, or None where it failed. It is not called where the engine ended before.
        """
        count_id = f"count-aside-{next(self._numbers)}"
        self._counts_aside[count_id] = then
        self._worker.submit(_count_of(count_id, request, texts))

    def embed(
        self, texts: Sequence[str], model: str, then: Callable[[protocol.EmbedResult | None], None], role: str = ""
    ) -> None:
        """Turn texts into vectors as protocol.Embed does, between answers; `then` gets them, or None if that failed.

        model: one beside the chat's; "": the loaded one. role: of the texts in a search: "query" or "passage".
        """
        embed_id = f"embed-{next(self._numbers)}"
        self._embeds[embed_id] = then
        self._worker.submit(protocol.Embed(embed_id, list(texts), model, role=role))

    def _no_vectors(self, *ids: str) -> None:
        """Tell those who wait for vectors that there are none."""
        for then in [self._embeds.pop(embed_id) for embed_id in ids]:
            then(None)

    def ask_aside(self, request: AnswerRequest, then: Callable[[str], None]) -> None:
        """Request a short text that is not an answer in a chat; only if `is_ready`. The status does not show it.

        `then` gets the text. It is not called if an answer, a load or a failure comes first.
        """
        self._leave_aside()
        self._aside = (f"aside-{next(self._numbers)}", then)
        self._worker.submit(protocol.Generate(
            self._aside[0], request.messages, request.sampling, request.mode, overflow=request.overflow,
            summary=request.summary,
        ))  # fmt: skip

    def _leave_aside(self) -> None:
        """Cancel the request beside the answers: the engine is needed."""
        if self._aside[0]:
            self._worker.cancel(self._aside[0])
            self._aside = ("", lambda said: None)

    def stop(self) -> None:
        """Stop the running answer. It ends as cancelled."""
        if self._answer_id:
            self._set(phase=Phase.STOPPING)
            self._worker.cancel(self._answer_id)

    def watch(self, on: bool) -> None:
        """Turn the `lived` signal on or off."""
        if on != self._watching:
            self._watching = on
            self._worker.submit(protocol.Watch(f"watch-{next(self._numbers)}", on))

    def store_prompts(self, folder: Path, chats: list[str], quota_bytes: int) -> None:
        """Keep what is computed for these chats on disk, as protocol.StorePrompts; also after a restart."""
        self._keeps = protocol.StorePrompts("", str(folder), chats, quota_bytes)
        self._send_keeps()

    def _send_keeps(self) -> None:
        if self._keeps is not None:
            self._worker.submit(replace(self._keeps, id=f"keep-{next(self._numbers)}"))

    def choose_draft(self, draft: str) -> None:
        """Choose the smaller model that guesses for the loaded or loading one, as protocol.ChooseDraft."""
        if self._load_id:
            self._worker.submit(protocol.ChooseDraft(f"draft-{next(self._numbers)}", draft))

    def serve(self, on: bool, port: int, key: str, loads: bool = False, unload_after_s: float | None = None) -> None:
        """Switch the local server on or off at once, also during an answer. `served` or `serve_failed` follows.

        loads, unload_after_s: as in protocol.Serve.
        """
        self._serve_id = f"serve-{next(self._numbers)}"
        self._worker.submit(protocol.Serve(self._serve_id, on, port, key, loads, unload_after_s))

    def move(self, location: str) -> None:
        """Run the engine in the other location. Running requests are lost silently; call `load` afterwards."""
        self._loaded, self._load_id, self._answer_id = False, "", ""
        self._cancel_timer.stop()
        self._set(phase=Phase.STARTING, cancelling=False, placement={}, **_NO_DRAFT)
        self._worker.use(location)

    def restart(self) -> None:
        """Restart the engine: a failed GPU is lost to its process. A running answer is lost silently; call `load`
        afterwards."""
        self._loaded, self._load_id, self._answer_id = False, "", ""
        self._is_gpu_lost = False
        self._cancel_timer.stop()
        self._set(
            phase=Phase.STARTING, vram_bytes=None, gpu_share=None, cancelling=False, placement={}, **_NO_DRAFT,
        )  # fmt: skip
        self._worker.restart()
        self._no_vectors(*self._embeds)

    # --- events

    def _set(self, **values: Any) -> None:
        """Change the status and emit it."""
        self.status = replace(self.status, **values)
        self._emit_status()

    def _emit_status(self) -> None:
        if self.status != self._emitted:
            self._emitted = self.status
            self.status_changed.emit(self.status)

    def _emit_soon(self) -> None:
        """Emit figures that change with every token: at once, then at most every TELL_MS."""
        if not self._pause_after_emit.isActive() and self.status != self._emitted:
            self._pause_after_emit.start()
            self._emit_status()

    @Slot(object)
    def _on_event(self, event: object) -> None:
        match event:
            case EngineStarted():
                self._is_gpu_lost = False
                self.process_started.emit(event.pid)
                if self._watching:  # a new engine does not know
                    self._worker.submit(protocol.Watch(f"watch-{next(self._numbers)}"))
                self._send_keeps()
                if not self._load_id and self.status.phase is not Phase.OFF:
                    self._set(phase=Phase.FAILED if self.status.phase is Phase.RESTARTING else Phase.STARTING)
            case EngineDied():
                self._no_vectors(*self._embeds)
                self._end(event)
            case protocol.Progress() if event.id == self._load_id:
                compiling = event.stage == "preparing"
                self._set(phase=Phase.LOADING, done=event.done, total=event.total, compiling=compiling)
            case protocol.Finished() if event.id == self._load_id:
                self._model_is_there(event)
            case protocol.Failed() if event.id == self._load_id:
                self._cancel_timer.stop()
                if self.status.cancelling:  # it failed while being cancelled: nobody needs to know
                    self._let_go()
                    return
                self._load_id = ""
                self._set(phase=Phase.FAILED, done=0, total=0)
                self.load_failed.emit(event)
            case protocol.Inspected() if event.id == self._answer_id:
                self._inspected = event
            case protocol.Progress() | protocol.Token() | protocol.Stats() if event.id == self._answer_id:
                self._goes_on(event)
            case protocol.Finished() if event.id == self._answer_id:
                result = protocol.GenerationResult.from_dict(event.result)
                self._answer_ended(tok_s=result.decode_tok_s, tokens=result.tokens,
                                   context_used=result.context_used, context_total=result.context_total,
                                   **self._on_the_card(result))  # fmt: skip
                figures = {key: value for key, value in asdict(result).items() if key not in ("text", "calls")}
                inspected, self._inspected = self._inspected, None
                self.answered.emit(Answered(result.finish_reason, figures, result, inspected))
                self._next()
            case protocol.Failed() if event.id == self._answer_id:
                self._answer_ended(tok_s=None)
                self.failed.emit(event)
                self._next()
            case protocol.Finished() if event.id == self._serve_id:
                self.served.emit(protocol.ServerState.from_dict(event.result))
            case protocol.Failed() if event.id == self._serve_id:
                self.serve_failed.emit(event)
            case protocol.News() if event.topic == "server":
                self.served.emit(protocol.ServerState.from_dict(event.values))
            case protocol.News() if event.topic == "load_wanted":
                self.load_wanted.emit(str(event.values.get("model")), str(event.values.get("client")))
            case protocol.News() if event.topic == "unload_wanted":
                self.unload_wanted.emit()
            case protocol.Live() if self._watching:
                self.lived.emit(event)
            case protocol.Finished() if event.id in self._embeds and "vectors" in event.result:
                self._embeds.pop(event.id)(protocol.EmbedResult.from_dict(event.result))
            case protocol.Finished() | protocol.Failed() if event.id in self._embeds:
                if isinstance(event, protocol.Failed):
                    log.info("texts could not be turned into vectors: %s", event.message)
                self._no_vectors(event.id)
            case protocol.Finished() if event.id in self._counts_aside:
                self._counts_aside.pop(event.id)(protocol.CountResult.from_dict(event.result))
            case protocol.Failed() if event.id in self._counts_aside:
                log.info("the prompt could not be counted: %s", event.message)
                self._counts_aside.pop(event.id)(None)
            case protocol.Finished() if event.id == self._count_id:
                self._count_id = ""
                self.counted.emit(protocol.CountResult.from_dict(event.result))
            case protocol.Failed() if event.id == self._count_id:
                self._count_id = ""
                log.info("the prompt could not be counted: %s", event.message)
                self.counted.emit(None)
            case protocol.Finished() if event.id == self._aside[0]:
                (_, then), self._aside = self._aside, ("", lambda said: None)
                then(str(event.result.get("text", "")))
            case protocol.Failed() if event.id == self._aside[0]:
                self._aside = ("", lambda said: None)
            case protocol.News() if event.topic == "draft" and self._loaded:
                model, reason = (str(event.values.get(key) or "") for key in ("model", "reason"))
                self._set(draft=model, draft_reason=plain_figures(reason))
            case protocol.News() if event.topic == "gpu_lost" and self._worker.location == "process":
                self._is_gpu_lost = True
                if self._loaded:
                    self.gpu_lost.emit()
            case protocol.News() if event.topic == "model" and self._loaded:
                self._learn(event.values)
            case protocol.Failed() if not event.id:
                log.warning("the engine could not read a request: %s", event.message)

    def _learn(self, news: dict[str, Any]) -> None:
        """Take news of the model's placement: another program took GPU memory or freed it."""
        placement, notes = news.get("placement"), tuple(news.get("notes") or ())
        if "device" in news:
            gpu = "" if news["device"] == "cpu" else str(news.get("gpu") or "GPU")
            reason = sentence(why_there(str(news.get("device_reason", ""))), *notes)
            share = self.status.gpu_share if gpu else None
            self._set(**self._where(gpu, reason, int(news.get("vram_bytes") or 0)) | {"gpu_share": share})
        if isinstance(placement, dict):
            self._set(placement=placement)
        if notes and notes != self._notes:
            self.noted.emit(plain_figures(notes[-1]))
        self._notes = notes

    def _goes_on(self, event: protocol.Progress | protocol.Token | protocol.Stats) -> None:
        stopping = self.status.phase is Phase.STOPPING
        if isinstance(event, protocol.Progress):
            if not stopping:
                brief = time.monotonic() - self._asked_at < SHARE_AFTER_S
                summarising = event.stage == "summarising"
                self._set(phase=Phase.READING, done=event.done, total=event.total, brief=brief, summarising=summarising)
        elif isinstance(event, protocol.Token):
            phase = Phase.STOPPING if stopping else Phase.WRITING
            self.status = replace(self.status, phase=phase, tokens=event.tokens)
            self.text.emit(event.text)
            self._emit_soon()
        else:
            self.status = replace(
                self.status, tokens=event.tokens, tok_s=event.decode_tok_s, context_used=event.context_used,
                context_total=event.context_total, **self._on_the_card(event),
            )  # fmt: skip
            self._emit_soon()

    def _on_the_card(self, event: protocol.Stats | protocol.GenerationResult) -> dict[str, Any]:
        """Return the GPU's figures, if one is used; unknown ones stay as they were."""
        if not self.status.gpu:
            return {}
        figures: dict[str, Any] = {}
        if event.gpu_neuron_load is not None:
            figures["gpu_share"] = event.gpu_neuron_load
        if isinstance(event, protocol.GenerationResult):
            figures["vram_bytes"] = event.vram_bytes or None
            if event.device == "cpu":  # the GPU was given up: the next answer runs on the CPU
                figures |= self._where("", sentence(why_there(event.device_reason)))
        return figures

    def _where(self, gpu: str, reason: str, vram_bytes: int = 0) -> dict[str, Any]:
        """Return the status fields for where answers are computed, and why. gpu: its name; empty: the CPU alone."""
        device = f"{short_name(gpu)} + CPU, {self._threads}" if gpu else f"CPU, {self._threads}"
        return {"device": device, "device_reason": plain_figures(reason), "gpu": gpu, "gpu_share": None,
                "vram_bytes": vram_bytes or None}  # fmt: skip

    def _answer_ended(self, **figures: Any) -> None:
        self._answer_id = ""
        self._set(phase=Phase.READY, done=0, total=0, **figures)

    def _next(self) -> None:
        wanted, self._wanted = self._wanted, None
        if wanted == "unload":
            self.unload()
        elif wanted is not None:
            self.load(*wanted)
        elif self._loaded:
            self.ready.emit()

    def _model_is_there(self, event: protocol.Finished) -> None:
        if event.result.get("cancelled") or self.status.cancelling:  # it may have finished before the cancel arrived
            self._let_go()
            return
        info = protocol.LoadedModelInfo.from_dict(event.result)
        self._loaded, self._notes = True, tuple(info.gpu_notes)
        self._threads = tr_n("{n} thread", "{n} threads", info.threads)
        gpu = "" if info.device == "cpu" else info.gpu or "GPU"
        reason = sentence(why_there(info.device_reason), *info.gpu_notes)
        self._set(phase=Phase.READY, model=info.name, done=0, total=0, load_s=info.load_s, context_used=None,
                  description=info.description, is_base=info.kind == "base", context_total=info.context,
                  placement=info.placement, **_NO_DRAFT, **self._where(gpu, reason, info.vram_bytes))  # fmt: skip
        self.loaded.emit(info)
        self.ready.emit()

    def _end(self, event: EngineDied) -> None:
        if self.status.phase is Phase.OFF or self.status.cancelling:  # no model was loaded, so nothing was lost
            self._let_go()
            return
        self._loaded, self._answer_id = False, ""
        if not event.restarting:
            self._load_id = ""
        self._set(phase=Phase.RESTARTING if event.restarting else Phase.FAILED, done=0, total=0, tok_s=None)
        self.died.emit(event)
        if event.restarting and self._wanted is not None:
            self._next()


def _count_of(count_id: str, request: AnswerRequest, texts: list[str]) -> protocol.Count:
    return protocol.Count(
        count_id, request.with_summary, dict(request.sampling), request.overflow, texts, list(request.tools)
    )
