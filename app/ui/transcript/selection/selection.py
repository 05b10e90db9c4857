"""The selection over all messages of a transcript: drags, clicks, highlight, menu, and copying.

A place is a message, a text in it and a position, so a selection survives widgets that are removed and built again.
SelectableMessage.texts lists the texts of a message; app/text/selected_text.py computes what is between two places.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from PySide6.QtCore import QEvent, QMimeData, QObject, QPoint, Qt, QTimer, QUrl, Signal
from PySide6.QtGui import QClipboard, QContextMenuEvent, QCursor, QGuiApplication, QMouseEvent, QTextCursor
from PySide6.QtWidgets import QApplication, QScrollArea

from app.chat.store.conversation import Role
from app.shortcuts import shown
from app.text.markdown_blocks import web_address
from app.text.selected_text import (
    FAR,
    Passage,
    Place,
    Selection,
    html_text,
    markdown_text,
    plain_text,
    whole_message,
)
from app.text.web_html import document_html
from app.translation import tr
from app.ui.look import theme
from app.ui.transcript.selection.copied_text import copy_message_text
from app.ui.transcript.selection.passages import SelectableMessage, passage_of
from app.ui.transcript.selection.selectable import SelectableText
from app.ui.widgets.floating import Menu

if TYPE_CHECKING:
    from app.chat.store.conversation import Message

SCROLL_MS = 30  # between two steps while the pointer is held beyond an edge
MOST_STEP = 60  # px per step
SLICE_S = 0.05  # of the GUI thread per step of a copy
_WORD, _PARAGRAPH = QTextCursor.SelectionType.WordUnderCursor, QTextCursor.SelectionType.BlockUnderCursor


class Column(Protocol):
    """The widget with the messages, as MessageColumn is one. views: of messages[first:last]."""

    @property
    def messages(self) -> list[Message]: ...
    @property
    def views(self) -> Sequence[SelectableMessage]: ...
    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...
    def index(self, message_id: str) -> int: ...
    def view(self, message_id: str) -> SelectableMessage | None: ...
    def loose_view(self, message: Message) -> SelectableMessage: ...
    def first_visible(self, top: int) -> int: ...
    def mapFromGlobal(self, point: QPoint, /) -> QPoint: ...
    def mapToGlobal(self, point: QPoint, /) -> QPoint: ...
    def installEventFilter(self, filter_: QObject, /) -> None: ...


class TextSelection(QObject):
    """The selection in one transcript.

    began: a selection starts; all others must end. link_activated: a clicked address.
    """

    began = Signal()
    link_activated = Signal(str)
    note_requested = Signal(str)  # the selected text, for the notes of the project

    def __init__(self, area: QScrollArea, column: Column) -> None:
        super().__init__(area)
        self._has_notes = False
        self._area, self._column = area, column
        self._selection: Selection | None = None
        self._origin: tuple[Place, Place] | None = None  # what was pressed: a place, a word or a paragraph
        self._unit: QTextCursor.SelectionType | None = None  # the unit that a drag extends by; None: characters
        self._dragging = False
        self._pressed_at = QPoint()
        self._double_at: tuple[int, QPoint] | None = None  # time and place of a double click
        self._pressed_in: SelectableText | None = None
        self._scroller = QTimer(self, interval=SCROLL_MS)
        self._scroller.timeout.connect(self._scroll)
        self._copying = QTimer(self, singleShot=True)
        self._copying.timeout.connect(self._go_on_copying)
        self._copy: _Copy | None = None
        column.installEventFilter(self)
        area.verticalScrollBar().valueChanged.connect(self._moved_under_the_pointer)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is selected."""
        return self._selection is None or self._selection.is_empty

    def clear(self) -> None:
        self._scroller.stop()
        self._dragging = False
        self._origin = None
        self._set(None)

    def give_way(self) -> None:
        """Clear the selection, and the others, because a text with its own selection has begun one."""
        self.clear()
        self.began.emit()

    def select(self, selection: Selection) -> None:
        """Select everything between two places."""
        self._set(selection)
        if not self.is_empty:
            self._offer_to_middle_click()

    def select_all(self) -> None:
        """Select the last clicked message, else the one under the pointer; the second time, the whole chat."""
        count = len(self._column.messages)
        if not count:
            return
        here = self._selection.caret.message if self._selection is not None else self._message_under_pointer()
        message, chat = whole_message(min(here, count - 1)), Selection(Place(0, 0, 0), Place(count - 1, FAR, FAR))
        self.select(chat if self._selection in (message, chat) else message)

    # --- copying

    def plain_text(self) -> str:
        """Return the selection as plain text. Cost: messages that are not built are parsed again."""
        return plain_text(self._passages(with_markdown=False))

    def markdown(self) -> str:
        """Return the selection as Markdown."""
        return markdown_text(list(self._passages()))

    def copy(self, markdown: bool = False) -> None:
        """Copy as plain text, Markdown and HTML, or as Markdown alone."""
        if not self.is_empty:
            self._start_copy(QClipboard.Mode.Clipboard, markdown)

    def _offer_to_middle_click(self) -> None:
        if QGuiApplication.clipboard().supportsSelection():
            self._start_copy(QClipboard.Mode.Selection, False)

    def _start_copy(self, mode: QClipboard.Mode, as_markdown: bool) -> None:
        if self._copy is not None and self._copy.mode is QClipboard.Mode.Clipboard is not mode:
            return  # a long copy is in progress
        is_primary = mode is QClipboard.Mode.Selection  # set with every drag, and used only by a middle click
        self._copy = _Copy(self._passages(with_markdown=not is_primary), mode, as_markdown)
        self._go_on_copying()

    def _go_on_copying(self) -> None:
        """Copy for a moment: thousands of messages take seconds, which must not block the window."""
        if self._copy is None:
            return
        if self._copy.run(time.perf_counter() + SLICE_S):
            self._copy = None
        else:
            self._copying.start(0)

    def _passages(self, with_markdown: bool = True) -> Iterator[Passage]:
        selection, column = self._selection, self._column
        if selection is None or selection.is_empty:
            return
        messages = list(column.messages)
        for index in range(selection.start.message, min(selection.end.message + 1, len(messages))):
            view = column.view(messages[index].id) if column.first <= index < column.last else None
            passage = passage_of(messages[index], view, column.loose_view, index, selection, with_markdown)
            if passage.plain or passage.markdown:
                yield passage

    # --- highlighting

    def show_in(self, view: SelectableMessage) -> None:
        """Highlight the selection in a message that was just built or whose texts have changed."""
        if not self.is_empty:
            self._show_in(view, self._column.index(view.message.id))

    def _show_in(self, view: SelectableMessage, index: int) -> None:
        for number, text in enumerate(view.texts()):
            if text is not None:
                text.mark(self._selection.within(index, number) if self._selection is not None else None)

    def _set(self, selection: Selection | None) -> None:
        if selection == self._selection:
            return
        ends = [end for one in (self._selection, selection) if one is not None for end in (one.start, one.end)]
        was_empty, self._selection = self.is_empty, selection
        if was_empty and not self.is_empty:
            self.began.emit()
        first, last = min(end.message for end in ends), max(end.message for end in ends)
        for index in range(max(first, self._column.first), min(last + 1, self._column.last)):
            self._show_in(self._column.views[index - self._column.first], index)

    # --- places

    def _text_at(self, point: QPoint) -> tuple[int, int, SelectableText, QPoint] | None:
        """Return the text at or below a point of the column, else the last: message, number, widget, point in it."""
        column = self._column
        if not column.views:
            return None
        which = min(column.first_visible(point.y()), len(column.views) - 1)
        found: tuple[int, int, SelectableText, QPoint] | None = None
        for number, text in enumerate(column.views[which].texts()):
            if text is None:
                continue
            place = text.viewport().mapFromGlobal(column.mapToGlobal(point))
            found = (column.first + which, number, text, place)
            if place.y() < text.viewport().height():
                break
        return found

    def _place_at(self, point: QPoint) -> Place | None:
        found = self._text_at(point)
        if found is None:
            which = min(self._column.first_visible(point.y()), max(len(self._column.views) - 1, 0))
            return Place(self._column.first + which, 0, 0) if self._column.views else None
        message, number, text, place = found
        if place.y() < 0:
            return Place(message, number, 0)
        if place.y() >= text.viewport().height():
            return Place(message, number, text.length)
        return Place(message, number, text.cursorForPosition(place).position())

    def _unit_at(self, point: QPoint) -> tuple[Place, Place] | None:
        """Return start and end of the word or paragraph at a point, or the place twice."""
        place, found = self._place_at(point), self._text_at(point)
        if place is None:
            return None
        if self._unit is None or found is None:
            return place, place
        start, end = found[2].around(place.position, self._unit)
        return place._replace(position=start), place._replace(position=end)

    def _message_under_pointer(self) -> int:
        column = self._column
        point = column.mapFromGlobal(QCursor.pos())
        if not self._area.viewport().rect().contains(self._area.viewport().mapFromGlobal(QCursor.pos())):
            point.setY(self._area.verticalScrollBar().value() + self._area.viewport().height() - 1)
        return column.first + max(min(column.first_visible(point.y()), len(column.views) - 1), 0)

    def _link_at(self, point: QPoint) -> tuple[SelectableText, str] | None:
        found = self._text_at(point)
        if found is None or not found[2].viewport().rect().contains(found[3]):
            return None
        words = found[2].anchorAt(found[3])
        address = words if words.startswith("#") else web_address(words)
        return (found[2], address) if address else None

    # --- mouse

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        kind = event.type()
        if isinstance(event, QMouseEvent):
            left = Qt.MouseButton.LeftButton
            point = self._column.mapFromGlobal(event.globalPosition().toPoint())
            if kind is QEvent.Type.MouseButtonPress and event.button() is left:
                self._press(point, event)
            elif kind is QEvent.Type.MouseButtonDblClick and event.button() is left:
                self._pressed_at = event.globalPosition().toPoint()
                self._double_at = (event.timestamp(), self._pressed_at)
                self._begin(point, _WORD)
            elif kind is QEvent.Type.MouseMove and event.buttons() & left:
                self._drag(event.globalPosition().toPoint())
            elif kind is QEvent.Type.MouseButtonRelease and event.button() is left:
                self._release(point)
        elif isinstance(event, QContextMenuEvent):
            self.make_menu(self._column.mapFromGlobal(event.globalPos())).popup(event.globalPos())
            return True
        return False

    def _press(self, point: QPoint, event: QMouseEvent) -> None:
        at = event.globalPosition().toPoint()
        self._pressed_at = at
        before, self._double_at = self._double_at, None
        soon = before is not None and event.timestamp() - before[0] < QApplication.doubleClickInterval()
        if before is not None and soon and (at - before[1]).manhattanLength() < QApplication.startDragDistance():
            self._begin(point, _PARAGRAPH)
            return
        place = self._place_at(point)
        if event.modifiers() & Qt.KeyboardModifier.ShiftModifier and self._selection is not None and place is not None:
            self._origin = (self._selection.anchor, self._selection.anchor)
            self._unit, self._dragging = None, True
            self._extend(point)
            return
        self._begin(point, None)

    def _begin(self, point: QPoint, unit: QTextCursor.SelectionType | None) -> None:
        self._unit = unit
        self._origin = self._unit_at(point)
        found = self._text_at(point)
        self._pressed_in = found[2] if found is not None else None
        self._dragging = self._origin is not None
        self._set(Selection(*self._origin) if self._origin is not None else None)

    def _drag(self, at: QPoint) -> None:
        if not self._dragging:
            return
        if (at - self._pressed_at).manhattanLength() >= QApplication.startDragDistance() or not self.is_empty:
            self._extend(self._column.mapFromGlobal(at))
            self._scroller.start()

    def _extend(self, point: QPoint) -> None:
        there = self._unit_at(point)
        if there is None or self._origin is None:
            return
        start, end = min(self._origin[0], there[0]), max(self._origin[1], there[1])
        forward = there[1] >= self._origin[1]
        self._set(Selection(start, end) if forward else Selection(self._origin[1], start))

    def _release(self, point: QPoint) -> None:
        self._scroller.stop()
        if not self._dragging:
            return
        self._dragging = False
        if self.is_empty:
            link = self._link_at(point)
            if link is not None and link[1].startswith("#"):
                link[0].anchorClicked.emit(QUrl(link[1]))  # to a footnote, which its message finds
            elif link is not None:
                self.link_activated.emit(link[1])
        else:
            self._offer_to_middle_click()

    def _scroll(self) -> None:
        """Scroll while the pointer is held beyond an edge, and extend the selection."""
        if not self._dragging or not QGuiApplication.mouseButtons() & Qt.MouseButton.LeftButton:
            self._scroller.stop()
            return
        at, view = QCursor.pos(), self._area.viewport()
        step = _beyond(view.mapFromGlobal(at).y(), view.height())
        if step:
            bar = self._area.verticalScrollBar()
            bar.setValue(bar.value() + step)
        text = self._pressed_in
        if text is not None and text in self._texts_in_view():
            inside = text.viewport().mapFromGlobal(at)
            if 0 <= inside.y() < text.viewport().height():
                bar = text.horizontalScrollBar()
                bar.setValue(bar.value() + _beyond(inside.x(), text.viewport().width()))
        self._extend(self._column.mapFromGlobal(at))

    def _texts_in_view(self) -> list[SelectableText | None]:
        return [text for view in self._column.views for text in view.texts()]

    def _moved_under_the_pointer(self) -> None:
        """Extend the selection if the page scrolls during a drag, by the wheel or a growing answer."""
        if self._dragging and not self.is_empty:
            self._extend(self._column.mapFromGlobal(QCursor.pos()))

    # --- menu

    def set_has_notes(self, has_notes: bool) -> None:
        self._has_notes = has_notes

    def make_menu(self, point: QPoint) -> Menu:
        menu = Menu(tr("Text"), self._area)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        clipboard = QGuiApplication.clipboard()
        link = self._link_at(point)
        if link is not None and not link[1].startswith("#"):
            menu.add(tr("Open link"), "right", lambda: self.link_activated.emit(link[1]))
            menu.add(tr("Copy link"), "copy", lambda: clipboard.setText(link[1]))
            menu.addSeparator()
        if not self.is_empty:
            menu.add(tr("Copy"), "copy", self.copy, shown("Ctrl+C"))
            menu.add(tr("Copy as Markdown"), "code", lambda: self.copy(markdown=True))
            if self._has_notes:
                menu.add(tr("Add to notes…"), "file", lambda: self.note_requested.emit(self.plain_text()))
            menu.addSeparator()
        column = self._column
        which = min(column.first_visible(point.y()), len(column.views) - 1)
        if which >= 0:
            view = column.views[which]
            index = column.first + which
            menu.add(tr("Select message"), "lines", lambda: self.select(whole_message(index)), shown("Ctrl+A"))
            menu.add(
                tr("Copy message"), "copy", lambda: copy_message_text(view.source, view.message.role is Role.ASSISTANT)
            )
        return menu


class _Copy:
    def __init__(self, passages: Iterator[Passage], mode: QClipboard.Mode, as_markdown: bool) -> None:
        self.mode = mode
        self._coming, self._as_markdown = passages, as_markdown
        self._passages: list[Passage] = []

    def run(self, until: float) -> bool:
        """Continue until that time.perf_counter(). Return whether it is on the clipboard."""
        for passage in self._coming:
            self._passages.append(passage)
            if time.perf_counter() >= until:
                return False
        markdown, html = markdown_text(self._passages), html_text(self._passages)
        data = QMimeData()
        data.setText(markdown if self._as_markdown else plain_text(self._passages))
        if markdown:
            data.setData("text/markdown", markdown.encode())
        if html and not self._as_markdown:
            data.setHtml(document_html(html))
        QGuiApplication.clipboard().setMimeData(data, self.mode)
        return True


def _beyond(at: int, length: int) -> int:
    """Return how far to scroll for a pointer there, px: the farther outside, the faster."""
    edge = theme.px(4)
    if at < edge:
        return max((at - edge) // 2 - 1, -MOST_STEP)
    return min((at - length + edge) // 2 + 1, MOST_STEP) if at > length - edge else 0
