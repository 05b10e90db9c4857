"""Controls: names for a screen reader, room for long words, values, the focus ring, what floats, the banner."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from PySide6.QtCore import QEvent, QPoint, QPointF, Qt
from PySide6.QtGui import QEnterEvent, QFocusEvent, QFontMetrics
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QFrame, QLineEdit, QPushButton, QScrollArea, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot
from support.shown_text import numbers_in

from app.ui.look import theme
from app.ui.widgets import floating, focus_ring
from app.ui.widgets.banner import Banner
from app.ui.widgets.controls import (
    Button,
    Chip,
    Dot,
    IconButton,
    Label,
    Progress,
    Rule,
    Segments,
    ShareBar,
    Slider,
    Toggle,
)
from app.ui.widgets.dialog import Dialog
from app.ui.widgets.search_field import SearchField
from app.user_messages import UserMessage

pytestmark = pytest.mark.gui

GERMAN = "Rindfleischetikettierungsüberwachungsaufgabe übertragen"


@pytest.fixture(autouse=True)
def plain_theme(qapp: QApplication) -> None:
    theme.apply(qapp, "light", 1.0)


@pytest.fixture
def page(qtbot: QtBot) -> QFrame:
    frame = QFrame()
    qtbot.addWidget(frame)
    QVBoxLayout(frame)
    frame.resize(600, 400)
    return frame


def put(page: QFrame, *widgets: QWidget) -> None:
    for widget in widgets:
        page.layout().addWidget(widget)
    page.show()


# --- names and room


def test_whatever_takes_the_focus_has_a_name(page: QFrame) -> None:
    put(page, Button("Load"), IconButton("copy", "Copy"), Toggle("Local API"), Slider("Zoom"),
        Segments([("a", "Auto"), ("b", "Exact")], "a", "Speed"))  # fmt: skip
    takers = [w for w in page.findChildren(QWidget) if w.focusPolicy() != Qt.FocusPolicy.NoFocus]
    assert len(takers) >= 6
    for widget in takers:
        said = widget.accessibleName() or (widget.text() if isinstance(widget, QPushButton) else "")
        assert said, widget


def test_painted_signs_tell_their_value(qtbot: QtBot) -> None:
    bar, progress = ShareBar(0.83), Progress("Loading")
    for widget in (bar, progress):
        qtbot.addWidget(widget)
    progress.set_done(0.42)
    assert numbers_in(bar.accessibleName()) == ["83"]
    assert numbers_in(progress.accessibleName()) == ["42"]


def test_an_icon_button_tells_its_shortcut_and_is_large_enough(qtbot: QtBot) -> None:
    button = IconButton("panel", "Close the sidebar", "Ctrl+B")
    qtbot.addWidget(button)
    assert "Ctrl+B" in button.toolTip()
    assert button.accessibleName() == "Close the sidebar"
    assert min(button.width(), button.height()) >= 32


@pytest.mark.parametrize("zoom", [1.0, 1.6])
def test_words_twice_as_long_are_not_cut(page: QFrame, qapp: QApplication, zoom: float) -> None:
    theme.apply(qapp, "light", zoom)
    label, chip, button = Label(GERMAN, "label"), Chip(GERMAN, "warn"), Button(GERMAN, "primary", "copy")
    segments = Segments([("a", GERMAN), ("b", "Nein")], "b", "x")
    put(page, label, chip, button, segments)
    page.adjustSize()
    for widget in (label, chip, button, segments.buttons["a"]):
        words = QFontMetrics(widget.font()).horizontalAdvance(GERMAN)
        assert widget.width() >= words, widget


def test_wrapped_words_get_the_height_they_need(page: QFrame) -> None:
    label = Label(" ".join([GERMAN] * 6), "small", wrap=True)
    put(page, label)
    page.layout().addStretch(1)
    page.resize(300, 400)
    QApplication.processEvents()
    assert label.height() >= label.heightForWidth(label.width())
    assert label.height() > 3 * theme.line_height("small")


def test_an_elided_label_keeps_its_words_for_tooltip_and_reader(page: QFrame) -> None:
    label = Label(GERMAN, "label", elide=True)
    put(page, label)
    label.resize(80, 20)
    assert label.text().endswith("…")
    assert label.toolTip() == label.accessibleName() == GERMAN
    label.resize(800, 20)
    assert label.text() == GERMAN
    assert label.toolTip() == ""


def test_labels_show_marked_up_names_as_they_are(qtbot: QtBot) -> None:
    label = Label("<b>bold</b>")
    qtbot.addWidget(label)
    assert label.textFormat() == Qt.TextFormat.PlainText


@pytest.mark.parametrize("zoom", [0.8, 1.0, 1.6])
def test_everything_paints_in_both_themes(page: QFrame, qapp: QApplication, zoom: float) -> None:
    off = Button("Off", "danger")
    off.setEnabled(False)
    put(page, Button("A", "primary"), Button("B", "quiet", "copy"), off, Chip("x"), Rule(), Dot("hot_fill", True),
        ShareBar(0.4, rest=0.2), Toggle("t", True), Slider("s"), Progress("p"))  # fmt: skip
    shots = []
    for choice in ("light", "dark"):
        theme.apply(qapp, choice, zoom)
        shots.append(page.grab().toImage())
    assert shots[0] != shots[1]


# --- values


def test_toggle_turns_on_a_click_anywhere_on_it(page: QFrame, qtbot: QtBot) -> None:
    toggle = Toggle("Local API")
    put(page, toggle)
    with qtbot.waitSignal(toggle.toggled):
        QTest.mouseClick(toggle, Qt.MouseButton.LeftButton, pos=QPoint(toggle.width() - 2, toggle.height() // 2))
    assert toggle.isChecked()


def test_segments_tell_what_the_person_picks_and_only_that(page: QFrame, qtbot: QtBot) -> None:
    segments = Segments([("a", "Auto"), ("b", "Sparse"), ("c", "Exact")], "a", "Speed")
    put(page, segments)
    told: list[str] = []
    segments.picked.connect(told.append)
    segments.set_value("c")
    assert (segments.value(), told) == ("c", [])
    QTest.mouseClick(segments.buttons["b"], Qt.MouseButton.LeftButton)
    assert (segments.value(), told) == ("b", ["b"])
    page.activateWindow()
    qtbot.waitUntil(lambda: QApplication.activeWindow() is page)
    segments.buttons["b"].setFocus()
    QTest.keyClick(segments.buttons["b"], Qt.Key.Key_Right)
    assert (segments.value(), told) == ("c", ["b", "c"])


def test_slider_goes_where_it_is_clicked_and_back_on_a_double_click(page: QFrame, qtbot: QtBot) -> None:
    slider = Slider("Zoom")
    slider.setRange(0, 100)
    put(page, slider)
    slider.resize(216, 32)
    QTest.mouseClick(slider, Qt.MouseButton.LeftButton, pos=QPoint(8 + 150, 16))
    assert slider.value() == 75
    with qtbot.waitSignal(slider.reset):
        QTest.mouseDClick(slider, Qt.MouseButton.LeftButton, pos=QPoint(20, 16))
    with qtbot.waitSignal(slider.reset):
        QTest.keyClick(slider, Qt.Key.Key_Backspace)


def test_a_dot_breathes_only_while_it_works_and_is_seen(page: QFrame) -> None:
    dot = Dot("ok")
    put(page, dot)
    assert not dot.breathing
    dot.set_state("hot_fill", True)
    assert dot.breathing
    page.hide()
    assert not dot.breathing


def test_qt_calls_the_painted_virtuals(page: QFrame) -> None:
    called: list[str] = []

    class Watched(Button):
        def paintEvent(self, event: QEvent) -> None:
            called.append("paint")
            super().paintEvent(event)

        def sizeHint(self):  # type: ignore[no-untyped-def]
            called.append("hint")
            return super().sizeHint()

    put(page, Watched("Load"))
    page.grab()
    assert {"paint", "hint"} <= set(called)


# --- focus ring


@pytest.fixture
def focusable(page: QFrame, qtbot: QtBot) -> tuple[focus_ring.FocusRing, Button, Button]:
    first, second = Button("First"), Button("Second")
    put(page, first, second)
    ring = focus_ring.install(page)
    page.activateWindow()
    qtbot.waitUntil(lambda: QApplication.activeWindow() is page)
    return ring, first, second


def test_the_ring_appears_after_tab_and_backtab(focusable: tuple[focus_ring.FocusRing, Button, Button]) -> None:
    ring, first, second = focusable
    first.setFocus()
    assert ring.target is None
    QTest.keyClick(first, Qt.Key.Key_Tab)
    assert second.hasFocus()
    assert ring.target is second
    assert ring.geometry() == second.geometry().adjusted(-4, -4, 4, 4)
    QTest.keyClick(second, Qt.Key.Key_Backtab)
    assert ring.target is first


def test_the_ring_appears_after_a_shortcut(focusable: tuple[focus_ring.FocusRing, Button, Button]) -> None:
    ring, first, second = focusable
    first.setFocus()
    second.setFocus(Qt.FocusReason.ShortcutFocusReason)
    assert ring.target is second


def test_the_ring_stays_away_from_mouse_and_program(focusable: tuple[focus_ring.FocusRing, Button, Button]) -> None:
    ring, first, second = focusable
    first.setFocus()
    QTest.keyClick(first, Qt.Key.Key_Tab)
    assert ring.target is second
    first.setFocus(Qt.FocusReason.MouseFocusReason)
    assert ring.target is None
    second.setFocus(Qt.FocusReason.OtherFocusReason)
    assert ring.target is None


def test_the_ring_follows_what_it_is_around(
    focusable: tuple[focus_ring.FocusRing, Button, Button], page: QFrame
) -> None:
    ring, _, second = focusable
    second.setFocus(Qt.FocusReason.ShortcutFocusReason)
    page.resize(800, 600)
    QApplication.processEvents()
    assert ring.geometry() == second.geometry().adjusted(-4, -4, 4, 4)
    page.hide()
    assert ring.target is None


@pytest.mark.parametrize("by_keyboard", [True, False])
def test_a_button_that_hides_itself_hands_on_the_ring_only_to_a_keyboard(
    focusable: tuple[focus_ring.FocusRing, Button, Button], by_keyboard: bool
) -> None:
    ring, first, second = focusable
    second.clicked.connect(second.hide)
    first.setFocus()
    if by_keyboard:
        QTest.keyClick(first, Qt.Key.Key_Tab)
        QTest.keyClick(second, Qt.Key.Key_Space)
    else:
        second.setFocus(Qt.FocusReason.MouseFocusReason)
        QTest.mouseClick(second, Qt.MouseButton.LeftButton)
    assert first.hasFocus()
    assert ring.target is (first if by_keyboard else None)


def test_the_ring_is_back_when_the_window_is(
    focusable: tuple[focus_ring.FocusRing, Button, Button], page: QFrame, qtbot: QtBot
) -> None:
    ring, first, second = focusable
    first.setFocus()
    QTest.keyClick(first, Qt.Key.Key_Tab)
    other = QFrame()
    qtbot.addWidget(other)
    other.show()
    other.activateWindow()
    qtbot.waitUntil(lambda: QApplication.activeWindow() is other)
    assert ring.target is None
    page.activateWindow()
    qtbot.waitUntil(lambda: QApplication.activeWindow() is page)
    assert ring.target is second


def test_the_ring_is_left_out_where_a_widget_shows_focus_itself(
    focusable: tuple[focus_ring.FocusRing, Button, Button],
) -> None:
    ring, _, second = focusable
    second.setProperty("focusRing", False)
    second.setFocus(Qt.FocusReason.ShortcutFocusReason)
    assert ring.target is None


def test_the_ring_survives_its_target(
    focusable: tuple[focus_ring.FocusRing, Button, Button], page: QFrame, qtbot: QtBot
) -> None:
    ring, first, second = focusable
    second.setFocus(Qt.FocusReason.ShortcutFocusReason)
    second.setParent(None)
    second.deleteLater()
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    first.setFocus(Qt.FocusReason.ShortcutFocusReason)
    assert ring.target is first


def test_the_ring_is_clipped_to_what_scrolls(qtbot: QtBot) -> None:
    area, inside = QScrollArea(), QFrame()
    column = QVBoxLayout(inside)
    buttons = [Button(str(i)) for i in range(30)]
    for button in buttons:
        column.addWidget(button)
    window = QFrame()
    qtbot.addWidget(window)
    QVBoxLayout(window).addWidget(area)
    area.setWidget(inside)
    area.setWidgetResizable(True)
    window.resize(300, 200)
    window.show()
    ring = focus_ring.install(window)
    window.activateWindow()
    qtbot.waitUntil(lambda: QApplication.activeWindow() is window)
    buttons[0].setFocus(Qt.FocusReason.ShortcutFocusReason)
    before = ring.geometry()
    area.verticalScrollBar().setValue(20)
    assert ring.geometry().top() == before.top() - 20
    assert ring._clip.top() >= area.viewport().mapTo(window, QPoint(0, 0)).y() - 4


@pytest.mark.parametrize("zoom", [0.8, 1.0, 1.6])
@pytest.mark.parametrize("words", [
    ["Drop oldest", "Keep the beginning", "Stop"], ["Älteste weglassen", "Anfang behalten", "Anhalten"],
    ["移除最早的", "保留开头", "停止"],
])  # fmt: skip
def test_segments_stand_one_below_the_other_where_they_do_not_fit(
    page: QFrame, qapp: QApplication, zoom: float, words: list[str]
) -> None:
    theme.apply(qapp, "light", zoom)
    segments = Segments(list(enumerate(words)), 0, "When full")
    put(page, segments)
    page.resize(2000, 400)
    for width in (theme.px(324), 2000):
        segments.fit(width)
        segments.setFixedWidth(min(width, segments.sizeHint().width()))
        QApplication.processEvents()
        for button in segments.buttons.values():
            assert button.width() >= button.sizeHint().width(), f"{button.text()} is cut"
            assert segments.rect().contains(button.geometry())
    assert segments.height() == theme.px(28) + 4, "side by side where there is room"


# --- what floats


def test_a_toast_undoes_once_and_goes(page: QFrame, qtbot: QtBot) -> None:
    page.show()
    undone: list[int] = []
    toast = floating.Toast.show_on(page, "Chat deleted", lambda: undone.append(1))
    assert toast._clock.interval() == 10_000
    with qtbot.waitSignal(toast.gone):
        toast.button.click()
    assert undone == [1]
    assert not page.findChildren(floating.Toast)


def test_a_plain_toast_is_short_and_replaces_the_one_before(page: QFrame) -> None:
    page.show()
    floating.Toast.show_on(page, "One")
    second = floating.Toast.show_on(page, "Two")
    assert page.findChildren(floating.Toast) == [second]
    assert second._clock.interval() == 4_000
    assert second.button is None


def test_hovering_holds_a_toast(page: QFrame) -> None:
    page.show()
    toast = floating.Toast.show_on(page, "Chat deleted", lambda: None)
    point = QPointF(5, 5)
    QApplication.sendEvent(toast, QEnterEvent(point, point, point))
    assert not toast._clock.isActive()
    QApplication.sendEvent(toast, QEvent(QEvent.Type.Leave))
    assert toast._clock.isActive()


def test_a_toast_stays_at_the_foot_in_the_middle(page: QFrame) -> None:
    page.show()
    toast = floating.Toast.show_on(page, GERMAN, lambda: None, lift=lambda: 100)
    page.resize(500, 300)
    assert abs(toast.geometry().center().x() - 250) <= 1
    assert toast.geometry().bottom() + 1 - floating.PAD == 200


@pytest.mark.parametrize("press", [Qt.Key.Key_Escape, Qt.Key.Key_Return])
def test_a_question_is_safe_by_default(page: QFrame, qtbot: QtBot, press: Qt.Key) -> None:
    page.show()
    done: list[int] = []
    dialog = floating.confirm(page, "Stop the answer?", "It is not finished.", "Keep", "Stop", lambda: done.append(1))
    assert dialog.focusWidget() is dialog.safe
    assert not dialog.danger.isDefault()
    with qtbot.waitSignal(dialog.rejected):
        QTest.keyClick(dialog, press)
    assert done == []


def test_a_question_can_be_gone_through_with(page: QFrame, qtbot: QtBot) -> None:
    page.show()
    done: list[int] = []
    dialog = floating.confirm(page, "Stop?", "It is not finished.", "Keep", "Stop", lambda: done.append(1))
    with qtbot.waitSignal(dialog.accepted):
        dialog.danger.click()
    assert done == [1]


def test_a_menu_runs_what_was_chosen(page: QFrame) -> None:
    done: list[str] = []
    menu = floating.Menu("Chat", page)
    menu.add("Rename", "pen", lambda: done.append("rename"), "F2")
    menu.actions()[0].trigger()
    assert done == ["rename"]
    assert menu.accessibleName() == "Chat"


# --- banner


def message(**changes: object) -> UserMessage:
    values: dict[str, object] = {
        "title": "The model does not fit",
        "sentence": "It needs 13.4 GB.",
        "remedy": "Try again",
        "remedy_action": "retry-load",
        "details": "line 1\nline 2",
        "second": ("Open settings", "open-settings"),
    }
    return UserMessage(**{**values, **changes})  # type: ignore[arg-type]


def shown_buttons(banner: Banner) -> list[str]:
    return [b.text() for b in banner.findChildren(Button) if b.isVisible() and b.text()]


def test_a_banner_offers_what_the_message_offers(page: QFrame, qtbot: QtBot) -> None:
    banner = Banner()
    put(page, banner)
    assert not banner.isVisible()
    banner.show_message(message())
    assert shown_buttons(banner) == ["Try again", "Open settings", "Details"]
    with qtbot.waitSignal(banner.remedy) as told:
        next(b for b in banner.findChildren(Button) if b.text() == "Try again").click()
    assert told.args == ["retry-load"]
    with qtbot.waitSignal(banner.remedy) as told:
        next(b for b in banner.findChildren(Button) if b.text() == "Open settings").click()
    assert told.args == ["open-settings"]
    details = next(b for b in banner.findChildren(Button) if b.text() == "Details")
    assert details.look == "quiet"
    banner.show_message(message(remedy="", remedy_action="", second=None))
    assert details.look == "secondary", "the first button begins below the words, by its border"
    banner.show_message(message(remedy="", remedy_action="", details="", second=None))
    assert shown_buttons(banner) == []


def test_a_banners_details_open_and_copy(page: QFrame) -> None:
    banner = Banner()
    put(page, banner)
    banner.show_message(message())
    press: Callable[[str], None] = lambda words: next(  # noqa: E731
        b for b in banner.findChildren(Button) if b.text() == words
    ).click()
    press("Details")
    assert "Hide details" in shown_buttons(banner)
    press("Copy details")
    assert QApplication.clipboard().text() == "line 1\nline 2"


def test_a_closed_banner_says_so_and_a_newer_message_wins(page: QFrame, qtbot: QtBot) -> None:
    banner = Banner()
    put(page, banner)
    banner.show_message(message())
    banner.show_message(message(title="The disk is full", severity="warn"))
    assert "The disk is full" in banner.accessibleName()
    assert banner.property("severity") == "warn"
    with qtbot.waitSignal(banner.closed):
        banner.findChild(IconButton).click()
    assert not banner.isVisible()


def test_a_long_sentence_in_a_banner_is_not_cut(page: QFrame) -> None:
    banner = Banner()
    put(page, banner)
    page.layout().addStretch(1)
    banner.show_message(message(sentence=" ".join([GERMAN] * 8)))
    page.resize(420, 500)
    QApplication.processEvents()
    for label in banner.findChildren(Label):
        if label.isVisible():
            assert label.height() >= label.heightForWidth(label.width())


def test_a_fields_focus_event_reaches_the_ring(page: QFrame, qtbot: QtBot) -> None:
    field = QLineEdit()
    field.setProperty("kind", "field")
    button = Button("Next")
    put(page, field, button)
    ring = focus_ring.install(page)
    page.activateWindow()
    qtbot.waitUntil(lambda: QApplication.activeWindow() is page)
    button.setFocus()
    QApplication.sendEvent(button, QFocusEvent(QEvent.Type.FocusOut, Qt.FocusReason.MouseFocusReason))
    field.setFocus(Qt.FocusReason.MouseFocusReason)
    assert ring.target is None


def test_the_icons_of_a_search_field_grow_with_the_text(qtbot: QtBot, qapp: QApplication) -> None:
    field = SearchField()
    qtbot.addWidget(field)
    field.setPlaceholderText("")
    field.resize(300, 60)
    field.show()

    def widths() -> list[int]:
        QApplication.processEvents()  # the layout
        shot = field.grab().toImage()
        rows, ground = range(shot.height() // 4, 3 * shot.height() // 4), shot.pixel(150, shot.height() // 2)
        return [sum(any(shot.pixel(x, y) != ground for y in rows) for x in part)
                for part in (range(4, 140), range(160, 296))]  # fmt: skip

    before = widths()
    theme.apply(qapp, "light", 1.6)
    assert all(after >= 1.4 * now > 0 for now, after in zip(before, widths(), strict=True))


def test_a_dialog_is_as_high_as_its_sentence_again(qtbot: QtBot) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    window.resize(900, 700)
    dialog = Dialog(window, "Title", "Short.")
    dialog.open()
    before = dialog.height()
    dialog.say("Long. " * 60)
    assert dialog.height() > before
    dialog.say("Short.")
    assert dialog.height() == before
