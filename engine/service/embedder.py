"""Vectors for the window: of the chat's model, or of another one that is loaded beside it while it is needed."""

from __future__ import annotations

import base64
import logging
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from engine.errors import Cancelled, HostMemoryError, InvalidRequestError
from engine.job import Job, Progress
from engine.service import protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.session.loaded_model import LoadedModel

log = logging.getLogger(__name__)

KEPT_S = 120.0  # the other model stays so long after its last use
_LEAST_FREE = 1.5  # free RAM, as a multiple of the model's bytes, to load it beside the chat's model
MOST_TEXTS = 256


class Embedder:
    """Computes embeddings for requests and keeps the last extra model loaded. Call it in the thread that answers."""

    def __init__(self) -> None:
        self._model: LoadedModel | None = None
        self._named = ""
        self._used_at = 0.0

    def embed(
        self,
        request: protocol.Embed,
        chat_model: Callable[[], LoadedModel | None],
        job: Job,
        preparing: Progress,
        waits: Callable[[], bool],
        let_others: Callable[[], None],
    ) -> dict[str, Any]:
        """Return the result of a request. waits: whether other requests wait; a batch is then left between two layers,
        let_others runs them, and the batch is begun again.

        Raises: InvalidRequestError, HostMemoryError, the errors of loading, Cancelled.
        """
        from engine.loading.embedding_models import ROLES
        from engine.session.embeddings import batch, embed, most_tokens

        texts = request.texts
        if not 0 < len(texts) <= MOST_TEXTS or not all(isinstance(text, str) and text for text in texts):
            raise InvalidRequestError(f"1 to {MOST_TEXTS} texts can be embedded at once, and none may be empty.")
        role = next((one for one in ROLES if one == request.role), None)
        if role is None:
            raise InvalidRequestError(
                f"A text's role is {request.role!r}; supported: {', '.join(filter(None, ROLES))}."
            )
        vectors: list[str] = []
        tokens = 0
        while len(vectors) < len(texts):  # others may have changed the models between two batches
            model = self._named_model(request.model, job, preparing) if request.model else chat_model()
            if model is None:
                raise InvalidRequestError("No model is loaded.", "Load a model first.")
            self._used_at = time.monotonic()
            ids = batch(model, texts[len(vectors) :], role)
            try:
                found = list(embed(model, ids, request.dimensions, Job(lambda: job.cancelled() or waits())))
            except Cancelled:
                job.stop_if_cancelled()
                let_others()
                continue
            vectors += [base64.b64encode(vector.astype("<f4").tobytes()).decode() for vector in found]
            tokens += sum(min(len(one), most_tokens(model)) for one in ids)
            let_others()
        assert model is not None, "there is a text"
        result = protocol.EmbedResult(vectors, tokens, model.name)
        return asdict(result)

    def model(self, name: str, job: Job) -> LoadedModel:
        """Return a model beside the chat's, loaded if it is not yet. It may go after the next request of others.

        Raises: as `embed`.
        """
        self._used_at = time.monotonic()
        return self._named_model(name, job, lambda done, total: None)

    def idle(self) -> float | None:
        """Unload the other model after its time; return the seconds until then, None without one."""
        if self._model is None:
            return None
        left = self._used_at + KEPT_S - time.monotonic()
        if left > 0:
            return left
        self.close()
        return None

    def close(self) -> None:
        """Unload the other model."""
        if self._model is not None:
            self._model.close()
            self._model, self._named = None, ""

    def _named_model(self, name: str, job: Job, preparing: Progress) -> LoadedModel:
        from engine.config import EngineConfig
        from engine.machine.cpu_and_ram import return_freed_ram
        from engine.machine.hardware import probe
        from engine.session.loaded_model import LoadedModel
        from engine.session.resolve_model import open_named

        if self._model is not None and self._named == name:
            return self._model
        self.close()
        return_freed_ram()
        opened = open_named(name)
        n_bytes = sum(opened.codecs.values())
        free = probe().ram.free_bytes
        if free < _LEAST_FREE * n_bytes:
            raise HostMemoryError(
                f"{opened.name} takes {n_bytes / 1e9:.1f} GB beside the chat's model, "
                f"and {free / 1e9:.1f} GB of RAM are free."
            )
        began = time.perf_counter()
        engine = EngineConfig(device="cpu", mode="dense", adapt=False)
        self._model, self._named = LoadedModel.load(name, engine, job, preparing, for_vectors=True), name
        log.info("Loaded %s for vectors in %.1f s", name, time.perf_counter() - began)
        return self._model
