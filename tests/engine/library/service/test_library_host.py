"""The library's jobs as the window asks for them: against a fake for the hub, and with fakes for the jobs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.hub import FakeHub
from samples.tiny_model import make_tiny_gguf, make_tiny_model

from engine.errors import LibraryError
from engine.library.records import (
    CatalogueEntry,
    Download,
    Estimate,
    HubModel,
    InstalledModel,
    Listing,
    MachineLine,
    PreparePlan,
    from_json,
)
from engine.library.service.host import LibraryHost
from engine.library.service.library_jobs import JOBS, LibraryContext, LibraryJob
from engine.library.service.services import Services
from engine.service import protocol


class Asker:
    """Somebody who asks a host, and everything it said."""

    def __init__(self, **options: Any) -> None:
        self.heard: list[protocol.Event] = []
        self._numbers = 0
        self._heard = threading.Condition()
        self.host = LibraryHost(self._hear, **options)

    def _hear(self, event: protocol.Event) -> None:
        with self._heard:
            self.heard.append(protocol.decode(protocol.encode(event)))  # type: ignore[arg-type]
            self._heard.notify_all()

    def wait(self, found: Callable[[], Any], seconds: float = 60.0) -> Any:
        with self._heard:
            assert self._heard.wait_for(found, seconds), self.heard[-10:]
            return found()

    def begin(self, job: str, **arguments: Any) -> str:
        self._numbers += 1
        request = f"r{self._numbers}"
        self.host.submit(protocol.Job(request, job, arguments))
        return request

    def end_of(self, request: str) -> protocol.Finished | protocol.Failed:
        ends = (protocol.Finished, protocol.Failed)
        found: protocol.Finished | protocol.Failed = self.wait(
            lambda: next((event for event in self.heard if isinstance(event, ends) and event.id == request), None)
        )
        return found

    def ask(self, job: str, **arguments: Any) -> dict[str, Any]:
        end = self.end_of(self.begin(job, **arguments))
        assert isinstance(end, protocol.Finished), end
        return end.result

    def failure(self, job: str, **arguments: Any) -> protocol.Failed:
        end = self.end_of(self.begin(job, **arguments))
        assert isinstance(end, protocol.Failed), end
        return end

    def news(self, topic: str) -> list[dict[str, Any]]:
        return [event.values for event in self.heard if isinstance(event, protocol.News) and event.topic == topic]


@pytest.fixture
def asker() -> Iterator[Callable[..., Asker]]:
    askers: list[Asker] = []

    def make(**options: Any) -> Asker:
        askers.append(Asker(**options))
        return askers[-1]

    yield make
    for one in askers:
        began = time.monotonic()
        one.host.close()
        assert time.monotonic() - began < 20


class NoServices(Services):
    """Nothing to open, nothing to tell."""

    def news(self, topic: str) -> dict[str, Any]:
        return {topic: []}

    @property
    def library(self) -> Any:
        raise LibraryError("There is none.")


def fake(**jobs: LibraryJob) -> dict[str, Any]:
    return {"jobs": jobs, "services": lambda changed: NoServices(None, changed)}


# --- the host itself


def test_jobs_run_side_by_side_and_prepare_one_at_a_time(asker: Callable[..., Asker]) -> None:
    running: list[str] = []
    most: dict[str, int] = {}
    lock, started, go_on = threading.Lock(), threading.Semaphore(0), threading.Event()

    def run(queue_name: str) -> Callable[..., dict[str, Any]]:
        def work(services: Services, given: dict[str, Any], job: LibraryContext) -> dict[str, Any]:
            with lock:
                running.append(queue_name)
                most[queue_name] = max(most.get(queue_name, 0), running.count(queue_name))
            started.release()
            go_on.wait(60)
            with lock:
                running.remove(queue_name)
            return {}

        return work

    here = asker(
        **fake(
            search=LibraryJob("hub", run("hub")),
            prepare=LibraryJob("prepare", run("prepare")),
            estimate=LibraryJob("quick", lambda services, given, job: {"quick": True}),
        )
    )
    slow = [here.begin("search") for _ in range(6)] + [here.begin("prepare") for _ in range(3)]
    assert here.ask("estimate") == {"quick": True}, "what is quick does not wait for what is slow"
    assert all(started.acquire(timeout=60) for _ in range(4))
    go_on.set()
    for request in slow:
        here.end_of(request)
    assert most == {"hub": 3, "prepare": 1}


def test_a_job_is_cancelled_whether_it_runs_or_waits(asker: Callable[..., Asker]) -> None:
    def work(services: Services, given: dict[str, Any], job: LibraryContext) -> dict[str, Any]:
        from engine.errors import Cancelled

        told = 0
        while not job.cancelled():
            job.report("train", told, 1000, 5.0)
            told += 1
            time.sleep(0.005)
        raise Cancelled

    here = asker(**fake(prepare=LibraryJob("prepare", work)))
    first, second = here.begin("prepare"), here.begin("prepare")
    here.wait(lambda: any(isinstance(event, protocol.Progress) and event.eta_s == 5.0 for event in here.heard))
    for request in (second, first):
        here.host.submit(protocol.Cancel(f"c-{request}", request))
    for request in (first, second):
        end = here.end_of(request)
        assert isinstance(end, protocol.Finished)
        assert end.result == {"cancelled": True}


def test_what_is_wrong_with_a_request_is_said(asker: Callable[..., Asker]) -> None:
    def bug(services: Services, given: dict[str, Any], job: LibraryContext) -> dict[str, Any]:
        raise ZeroDivisionError("division by zero")

    here = asker(**fake(broken=LibraryJob("quick", bug, {"model": str}, {"vram_budget_gib": float})))
    assert here.failure("nonsense").error == "InvalidRequestError"
    assert "'model'" in here.failure("broken").message
    assert "'model'" in here.failure("broken", model=7).message
    failed = here.failure("broken", model="a", vram_budget_gib=8)
    assert failed.crash
    assert "ZeroDivisionError" in failed.details
    here.host.submit(protocol.Load("load", "model"))
    assert isinstance(here.end_of("load"), protocol.Failed)


def test_the_same_request_twice_is_done_once(asker: Callable[..., Asker]) -> None:
    done: list[int] = []
    go_on = threading.Event()

    def work(services: Services, given: dict[str, Any], job: LibraryContext) -> dict[str, Any]:
        go_on.wait(60)
        done.append(1)
        return {}

    here = asker(**fake(import_=LibraryJob("files", work)))
    request = protocol.Job("r", "import_", {})
    here.host.submit(request)
    here.host.submit(request)
    go_on.set()
    here.end_of("r")
    time.sleep(0.1)
    assert done == [1]


def test_every_job_of_the_contract_is_there() -> None:
    assert set(JOBS) >= {
        "machine", "catalogue", "estimate", "search", "look", "library", "downloads", "download", "pause", "resume",
        "cancel_download", "remove_download", "import", "remove", "restore", "relocate", "verify", "repair",
        "prepare_plan", "prepare", "token", "measured", "idle", "update_look",
        "update_download", "update_install",
    }  # fmt: skip


# --- the real jobs


def test_the_machine_and_the_catalogue(asker: Callable[..., Asker]) -> None:
    here = asker()
    values = here.ask("catalogue", vram_budget_gib=1.0) if here.ask("machine")["gpu"] else here.ask("catalogue")
    machine = from_json(MachineLine, values["machine"], "machine")
    assert machine.ram_total_bytes > 0
    entries = [from_json(CatalogueEntry, one["entry"], "entry") for one in values["entries"]]
    assert len(entries) > 20
    for one in values["entries"]:
        from_json(Estimate, one["estimate"], "estimate")
    found = from_json(Estimate, here.ask("estimate", model=entries[0].id), "estimate")
    assert found == from_json(Estimate, values["entries"][0]["estimate"], "estimate") or machine.gpu


def test_a_model_is_looked_up_fetched_listed_and_taken_away(
    asker: Callable[..., Asker], hub: FakeHub, tmp_path: Path
) -> None:
    data = make_tiny_gguf(tmp_path / "tiny.gguf").read_bytes()
    hub.add("maker/tiny-GGUF", {"tiny-q8_0.gguf": data, "pickled.bin": b"1"})
    here = asker()
    assert [from_json(InstalledModel, one, "model").origin for one in here.ask("library")["models"]] == ["shipped"]
    found = [from_json(HubModel, one, "model") for one in here.ask("search", query="tiny")["models"]]
    assert [model.repo for model in found] == ["maker/tiny-GGUF"]

    looked = here.ask("look", repo="maker/tiny-GGUF")
    listing = from_json(Listing, looked["listing"], "listing")
    (variant,) = [one for one in listing.variants if not one.refused]
    assert from_json(Estimate, looked["estimates"][variant.name], "estimate").fits in ("gpu", "hybrid", "cpu")

    from_json(Download, here.ask("download", repo="maker/tiny-GGUF", variant=variant.name)["download"], "download")
    here.wait(lambda: any(news["downloads"][0]["state"] == "done" for news in here.news("downloads")))
    here.wait(lambda: any(len(news["models"]) == 2 for news in here.news("library")))
    assert here.wait(lambda: {True, False} <= {news["busy"] for news in here.news("work")})
    tiny = next(one for one in here.ask("library")["models"] if one["repo"] == "maker/tiny-GGUF")
    model = from_json(InstalledModel, tiny, "model")
    assert Path(model.path).read_bytes() == data
    assert from_json(Estimate, here.ask("estimate", model=model.id, context=32), "estimate").context == 32
    assert here.ask("verify", model=model.id) == {"damaged": []}
    here.ask("measured", model=model.id, tok_s=12.5)

    undo = here.ask("remove", model=model.id)["undo"]
    assert len(here.ask("library")["models"]) == 1
    back = from_json(InstalledModel, here.ask("restore", undo=undo)["model"], "model")
    assert (back.id, back.measured_tok_s) == (model.id, 12.5)
    for one in here.ask("downloads")["downloads"]:
        here.ask("remove_download", download=one["id"])
    assert here.ask("downloads") == {"downloads": []}


def test_an_import_tells_how_far_it_is(asker: Callable[..., Asker], tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "мой tiny")
    here = asker()
    request = here.begin("import", path=str(folder), copy=True)
    end = here.end_of(request)
    assert isinstance(end, protocol.Finished), end
    model = from_json(InstalledModel, end.result["model"], "model")
    assert model.owned
    stages = {event.stage for event in here.heard if isinstance(event, protocol.Progress) and event.id == request}
    assert "copying" in stages
    plan = from_json(PreparePlan, here.ask("prepare_plan", model=model.id), "plan")
    assert plan.model == model.id


def test_a_folder_of_safetensors_is_estimated_by_its_config(
    asker: Callable[..., Asker], hub: FakeHub, tmp_path: Path
) -> None:
    folder = make_tiny_model(tmp_path / "tiny")
    hub.add("maker/tiny", {path.name: path.read_bytes() for path in folder.iterdir()})
    looked = asker().ask("look", repo="maker/tiny")
    assert list(looked["estimates"]) == ["safetensors"]


def test_a_model_that_does_not_run_is_refused_before_its_download(
    asker: Callable[..., Asker], hub: FakeHub, tmp_path: Path
) -> None:
    folder = make_tiny_model(tmp_path / "tiny", config={"model_type": "mamba"})
    hub.add("maker/tiny", {path.name: path.read_bytes() for path in folder.iterdir()})
    looked = asker().ask("look", repo="maker/tiny")
    (variant,) = from_json(Listing, looked["listing"], "listing").variants
    assert "'mamba'" in variant.refused
    assert looked["estimates"] == {}


def test_two_equal_refusals_refuse_the_other_files_of_the_format(
    asker: Callable[..., Asker], hub: FakeHub, tmp_path: Path
) -> None:
    data = make_tiny_gguf(tmp_path / "tiny.gguf").read_bytes().replace(b"llama", b"mamba")
    sizes = {"tiny-f16.gguf": 64, "tiny-q4_0.gguf": 0, "tiny-q8_0.gguf": 32}
    hub.add("maker/tiny-GGUF", {name: data + bytes(n) for name, n in sizes.items()})
    looked = asker().ask("look", repo="maker/tiny-GGUF")
    variants = from_json(Listing, looked["listing"], "listing").variants
    assert [("'mamba'" in variant.refused) for variant in variants] == [True] * 3
    read = {name for name in sizes if any(name in asked.path for asked in hub.asked)}
    assert read == {"tiny-q4_0.gguf", "tiny-q8_0.gguf"}
    assert looked["estimates"] == {}


def test_failures_of_the_hub_come_as_they_are(asker: Callable[..., Asker], hub: FakeHub) -> None:
    here = asker()
    assert here.failure("look", repo="maker/nothing").error == "RepositoryNotFoundError"
    assert here.failure("look", repo="no repository at all").error == "InvalidRequestError"
    assert here.failure("remove", model="maker/nothing").error == "ModelNotFoundError"
    assert here.failure("pause", download="d9").error == "InvalidRequestError"


def test_a_token_is_kept_and_taken_away(asker: Callable[..., Asker], hub: FakeHub) -> None:
    here = asker()
    assert here.ask("token")["has_token"] is False
    assert here.ask("token", set="hf_secret")["has_token"] is True
    assert here.ask("token", set="")["has_token"] is False
    assert "hf_secret" not in repr(here.heard)


def test_downloads_that_ran_go_on_with_the_next_host(asker: Callable[..., Asker], hub: FakeHub, tmp_path: Path) -> None:
    data = make_tiny_gguf(tmp_path / "tiny.gguf").read_bytes()
    hub.add("maker/tiny-GGUF", {"tiny-q8_0.gguf": data})
    stalled = hub.fail("tiny*", stall_after=1000)
    first = asker()
    first.ask("download", repo="maker/tiny-GGUF")
    first.wait(lambda: any(d["state"] == "downloading" for news in first.news("downloads") for d in news["downloads"]))
    first.host.close()
    stalled.times = 0
    second = asker()
    second.wait(lambda: any(d["state"] == "done" for news in second.news("downloads") for d in news["downloads"]))
