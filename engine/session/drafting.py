"""The smaller model that guesses for a session: found, loaded, kept in step with the chat, and closed.

Everything here happens while the engine is idle, so that no answer waits for it. draft.py makes the guesses.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from engine.config import EngineConfig
from engine.errors import Cancelled, EngineError, HostMemoryError, InvalidRequestError
from engine.executor.adaptation import Adaptation, can_learn
from engine.job import CancelCheck, Job, run_cancellable
from engine.library.records import DRAFT_SHARE
from engine.loading.embedding_models import pooling_of
from engine.loading.opening import vocabulary_fingerprint
from engine.machine.cpu_and_ram import lies_in_ram
from engine.machine.hardware import probe
from engine.model.kv_cache import KVCache
from engine.placement.memory_plan import context_bytes
from engine.session.chat_session import ChatSession
from engine.session.draft import Draft
from engine.session.guesses import LEAST_GAIN
from engine.session.loaded_model import LoadedModel
from engine.session.resolve_model import open_named

if TYPE_CHECKING:
    from engine.model.model_files import OpenedModel
    from engine.prompt_cache.stored_prompts import StoredPrompts

log = logging.getLogger(__name__)

_FREE_SHARE = 1.5  # free RAM to load a draft, as a multiple of its bytes
_GIB = 1 << 30
NO_DRAFT: dict[str, Any] = {"model": "", "device": "", "n_bytes": 0, "reason": ""}  # as Drafting.news


class Drafting:
    """Loads and closes the draft model of a session. Call all methods in the thread that answers.

    draft: None while none is loaded. reason: why there is none, as a sentence; "": not known yet.
    """

    def __init__(self, model: LoadedModel) -> None:
        self.draft: Draft | None = None
        self.reason = ""
        self._model, self._wanted = model, model.engine.draft
        self._is_over = self._wanted == "off"
        self._may_use_gpu = True

    def news(self) -> dict[str, Any]:
        draft = self.draft
        if draft is None:
            return {**NO_DRAFT, "reason": self.reason}
        model = draft.model
        return {"model": model.name, "device": model.device, "n_bytes": model.weights.n_bytes, "reason": ""}

    def choose(self, wanted: str) -> None:
        """Unload the draft; a later step loads another one. wanted: as EngineConfig.draft."""
        self.close()
        self.reason, self._wanted, self._is_over = "", wanted or "auto", wanted == "off"

    def has_no_use(self) -> None:
        """Note that the model computes one token at a time, as some do on a GPU."""
        if self.draft is None and not self._is_over:
            self.reason = f"{self._model.name} computes one token at a time here, so guesses would not help."

    def step(self, tokens: Sequence[int], has_use: bool, cancelled: CancelCheck) -> float | None:
        """Do one step of idle work; return the seconds before the next one, None for nothing to do.

        tokens: of the chat so far. has_use: whether the model answered, and can compute several tokens in a run; until
        then no draft is loaded. Raises nothing.
        """
        if self._is_over or (self.draft is None and not has_use):
            return None
        draft = self.draft
        try:
            if draft is None:
                self.load(Job(cancelled))
                return None if self.draft is None else 0.0
        except Cancelled:
            return None
        except Exception as error:  # noqa: BLE001 - idle work must not prevent answers
            log.warning("No smaller model guesses for %s: %s", self._model.name, error)
            self._end(error.message if isinstance(error, EngineError) else "It could not be loaded.")
            return None
        if draft.has_failed and draft.model.device != "cpu":
            self._may_use_gpu = False
            self.close()  # the next step loads it on the CPU
            return 0.0
        if draft.has_failed:
            self._end(f"{draft.model.name} failed while it guessed.")
        elif self._wanted == "auto" and draft.gain is not None and draft.gain < LEAST_GAIN:
            self._end(f"Answers were no faster with {draft.model.name}.")
        elif draft.follow(tokens, cancelled):
            return 0.0
        return None

    def load(self, job: Job) -> None:
        """Load the chosen draft, or the best one on this PC; without one, set the reason.

        Raises: InvalidRequestError for another vocabulary, the errors of loading, Cancelled.
        """
        if self._is_over:
            return
        name = self._wanted if self._wanted != "auto" else run_cancellable(job.cancelled, self._find, "draft")
        if not name:
            self._end("No model on this PC has the same vocabulary and is small enough.")
            return

        def opened() -> OpenedModel:
            found = open_named(name)
            if vocabulary_fingerprint(found) != vocabulary_fingerprint(self._model.opened):
                raise InvalidRequestError(
                    f"{found.name} cannot guess for {self._model.name}: its vocabulary is another.",
                    "Choose a smaller model of the same family.",
                )
            return found

        loaded = self._loaded(name, run_cancellable(job.cancelled, opened, "draft"), job)
        self.draft, self.reason = Draft(loaded, self._model.opened.config.vocab_size), ""
        if loaded.gpu is not None and self._model.on_gpu is not None:
            self._model.on_gpu.release_first(self._unload_draft)
        log.info("%s guesses for %s, on the %s", loaded.name, self._model.name, loaded.device)

    def close(self) -> None:
        """Unload the draft. Idempotent."""
        if self._model.on_gpu is not None:
            self._model.on_gpu.release_first()
        draft, self.draft = self.draft, None
        if draft is not None:
            draft.close()

    def _end(self, reason: str) -> None:
        self.close()
        self.reason, self._is_over = reason, True

    def _unload_draft(self) -> bool:
        """Unload the draft because GPU memory is short; the next one runs on the CPU."""
        if self.draft is None:
            return False
        log.info("GPU memory ran short: %s is unloaded", self.draft.model.name)
        self._may_use_gpu = False
        self.close()
        return True

    def _find(self) -> str:
        """Return the id of the largest installed model that can guess, which ones for vectors cannot; else ""."""
        from engine.library.owned.installed import Library

        vocabulary, kind = vocabulary_fingerprint(self._model.opened), self._model.tokenizer.kind
        most = DRAFT_SHARE * _bytes_of_token(self._model)
        found = [one for one in Library().models() if one.state != "broken" and one.vocabulary == vocabulary]
        small = [one for one in found if one.n_bytes <= most]
        for one in sorted(small, key=lambda one: (one.kind == kind, one.n_bytes), reverse=True):
            try:
                if pooling_of(open_named(one.id)) is None:
                    return one.id
            except EngineError as error:
                log.info("%s cannot guess: %s", one.name, error.message)
        return ""

    def _loaded(self, name: str, opened: OpenedModel, job: Job) -> LoadedModel:
        """Load the draft where there is room. Raises: HostMemoryError and the errors of loading, Cancelled."""
        for engine in self._places(opened):
            try:
                model = LoadedModel.load(name, engine, job, backend=self._model.backend)
            except EngineError as error:
                if engine.device == "cpu":
                    raise
                log.info("%s is not on the GPU: %s", opened.name, error.message)
                continue
            if engine.device == "cpu" or (model.gpu is not None and model.gpu.is_whole):
                return model
            model.close()
        raise AssertionError("the CPU is the last place")

    def _places(self, opened: OpenedModel) -> Iterator[EngineConfig]:
        """Yield how to load the draft: on the GPU within what the model leaves of its budget, then on the CPU.

        Raises: HostMemoryError if the RAM is short.
        """
        n_bytes, own, main = sum(opened.codecs.values()), opened.config, self._model
        context, residency = min(main.context, own.max_context), main.residency
        threads, hardware = main.threads, main.engine.hardware_file
        if residency is not None and self._may_use_gpu:
            spare = residency.spare_bytes()
            if n_bytes + KVCache.bytes_for(own, context, main.kv_codec) <= spare:
                budget = (spare + context_bytes(residency.placed.info)) / _GIB  # both models share the context
                yield EngineConfig(
                    "cuda", threads, context, vram_budget_gib=budget, hardware_file=hardware, adapt=False, draft="off"
                )
        free = max(0, probe().ram.free_bytes - _cached_bytes(main))
        if free < _FREE_SHARE * n_bytes:
            raise HostMemoryError(
                f"{opened.name} takes {n_bytes / 1e9:.1f} GB of RAM, and {free / 1e9:.1f} GB are free."
            )
        yield EngineConfig("cpu", threads, context, hardware_file=hardware, adapt=False, draft="off")


def drafted_session(model: LoadedModel, prompts: StoredPrompts | None = None, learns: bool = False) -> ChatSession:
    """Return a session for which a smaller model may guess, as the model's EngineConfig has it; none is loaded yet.

    learns: whether hot neurons follow its answers, if the EngineConfig allows that.
    """
    learns = learns and model.engine.adapt and can_learn(model.opened)
    adaptation = Adaptation(model.opened) if learns else None
    session = ChatSession(model, adaptation=adaptation, prompts=prompts)
    session.drafting = Drafting(model)
    return session


def _cached_bytes(model: LoadedModel) -> int:
    """Return about how many bytes of the model's mapped files stay in RAM, which the system counts as free."""
    weights = model.weights
    if weights.hold != "mapped" or lies_in_ram(model.opened.files.path):
        return 0
    return max(0, weights.n_bytes - weights.ram_bytes - model.vram_bytes)


def _bytes_of_token(model: LoadedModel) -> float:
    """Return about how many bytes of weights a token reads, at least."""
    config = model.opened.config
    return model.weights.n_bytes * (config.n_experts_used / config.n_experts if config.n_experts else 1.0)
