"""The engine as the controller knows it: one model, one answer at a time, one status in words.

It turns protocol events into an EngineStatus and a handful of signals. It knows no chats and no storage.
"""

from __future__ import annotations

import itertools
import logging
from dataclasses import replace
from typing import Any

from PySide6.QtCore import QObject, Signal, Slot

from app.engine_process import EngineDied, EngineStarted
from app.engine_status import EngineStatus, Phase, sentence, short_name, why_there
from app.engine_worker import EngineWorker
from app.user_messages import plain_figures
from engine import protocol

log = logging.getLogger(__name__)


class EngineClient(QObject):
    """Asks the worker, hears its events in the main thread."""

    status_changed = Signal(EngineStatus)
    ready = Signal()  # a model is loaded and nothing runs
    text = Signal(str)
    answered = Signal(object)  # protocol.GenerationResult
    failed = Signal(object)  # protocol.Failed, of the answer
    loaded = Signal(object)  # protocol.LoadedModelInfo
    load_failed = Signal(object)  # protocol.Failed
    died = Signal(object)  # EngineDied
    process_started = Signal(int)  # its pid, 0 in the window's own process

    def __init__(self, worker: EngineWorker) -> None:
        super().__init__()
        self._worker = worker
        self._numbers = itertools.count(1)
        self._load_id = ""  # of the load that is under way or done
        self._answer_id = ""  # of the answer under way
        self._wanted: tuple[str, dict[str, Any]] | None = None  # a load that waits for the answer's end
        self._unload_wanted = False  # once the answer has ended
        self._loaded = False
        self._threads = ""  # how many work on an answer, in words
        self.status = EngineStatus()
        worker.happened.connect(self._hear)

    @property
    def is_ready(self) -> bool:
        """Whether an answer could begin now."""
        return self._loaded and not self._answer_id

    # -------------------------------------------------------------- asking

    def load(self, model: str, engine: dict[str, Any]) -> None:
        """Load a model in place of the one that is there, after the answer that is under way."""
        self._unload_wanted = False
        if self._answer_id:
            self._wanted = (model, engine)
            return
        if self._load_id and not self._loaded:
            self._worker.cancel(self._load_id)
        self._loaded = False
        self._load_id = f"load-{next(self._numbers)}"
        self._set(phase=Phase.LOADING, done=0, total=0, compiling=False)
        self._worker.load(protocol.Load(self._load_id, model, engine))

    def unload(self) -> None:
        """Give the model's memory back, after the answer that is under way; a load under way ends at once."""
        self._wanted = None
        if self._answer_id:
            self._unload_wanted = True
            return
        if self._load_id and not self._loaded:
            self._worker.cancel(self._load_id)
        self._loaded, self._load_id, self._unload_wanted = False, "", False
        self._set(phase=Phase.OFF, done=0, total=0, tok_s=None, vram_bytes=None, gpu_share=None, card="")
        self._worker.unload(protocol.Unload(f"unload-{next(self._numbers)}"))

    def cancel_load(self) -> None:
        """End the load under way; then no model is there."""
        if self._load_id and not self._loaded:
            self._worker.cancel(self._load_id)

    def ask(self, messages: list[dict[str, str]], sampling: dict[str, Any], mode: str | None) -> None:
        """Begin an answer; only when `is_ready`."""
        self._answer_id = f"answer-{next(self._numbers)}"
        self._set(phase=Phase.THINKING, done=0, total=0, tok_s=None, tokens=0)
        self._worker.generate(protocol.Generate(self._answer_id, messages, sampling, mode))

    def stop(self) -> None:
        """End the answer under way; it then ends as cancelled."""
        if self._answer_id:
            self._set(phase=Phase.STOPPING)
            self._worker.cancel(self._answer_id)

    def move(self, location: str) -> None:
        """Run the engine at the other place. What is under way ends without a word; a load has to follow."""
        self._loaded, self._load_id, self._answer_id = False, "", ""
        self._set(phase=Phase.STARTING)
        self._worker.use(location)

    def restart(self) -> None:
        """Start the engine anew where it runs: a graphics card that failed is lost to its process. A load has to
        follow; an answer under way ends without a word."""
        self._loaded, self._load_id, self._answer_id = False, "", ""
        self._set(phase=Phase.STARTING, vram_bytes=None, gpu_share=None)
        self._worker.restart()

    # -------------------------------------------------------------- hearing

    def _set(self, **values: Any) -> None:
        status = replace(self.status, **values)
        if status != self.status:
            self.status = status
            self.status_changed.emit(status)

    @Slot(object)
    def _hear(self, event: object) -> None:
        match event:
            case EngineStarted():
                self.process_started.emit(event.pid)
                if not self._load_id:
                    self._set(phase=Phase.FAILED if self.status.phase is Phase.RESTARTING else Phase.STARTING)
            case EngineDied():
                self._end(event)
            case protocol.Progress() if event.id == self._load_id:
                compiling = event.stage == "preparing"
                self._set(phase=Phase.LOADING, done=event.done, total=event.total, compiling=compiling)
            case protocol.Finished() if event.id == self._load_id:
                self._model_is_there(event)
            case protocol.Failed() if event.id == self._load_id:
                self._load_id = ""
                self._set(phase=Phase.FAILED, done=0, total=0)
                self.load_failed.emit(event)
            case protocol.Progress() | protocol.Token() | protocol.Stats() if event.id == self._answer_id:
                self._goes_on(event)
            case protocol.Finished() if event.id == self._answer_id:
                result = protocol.GenerationResult.from_dict(event.result)
                self._answer_ended(tok_s=result.decode_tok_s, tokens=result.tokens,
                                   context_used=result.context_used, context_total=result.context_total,
                                   **self._on_the_card(result))  # fmt: skip
                self.answered.emit(result)
                self._next()
            case protocol.Failed() if event.id == self._answer_id:
                self._answer_ended(tok_s=None)
                self.failed.emit(event)
                self._next()
            case protocol.Failed() if not event.id:
                log.warning("the engine could not read a request: %s", event.message)

    def _goes_on(self, event: protocol.Progress | protocol.Token | protocol.Stats) -> None:
        stopping = self.status.phase is Phase.STOPPING
        if isinstance(event, protocol.Progress):
            if not stopping:
                self._set(phase=Phase.READING, done=event.done, total=event.total)
        elif isinstance(event, protocol.Token):
            self._set(phase=Phase.STOPPING if stopping else Phase.WRITING, tokens=event.tokens)
            self.text.emit(event.text)
        else:
            self._set(tokens=event.tokens, tok_s=event.decode_tok_s,
                      context_used=event.context_used, context_total=event.context_total,
                      **self._on_the_card(event))  # fmt: skip

    def _on_the_card(self, event: protocol.Stats | protocol.GenerationResult) -> dict[str, Any]:
        """Figures of the graphics card, where one computes; what is not known just now stays as it was."""
        if not self.status.card:
            return {}
        figures: dict[str, Any] = {}
        if event.gpu_neuron_load is not None:
            figures["gpu_share"] = event.gpu_neuron_load
        if isinstance(event, protocol.GenerationResult):
            figures["vram_bytes"] = event.vram_bytes or None
            if event.device == "cpu":  # the card was given up: the next answer is the processor's
                figures |= self._where("", sentence(why_there(event.device_reason)))
        return figures

    def _where(self, card: str, reason: str, vram_bytes: int = 0) -> dict[str, Any]:
        """Where answers are computed from now on, and why. card: its name; empty: the processor computes alone."""
        device = f"{short_name(card)} + CPU, {self._threads}" if card else f"CPU, {self._threads}"
        return {"device": device, "device_reason": plain_figures(reason), "card": card, "gpu_share": None,
                "vram_bytes": vram_bytes or None}  # fmt: skip

    def _answer_ended(self, **figures: Any) -> None:
        self._answer_id = ""
        self._set(phase=Phase.READY, done=0, total=0, **figures)

    def _next(self) -> None:
        if self._unload_wanted:
            self.unload()
        elif self._wanted is not None:
            wanted, self._wanted = self._wanted, None
            self.load(*wanted)
        elif self._loaded:
            self.ready.emit()

    def _model_is_there(self, event: protocol.Finished) -> None:
        if event.result.get("cancelled"):
            self._load_id = ""
            self._set(phase=Phase.OFF)
            return
        info = protocol.LoadedModelInfo.from_dict(event.result)
        self._loaded = True
        self._threads = f"{info.threads} thread{'' if info.threads == 1 else 's'}"
        card = "" if info.device == "cpu" else info.card or "GPU"
        reason = sentence(why_there(info.device_reason), *info.card_notes)
        self._set(phase=Phase.READY, model=info.name, done=0, total=0, load_s=info.load_s, context_used=None,
                  description=info.description, context_total=info.context,
                  **self._where(card, reason, info.vram_bytes))  # fmt: skip
        self.loaded.emit(info)
        self.ready.emit()

    def _end(self, event: EngineDied) -> None:
        self._loaded, self._answer_id = False, ""
        if not event.restarting:
            self._load_id = ""
        self._set(phase=Phase.RESTARTING if event.restarting else Phase.FAILED, done=0, total=0, tok_s=None)
        self.died.emit(event)
        if event.restarting and self._wanted is not None:
            self._next()
