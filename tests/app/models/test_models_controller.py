"""What a person does with models, against a fake for the library, without a window."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_library import FakeLibrary, installed
from models_room import QuietChat
from pytestqt.qtbot import QtBot

from app.clients.engine_status import Phase
from app.library_messages import TITLES
from app.models.model_choices import ModelChoices
from app.models.models_controller import ModelsController
from app.user_messages import UserMessage


class Room:
    """A controller with its fakes, and everything it said."""

    def __init__(self, qtbot: QtBot, pace_ms: int = 1, **options: Any) -> None:
        self.qtbot = qtbot
        self.library, self.chat = FakeLibrary(pace_ms), QuietChat()
        self.saved: list[dict[str, Any]] = []
        self.controller = ModelsController(self.library, self.chat, ModelChoices(), self.saved.append, **options)
        self.problems: list[UserMessage] = []
        self.toasts: list[tuple[str, Any]] = []
        self.said: list[tuple[Any, ...]] = []
        c = self.controller
        c.problem.connect(self.problems.append)
        c.toast.connect(lambda words, undo: self.toasts.append((words, undo)))
        for signal in (c.searched, c.looked, c.previewed, c.planned, c.offer_changed, c.token_state):
            signal.connect(lambda *values: self.said.append(values))

    def open(self) -> Room:
        self.controller.open_page()
        self.wait(lambda: self.controller.row("bamboo-dpo-7b") and not self.controller.is_loading)
        return self

    def wait(self, condition: Callable[[], object]) -> None:
        self.qtbot.waitUntil(lambda: bool(condition()))

    def row(self, row_id: str) -> Any:
        return self.controller.row(row_id)


@pytest.fixture
def room(qtbot: QtBot) -> Iterator[Callable[..., Room]]:
    rooms: list[Room] = []

    def make(**options: Any) -> Room:
        rooms.append(Room(qtbot, **options))
        return rooms[-1]

    yield make
    for one in rooms:
        one.library.close()


def test_the_page_asks_for_everything_and_shows_it(room: Callable[..., Room]) -> None:
    here = room().open()
    assert {job for job, _ in here.library.asked} >= {"catalogue", "library", "downloads"}
    here.wait(lambda: here.row("hearth/starter-chat").estimate)
    assert here.row("hearth/starter-chat").verdict == "In use"
    assert here.controller.machine == here.library.machine


def test_a_download_runs_and_its_model_is_prepared_and_used(room: Callable[..., Room]) -> None:
    here = room().open()
    here.controller.download("bamboo-dpo-7b")
    here.wait(lambda: here.row("bamboo-dpo-7b").download)
    here.wait(lambda: here.row("bamboo-dpo-7b").installed)
    assert here.row("bamboo-dpo-7b").verdict == "GPU + CPU"
    here.controller.plan("bamboo-dpo-7b")
    here.wait(lambda: any(values[0] == "bamboo-dpo-7b" for values in here.said))
    here.controller.prepare("bamboo-dpo-7b", "sign")
    assert here.row("bamboo-dpo-7b").verdict == "Preparing"
    here.wait(lambda: here.row("bamboo-dpo-7b").verdict == "Ready")
    assert here.toasts[-1][0].startswith("Bamboo DPO 7B ")
    here.controller.use("bamboo-dpo-7b")
    assert here.chat.model == "PowerInfer/bamboo-dpo-7b"
    assert here.row("bamboo-dpo-7b").verdict == "Loading"
    here.chat.show(Phase.READY)
    assert here.row("bamboo-dpo-7b").verdict == "In use"


def test_a_search_is_answered_once_and_the_newest_counts(room: Callable[..., Room]) -> None:
    here = room().open()
    here.library.hold("search")
    here.controller.search("relu")
    here.controller.search("very long", "likes")
    here.library.release("search")
    here.wait(lambda: any(values[0] == "very long" for values in here.said))
    here.qtbot.wait(30)
    assert [values[0] for values in here.said if values[0] in ("relu", "very long")] == ["very long"]
    assert here.library.cancelled
    here.library.fail("search", "OfflineError", "Nobody is there.")
    here.controller.search("bamboo")
    here.wait(lambda: any(values[0] == "bamboo" for values in here.said))
    failure = next(values[1] for values in here.said if values[0] == "bamboo")
    assert isinstance(failure, UserMessage)
    assert failure.title == "Couldn't search"


def test_a_repository_is_looked_into_and_one_of_its_variants_fetched(room: Callable[..., Room]) -> None:
    here = room().open()
    here.controller.look("https://huggingface.co/maker/thing")
    here.controller.look("https://huggingface.co/maker/thing")
    here.wait(lambda: any(len(values) == 3 for values in here.said))
    _, listing, estimates = next(values for values in here.said if len(values) == 3)
    assert (listing.model.repo, set(estimates)) == ("maker/thing", {"q4_0", "f16"})
    assert len(here.library.jobs("look")) == 1
    here.controller.download_variant("maker/thing", "q4_0")
    here.wait(lambda: (row := here.row("maker/thing")) and row.installed)


def test_a_download_is_paused_resumed_and_cancelled(room: Callable[..., Room]) -> None:
    here = room(pace_ms=0).open()
    here.controller.download("prosparse-13b")
    here.wait(lambda: here.row("prosparse-13b").download)
    row = here.row("prosparse-13b")
    assert here.row(row.download.id) == row
    for act, state in ((here.controller.pause, "paused"), (here.controller.resume, "queued")):
        act(row.download.id)
        here.wait(lambda state=state: here.row("prosparse-13b").download.state == state)
    here.controller.cancel_download(row.download.id)
    here.wait(lambda: here.row("prosparse-13b").download is None)


def test_a_deleted_model_comes_back(room: Callable[..., Room]) -> None:
    here = room().open()
    here.controller.download("bamboo-dpo-7b")
    here.wait(lambda: here.row("bamboo-dpo-7b").installed)
    here.controller.use("bamboo-dpo-7b")
    here.chat.show(Phase.READY)
    here.controller.remove("bamboo-dpo-7b")
    assert here.chat.did[-1] == "unload", "what is loaded is unloaded before its files go"
    here.wait(lambda: here.toasts and "deleted" in here.toasts[-1][0])
    assert here.row("bamboo-dpo-7b").installed is None
    here.toasts[-1][1]()
    here.wait(lambda: here.row("bamboo-dpo-7b").installed)


def test_imports_moves_and_checks_tell_how_far_they_are(room: Callable[..., Room]) -> None:
    here = room().open()
    told: list[tuple[str, str, Any]] = []
    here.controller.progressed.connect(lambda *values: told.append(values))
    imported: list[Any] = []
    here.controller.imported.connect(imported.append)
    here.controller.import_path("/models/Мой файл.gguf", True)
    here.wait(lambda: imported)
    assert here.row("local/Мой файл.gguf").installed == imported[0]
    assert {event.stage for job, _, event in told if event} == {"copying", "checking"}
    assert told[-1][2] is None
    here.controller.relocate("/elsewhere")
    here.controller.cancel_work("relocate", "/elsewhere")
    here.wait(lambda: told[-1] == ("relocate", "/elsewhere", None))
    here.controller.verify("local/Мой файл.gguf")
    here.wait(lambda: told[-1] == ("verify", "local/Мой файл.gguf", None))


def test_preparing_fails_in_words_and_is_tried_again(room: Callable[..., Room]) -> None:
    here = room().open()
    here.library.fail("prepare", "DiskSpaceError", "14.6 GB is needed and 3.1 GB is free.")
    here.controller.prepare("hearth/starter-chat", "sign")
    here.wait(lambda: here.problems)
    assert here.problems[0].title == TITLES["prepare"].format(model="Pip")
    assert here.row("hearth/starter-chat").preparing is None
    assert here.saved[-1]["machines"]["fake-4070"]["hearth/starter-chat"]["predictors"] == "sign"
    here.controller.remedy(here.problems[0].remedy_action)
    assert here.row("hearth/starter-chat").preparing is not None
    said = len(here.toasts)
    here.controller.prepare("hearth/starter-chat")
    assert len(here.toasts) == said + 1, "one model at a time"
    here.controller.cancel_prepare()
    here.wait(lambda: here.row("hearth/starter-chat").preparing is None)


def test_a_budget_is_previewed_and_remembered(room: Callable[..., Room]) -> None:
    here = room().open()
    here.wait(lambda: here.row("hearth/starter-chat").estimate)
    here.library.hold("estimate")
    for budget in (4.0, 5.0, 6.0, 7.0):
        here.controller.preview("starter-chat", budget)
    here.library.release("estimate")
    here.wait(lambda: any(values[0] == "starter-chat" for values in here.said))
    here.qtbot.wait(50)
    asked = [given.get("vram_budget_gib") for given in here.library.jobs("estimate") if "vram_budget_gib" in given]
    assert asked == [4.0, 7.0], "of those that came meanwhile only the newest is asked"
    here.controller.set_budget("starter-chat", 7.0)
    assert here.chat.did == ["load"]
    assert here.controller.choices.of("hearth/starter-chat").vram_budget_gib == 7.0
    here.controller.set_budget("starter-chat", 7.0)
    assert here.chat.did == ["load"], "nothing has changed"
    here.controller.set_budget("starter-chat", None)
    assert here.controller.choices.engine_options("starter-chat") == {}


def test_a_smaller_model_of_the_same_vocabulary_can_guess(room: Callable[..., Room], tmp_path: Path) -> None:
    here = room().open()
    here.wait(lambda: here.controller.rows)
    model = installed("Large", n_bytes=800, vocabulary="a")
    others = [("tiny", 9, "a", "ready"), ("small", 100, "a", "ready"), ("too large", 101, "a", "ready"),
              ("other", 9, "b", "ready"), ("broken", 9, "a", "broken"), ("unknown", 9, "", "ready")]  # fmt: skip
    here.controller.known.installed = (
        [model]
        + [installed(name, n_bytes=n, vocabulary=vocabulary, state=state) for name, n, vocabulary, state in others]
        + [installed("vectors", n_bytes=100, vocabulary="a", kind="embedding")]
    )
    assert [one.name for one in here.controller.known.drafts_of(model)] == ["small", "tiny"]
    here.controller.set_draft("starter-chat", "off")
    assert here.chat.did == ["draft off"], "it is not loaded again"
    assert here.controller.choices.engine_options("starter-chat") == {"draft": "off"}
    kept = ModelChoices(tmp_path / "choices.json")
    kept.save(here.saved[-1])
    kept.read()
    assert kept.engine_options("starter-chat") == {"draft": "off"}
    here.controller.set_draft("starter-chat", "")
    assert here.controller.choices.engine_options("starter-chat") == {}


def test_the_offer_comes_stays_while_it_is_fetched_and_goes(room: Callable[..., Room]) -> None:
    here = room().open()
    here.wait(lambda: here.controller.offer)
    assert here.controller.offer.id == "bamboo-dpo-7b"
    here.controller.download("bamboo-dpo-7b")
    here.wait(lambda: here.controller.offer.download)
    here.wait(lambda: here.controller.offer.installed)
    here.controller.use("bamboo-dpo-7b")
    here.chat.show(Phase.READY)
    assert here.controller.offer is None
    other = room().open()
    other.wait(lambda: other.controller.offer)
    other.controller.dismiss_offer()
    assert other.controller.offer is None
    assert room(offer=False).open().controller.offer is None


def test_a_rate_is_remembered_once_it_says_something(room: Callable[..., Room]) -> None:
    from types import SimpleNamespace

    here = room().open()
    for tokens, rate in ((10, 200.0), (100, 305.0), (16, 200.0), (100, 201.0), (100, None)):
        here.controller.take_rate(SimpleNamespace(tokens=tokens, decode_tok_s=rate))  # type: ignore[arg-type]
    assert here.library.jobs("measured") == [{"model": "hearth/starter-chat", "tok_s": 200.0}]


def test_what_cannot_be_read_is_said_and_asked_again(room: Callable[..., Room]) -> None:
    here = room()
    here.library.fail("library", "LibraryError", "The list was written by a newer Hearth.")
    here.controller.open_page()
    here.wait(lambda: here.problems)
    assert here.problems[0].title == TITLES["library"]
    here.controller.remedy(here.problems[0].remedy_action)
    here.wait(lambda: here.row("hearth/starter-chat"))


def test_idle_time_is_told_only_where_something_was_put_off(room: Callable[..., Room]) -> None:
    here = room().open()
    here.controller.idle.changed.emit(True)
    assert here.library.jobs("idle") == []
    here.controller.choices.change("hearth/starter-chat", predictors="sign")
    here.controller.idle.changed.emit(True)
    here.controller.idle.changed.emit(False)
    assert here.library.jobs("idle") == [{"on": True}, {"on": False}]
