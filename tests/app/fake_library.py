"""A fake for the library client without a process: models of a catalogue, scripted by a test.

Everything asked is noted in `asked`. Answers come from the event loop, as the real ones do; what takes time goes on by
`tick`, which a timer calls every `pace_ms`, or the test itself where `pace_ms` is 0. `fail` makes the next job of a
kind fail. The catalogue is the one of the design's picture, so that pages can be looked at.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from PySide6.QtCore import QObject, QTimer, Signal

from engine.library.records import (
    CatalogueEntry,
    Download,
    Estimate,
    HubFile,
    HubModel,
    InstalledFile,
    InstalledModel,
    Listing,
    MachineLine,
    ModelShape,
    PreparePlan,
    PrepareStep,
    Sparsity,
    Variant,
    to_json,
)
from engine.service import protocol

Values = dict[str, Any]
GB = 10**9
MACHINE = MachineLine(
    "fake-4070", "NVIDIA GeForce RTX 4070", "The only card that can be used", 12 * GB, int(10.9 * GB), 34 * GB,
    21 * GB, "AMD Ryzen 7 5800X", 8, 400 * GB, True,
)  # fmt: skip
STAGES = ("convert", "profile", "train", "solve")


def entry(name: str, **values: Any) -> CatalogueEntry:
    """An entry of the catalogue with everything that `values` does not say filled in."""
    model_id = name.lower().replace(" ", "-")
    shape = ModelShape("llama", "relu-glu", 32, 4096, 11008, 32, 32, 128, 32000, 4096)
    given: Values = {
        "id": model_id, "name": name, "maker": "PowerInfer", "family": name.split()[0], "kind": "chat",
        "summary": "A model for a test.", "repo": f"PowerInfer/{model_id}", "files": ("*.gguf",),
        "format": "powerinfer-gguf", "codec": "f16", "parameters": 7 * GB, "n_bytes": 14 * GB,
        "n_bytes_source": "published", "licence": "Apache 2.0", "shape": shape,
        "sparsity": Sparsity(0.2, tuple((i + 1) / 20 for i in range(20)), "family", "As its family."),
    }  # fmt: skip
    return CatalogueEntry(**{**given, **values})


def estimate(fits: str = "hybrid", tok_s: float | None = 20.0, gpu: float = 8.0, ram: float = 6.0,
             short: float = 0.0, **values: Any) -> Estimate:  # fmt: skip
    """gpu, ram, short: in GB."""
    low, high = (tok_s * 0.85, tok_s * 1.12) if tok_s else (None, None)
    given: Values = {
        "fits": fits, "predicted_tok_s": tok_s, "low_tok_s": low, "high_tok_s": high, "predicted_from": "family",
        "vram_bytes": int(gpu * GB), "ram_bytes": int(ram * GB), "vram_budget_bytes": int(10.9 * GB),
        "ram_budget_bytes": 21 * GB, "gpu_neuron_load": 0.71 if fits == "hybrid" else None, "context": 4096,
        "short_bytes": int(short * GB), "hot_share": 0.3 if fits == "hybrid" else None,
    }  # fmt: skip
    return Estimate(**{**given, **values})


def installed(name: str, **values: Any) -> InstalledModel:
    """An installed model with everything that `values` does not say filled in."""
    model_id = values.pop("id", f"PowerInfer/{name.lower().replace(' ', '-')}")
    folder = f"/models/{model_id}"
    n_bytes = values.get("n_bytes", 14 * GB)
    given: Values = {
        "id": model_id, "name": name, "folder": folder, "path": f"{folder}/model.gguf",
        "files": (InstalledFile("model.gguf", n_bytes, "0" * 64),), "n_bytes": n_bytes, "owned": True,
        "origin": "download", "state": "ready", "kind": "chat", "licence": "Apache 2.0",
    }  # fmt: skip
    return InstalledModel(**{**given, **values})


PIP = installed(
    "Pip", id="hearth/starter-chat", n_bytes=65_000_000, owned=False, origin="shipped", measured_tok_s=310.0
)


def catalogue_rows() -> list[tuple[CatalogueEntry, Estimate]]:
    """The models of the design's picture, and some more of every kind."""
    return [
        (entry("Bamboo DPO 7B", rank=10, summary="The best all-round chat model for this PC.", n_bytes=int(14.6 * GB)),
         estimate("hybrid", 39, 9.4, 6.2)),
        (entry("TurboSparse Mistral 7B", rank=20, codec="q4_0", n_bytes=int(4.3 * GB),
               summary="One neuron in ten fires: the quickest 7B here."), estimate("gpu", 52, 4.9, 0)),
        (entry("ProSparse 13B", rank=30, maker="SparseLLM", licence="Llama 2 licence", parameters=13 * GB,
               n_bytes=int(13.4 * GB), codec="q8_0", summary="More careful, about half as fast."),
         estimate("hybrid", 24, 9.8, 3.6)),
        (entry("TurboSparse Mixtral 47B", rank=40, parameters=47 * GB, codec="q4_0", n_bytes=26 * GB,
               summary="Large and still usable: most of it lives in RAM."), estimate("hybrid", 11, 9.9, 16.4)),
        (entry("OPT 6.7B", rank=60, maker="Meta", kind="base", licence="OPT licence", format="safetensors",
               summary="Goes on with a text; does not chat."), estimate("cpu", 3.1, 0, 13.3)),
        (entry("ReluLLaMA 70B", rank=50, maker="SparseLLM", kind="base", licence="Llama 2 licence", gated=True,
               parameters=70 * GB, codec="q4_0", n_bytes=int(38.9 * GB),
               summary="Needs 39 GB. This PC has 31 GB for it."),
         estimate("no", None, 10.4, 28.8, short=7.6)),
    ]  # fmt: skip


class FakeLibrary(QObject):
    """The interface of app.clients.library_client.LibraryClient."""

    news = Signal(str, object)
    died = Signal(object)
    busy_changed = Signal(bool)

    def __init__(self, pace_ms: int = 10) -> None:
        super().__init__()
        self.asked: list[tuple[str, Values]] = []
        self.cancelled: list[str] = []
        self.machine = MACHINE
        self.catalogue: list[tuple[CatalogueEntry, Estimate]] = catalogue_rows()
        self.models: list[InstalledModel] = [PIP]
        self.downloads: list[Download] = []
        self.hub: list[HubModel] = [
            HubModel("PowerInfer/ReluLLaMA-7B-PowerInfer-GGUF", 5120, 31, "llama2"),
            HubModel("someone/A model with a very long name of a repository-GGUF", 7, 0),
        ]
        self.estimates: dict[str, Estimate] = {}  # of installed models; else the catalogue's, else a default
        self.steps = 20  # ticks of a download and of a stage
        self.own_key = ""
        self.refusal = ""  # of what repositories have
        self.has_token = False
        self._numbers = 0
        self._failures: dict[str, deque[protocol.Failed]] = defaultdict(deque)
        self._held: set[str] = set()
        self._waiting: list[tuple[str, str, Values, Any, Any]] = []
        self._undo: dict[str, InstalledModel] = {}
        self._jobs: dict[str, Callable[[], bool]] = {}  # by request: one step; whether it goes on
        self._timer = QTimer(self, interval=max(1, pace_ms))
        self._timer.timeout.connect(self.tick)
        if pace_ms:
            self._timer.start()

    # --- the client's interface

    def ask(self, job: str, arguments: Values | None = None, done: Any = None, failed: Any = None,
            progress: Any = None, said: Any = None) -> str:  # fmt: skip
        self._numbers += 1
        request = f"fake-{self._numbers}"
        given = dict(arguments or {})
        self.asked.append((job, given))
        if job in self._held:
            self._waiting.append((request, job, given, done, failed))
        else:
            QTimer.singleShot(0, self, lambda: self._answer(request, job, given, done, failed, progress))
        return request

    def cancel(self, request_id: str) -> None:
        self.cancelled.append(request_id)

    def begin_close(self) -> None:
        self._timer.stop()

    def close(self, timeout_s: float = 5.0) -> bool:
        self._timer.stop()
        return True

    # --- for tests

    def fail(self, job: str, error: str = "HubError", message: str = "The hub answered with 500.",
             hint: str = "Try again.", crash: bool = False) -> None:  # fmt: skip
        """The next job of that name fails so."""
        self._failures[job].append(protocol.Failed("", error, message, hint, crash))

    def hold(self, job: str) -> None:
        """Jobs of that name are not answered until `release`."""
        self._held.add(job)

    def release(self, job: str) -> None:
        self._held.discard(job)
        mine = [waiting for waiting in self._waiting if waiting[1] == job]
        self._waiting = [waiting for waiting in self._waiting if waiting[1] != job]
        for request, name, given, done, failed in mine:
            self._answer(request, name, given, done, failed, None)

    def set_download(self, index: int = 0, **values: Any) -> None:
        """Put a download into some state, and tell."""
        self.downloads[index] = replace(self.downloads[index], **values)
        self.tell("downloads")

    def tell(self, topic: str) -> None:
        values: Values = {"downloads": [to_json(d) for d in self.downloads]} if topic == "downloads" else {
            "models": [to_json(m) for m in self.models]}  # fmt: skip
        self.news.emit(topic, _as_json(values))

    def jobs(self, name: str) -> list[Values]:
        """The arguments of every job of that name, in order."""
        return [given for job, given in self.asked if job == name]

    def tick(self) -> None:
        """One step of everything that takes time."""
        for request, step in list(self._jobs.items()):
            if not step():
                self._jobs.pop(request, None)
        moved = False
        for index, download in enumerate(self.downloads):
            if download.state == "queued":
                self.downloads[index] = replace(download, state="downloading")
                moved = True
            elif download.state == "downloading":
                moved = True
                n_bytes = min(download.total_bytes, download.done_bytes + max(1, download.total_bytes // self.steps))
                state = "checking" if n_bytes == download.total_bytes else "downloading"
                self.downloads[index] = replace(
                    download, state=state, done_bytes=n_bytes, bytes_per_s=38e6,
                    eta_s=(download.total_bytes - n_bytes) / 38e6, file="model.gguf",
                )  # fmt: skip
            elif download.state == "checking":
                moved = True
                self.downloads[index] = replace(download, state="done", bytes_per_s=None, eta_s=None)
                self._install(download)
        if moved:
            self.tell("downloads")

    # --- what it does

    def _answer(self, request: str, job: str, given: Values, done: Any, failed: Any, progress: Any) -> None:
        if self._failures[job]:
            failure = replace(self._failures[job].popleft(), id=request)
            if failed is not None:
                failed(failure)
            return
        if job in ("prepare", "import", "relocate", "verify"):
            self._jobs[request] = self._long(request, job, given, done, progress)
            return
        values = getattr(self, f"_do_{job}")(given)
        if done is not None:
            done(_as_json(values))

    def _do_machine(self, given: Values) -> Values:
        return to_json(self.machine)

    def _do_catalogue(self, given: Values) -> Values:
        entries = [{"entry": to_json(e), "estimate": to_json(s)} for e, s in self.catalogue]
        return {"machine": to_json(self.machine), "entries": entries}

    def _do_library(self, given: Values) -> Values:
        return {"models": [to_json(model) for model in self.models]}

    def _do_downloads(self, given: Values) -> Values:
        return {"downloads": [to_json(download) for download in self.downloads]}

    def _do_estimate(self, given: Values) -> Values:
        model = next((model for model in self.models if model.id == given["model"]), None)
        catalogue_id = model.catalogue_id if model else given["model"]
        known = next((known for entry, known in self.catalogue if entry.id == catalogue_id), None)
        found = self.estimates.get(given["model"], known) or estimate("gpu", 310, 0.1, 0)
        budget = given.get("vram_budget_gib")
        if budget is not None:
            share = min(1.0, budget * 2**30 / max(1, found.vram_bytes))
            lost = int(found.vram_bytes * (1 - share))
            found = replace(
                found, vram_budget_bytes=int(budget * 2**30), vram_bytes=found.vram_bytes - lost,
                ram_bytes=found.ram_bytes + lost, predicted_tok_s=(found.predicted_tok_s or 0) * (0.3 + 0.7 * share),
            )  # fmt: skip
        return to_json(found)

    def _do_search(self, given: Values) -> Values:
        found = [model for model in self.hub if given["query"].lower() in model.repo.lower()]
        return {"models": [to_json(model) for model in found]}

    def _do_look(self, given: Values) -> Values:
        repo = given["repo"].rstrip("/").removeprefix("https://huggingface.co/")
        variants = (
            Variant("q4_0", "gguf", "q4_0", (HubFile("model.q4_0.gguf", 4 * GB),), 4 * GB),
            Variant("f16", "gguf", "f16", (HubFile("model.f16.gguf", 14 * GB),), 14 * GB),
            Variant("pytorch", "safetensors", "", (HubFile("model.bin", 14 * GB),), 14 * GB, "Only pickled weights."),
        )
        variants = tuple(replace(one, refused=one.refused or self.refusal) for one in variants)
        listing = Listing(HubModel(repo, 100, 3, "apache-2.0"), "0" * 40, variants)
        return {"listing": to_json(listing), "estimates": {"q4_0": to_json(estimate("gpu", 60, 4.9, 0)),
                                                           "f16": to_json(estimate("hybrid", 22))}}  # fmt: skip

    def _do_download(self, given: Values) -> Values:
        known = next((entry for entry, _ in self.catalogue if entry.id == given.get("catalogue_id")), None)
        repo = known.repo if known else given["repo"]
        number = f"d{len(self.downloads) + 1}"
        download = Download(
            number, repo, known.name if known else f"{repo.partition('/')[2]} {given['variant']}", repo, "queued", 0,
            known.n_bytes if known else 4 * GB, catalogue_id=known.id if known else "",
        )  # fmt: skip
        self.downloads.append(download)
        return {"download": to_json(download)}

    def _do_pause(self, given: Values) -> Values:
        return self._change(given, state="paused", bytes_per_s=None, eta_s=None)

    def _do_resume(self, given: Values) -> Values:
        return self._change(given, state="queued", error="", message="", hint="")

    def _do_cancel_download(self, given: Values) -> Values:
        self.downloads = [download for download in self.downloads if download.id != given["download"]]
        self.tell("downloads")
        return {}

    _do_remove_download = _do_cancel_download

    def _change(self, given: Values, **values: Any) -> Values:
        self.downloads = [replace(d, **values) if d.id == given["download"] else d for d in self.downloads]
        self.tell("downloads")
        return {}

    def _install(self, download: Download) -> None:
        known = next((entry for entry, _ in self.catalogue if entry.id == download.catalogue_id), None)
        self.models.append(
            installed(download.name, id=download.model, n_bytes=download.total_bytes, repo=download.repo,
                      catalogue_id=download.catalogue_id, state="needs preparing" if known else "ready",
                      reason="Preparing makes it about twice as fast." if known else "",
                      kind=known.kind if known else "", licence=known.licence if known else "")
        )  # fmt: skip
        self.tell("library")

    def _do_remove(self, given: Values) -> Values:
        gone = next(model for model in self.models if model.id == given["model"])
        self.models.remove(gone)
        self._undo[gone.id] = gone
        self.tell("library")
        return {"undo": gone.id}

    def _do_restore(self, given: Values) -> Values:
        back = self._undo.pop(given["undo"])
        self.models.append(back)
        self.tell("library")
        return {"model": to_json(back)}

    def _do_repair(self, given: Values) -> Values:
        model = next(model for model in self.models if model.id == given["model"])
        download = Download(f"d{len(self.downloads) + 1}", model.id, model.name, model.repo, "queued", 0, 10**8,
                            catalogue_id=model.catalogue_id)  # fmt: skip
        self.downloads.append(download)
        return {"download": to_json(download)}

    def _do_prepare_plan(self, given: Values) -> Values:
        steps = tuple(PrepareStep(stage, f"Why {stage} pays.", 60.0) for stage in STAGES)  # type: ignore[arg-type]
        return to_json(PreparePlan(given["model"], steps, 12.0, 24.0, 240.0, 14 * GB, True))

    def _do_token(self, given: Values) -> Values:
        if "set" in given:
            self.has_token = bool(given["set"])
        return {"has_token": self.has_token, "where": "keyring" if self.has_token else "", "note": ""}

    def _do_server_key(self, given: Values) -> Values:
        return {"kept": bool(given["set"]), "note": ""}

    def _do_own_key(self, given: Values) -> Values:
        self.own_key = given.get("set", self.own_key)
        return {"key": self.own_key, "kept": bool(self.own_key), "note": ""}

    def _do_server_models(self, given: Values) -> Values:
        return {"address": given["address"], "models": ["big", "small"]}

    def _do_server_chat(self, given: Values) -> Values:
        return {"text": "", "finish_reason": "stop", "tokens": 0}

    def _do_idle(self, given: Values) -> Values:
        return {"pending": []}

    def _do_measured(self, given: Values) -> Values:
        self.models = [replace(m, measured_tok_s=given["tok_s"]) if m.id == given["model"] else m for m in self.models]
        self.tell("library")
        return {}

    def _long(self, request: str, job: str, given: Values, done: Any, progress: Any) -> Callable[[], bool]:
        stages = {"prepare": STAGES, "import": ("copying", "checking"), "relocate": ("moving",)}.get(job, ("checking",))
        position = 0

        def step() -> bool:
            nonlocal position
            if request in self.cancelled:
                if done is not None:
                    done({"cancelled": True})
                return False
            if position == self.steps * len(stages):
                if done is not None:
                    done(_as_json(self._ended(job, given)))
                return False
            stage, at = divmod(position, self.steps)
            position += 1
            if progress is not None:
                left = (self.steps - at) * 2.0
                progress(protocol.Progress(request, stages[stage], at + 1, self.steps, left))
            return True

        return step

    def _ended(self, job: str, given: Values) -> Values:
        if job == "relocate":
            return {"folder": given["folder"]}
        if job == "verify":
            return {"damaged": []}
        if job == "import":
            name = given["path"].replace("\\", "/").rstrip("/").rpartition("/")[2]
            model = installed(name, id=f"local/{name}", origin="copied" if given["copy"] else "in place",
                              owned=given["copy"], licence="")  # fmt: skip
            self.models.append(model)
            self.tell("library")
            return {"model": to_json(model)}
        self.models = [replace(m, state="ready", reason="", prepared=f"{m.folder}/prepared")
                       if m.id == given["model"] else m for m in self.models]  # fmt: skip
        self.tell("library")
        model = next(model for model in self.models if model.id == given["model"])
        return {"model": to_json(model), "plan": self._do_prepare_plan(given)}


def _as_json(value: Any) -> Any:
    """As it comes over a pipe: tuples are lists."""
    if isinstance(value, dict):
        return {key: _as_json(item) for key, item in value.items()}
    return [_as_json(item) for item in value] if isinstance(value, list | tuple) else value
