"""The menu of models: what it shows of each, what typing, keys and mouse do, and the offer of a first launch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from fake_library import PIP, FakeLibrary, estimate, installed
from PySide6.QtCore import QCoreApplication, QEvent, QObject, QPoint, Qt, Signal
from PySide6.QtGui import QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QApplication, QHBoxLayout, QMainWindow, QWidget
from pytestqt.qtbot import QtBot
from support.repetitions import slow
from support.shown_text import numbers_in

from app.clients.engine_status import EngineStatus, Phase
from app.clients.servers import Place, Server
from app.models.model_rows import ModelRow, rows_of
from app.models.model_switch import STARTER
from app.models.models_controller import ModelsController
from app.ui.chat.chat_page import ChatPage
from app.ui.chat.offer_card import pitch
from app.ui.documents.documents_dialog import MeaningLine
from app.ui.keyboard.commands import Commands
from app.ui.look import theme
from app.ui.models.chat_models import ChatModels
from app.ui.models.model_card import ModelCard, main_actions
from app.ui.models.model_list import about, can_answer, figure, name_of, spoken
from app.ui.models.model_menu import ModelMenu
from app.ui.sidebar.sidebar import Sidebar
from app.ui.widgets import focus_ring, tab_order

pytestmark = pytest.mark.gui

OWN = [
    installed("Bamboo DPO 7B", catalogue_id="bamboo-dpo-7b", measured_tok_s=39.1),
    installed("ProSparse 13B", catalogue_id="prosparse-13b", state="needs preparing", reason="Twice as fast then."),
    installed("湿度 Übersetzungsgrundlagenforschungsmodell mit sehr langem Namen 70B", id="local/long"),
    installed("Broken one", id="local/broken", state="broken", reason="A file is missing: model.gguf."),
    PIP,
]


class Chat(QObject):
    """What of the chat controller the window's parts need."""

    status_changed = Signal(EngineStatus)
    toast = Signal(str, object)
    model_changed = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self.status = EngineStatus(Phase.READY, "Pip", "CPU, 1 thread")
        self.model = PIP.id
        self.actions: list[str] = []
        self.switch = self  # which learns the names
        self.names: dict[str, str] = {}
        self.place: Place | None = None

    def keep_model(self, model: str) -> None:
        self.kept_model = model

    def use_model(self, model: str) -> None:
        self.actions.append(f"use {model}")

    def set_place(self, place: Place | None) -> bool:
        self.place = place
        return True

    def unload(self) -> None:
        self.actions.append("unload")

    def cancel_load(self) -> None:
        self.actions.append("cancel")

    def load_model(self) -> None:
        self.actions.append("load")

    def learn_names(self, names: dict[str, str]) -> None:
        self.names |= names

    def become(self, status: EngineStatus, model: str = "") -> None:
        self.status, self.model = status, model or self.model
        self.status_changed.emit(status)


@dataclass
class Scene:
    window: QMainWindow
    page: ChatPage
    sidebar: Sidebar
    chat: Chat
    library: FakeLibrary
    models: ModelsController
    parts: ChatModels

    @property
    def menu(self) -> ModelMenu:
        return self.parts.menu


MakeScene = Callable[..., Scene]


@pytest.fixture
def scene(qtbot: QtBot, qapp: QApplication) -> Iterator[MakeScene]:
    if (theme.current().choice, theme.current().zoom) != ("light", 1.0):
        theme.apply(qapp, "light", 1.0)

    class Window(QMainWindow):
        def focusNextPrevChild(self, forward: bool) -> bool:
            return tab_order.move_on(self, forward)

    def make(models: list[object] | None = None, known: bool = True) -> Scene:
        window, page, sidebar, chat = Window(), ChatPage(), Sidebar(), Chat()
        row = QHBoxLayout()
        ground = QWidget()
        ground.setLayout(row)
        row.addWidget(sidebar)
        row.addWidget(page, 1)
        window.setCentralWidget(ground)
        focus_ring.install(window)
        library = FakeLibrary(0)
        library.models = list(models) if models is not None else [PIP]  # type: ignore[arg-type]
        controller = ModelsController(library, chat)  # type: ignore[arg-type]
        parts = ChatModels(window, page, sidebar, chat, controller)  # type: ignore[arg-type]
        chat.setParent(window)
        qtbot.addWidget(window)
        window.resize(1100, 760)
        window.show()
        window.activateWindow()
        page.set_status(chat.status)
        if known:
            controller.refresh()
            qtbot.waitUntil(lambda: bool(controller.rows))
        made.append(Scene(window, page, sidebar, chat, library, controller, parts))
        return made[-1]

    made: list[Scene] = []
    yield make
    for one in made:  # here, and not by Python's collector in the middle of an event of the next test
        one.window.close()
        one.window.deleteLater()
        QCoreApplication.sendPostedEvents(one.window, QEvent.Type.DeferredDelete.value)


def press(key: Qt.Key, modifier: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier) -> None:
    focus = QApplication.focusWidget()
    assert focus is not None
    QTest.keyClick(focus, key, modifier)


def shown(menu: ModelMenu) -> list[str]:
    return [row if isinstance(row, str) else name_of(row) for row in menu.models.rows]


def row_of(model: object, **known: object) -> ModelRow:
    return rows_of([], [model], [], None, **known)[0]  # type: ignore[list-item, arg-type]


# --- words


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (row_of(installed("A", measured_tok_s=39.14)), "39.1\u202ftok/s"),
        (row_of(installed("A", id="a"), estimates={"a": estimate("gpu", 24.4)}), "≈\u202f24\u202ftok/s"),
        (row_of(installed("A")), ""),
        (row_of(installed("A", state="broken")), "Broken"),
        (row_of(installed("A", id="a"), loading="a"), "Loading"),
        (row_of(installed("A", id="a"), estimates={"a": estimate("no", None, ram=40, short=8)}), "8\u202fGB too big"),
    ],
)
def test_the_figure_at_the_right_is_a_rate_or_what_is_in_the_way(row: ModelRow, words: str) -> None:
    assert figure(row) == words


def test_a_reader_hears_name_state_and_rate() -> None:
    used = row_of(installed("Bamboo", id="b", measured_tok_s=39.14), in_use="b")
    assert spoken(used).startswith("Bamboo, ")
    assert numbers_in(spoken(used)) == ["39.1"]
    guess = row_of(installed("Bamboo", id="b"), estimates={"b": estimate("gpu", 24.4)})
    assert numbers_in(spoken(guess)) == ["24"]
    assert about(guess).splitlines()[-1].startswith("≈")
    broken = row_of(installed("Bamboo", state="broken", reason="A file is missing."))
    assert about(broken) == "Bamboo\nA file is missing."
    assert not can_answer(broken)


def test_an_embedding_model_is_not_offered_for_chats(qtbot: QtBot) -> None:
    vectors = row_of(installed("Multilingual E5 Small", kind="embedding"), estimates={"m": estimate("cpu", 900.0)})
    assert not can_answer(vectors)
    assert main_actions(vectors) == ()
    assert (vectors.rate, vectors.speed) == (None, ("–", ""))
    card = ModelCard(vectors)
    qtbot.addWidget(card)
    assert "tok/s" not in about(vectors) + card.words()
    line = MeaningLine()
    qtbot.addWidget(line)
    line.show_model("", None, has_failed=False, offered=("Multilingual E5 Small", 488_000_000))
    assert "Multilingual E5 Small" in line.state.text()


# --- opening, choosing, closing


def test_its_key_opens_it_and_typing_filters_and_enter_chooses(scene: MakeScene) -> None:
    s = scene(OWN)
    commands = Commands(s.window)
    commands.bind("model_menu", s.parts.open_menu)
    s.page.composer.set_text("a draft")
    s.page.focus_composer()
    press(Qt.Key.Key_L, Qt.KeyboardModifier.ControlModifier)
    assert s.menu.is_open
    assert s.menu.isVisible()
    assert len(shown(s.menu)) == 5
    QTest.keyClicks(QApplication.focusWidget(), "pro 13")
    assert shown(s.menu) == ["ProSparse 13B"]
    press(Qt.Key.Key_Return)
    assert not s.menu.is_open
    assert s.chat.actions == [f"use {OWN[1].id}"]
    assert s.page.composer.field.hasFocus(), "where it was before"
    assert s.page.composer.text() == "a draft"


def test_arrows_move_and_esc_goes_back_step_by_step(scene: MakeScene) -> None:
    s = scene(OWN)
    s.page.focus_composer()
    s.parts.open_menu()
    first = s.menu.view.currentIndex().row()
    press(Qt.Key.Key_Down)
    press(Qt.Key.Key_Down)
    assert s.menu.view.currentIndex().row() == min(first + 2, 4)
    press(Qt.Key.Key_PageUp)
    assert s.menu.view.currentIndex().row() == 0
    QTest.keyClicks(QApplication.focusWidget(), "zzz")
    assert shown(s.menu) == []
    assert "“zzz”" in s.menu._none.text()
    press(Qt.Key.Key_Return)
    assert s.menu.is_open, "there is nothing to choose"
    press(Qt.Key.Key_Escape)
    assert s.menu.is_open
    assert len(shown(s.menu)) == 5
    press(Qt.Key.Key_Escape)
    assert not s.menu.is_open
    assert s.chat.actions == []
    assert s.page.composer.field.hasFocus()


def test_a_broken_model_is_shown_and_not_chosen(scene: MakeScene, qtbot: QtBot) -> None:
    s = scene(OWN)
    s.parts.open_menu()
    row = shown(s.menu).index("Broken one")
    view = s.menu.view
    at = view.visualRect(s.menu.models.index(row)).center()
    qtbot.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=at)
    assert s.menu.is_open
    qtbot.mouseClick(view.viewport(), Qt.MouseButton.LeftButton,
                     pos=view.visualRect(s.menu.models.index(0)).center())  # fmt: skip
    assert s.chat.actions == [f"use {OWN[0].id}"]


def test_with_few_models_the_field_comes_with_the_first_letter(scene: MakeScene) -> None:
    s = scene([PIP])
    s.page.focus_composer()
    s.parts.open_menu()
    assert s.menu.field.isHidden()
    assert s.menu.view.hasFocus()
    QTest.keyClicks(s.menu.view, "x")
    assert s.menu.field.hasFocus()
    assert s.menu.field.text() == "x"
    s.menu.dismiss()
    s.parts.open_menu()
    assert s.menu.field.text() == ""
    assert shown(s.menu) == ["Pip"]
    press(Qt.Key.Key_Space)
    assert s.chat.actions == [f"use {STARTER}"]


def test_a_click_beside_it_closes_it_and_does_nothing_else(scene: MakeScene, qtbot: QtBot) -> None:
    s = scene(OWN)
    s.parts.open_menu()
    child = s.window.childAt(QPoint(900, 100))
    qtbot.mouseClick(child, Qt.MouseButton.LeftButton)
    assert not s.menu.is_open
    assert s.chat.actions == []
    s.parts.open_menu()
    s.parts.open_menu()
    assert not s.menu.is_open, "the same shortcut closes it"


def test_tab_stays_inside(scene: MakeScene) -> None:
    s = scene(OWN)
    s.chat.become(EngineStatus(Phase.READY, "Bamboo DPO 7B", "CPU, 1 thread"))
    s.parts.open_menu()
    names = []
    for _ in range(5):
        focus = QApplication.focusWidget()
        assert isinstance(focus, QWidget)
        names.append(focus.accessibleName() or getattr(focus, "text", str)())
        assert s.menu.isAncestorOf(focus)
        press(Qt.Key.Key_Tab)
    assert names == ["Filter models", "Models", "How it runs here", "Unload Bamboo DPO 7B", "Compare models"]


def test_its_foot_lets_the_model_go_or_stops_a_load(scene: MakeScene, qtbot: QtBot) -> None:
    s = scene(OWN)
    asked: list[bool] = []
    s.parts.models_page_requested.connect(lambda: asked.append(True))
    s.parts.open_menu()
    assert s.menu.letting_go.text() == "Unload Pip"
    qtbot.mouseClick(s.menu.letting_go, Qt.MouseButton.LeftButton)
    s.chat.become(EngineStatus(Phase.LOADING, "Bamboo", done=1, total=2))
    s.parts.open_menu()
    assert s.menu.letting_go.text() == "Stop loading"
    assert s.menu.placement.isHidden()
    qtbot.mouseClick(s.menu.letting_go, Qt.MouseButton.LeftButton)
    s.chat.become(EngineStatus(Phase.OFF))
    s.parts.open_menu()
    assert s.menu.letting_go.isHidden()
    qtbot.mouseClick(s.menu.all, Qt.MouseButton.LeftButton)
    assert s.chat.actions == ["unload", "cancel"]
    assert asked == [True]
    assert not s.menu.is_open


def test_before_the_list_is_known_it_is_asked_for(scene: MakeScene, qtbot: QtBot) -> None:
    s = scene(OWN, known=False)
    s.parts.open_menu()
    assert s.menu._none.isVisible()
    assert s.menu._none.text()
    qtbot.waitUntil(lambda: len(shown(s.menu)) == 5)
    assert s.menu._none.isHidden()
    assert s.chat.names[OWN[0].id] == "Bamboo DPO 7B"


def test_rows_that_change_leave_the_marked_one_marked(scene: MakeScene, qtbot: QtBot) -> None:
    s = scene(OWN)
    s.parts.open_menu()
    press(Qt.Key.Key_Down)
    marked = s.menu.view.marked
    assert isinstance(marked, ModelRow)
    s.library.models.insert(0, installed("Another", id="local/another"))
    s.models.refresh()
    qtbot.waitUntil(lambda: len(shown(s.menu)) == 6)
    after = s.menu.view.marked
    assert isinstance(after, ModelRow)
    assert after.id == marked.id


def test_enter_never_takes_a_model_that_came_in_the_marked_ones_place(scene: MakeScene, qtbot: QtBot) -> None:
    s = scene(OWN)
    s.parts.open_menu()
    s.menu.view.mark(1)
    del s.library.models[1]
    s.models.refresh()
    qtbot.waitUntil(lambda: len(shown(s.menu)) == 4)
    press(Qt.Key.Key_Return)
    assert s.menu.is_open
    assert s.chat.actions == []
    press(Qt.Key.Key_Down)
    assert s.menu.view.marked == s.menu.models.rows[0]


# --- models of servers

RACK = Server("1", "Rack", "http://192.168.1.20:8000/v1", ("big", "tiny-chat"))
BIG, TINY = Place(RACK, "big"), Place(RACK, "tiny-chat")


def with_servers(scene: MakeScene) -> tuple[Scene, list[Place]]:
    s = scene(OWN)
    s.menu.set_places([BIG, TINY])
    chosen: list[Place] = []
    s.menu.place_chosen.connect(chosen.append)
    return s, chosen


def test_filter_and_enter_reach_a_servers_model(scene: MakeScene) -> None:
    s, chosen = with_servers(scene)
    s.parts.open_menu()
    QTest.keyClicks(QApplication.focusWidget(), "tiny")
    assert shown(s.menu) == ["Not on this PC", "tiny-chat"]
    press(Qt.Key.Key_Return)
    assert (chosen, s.chat.actions, s.menu.is_open) == ([TINY], [], False)


def test_arrows_go_through_one_list_and_over_its_headings(scene: MakeScene) -> None:
    s, chosen = with_servers(scene)
    s.parts.open_menu()
    seen = []
    for _ in range(len(OWN) + 3):
        seen.append(s.menu.view.marked)
        press(Qt.Key.Key_Down)
    assert seen[-2:] == [TINY, TINY], "it ends there"
    assert None not in seen
    press(Qt.Key.Key_Up)
    assert s.menu.view.marked == BIG
    press(Qt.Key.Key_Return)
    assert chosen == [BIG]


def test_a_chat_on_a_server_opens_the_menu_at_its_model_and_nothing_else_is_in_use(scene: MakeScene) -> None:
    s, chosen = with_servers(scene)
    s.chat.place = BIG
    s.menu.set_place(BIG)
    s.parts.open_menu()
    assert s.menu.view.marked == BIG
    assert [row for row in s.menu.models.rows if not isinstance(row, str) and s.menu.models.is_in_use(row)] == [BIG]
    press(Qt.Key.Key_Return)
    assert (chosen, s.chat.actions) == ([BIG], []), "Enter alone moves no chat"


def test_a_chat_that_comes_back_from_a_server_says_so(scene: MakeScene) -> None:
    s, _ = with_servers(scene)
    s.chat.place = BIG
    s.menu.set_place(BIG)
    said: list[str] = []
    s.chat.toast.connect(lambda words, _: said.append(words))
    s.parts.open_menu()
    QTest.keyClicks(QApplication.focusWidget(), "prosparse")
    press(Qt.Key.Key_Return)
    assert s.chat.place is None
    assert len(said) == 1
    assert "ProSparse 13B" in said[0]


def test_one_row_is_highlighted_wherever_the_mouse_and_the_focus_are(scene: MakeScene, qtbot: QtBot) -> None:
    s, _ = with_servers(scene)
    s.parts.open_menu()
    assert s.menu.view.is_led()
    s.menu.all.setFocus()
    assert not s.menu.view.is_led(), "Enter presses the button now, so no row looks chosen"
    s.menu.field.setFocus()
    s.menu.all.pointed.emit()
    assert s.menu.view.marked is None
    press(Qt.Key.Key_Return)
    assert s.menu.is_open


@pytest.mark.parametrize(("size", "zoom"), [slow((1100, 760), 1.0), slow((720, 520), 1.0), ((720, 520), 1.6)])
@pytest.mark.parametrize("direction", [Qt.LayoutDirection.LeftToRight, Qt.LayoutDirection.RightToLeft])
def test_it_stays_in_the_window_in_both_themes(
    scene: MakeScene, qapp: QApplication, size: tuple[int, int], zoom: float, direction: Qt.LayoutDirection
) -> None:
    s = scene(OWN)
    s.window.setLayoutDirection(direction)
    s.window.resize(*size)
    pictures: list[QImage] = []
    try:
        for choice in ("light", "dark"):
            theme.apply(qapp, choice, zoom)  # type: ignore[arg-type]
            s.parts.open_menu()
            QTest.qWait(20)
            card = s.menu.geometry().adjusted(24, 24, -24, -24)
            assert s.window.rect().contains(card)
            assert s.menu._area.verticalScrollBar().maximum() == 0 or size == (720, 520)
            pictures.append(s.menu.grab().toImage())
            s.menu.dismiss()
    finally:
        theme.apply(qapp, "light", 1.0)
    assert pictures[0] != pictures[1]


def test_everything_that_takes_the_focus_has_a_name(scene: MakeScene) -> None:
    s = scene(OWN)
    s.parts.open_menu()
    for widget in (*s.menu.findChildren(QWidget), *s.page.empty.offer.findChildren(QWidget)):
        if widget.focusPolicy() != Qt.FocusPolicy.NoFocus and not widget.objectName().startswith("qt_"):
            assert widget.accessibleName() or (isinstance(widget, QAbstractButton) and widget.text()), widget


# --- the offer of a first launch


def test_a_bigger_model_is_two_clicks_away(scene: MakeScene, qtbot: QtBot) -> None:
    s = scene()
    offer = s.page.empty.offer
    assert offer.isVisible()
    assert offer.height() == 60
    assert offer.title.words.startswith("Bamboo DPO 7B ")
    assert numbers_in(offer.line.words) == ["39 tok/s", "14.6 GB"]
    qtbot.mouseClick(offer.get, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: s.library.jobs("download") == [{"catalogue_id": "bamboo-dpo-7b"}])
    qtbot.waitUntil(lambda: len(s.library.downloads) == 1)
    for _ in range(4):
        s.library.tick()
    qtbot.waitUntil(lambda: offer.progress.done > 0.1)
    assert offer.progress.isVisible()
    assert "of 14.6\u202fGB" in offer.figures.words
    for _ in range(30):
        s.library.tick()
    qtbot.waitUntil(offer.load.isVisible)
    qtbot.mouseClick(offer.load, Qt.MouseButton.LeftButton)
    (model,) = [model for model in s.library.models if model.name == "Bamboo DPO 7B"]
    assert s.chat.actions == [f"use {model.id}"]
    s.chat.become(EngineStatus(Phase.READY, "Bamboo DPO 7B", "CPU, 1 thread"), model.id)
    s.chat.model_changed.emit(model.id)
    qtbot.waitUntil(offer.isHidden)


def test_the_download_of_the_offer_is_held_and_goes_on_and_ends(scene: MakeScene, qtbot: QtBot) -> None:
    s = scene()
    offer = s.page.empty.offer
    qtbot.mouseClick(offer.get, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: len(s.library.downloads) == 1)
    s.library.tick()
    qtbot.waitUntil(offer.hold.isVisible)
    qtbot.mouseClick(offer.hold, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(offer.go_on.isVisible)
    qtbot.mouseClick(offer.go_on, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(offer.hold.isVisible)
    s.library.set_download(state="failed", message="The hub did not answer.")
    qtbot.waitUntil(lambda: offer.line.words == "The hub did not answer.")
    assert offer.go_on.isVisible()
    qtbot.mouseClick(offer.close_button, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: s.library.downloads == [])


def test_an_offer_that_is_not_wanted_stays_away(scene: MakeScene, qtbot: QtBot) -> None:
    s = scene()
    offer = s.page.empty.offer
    assert offer.close_button.accessibleName() == "Not now"
    offer.close_button.setFocus()
    qtbot.mouseClick(offer.close_button, Qt.MouseButton.LeftButton)
    assert offer.isHidden()
    s.models.refresh()
    qtbot.wait(150)
    assert offer.isHidden()
    assert s.page.composer.field.hasFocus()


def test_whoever_has_a_model_of_their_own_gets_no_offer(scene: MakeScene) -> None:
    assert scene(OWN).page.empty.offer.isHidden()


def test_the_offer_tells_what_becomes_of_it() -> None:
    row = row_of(installed("Bamboo", state="needs preparing"))
    assert pitch(row)[0].startswith("Bamboo ")


def test_the_composer_does_not_move_while_the_offer_is_fetched(scene: MakeScene, qtbot: QtBot) -> None:
    s = scene()
    QTest.qWait(50)
    before = s.page.composer.mapTo(s.window, QPoint(0, 0))
    qtbot.mouseClick(s.page.empty.offer.get, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: len(s.library.downloads) == 1)
    s.library.tick()
    qtbot.waitUntil(s.page.empty.offer.hold.isVisible)
    assert s.page.composer.mapTo(s.window, QPoint(0, 0)) == before


def test_a_base_model_says_so_in_the_menu() -> None:
    (base, chat) = rows_of([], [installed("A", id="local/a", kind="base"), installed("B", id="local/b")], [], None)
    assert "base model" in figure(base)
    assert "base model" in spoken(base)
    assert "base model" not in figure(chat)
