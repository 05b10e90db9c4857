"""The engine behind the protocol: runs requests one after another and emits events.

The same EngineHost serves the window from a child process (engine/service/stdio.py) and from the window's worker thread
(`--engine in-thread`). Cancel takes effect at once; everything else is queued. Nothing here computes.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import Cancelled, InvalidRequestError, ServerError
from engine.job import CancelCheck, Job, Progress, StagedJob
from engine.machine.cpu_and_ram import process_ram_bytes, return_freed_ram
from engine.service import protocol
from engine.service.embedder import Embedder
from engine.service.live import LiveFeed
from engine.service.request_events import Emit, failure_of, lost_gpu, progress_of
from engine.text.context_fit import checked_overflow, with_summary

if TYPE_CHECKING:
    from engine.prompt_cache.store import PromptStore
    from engine.prompt_cache.stored_prompts import StoredPrompts
    from engine.service.inspection import Inspection
    from engine.service.local_api import LocalApi
    from engine.session.chat_session import ChatSession
    from engine.session.generate import GenerationStats
    from engine.session.loaded_model import LoadedModel
    from engine.text.context_fit import Fitted

log = logging.getLogger(__name__)

TEXT_EVERY_S = 1 / 30
STATS_EVERY_S = 0.25
CLOSE_S = 2.0  # for blocks of the prompt cache that wait to be written at the end
IDLE_AFTER_S = 2.0  # idle seconds before adaptation starts


class _ApiWaits:
    """Queue entry: a request waits at the local API."""


class EngineHost:
    """Runs requests in the thread that calls `run_pending`. Call `submit` and `close` from any thread.

    The local API (local_api.py) computes in the same thread and lets the window's requests go first.
    """

    def __init__(self, emit: Emit, serves: bool = True) -> None:
        """serves: whether it may offer the local API; `run_pending` must then keep running between requests."""
        self._emit = emit
        self._serves = serves
        self._queue: queue.Queue[protocol.Request | _ApiWaits | None] = queue.Queue()
        self._held: deque[protocol.Request | None] = deque()  # taken from the queue, not run yet
        self._lock = threading.Lock()
        self._cancelled: set[str] = set()
        self._known: Counter[str] = Counter()  # waiting or running; a count, because an id may occur twice
        self._closed = threading.Event()
        self._model: LoadedModel | None = None
        self._loaded_as = ""  # the Load.model that loaded it
        self._session: ChatSession | None = None
        self._reported: dict[str, Any] = {}  # the placement last reported
        self._reported_generation = 0  # its LoadedModel.generation
        self._reported_draft: dict[str, Any] = {}  # the news "draft" last reported
        self._is_gpu_lost = False  # reported
        self._live = LiveFeed(emit)
        self._embedder = Embedder()
        self._prompts: PromptStore | None = None  # created when the window first says what to keep
        self._api: LocalApi | None = None  # created on first use
        self._switches: ThreadPoolExecutor | None = None  # switches it, one request at a time
        self._used_at = time.monotonic()  # the last request to the model
        self._unload_asked = False  # since then

    def submit(self, request: protocol.Request) -> None:
        """Queue a request for `run_pending`. Cancel, Watch and Serve take effect at once."""
        if isinstance(request, protocol.Cancel):
            with self._lock:
                if self._known[request.target]:
                    self._cancelled.add(request.target)
            self._emit(protocol.Finished(request.id))
            return
        if isinstance(request, protocol.Serve):
            self._switch_api(request)
            return
        if isinstance(request, protocol.Watch):
            self._live.watch(request.on)  # applies to the current answer too
        with self._lock:
            self._known[request.id] += 1
        self._queue.put(request)

    def close(self) -> None:
        """Cancel the current request, drop queued ones, and let `run_pending` return."""
        self._closed.set()
        self._queue.put(None)

    def run_pending(self, block: bool = False) -> None:
        """Run queued requests; with `block`, continue until `close` or a shutdown request.

        Between requests a loaded model adapts in small steps; a new request waits for at most one.
        """
        wait: float | None = None  # until there is idle work for the model
        while not self._closed.is_set():
            self._tell_lost_gpu()
            try:
                request = self._held.popleft() if self._held else self._queue.get(block=block, timeout=wait)
            except queue.Empty:
                if not block:
                    return
                wait = self._idle()
                continue
            if request is None:
                break
            if isinstance(request, _ApiWaits):
                assert self._api is not None, "it put that there"
                if self._api.answer_waiting():
                    self._note_use()
            else:
                self._run(request)
            wait = None if self._session is None and self._embedder.idle() is None else IDLE_AFTER_S
        self._embedder.close()
        self._unload()  # first: save what was learned, however long a client listens
        if self._prompts is not None:
            self._prompts.close(CLOSE_S)
        if self._switches is not None and self._api is not None:
            self._switches.shutdown(cancel_futures=True)
            self._api.close()

    # --- the window, as the local API sees it

    @property
    def session(self) -> ChatSession | None:
        return self._session

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set()

    def waits(self) -> bool:
        """Run requests that need no computing now, and return whether others wait."""
        while not self._held and not self._closed.is_set():
            try:
                request = self._queue.get_nowait()
            except queue.Empty:
                return False
            if isinstance(request, protocol.Count):
                self._run(request)
            elif not isinstance(request, _ApiWaits):
                self._held.append(request)
        return True

    def ask_load(self, model: str, client: str) -> None:
        self._emit(protocol.News("load_wanted", {"model": model, "client": client}))

    def model_beside(self, name: str, job: Job) -> LoadedModel:
        return self._embedder.model(name, job)

    def go_first(self) -> None:
        while self.waits() and not self._closed.is_set():
            request = self._held.popleft()
            if request is not None:
                self._run(request)

    def _switch_api(self, request: protocol.Serve) -> None:
        if not self._serves:
            error = ServerError(
                "The local server needs the engine in a process of its own.", "Change that in Settings."
            )
            self._emit(failure_of(request, error))
            return
        with self._lock:
            if self._api is None or self._switches is None:
                from engine.service.local_api import LocalApi

                self._api = LocalApi(self._emit, self, lambda: self._queue.put(_ApiWaits()))
                if self._model is not None:
                    self._api.models.remember(self._model, self._loaded_as)
                self._switches = ThreadPoolExecutor(1, "local-api-switch")
        try:
            self._switches.submit(self._api.switch, request)
        except RuntimeError:  # it is closing
            self._emit(failure_of(request, ServerError("The engine is ending.", "Start Hearth again.")))

    def _idle(self) -> float | None:
        """Do one step of idle work; return the seconds before the next one, None for nothing to do."""
        work = (self._adapt(), self._balance(), self._keep_prompt(), self._embedder.idle(), self._ask_unload())
        waits = [wait for wait in (*work, self._step_draft()) if wait is not None]
        return min(waits, default=None)

    def _note_use(self) -> None:
        self._used_at, self._unload_asked = time.monotonic(), False

    def _ask_unload(self) -> float | None:
        """Ask for the model to be unloaded once it is unused for long; return the seconds until then, None for never.

        Only the local API has such a time.
        """
        after = None if self._api is None else self._api.unload_after_s
        if after is None or self._session is None or self._unload_asked:
            return None
        left = self._used_at + after - time.monotonic()
        if left > 0:
            return left
        self._unload_asked = True
        self._emit(protocol.News("unload_wanted", {}))
        return None

    def _balance(self) -> float | None:
        """Adjust the model's part on the GPU to other programs' use of it."""
        if self._model is None or self._session is None or self._model.on_gpu is None:
            return None
        try:
            wait = self._model.on_gpu.balance(lambda: not self._queue.empty() or self._closed.is_set())
        except Exception:  # idle work must not prevent answers
            log.exception("The GPU's memory is not looked after any more")
            return None
        self._tell_place()
        return wait

    def _keep_prompt(self) -> float | None:
        """Keep some of the current chat in the prompt cache; return the seconds before the next step, None if done."""
        if self._session is None:
            return None
        try:
            return self._session.save_step()
        except Exception:  # idle work must not prevent answers
            log.exception("The chat is not stored")
            return None

    def _step_draft(self) -> float | None:
        """Do one step for the smaller model that guesses, and emit news if it came or went."""
        if self._session is None or self._session.drafting is None:
            return None
        wait = self._session.draft_step(lambda: not self._queue.empty() or self._closed.is_set())
        self._tell_draft()
        return wait

    def _tell_draft(self) -> None:
        drafting = None if self._session is None else self._session.drafting
        if drafting is not None and (news := drafting.news()) != self._reported_draft:
            self._reported_draft = news
            self._emit(protocol.News("draft", news))

    def _choose_draft(self, request: protocol.ChooseDraft) -> dict[str, Any]:
        if self._session is not None and self._session.drafting is not None:
            self._session.drafting.choose(request.draft)
            self._tell_draft()
        return {}

    def _store_prompts(self, request: protocol.StorePrompts) -> dict[str, Any]:
        from engine.prompt_cache.store import PromptStore, ram_bytes_for_blocks

        if self._prompts is None or self._prompts.root != Path(request.folder):
            if self._prompts is not None:
                self._prompts.close(CLOSE_S)
            self._prompts = PromptStore(Path(request.folder), request.quota_bytes, ram_bytes_for_blocks())
            if self._session is not None:
                self._session.prompts = self._stored_prompts(self._session.model)
        self._prompts.set_quota(request.quota_bytes)
        self._prompts.keep_only(request.chats)
        if self._session is not None:
            self._session.drop_chats_except(request.chats)
        return {}

    def _stored_prompts(self, model: LoadedModel) -> StoredPrompts | None:
        from engine.prompt_cache.stored_prompts import StoredPrompts, can_keep

        if self._prompts is None or not can_keep(model.opened.config):
            return None
        return StoredPrompts(self._prompts, model.opened, model.kv_codec)

    def _tell_place(self) -> None:
        """Emit news if the model's placement changed."""
        from engine.service.placement_words import placement_of

        model = self._model
        if model is None or model.generation == self._reported_generation:
            return
        self._reported_generation = model.generation
        try:
            self._reported = placement_of(model)
        except Exception:  # a failure here must not affect answers
            log.exception("The placement cannot be reported")
            return
        values = {
            "placement": self._reported,
            "notes": list(model.gpu_notes),
            "name": model.name,
            "device": model.device,
            "device_reason": model.device_reason,
            "gpu": "" if model.gpu is None else model.gpu.name,
            "vram_bytes": model.vram_bytes,
            "vram_parts_bytes": {} if model.gpu is None else model.gpu.part_bytes,
        }
        self._emit(protocol.News("model", values))

    def _tell_lost_gpu(self) -> None:
        """Emit news, once, if this process can use no GPU any more."""
        if not self._is_gpu_lost and (news := lost_gpu()) is not None:
            self._is_gpu_lost = True
            self._emit(news)

    def _adapt(self) -> float | None:
        """Do one step of adaptation; return the seconds before the next one, None if nothing is left."""
        if self._session is None:
            return None
        try:
            return self._session.adapt()
        except Exception:  # idle work must not prevent answers
            log.exception("The model does not adapt any more")
            self._session.adaptation = None
            return None

    def _run(self, request: protocol.Request) -> None:
        try:
            result = self._dispatch(request)
        except Exception as error:  # noqa: BLE001 - every request must be answered
            event: protocol.Event = failure_of(request, error)
        else:
            event = protocol.Finished(request.id, result)
        if isinstance(request, protocol.Generate):
            self._tell_place()
            self._tell_draft()
        is_beside = isinstance(request, protocol.Embed) and request.model
        if isinstance(request, protocol.Load | protocol.Generate | protocol.Count | protocol.Embed) and not is_beside:
            self._note_use()
        with self._lock:
            self._known -= Counter((request.id,))  # drops ids with count 0
            self._cancelled.discard(request.id)
        self._emit(event)

    def _dispatch(self, request: protocol.Request) -> dict[str, Any]:
        match request:
            case protocol.Load():
                try:
                    found = self._load(request)
                except Exception as error:
                    self._tell_api(request, error)
                    raise
                self._tell_api(request, Cancelled() if found.get("cancelled") else None)
                self._live.rest(self._session)
                return found
            case protocol.Unload():
                self._unload()
                self._tell_api()
                self._live.rest(None)
                return {}
            case protocol.Generate():
                self._live.begin(request.id)
                try:
                    return self._generate(request)
                finally:
                    self._live.end(self._session)
            case protocol.Watch():
                self._live.rest(self._session)
                return {}
            case protocol.Count():
                return self._count(request)
            case protocol.Embed():
                return self._embed(request)
            case protocol.StorePrompts():
                return self._store_prompts(request)
            case protocol.ChooseDraft():
                return self._choose_draft(request)
            case protocol.Shutdown():
                self._closed.set()
                return {}
            case protocol.Job():
                return self._job(request)
            case protocol.Serve() | protocol.Cancel():
                raise AssertionError("they are answered in submit")

    def _stop_wanted(self, request_id: str) -> CancelCheck:
        return lambda: request_id in self._cancelled or self._closed.is_set()

    # --- load

    def _tell_api(self, load: protocol.Load | None = None, error: Exception | None = None) -> None:
        """Tell the local API that the model changed or was unloaded, or that a load ended, with this error if any."""
        if self._api is None:
            return
        if load is None:
            self._api.changed()
            return
        if self._model is not None:
            self._api.models.remember(self._model, load.model)
        self.waits()  # a load that follows takes the place of a cancelled one
        if not (isinstance(error, Cancelled) and any(isinstance(one, protocol.Load) for one in self._held)):
            self._api.load_ended(load.model, error)

    def _unload(self) -> None:
        if self._api is not None:
            self._api.clear()
        if self._session is not None:
            self._session.keep()
            self._session.close()
        if self._model is None:
            return
        self._model.close()
        self._session = self._model = None
        return_freed_ram()

    def _load(self, request: protocol.Load) -> dict[str, Any]:
        from engine.config import EngineConfig, plain_values
        from engine.service.placement_words import placement_of
        from engine.session.drafting import NO_DRAFT, drafted_session
        from engine.session.loaded_model import LoadedModel

        self._unload()  # first, so that two models are never in memory at once
        report = self._progress(request.id, "loading")
        engine = EngineConfig.from_dict(request.engine)
        try:
            model = LoadedModel.load(
                request.model,
                engine,
                Job(self._stop_wanted(request.id), report),
                self._progress(request.id, "preparing"),
            )
        except Cancelled:
            return {"cancelled": True}
        self._model, self._loaded_as = model, request.model
        self._session = drafted_session(model, self._stored_prompts(model), learns=True)
        self._reported_draft = NO_DRAFT
        self._reported, self._reported_generation = placement_of(model), model.generation
        info = protocol.LoadedModelInfo(
            name=model.name,
            path=str(model.opened.files.path),
            family=model.opened.config.family,
            activation=model.opened.config.activation,
            parameters=model.opened.parameters,
            context=model.context,
            device=model.device,
            device_reason=model.device_reason,
            threads=model.threads,
            backend=model.backend.name,
            backend_reason=model.backend_reason,
            mode=model.mode,
            mode_reason=model.mode_reason,
            load_s=model.load_s,
            sampling=plain_values(model.sampling),
            description=model.description,
            template="" if model.tokenizer.template is None else model.tokenizer.template.name,
            template_reason=model.tokenizer.template_reason,
            thinking=list(model.tokenizer.thinking.levels),
            thinking_default=model.tokenizer.thinking.default or "",
            kind=model.tokenizer.kind,
            has_predictors=model.opened.has_predictors,
            gpu="" if model.gpu is None else model.gpu.name,
            vram_bytes=model.vram_bytes,
            vram_parts_bytes={} if model.gpu is None else model.gpu.part_bytes,
            gpu_notes=model.gpu_notes,
            placement=self._reported,
        )
        return asdict(info)

    def _job(self, request: protocol.Job) -> dict[str, Any]:
        from engine.service.jobs import run_job

        def stage(name: str) -> Progress:
            return self._progress(request.id, name)

        try:
            return run_job(request.job, request.arguments, StagedJob(self._stop_wanted(request.id), stage))
        except Cancelled:
            return {"cancelled": True}

    def _progress(self, request_id: str, stage: str) -> Progress:
        return progress_of(self._emit, request_id, stage)

    # --- generate

    def _generate(self, request: protocol.Generate) -> dict[str, Any]:
        if self._model is None or self._session is None:
            raise InvalidRequestError("No model is loaded.", "Load a model first.")
        from engine.service.chat_requests import AnswerText, read_messages, read_tools
        from engine.service.inspection import Inspection
        from engine.session.chat_session import Begun
        from engine.session.summaries import Summarised, summarise_if_needed

        model, session = self._model, self._session
        session.set_mode(request.mode)
        if request.fresh:
            session.clear()
        sampling = model.sampling.changed(request.sampling)
        messages, overflow = read_messages(request.messages), checked_overflow(request.overflow)
        use = read_tools(request.tools)
        shortened = Summarised(with_summary(messages, request.summary), request.summary)
        if overflow == "summarise" and not request.continues:
            job = Job(self._stop_wanted(request.id), self._progress(request.id, "summarising"))
            shortened = summarise_if_needed(session, messages, sampling, request.summary, job, use.tools)
        begun = messages[-1]["content"] if request.continues else ""
        answer = AnswerText(model.tokenizer, use, sampling.stop, begun)
        fitted, events = session.chat(
            shortened.messages,
            sampling.changed({"stop": ()}) if use.tools else sampling,  # a call may have these texts in its arguments
            Job(self._stop_wanted(request.id), self._progress(request.id, "reading")),
            overflow,
            request.continues,
            "" if request.fresh else request.chat,
            use,
            Begun(request.prompt, request.n_begun) if request.prompt else None,
        )
        inspection = Inspection(session, fitted.prompt) if request.inspect else None
        text: list[str] = []
        waiting: list[str] = []
        last_text = last_stats = 0.0
        with nullcontext() if inspection is None else closing(inspection):
            for event in events:
                stats = event.stats
                if shown := answer.append(event.text, event.finish_reason):
                    text.append(shown)
                    waiting.append(shown)
                reason = "stop" if answer.has_stopped else event.finish_reason
                if event.token_id is not None:
                    if inspection is not None:  # first: the Live page takes a GPU's counts
                        inspection.token(event)
                    self._live.token(session, stats)
                now = time.perf_counter()
                if waiting and (now - last_text >= TEXT_EVERY_S or reason):
                    self._emit(protocol.Token(request.id, "".join(waiting), stats.tokens))
                    waiting.clear()
                    last_text = now
                if now - last_stats >= STATS_EVERY_S and reason is None:
                    self._emit_stats(request.id, stats, session)
                    last_stats = now
                if reason is not None:
                    events.close()
                    if inspection is not None:
                        self._emit_inspected(inspection, request.id)
                    calls = answer.calls if reason == "stop" else []
                    ended = "tool_calls" if calls else reason
                    result = self._result("".join(text), ended, stats, fitted, session, model, request.mode)
                    summarised = request.summarised + shortened.replaced if shortened.summary else 0
                    return asdict(replace(result, summary=shortened.summary, summarised=summarised, calls=calls))
        raise AssertionError("generate ends with a finish reason")

    def _count(self, request: protocol.Count) -> dict[str, Any]:
        if self._model is None or self._session is None:
            raise InvalidRequestError("No model is loaded.", "Load a model first.")
        from engine.service.chat_requests import read_messages, read_tools

        if any(not isinstance(text, str) for text in request.texts):
            raise InvalidRequestError("The text to count is not a string.")
        sampling = self._model.sampling.changed(request.sampling)
        messages, overflow = read_messages(request.messages), checked_overflow(request.overflow)
        tools = read_tools(request.tools).tools
        count = self._session.count(messages, sampling.max_tokens, overflow, request.texts, sampling.thinking, tools)
        result = protocol.CountResult(
            tokens=len(count.fitted.prompt),
            context_total=self._session.context_total,
            most_tokens=count.most_tokens,
            fits=count.fits,
            dropped_messages=count.fitted.dropped,
            dropped_at=count.fitted.dropped_at,
            text_tokens=[portion.tokens for portion in count.portions],
            text_kept_tokens=[portion.kept_tokens for portion in count.portions],
            text_kept_chars=[portion.kept_chars for portion in count.portions],
            tool_tokens=self._session.tool_tokens(messages, sampling.thinking, tools) if tools else 0,
        )
        return asdict(result)

    def _embed(self, request: protocol.Embed) -> dict[str, Any]:
        job = Job(self._stop_wanted(request.id), self._progress(request.id, "loading"))
        preparing = self._progress(request.id, "preparing")
        try:
            return self._embedder.embed(request, lambda: self._model, job, preparing, self.waits, self.go_first)
        except Cancelled:
            return {"cancelled": True}

    def _emit_inspected(self, inspection: Inspection, request_id: str) -> None:
        try:
            self._emit(inspection.event(request_id))
        except Exception:  # a failure here must not affect answers
            log.exception("The tokens of an answer are not recorded")

    def _emit_stats(self, request_id: str, stats: GenerationStats, session: ChatSession) -> None:
        self._emit(
            protocol.Stats(
                request_id,
                stats.tokens,
                stats.decode_tok_s,
                stats.ttft_s,
                session.context_used,
                session.context_total,
                session.gpu_neuron_load,
            )
        )

    @staticmethod
    def _result(
        text: str, reason: str, stats: GenerationStats, fitted: Fitted, session: ChatSession, model: LoadedModel,
        mode: str | None,
    ) -> protocol.GenerationResult:  # fmt: skip
        return protocol.GenerationResult(
            text=text,
            finish_reason=reason,
            context_full=stats.context_full,
            prompt_tokens=stats.prompt_tokens,
            reused_tokens=stats.reused_tokens,
            restored_tokens=stats.restored_tokens,
            tokens=stats.tokens,
            guessed_tokens=stats.guessed_tokens,
            accepted_tokens=stats.accepted_tokens,
            guesses={source: list(figures) for source, figures in stats.guesses.items()},
            dropped_messages=fitted.dropped,
            dropped_at=fitted.dropped_at,
            context_used=session.context_used,
            context_total=session.context_total,
            total_s=stats.total_s,
            ttft_s=stats.ttft_s,
            prefill_tok_s=stats.prefill_tok_s,
            decode_tok_s=stats.decode_tok_s,
            gpu_neuron_load=stats.gpu_neuron_load,
            active_share=stats.active_share,
            fired_share=stats.fired_share,
            vram_bytes=model.vram_bytes,
            ram_bytes=process_ram_bytes(),
            mode=model.resolve_mode(mode),
            model=model.name,
            device=model.device,
            device_reason=model.device_reason,
        )
