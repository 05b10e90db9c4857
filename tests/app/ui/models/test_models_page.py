"""The Models page in the real window: filters, search, every act of a card, dialogs, what comes in by drag and drop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_library import GB, PIP, FakeLibrary, entry, estimate, installed
from models_room import ModelsRoom, names
from PySide6.QtCore import QMimeData, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot
from support.repetitions import some_daily

from app.clients.engine_status import Phase
from app.problems import Problems
from app.ui.look import theme
from app.ui.models.model_details import DetailsDialog
from app.ui.models.model_dialogs import FitDialog, ImportDialog, PrepareDialog, RepairDialog, TokenDialog
from app.ui.widgets.controls import Label
from app.ui.widgets.floating import ConfirmDialog, Toast
from app.user_messages import UserMessage
from engine.library.records import Download, HubModel, ModelShape, Sparsity

pytestmark = pytest.mark.gui

Enter = Callable[..., ModelsRoom]


@pytest.fixture
def enter(qtbot: QtBot, tmp_path: Path) -> Iterator[Enter]:
    rooms: list[ModelsRoom] = []

    def make(library: FakeLibrary | None = None, settle: bool = True, **values: Any) -> ModelsRoom:
        room = ModelsRoom(qtbot, tmp_path, library, **values)
        rooms.append(room)
        if settle:
            room.settle()
        return room

    yield make
    for room in rooms:
        room.close()


def owning(**values: Any) -> FakeLibrary:
    library = FakeLibrary(0)
    mine = installed("ProSparse 13B", id="SparseLLM/p", catalogue_id="prosparse-13b", repo="SparseLLM/p", **values)
    library.models = [PIP, mine]
    return library


# --- what is shown


def test_cards_of_what_is_recommended_and_this_pc_in_a_line(enter: Enter) -> None:
    room = enter()
    assert room.shown()[0] == "hearth/starter-chat", "the model in use comes first"
    assert "relullama-70b" not in room.shown()
    assert "RTX 4070" in room.page.head.line.words
    assert room.page.head.line.toolTip() == "The only card that can be used"
    primary = [card.row.id for card in room.page.cards.values()
               if any(b.look == "primary" and b.isVisible() for b in card.buttons.values())]  # fmt: skip
    assert primary == ["bamboo-dpo-7b"], "at most one primary button on a page"


def test_filters_and_sorting_change_what_is_shown(enter: Enter) -> None:
    room = enter()
    QTest.mouseClick(room.page.filters.pills["all"], Qt.MouseButton.LeftButton)
    assert len(room.shown()) == 7
    QTest.mouseClick(room.page.filters.pills["here"], Qt.MouseButton.LeftButton)
    assert room.shown() == ["hearth/starter-chat"]
    room.page.filters.pick("all")
    room.page.filters.sort.chosen.emit("size")
    assert room.shown()[0] == "hearth/starter-chat"
    assert room.shown()[-1] == "relullama-70b"
    room.page.filters.size_menu.chosen.emit("xl")
    room.page.filters.family.chosen.emit("OPT")
    assert room.shown() == []
    assert room.page.empty_state.isVisible()
    QTest.mouseClick(room.page.empty_state.first, Qt.MouseButton.LeftButton)
    assert len(room.shown()) == 7


def test_without_a_gpu_nothing_is_asked_about_fitting_it(enter: Enter) -> None:
    library = FakeLibrary(0)
    library.machine = replace(library.machine, gpu="", gpu_reason="There is none")
    room = enter(library)
    assert not room.page.filters.pills["gpu"].isVisible()
    assert room.page.filters.pills["well"].isVisible()
    assert "no GPU, 8 cores" in room.page.head.line.words
    pills = room.page.filters.pills
    room.page.filters.pick("here")
    pills["here"].setFocus(Qt.FocusReason.TabFocusReason)
    QTest.keyClick(pills["here"], Qt.Key.Key_Right)
    assert room.page.filters.choice.filter == "well"


def test_arrow_keys_move_the_filter(enter: Enter) -> None:
    room = enter()
    pills = room.page.filters.pills
    pills["recommended"].setFocus(Qt.FocusReason.TabFocusReason)
    QTest.keyClick(pills["recommended"], Qt.Key.Key_Right)
    assert room.page.filters.choice.filter == "here"
    assert pills["here"].isChecked()


def test_while_it_loads_it_says_so_and_a_failure_offers_to_try_again(enter: Enter) -> None:
    library = FakeLibrary(0)
    for job in ("catalogue", "library"):
        library.hold(job)
    room = enter(library, settle=False)
    QTest.qWait(30)
    looking = room.page.empty_state.title.words
    library.catalogue, library.models = [], []
    for job in ("catalogue", "library"):
        library.release(job)
    room.wait(lambda: room.page.empty_state.title.words not in ("", looking))
    library.models = [PIP]
    QTest.mouseClick(room.page.empty_state.first, Qt.MouseButton.LeftButton)
    room.wait(lambda: room.shown() == ["hearth/starter-chat"])


def test_cards_stand_still_while_figures_change(enter: Enter) -> None:
    room = enter()
    before = room.shown()
    room.press("turbosparse-mistral-7b", "download")
    room.wait(lambda: room.controller.row("turbosparse-mistral-7b").download)  # type: ignore[union-attr]
    QTest.qWait(60)
    assert room.shown() == before
    room.library.tick()
    room.library.tick()
    card = room.card("turbosparse-mistral-7b")
    room.wait(lambda: card.activity is not None and "38" in card.activity.left)
    room.wait(lambda: room.window.sidebar.panel.models.figure == "5%")
    assert room.shown() == before


# --- what a card asks for


def test_download_pause_go_on_and_cancel(enter: Enter) -> None:
    room = enter()
    room.press("bamboo-dpo-7b", "download")
    room.wait(lambda: "pause" in room.card("bamboo-dpo-7b").buttons)
    room.press("bamboo-dpo-7b", "pause")
    room.wait(lambda: "resume" in room.card("bamboo-dpo-7b").buttons)
    room.press("bamboo-dpo-7b", "resume")
    room.wait(lambda: "pause" in room.card("bamboo-dpo-7b").buttons)
    room.press("bamboo-dpo-7b", "cancel")
    room.wait(lambda: "download" in room.card("bamboo-dpo-7b").buttons)
    assert [job for job, _ in room.library.asked if "load" in job or job in {"pause", "resume"}][1:] == [
        "download", "pause", "resume", "cancel_download",
    ]  # fmt: skip


def test_chat_loads_the_model_and_leads_to_the_chat(enter: Enter) -> None:
    room = enter(owning())
    room.press("prosparse-13b", "chat")
    assert room.chat.did == ["use SparseLLM/p"]
    assert room.window.pages.currentWidget() is room.window.page
    room.window.show_models()
    room.chat.show(Phase.LOADING, done=42, total=100)
    room.wait(lambda: "Loading, 42%" in room.card("prosparse-13b").accessibleName())
    room.press("prosparse-13b", "cancel-load")
    assert room.chat.did[-1] == "cancel"


def test_a_model_in_use_is_unloaded(enter: Enter) -> None:
    room = enter(owning(), model="SparseLLM/p")
    room.press("prosparse-13b", "unload")
    assert room.chat.did == ["unload"]


def test_preparing_shows_what_it_brings_before_it_starts(enter: Enter) -> None:
    room = enter(owning(state="needs preparing", reason="Twice as fast."))
    room.press("prosparse-13b", "prepare")
    dialog = room.dialog(PrepareDialog)
    room.wait(lambda: dialog.start.isEnabled())
    rate = room.card("prosparse-13b").rate()[0]
    assert dialog.sentence.words.startswith(f"From {rate} to ≈"), "the rate that the card shows"
    assert "chatting" in dialog.sentence.words
    assert "Needs " in dialog.sentence.words
    assert not dialog.predictors.isVisible(), "it asks nothing unless asked for details"
    folded = dialog.height()
    QTest.mouseClick(dialog.details, Qt.MouseButton.LeftButton)
    assert dialog.predictors.isVisible()
    assert dialog.height() > folded
    QTest.mouseClick(dialog.predictors.buttons["sign"], Qt.MouseButton.LeftButton)
    QTest.mouseClick(dialog.start, Qt.MouseButton.LeftButton)
    room.wait(lambda: room.library.jobs("prepare") == [{"model": "SparseLLM/p", "predictors": "sign"}])
    room.wait(lambda: room.library._jobs)
    for _ in range(30):
        room.library.tick()
    room.wait(lambda: (shown := room.card("prosparse-13b").activity) is not None and shown.stage == "profile")
    room.press("prosparse-13b", "cancel-prepare")
    assert room.library.cancelled


def test_deleting_asks_first_and_can_be_undone(enter: Enter) -> None:
    room = enter(owning())
    room.actions.act("prosparse-13b", "delete")
    question = room.dialog(ConfirmDialog)
    assert question.safe.hasFocus() or not question.isActiveWindow()
    assert "Frees 14.0" in question.accessibleDescription()
    QTest.mouseClick(question.danger, Qt.MouseButton.LeftButton)
    room.wait(lambda: "download" in room.card("prosparse-13b").buttons)
    (toast,) = room.page.findChildren(Toast)
    toast._take_back()
    room.wait(lambda: "chat" in room.card("prosparse-13b").buttons)


def test_what_a_check_has_found_is_told(enter: Enter) -> None:
    room = enter(owning())
    room.controller.verified.emit("prosparse-13b", [])
    (toast,) = room.page.findChildren(Toast)
    assert toast.words.words.startswith("ProSparse")
    room.controller.verified.emit("prosparse-13b", ["model.gguf"])
    dialog = room.dialog(RepairDialog)
    assert "One file" in dialog.sentence.words
    dialog.accept()
    room.wait(lambda: room.library.jobs("repair"))


def test_what_would_fit_leads_to_a_card(enter: Enter) -> None:
    room = enter()
    room.page.filters.pick("research")
    room.press("relullama-70b", "fits")
    dialog = room.dialog(FitDialog)
    assert "This PC has" in dialog.sentence.words
    dialog.chosen.emit("turbosparse-mixtral-47b")
    dialog.close()
    assert "turbosparse-mixtral-47b" in room.shown()


def test_details_say_why_it_fits_and_offer_what_can_be_done(enter: Enter) -> None:
    room = enter(owning())
    QTest.mouseClick(room.card("prosparse-13b"), Qt.MouseButton.LeftButton, pos=QPoint(30, 30))
    dialog = room.dialog(DetailsDialog)
    said = " ".join(label.accessibleName() or label.text() for label in dialog.findChildren(type(dialog.heading)))
    for words in ("71% of the active neurons", "4,096 tokens", "SparseLLM/p", "Llama 2 licence", "model.gguf"):
        assert words in said
    assert names(dialog) == []
    told: list[tuple[str, str]] = []
    dialog.asked.connect(lambda *what: told.append(what))
    delete = next(b for b in dialog.findChildren(type(room.page.head.import_button)) if b.look == "danger")
    QTest.mouseClick(delete, Qt.MouseButton.LeftButton)
    assert told == [("prosparse-13b", "delete")]


def test_details_of_a_mixture_name_its_experts(enter: Enter) -> None:
    shape = ModelShape(
        "lfm2_moe", "silu-glu", 24, 2048, 1792, 32, 8, 64, 128000, 128000, n_experts=32, n_experts_used=4
    )
    library = FakeLibrary(0)
    library.catalogue.append((entry("Mixture", shape=shape, sparsity=Sparsity(), rank=0), estimate()))
    room = enter(library)
    QTest.mouseClick(room.card("mixture"), Qt.MouseButton.LeftButton, pos=QPoint(30, 30))
    dialog = room.dialog(DetailsDialog)
    said = [label.accessibleName() for label in dialog.findChildren(Label)]
    assert "Neurons in use: 4 of 32 experts per token" in said


def test_the_menu_of_a_card_offers_only_what_can_be_done(enter: Enter) -> None:
    room = enter(owning())

    def words(row_id: str) -> list[str]:
        menu = room.actions.menu_for(room.controller.row(row_id))  # type: ignore[arg-type]
        return [action.text() for action in menu.actions() if action.text()]

    assert words("prosparse-13b") == [
        "Details", "Load", "Prepare for this PC", "Check the files", "Open its folder", "Open its page",
        "Copy the repository id", "Delete",
    ]  # fmt: skip
    assert words("bamboo-dpo-7b") == ["Details", "Open its page", "Copy the repository id"]
    assert "Delete" not in words("hearth/starter-chat")


# --- search and the hub


def test_a_search_shows_models_known_and_the_hubs(enter: Enter) -> None:
    room = enter()
    room.search("relu")
    room.wait(lambda: room.page.hub.grid.cards)
    assert room.shown() == ["relullama-70b"]
    assert room.page.filters.choice.filter == "all"
    card: Any = room.page.hub.grid.cards[0]
    assert card.model.repo == "PowerInfer/ReluLLaMA-7B-PowerInfer-GGUF"
    room.search("")
    assert room.page.filters.choice.filter == "recommended"
    assert not room.page.hub.grid.isVisible()


def test_the_hub_is_asked_on_enter_or_by_the_button_and_never_while_one_types(enter: Enter) -> None:
    room = enter()
    QTest.keyClicks(room.page.search, "relu")
    QTest.keyClick(room.page.search, Qt.Key.Key_Down)
    QTest.qWait(50)
    assert room.library.jobs("search") == []
    assert room.page.hub.ask.isVisible()
    assert room.shown() == ["relullama-70b"]
    QTest.mouseClick(room.page.hub.ask, Qt.MouseButton.LeftButton)
    room.wait(lambda: room.page.hub.grid.cards)
    assert not room.page.hub.ask.isVisible()
    QTest.keyClick(room.page.search, Qt.Key.Key_Return)
    assert len(room.library.jobs("search")) == 1, "the same words are asked once"
    QTest.keyClicks(room.page.search, "x")
    assert room.page.hub.ask.isVisible()
    assert not room.page.hub.grid.isVisible()


def test_a_base_model_says_so_on_its_card(enter: Enter) -> None:
    library = FakeLibrary(0)
    library.models = [PIP, installed("Found", id="local/found", kind="base")]
    room = enter(library)
    room.page.show_here()
    assert "continues text" in room.page.cards["local/found"].by_line()
    assert "continues text" not in room.page.cards[PIP.id].by_line()
    assert "chat" not in room.page.cards[PIP.id].by_line()


def test_only_the_newest_search_counts(enter: Enter) -> None:
    room = enter()
    room.search("relu")
    room.page.set_found("something else", [HubModel("a/b")])
    assert all(card.model.repo != "a/b" for card in room.page.hub.cards)


def test_a_search_that_fails_says_why_and_tries_again(enter: Enter) -> None:
    room = enter()
    room.library.fail("search", "OfflineError", "The hub cannot be reached.", "Check the network.")
    room.search("relu")
    room.wait(lambda: room.page.hub.empty_state.isVisible())
    assert "cannot be reached" in room.page.hub.empty_state.line.words
    assert room.shown() == ["relullama-70b"], "what is known is shown all the same"
    QTest.mouseClick(room.page.hub.empty_state.first, Qt.MouseButton.LeftButton)
    room.wait(lambda: room.page.hub.grid.cards)


def test_nothing_found_is_said(enter: Enter) -> None:
    room = enter()
    room.search("zzzz")
    room.wait(lambda: room.page.hub.empty_state.isVisible())
    assert "zzzz" in room.page.hub.empty_state.title.words


@pytest.mark.parametrize("text", ["https://huggingface.co/o/name/tree/main", "o/name"])
def test_a_pasted_repository_is_looked_into_and_a_variant_is_fetched(enter: Enter, text: str) -> None:
    room = enter()
    room.search(text)
    room.wait(lambda: room.page.repository.rows)
    assert room.library.jobs("look") == [{"repo": "o/name"}]
    rows = room.page.repository.rows
    assert [row.variant.name for row in rows] == ["q4_0", "f16", "pytorch"], "what Hearth reads comes first"
    assert rows[2].button is None
    assert "Only pickled weights" in rows[2].accessibleName()
    assert rows[0].button is not None
    QTest.mouseClick(rows[0].button, Qt.MouseButton.LeftButton)
    room.wait(lambda: room.library.jobs("download") == [{"repo": "o/name", "variant": "q4_0"}])
    assert room.page.filters.choice.filter == "here"
    room.wait(lambda: "o/name" in room.shown())


def test_a_repository_that_asks_for_access_leads_to_the_token(enter: Enter) -> None:
    room = enter()
    room.library.fail("look", "GatedModelError", "o/name asks for access.", "Visit https://huggingface.co/o/name")
    room.search("o/name")
    room.wait(lambda: room.page.repository.findChild(type(room.page.empty_state)) is not None)
    note = room.page.repository.findChild(type(room.page.empty_state))
    assert note is not None
    QTest.mouseClick(note.first, Qt.MouseButton.LeftButton)
    dialog = room.dialog(TokenDialog)
    assert dialog.field.echoMode() == dialog.field.EchoMode.Password
    QTest.keyClicks(dialog.field, " hf_secret ")
    QTest.mouseClick(dialog.keep, Qt.MouseButton.LeftButton)
    room.wait(lambda: {"set": "hf_secret"} in room.library.jobs("token"))
    assert dialog.field.text() == ""
    QTest.keyClick(room.page, Qt.Key.Key_Escape)
    assert not room.page.repository.isVisible()


def test_a_hit_is_looked_into_and_back_leads_to_the_hits(enter: Enter) -> None:
    room = enter()
    room.search("relu")
    room.wait(lambda: room.page.hub.grid.cards)
    card: Any = room.page.hub.grid.cards[0]
    QTest.mouseClick(card.look, Qt.MouseButton.LeftButton)
    room.wait(lambda: room.page.repository.rows)
    assert not room.page.hub.grid.isVisible()
    QTest.mouseClick(room.page.repository.back_button, Qt.MouseButton.LeftButton)
    assert room.page.hub.grid.isVisible()
    assert room.page.search.text() == "relu"


# --- taking in


def _drop(room: ModelsRoom, path: str) -> None:
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(path)])
    at, buttons, keys = QPoint(300, 300), Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    room.page.dragEnterEvent(QDragEnterEvent(at, Qt.DropAction.CopyAction, data, buttons, keys))
    assert room.page.overlay.isVisible()
    room.page.dropEvent(QDropEvent(QPointF(at), Qt.DropAction.CopyAction, data, buttons, keys))
    assert not room.page.overlay.isVisible()


def test_return_adds_the_chosen_file(enter: Enter, tmp_path: Path) -> None:
    room = enter()
    path = str(tmp_path / "a.gguf")
    _drop(room, path)
    dialog = room.dialog(ImportDialog)
    room.wait(lambda: dialog.focusWidget() is not None)
    QTest.keyClick(dialog.focusWidget(), Qt.Key.Key_Return)
    room.wait(lambda: room.library.jobs("import") == [{"path": path, "copy": False}])


@pytest.mark.parametrize("copy", [False, True])
def test_a_file_that_is_dropped_is_taken_in_as_the_person_wants(enter: Enter, tmp_path: Path, copy: bool) -> None:
    room = enter()
    path = str(tmp_path / "Модель 模型.gguf")
    _drop(room, path)
    dialog = room.dialog(ImportDialog)
    QTest.mouseClick(dialog.way.buttons[copy], Qt.MouseButton.LeftButton)
    QTest.mouseClick(dialog.add, Qt.MouseButton.LeftButton)
    room.wait(lambda: room.library.jobs("import") == [{"path": path, "copy": copy}])
    room.wait(lambda: room.library._jobs)
    room.library.tick()
    assert room.page.work.isVisible()
    assert "Модель 模型.gguf" in room.page.work.words.words
    for _ in range(60):
        room.library.tick()
    room.wait(lambda: not room.page.work.isVisible())
    assert room.page.filters.choice.filter == "here"


def test_work_at_the_foot_can_be_stopped(enter: Enter, tmp_path: Path) -> None:
    room = enter()
    room.controller.import_path(str(tmp_path / "a.gguf"), True)
    room.wait(lambda: room.library._jobs)
    room.library.tick()
    QTest.mouseClick(room.page.work.stop_button, Qt.MouseButton.LeftButton)
    assert room.library.cancelled


def test_a_download_out_of_view_is_told_at_the_foot(enter: Enter) -> None:
    library = FakeLibrary(0)
    library.downloads = [Download("d1", "o/b", "Bamboo", "o/b", "downloading", GB, 4 * GB, 38e6, 60.0, "f",
                                  "bamboo-dpo-7b")]  # fmt: skip
    room = enter(library)
    assert not room.page.work.isVisible(), "its card shows it"
    room.page.filters.pick("research")
    assert room.page.work.isVisible()
    assert room.page.work.words.words.endswith(" Bamboo DPO 7B")
    QTest.mouseClick(room.page.work.show_button, Qt.MouseButton.LeftButton)
    assert "bamboo-dpo-7b" in room.shown()
    assert not room.page.work.isVisible()


# --- the window around it


def test_pages_change_by_sidebar_shortcut_and_chat(enter: Enter) -> None:
    room = enter()
    window = room.window
    assert window.sidebar.panel.models.selected
    assert window.windowTitle() == "Models – Hearth"
    window.sidebar.new_chat.emit()
    assert window.pages.currentWidget() is window.page
    assert not window.sidebar.panel.models.selected
    QTest.mouseClick(window.sidebar.panel.models, Qt.MouseButton.LeftButton)
    assert window.pages.currentWidget() is room.page
    window.resize(900, 600)
    QTest.qWait(20)
    QTest.mouseClick(window.sidebar.rail.chat, Qt.MouseButton.LeftButton)
    assert window.pages.currentWidget() is window.page
    QTest.mouseClick(window.sidebar.rail.models, Qt.MouseButton.LeftButton)
    assert window.pages.currentWidget() is room.page


def test_a_failure_is_told_on_the_page_that_is_shown(enter: Enter) -> None:
    room = enter()
    message = UserMessage("It was not done", "Why.", "Try again", "", "bad", "refresh-models")
    room.controller.problem.emit(message)
    assert room.page.banner.isVisible()
    primary = [card for card in room.page.cards.values() if card.suggested]
    assert primary == [], "beside the banner's there is no other primary button"
    QTest.mouseClick(room.page.banner._remedy, Qt.MouseButton.LeftButton)
    assert not room.page.banner.isVisible()
    problems = Problems()
    problems.shown.connect(room.window.page.show_banner)
    room.window._chat = SimpleNamespace(problems=problems)  # type: ignore[assignment]
    room.window.show_chat()
    room.controller.problem.emit(message)
    assert room.window.page.banner.isVisible()


def test_everything_has_a_name_and_tab_reaches_the_cards(enter: Enter) -> None:
    from app.ui.widgets import tab_order

    room = enter(owning())
    room.search("relu")
    room.wait(lambda: room.page.hub.grid.cards)
    assert names(room.window) == []
    stops = tab_order.stops(room.page)
    assert stops[0] is room.page.search
    assert room.card("relullama-70b") in stops
    assert room.card("relullama-70b").buttons["fits"] in stops
    room.search("o/name")
    room.wait(lambda: room.page.repository.rows)
    assert names(room.window) == []


@pytest.mark.parametrize("size", some_daily([(720, 520), (900, 600), (1280, 832), (1920, 1080)], [(720, 520)]))
@pytest.mark.parametrize("zoom", [1.0, 1.6])
def test_no_control_is_cut_at_any_size(enter: Enter, qapp: QApplication, size: tuple[int, int], zoom: float) -> None:
    room = enter(owning(state="needs preparing"))
    room.window.resize(*size)
    theme.apply(qapp, "dark", zoom)
    page = room.page
    head, filters = page.head, page.filters
    begins = (head.title, page.grid, filters.pills["recommended"])
    QTest.qWait(60)
    room.wait(lambda: len({widget.mapTo(page, QPoint(0, 0)).x() for widget in begins}) == 1)  # they begin on one line
    shown = [pill for pill in filters.pills.values() if not pill.isHidden()]
    controls = [page.search, head.import_button, head.more, *shown, filters.size_menu, filters.family,
                filters.sort]  # fmt: skip
    for control in controls:
        corner = control.mapTo(page, QPoint(0, 0))
        assert page.rect().contains(control.rect().translated(corner)), control.accessibleName()
        assert control is page.search or control.width() >= control.sizeHint().width() - 1
    for card in page.grid.cards:
        assert card.x() >= 0
        assert card.geometry().right() < page.grid.width()


def test_fifty_and_more_cards_follow_figures_at_once(enter: Enter) -> None:
    import time

    library = FakeLibrary(0)
    library.catalogue = [  # more than anybody has
        (entry(f"Model {i} 7B", rank=i, repo=f"o/m{i}"), estimate("hybrid", 20 + i)) for i in range(80)
    ]
    room = enter(library)
    room.page.filters.pick("all")
    QTest.qWait(20)
    assert len(room.page.grid.cards) == 81
    rows = list(room.controller.rows)
    began = time.process_time()
    for step in range(20):
        rows[3] = replace(rows[3], download=Download("d", "m", "n", "o/r", "downloading", step * 10**8, 4 * GB))
        room.page.set_rows(rows)
    assert (time.process_time() - began) / 20 < 1  # measured 10 ms
    room.page.filters.pick("gpu")
    assert room.shown() == ["hearth/starter-chat"]
