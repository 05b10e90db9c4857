"""Room and order: long banners, low windows, scripts from right to left, Tab as one reads, desktops without corners."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QFrame, QMainWindow, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from app.chat.store.conversation import Conversation, Message, Role
from app.clients.engine_status import EngineStatus, Phase
from app.ui.chat.chat_page import ChatPage
from app.ui.look import compositor, theme
from app.ui.look.direction import is_right_to_left
from app.ui.transcript.text.document_style import directed
from app.ui.widgets import floating, tab_order
from app.ui.widgets.banner import Banner, BannerPlace
from app.ui.widgets.controls import Button, Label
from app.ui.widgets.flow import Flow
from app.user_messages import UserMessage

pytestmark = pytest.mark.gui

READY = EngineStatus(
    Phase.READY, "Pip", "CPU", description="A tiny model that answers simple questions and tells tales."
)
TALK = [Message(Role.USER, "Hello"), Message(Role.ASSISTANT, "Hi.\n\n```python\npass\n```\n\nBye.")]
GERMAN = UserMessage(
    "Das Sprachmodell konnte nicht in den Arbeitsspeicher geladen werden",
    "Es benötigt 13,4 GB, aber nur 9,1 GB sind derzeit frei: andere Programme belegen zusammen 21,7 GB. Schließen Sie "
    "Programme, die Sie nicht benötigen, oder wählen Sie ein kleineres Modell.",
    "Arbeitsspeicher freigeben und noch einmal versuchen", "line\n" * 20, "bad", "retry",
    ("Ein kleineres Modell auswählen", "open-settings"),
)  # fmt: skip


@pytest.fixture(autouse=True)
def plain_theme(qapp: QApplication) -> Iterator[None]:
    theme.apply(qapp, "light", 1.0)
    yield
    if theme.current().zoom != 1.0:
        theme.apply(qapp, "light", 1.0)


@pytest.fixture
def window(qtbot: QtBot) -> QMainWindow:
    class Window(QMainWindow):
        def focusNextPrevChild(self, forward: bool) -> bool:
            return tab_order.move_on(self, forward)

    out = Window()
    out.setCentralWidget(ChatPage())
    out.resize(900, 600)
    qtbot.addWidget(out)
    out.show()
    out.activateWindow()
    return out


def page_of(window: QMainWindow) -> ChatPage:
    page = window.centralWidget()
    assert isinstance(page, ChatPage)
    page.set_status(READY)
    return page


def settle() -> None:
    for _ in range(5):
        QApplication.processEvents()


# --- banners


def cut_labels(widget: QWidget) -> list[str]:
    labels = [label for label in widget.findChildren(Label) if label.isVisible() and label.words]
    return [label.words for label in labels if label.heightForWidth(label.width()) > label.height()]


@pytest.mark.parametrize(("width", "zoom"), [(1024, 1.0), (664, 1.0), (664, 1.6)])
def test_a_long_banner_is_read_whole_and_leaves_the_composer_its_room(
    window: QMainWindow, qapp: QApplication, width: int, zoom: float
) -> None:
    theme.apply(qapp, "light", zoom)
    page = page_of(window)
    page.show_conversation(Conversation(title="Greetings"), TALK)
    window.resize(width, 492)
    page.show_banner(GERMAN)
    settle()
    for _ in range(2):
        assert cut_labels(page.banner) == []
        texts = [b for b in page.banner.findChildren(Button) if b.isVisible() and b.text()]
        if zoom == 1.0:
            assert all(b.width() >= b.sizeHint().width() for b in texts), "no button is cut"
        assert page.composer.height() >= page.composer.sizeHint().height()
        assert page.composer.mapTo(page, page.composer.rect().bottomLeft()).y() < page.height()
        page.banner._toggle_details()
        settle()


def test_a_banner_has_room_only_while_it_shows(qtbot: QtBot) -> None:
    banner = Banner()
    place = BannerPlace(banner)
    qtbot.addWidget(place)
    place.set_most(300)
    place.resize(600, 10)
    place.show()
    assert banner.isHidden()
    assert place.height() == 0
    banner.show_message(GERMAN)
    settle()
    assert 80 < place.height() <= 300
    assert banner.height() == banner.heightForWidth(banner.width())
    banner.clear()
    settle()
    assert place.height() == 0


@pytest.mark.parametrize("direction", [Qt.LayoutDirection.LeftToRight, Qt.LayoutDirection.RightToLeft])
def test_a_row_goes_on_in_the_next_line(qtbot: QtBot, direction: Qt.LayoutDirection) -> None:
    frame = QFrame()
    frame.setLayoutDirection(direction)
    qtbot.addWidget(frame)
    flow = Flow(frame)
    flow.setSpacing(8)
    buttons = [Button("One two"), Button("Three four"), Button("Five six seven"), Button("Hidden")]
    for button in buttons:
        flow.addWidget(button)
    buttons[3].hide()
    first, second, third, _ = buttons
    room = first.sizeHint().width() + second.sizeHint().width() + 8
    frame.resize(room, flow.heightForWidth(room))
    frame.show()
    assert flow.heightForWidth(room) == 2 * 32 + 8
    assert flow.heightForWidth(flow.sizeHint().width()) == 32
    assert (first.y(), second.y(), third.y()) == (0, 0, 40)
    if direction == Qt.LayoutDirection.LeftToRight:
        assert (first.x(), second.x(), third.x()) == (0, first.width() + 8, 0)
    else:
        assert (first.geometry().right(), third.geometry().right()) == (room - 1, room - 1)


# --- the empty page


def test_a_low_window_keeps_the_composer_in_view_and_the_mark_gives_way(window: QMainWindow) -> None:
    page = page_of(window)
    page.set_machine_line("No GPU found: runs on 8 cores")
    settle()
    assert page.empty._head.isVisible()
    window.resize(664, 440)
    settle()
    assert not page.empty._head.isVisible()
    assert page.empty.verticalScrollBar().maximum() == 0, "and nothing has to be scrolled"
    window.resize(900, 800)
    settle()
    assert page.empty._head.isVisible()


def test_the_composer_stays_where_it_is_once_the_model_is_there(window: QMainWindow) -> None:
    page = page_of(window)
    page.set_status(EngineStatus(Phase.LOADING, done=1, total=2))
    settle()
    before = page.composer.mapTo(page, page.composer.rect().topLeft())
    page.set_machine_line("No GPU found: runs on 8 cores")
    page.set_status(READY)
    settle()
    assert page.composer.mapTo(page, page.composer.rect().topLeft()) == before


@pytest.mark.parametrize("zoom", [0.8, 1.0, 1.6])
def test_a_card_is_high_enough_for_its_words(window: QMainWindow, qapp: QApplication, zoom: float) -> None:
    theme.apply(qapp, "light", zoom)
    page = page_of(window)
    page.empty.cards[0].prompt = "Erzähle mir eine lange Geschichte über einen kleinen schüchternen Fuchs im Wald"
    window.resize(664, 700)
    settle()
    heights = {card.height() for card in page.empty.cards}
    assert heights == {max(card.height_for(card.width()) for card in page.empty.cards)}


def test_after_the_open_chat_is_deleted_one_can_type(window: QMainWindow) -> None:
    page = page_of(window)
    page.show_conversation(Conversation(title="Greetings"), TALK)
    page._more.setFocus()
    page.show_conversation(None, [])
    assert QApplication.focusWidget() is page.composer.field


# --- order


def test_tab_goes_through_a_chat_as_it_is_read(window: QMainWindow) -> None:
    page = page_of(window)
    page.show_conversation(Conversation(title="Greetings"), TALK)
    settle()
    page.focus_composer()
    names = []
    for _ in range(13):
        QTest.keyClick(QApplication.focusWidget(), Qt.Key.Key_Tab)
        focus = QApplication.focusWidget()
        assert focus is not None
        names.append(focus.accessibleName())
    assert names == [
        "Attach files",
        "Model: Pip",
        "Documents: no folder is on",
        "Chat menu",
        "Messages",
        "More for this message",
        "Edit message",
        "Copy message",
        "Copy python code",
        "Copy answer",
        "Answer again",
        "More for this answer",
        "Message",
    ]
    QTest.keyClick(QApplication.focusWidget(), Qt.Key.Key_Backtab)
    focus = QApplication.focusWidget()
    assert focus is not None
    assert focus.accessibleName() == "More for this answer"


def test_tab_passes_over_what_cannot_be_used(qtbot: QtBot) -> None:
    frame = QFrame()
    qtbot.addWidget(frame)
    column = QVBoxLayout(frame)
    first, off, gone, last = (Button(words) for words in ("First", "Off", "Gone", "Last"))
    for button in (first, off, gone, last):
        column.addWidget(button)
    off.setEnabled(False)
    gone.hide()
    frame.show()
    assert tab_order.stops(frame) == [first, last]
    frame.activateWindow()
    first.setFocus()
    assert tab_order.move_on(frame, forward=False)
    assert frame.focusWidget() is last, "it goes round"
    assert not tab_order.move_on(QWidget(), forward=True)


# --- right to left


def test_the_first_letter_tells_the_direction() -> None:
    assert is_right_to_left("12. مرحبا hello")
    assert is_right_to_left("שלום")
    assert not is_right_to_left("Hello مرحبا")
    assert not is_right_to_left("123 …")


def test_quotes_and_tables_turn_with_their_words() -> None:
    plain = '<table class="quote" width="100%"><tr><td class="quote"><p>Words</p></td></tr></table>'
    arabic = plain.replace("Words", "اقتباس")
    assert directed(plain) == plain
    assert 'dir="rtl"' in directed(arabic)
    assert 'td class="leftwards"' in directed(arabic)
    both = directed(arabic + plain + "<table><tr><td>الاسم</td></tr></table>")
    assert both.count('dir="rtl"') == 2
    assert plain in both


def test_titles_keep_one_edge_whatever_their_script(qtbot: QtBot) -> None:
    label = Label("فرز البيانات", "label", elide=True)
    qtbot.addWidget(label)
    assert label.alignment() & Qt.AlignmentFlag.AlignLeft
    label.setLayoutDirection(Qt.LayoutDirection.RightToLeft)
    assert label.alignment() & Qt.AlignmentFlag.AlignRight


# --- what floats


@pytest.mark.parametrize("see_through", [True, False])
def test_without_a_compositor_nothing_floats_on_black(
    window: QMainWindow, monkeypatch: pytest.MonkeyPatch, see_through: bool
) -> None:
    monkeypatch.setattr(compositor, "see_through", lambda: see_through)
    dialog = floating.confirm(window, "Stop?", "It is not finished.", "Keep", "Stop", lambda: None)
    menu = floating.Menu("Chat", window)
    for floats in (dialog, menu):
        assert floats.testAttribute(Qt.WidgetAttribute.WA_TranslucentBackground) is see_through
    corner = dialog.grab().toImage().pixelColor(1, dialog.height() // 2)
    card = theme.colour("card")
    assert (corner == card) is not see_through, "either a shadow or the card up to its border"
    dialog.reject()


def test_a_toast_comes_down_when_the_composer_goes(window: QMainWindow) -> None:
    page = page_of(window)
    lift = [150]
    toast = floating.Toast.show_on(page, "Chat deleted", lambda: None, lambda: lift[0])
    toast.settle()
    before = toast.y()
    lift[0] = 24
    toast.settle()
    assert toast.y() == before + 126


def test_a_toast_in_a_chat_covers_neither_words_nor_figures(window: QMainWindow) -> None:
    page = page_of(window)
    page.show_conversation(Conversation(title="Talk"), TALK)
    toast = floating.Toast.show_on(page, "Answer deleted", lambda: None, lambda: None)
    toast.settle()
    QApplication.processEvents()
    box = toast.geometry().adjusted(floating.PAD, floating.PAD, -floating.PAD, -floating.PAD)
    assert box.top() >= 0
    assert box.bottom() <= page.transcript.mapTo(page, QPoint(0, 0)).y()
    assert not box.intersects(
        page.composer.geometry().translated(page.composer.parentWidget().mapTo(page, QPoint(0, 0)))
    )
