"""A banner at the top of the column: a failure, its reason and the remedy. One is shown at a time."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QGuiApplication, QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPlainTextEdit, QScrollArea, QSizePolicy, QVBoxLayout, QWidget

from app.translation import tr
from app.ui.look import theme
from app.ui.look.direction import set_margins
from app.ui.look.icons import Glyph
from app.ui.widgets.controls import Button, IconButton, Label
from app.ui.widgets.floating import SIGNS, announce
from app.ui.widgets.flow import Flow
from app.user_messages import UserMessage

MAX_LINES = 8  # of details; more scroll
_REFITS = {QEvent.Type.LayoutRequest, QEvent.Type.ShowToParent, QEvent.Type.HideToParent}


class Banner(QFrame):
    """A banner, hidden until `show_message`. It stays until the user closes it or `clear` is called.

    remedy: the action of the button that was pressed.
    """

    remedy = Signal(str)
    closed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("kind", "banner")
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Minimum)
        self.message: UserMessage | None = None
        self._row = QHBoxLayout(self)
        self._icon = Glyph("warn", "bad", 18, "bad_soft")
        self._row.addWidget(self._icon, 0, Qt.AlignmentFlag.AlignTop)
        self._column = QVBoxLayout()
        self._row.addLayout(self._column, 1)
        self._title = Label("", "label", wrap=True)
        self._sentence = Label("", "small", wrap=True)
        self._column.addWidget(self._title)
        self._column.addWidget(self._sentence)
        self._buttons = Flow()
        self._remedy = Button("", "primary")
        self._second = Button("", "secondary")
        self._details = Button(tr("Details"), "quiet")
        self._copy = Button(tr("Copy details"), "quiet")
        for button in (self._remedy, self._second, self._details, self._copy):
            self._buttons.addWidget(button)
        self._column.addSpacing(4)
        self._column.addLayout(self._buttons)
        self._text = QPlainTextEdit()
        self._text.setReadOnly(True)
        self._text.setProperty("kind", "field")
        self._text.setAccessibleName(tr("Details"))
        self._text.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self._column.addWidget(self._text)
        self._close = IconButton("close", tr("Close"))
        self._close.glyph_px = 16
        self._row.addWidget(self._close, 0, Qt.AlignmentFlag.AlignTop)
        self._remedy.clicked.connect(self._choose_remedy)
        self._second.clicked.connect(self._choose_second)
        self._details.clicked.connect(self._toggle_details)
        self._copy.clicked.connect(self._copy_details)
        self._close.clicked.connect(self._close_by_hand)
        theme.current().changed.connect(self._restyle)
        self._restyle()
        self.hide()

    def show_message(self, message: UserMessage) -> None:
        """Show a message, replacing the current one."""
        self.message = message
        glyph, token = SIGNS[message.severity]
        self._icon.set_look(glyph, token, f"{token}_soft")
        self._title.setText(message.title)
        self._sentence.setText(message.sentence)
        self._sentence.setVisible(bool(message.sentence))
        self._remedy.setText(message.remedy)
        self._remedy.setVisible(bool(message.remedy and message.remedy_action))
        self._second.setText(message.second[0] if message.second else "")
        self._second.setVisible(message.second is not None)
        self._details.setVisible(bool(message.details))
        # The first visible button must line up with the text by its border; a quiet button has no border and would look
        # indented.
        alone = not (message.remedy and message.remedy_action) and message.second is None
        self._details.set_look("secondary" if alone else "quiet")
        self._text.setPlainText(message.details)
        self._fit_details()
        self._text.hide()
        self._copy.hide()
        self._details.setText(tr("Details"))
        theme.set_property(self, "severity", message.severity)
        words = f"{message.title}. {message.sentence}"
        self.setAccessibleName(words)
        self.show()
        announce(self, words)

    def clear(self) -> None:
        """Remove the message because its problem is solved."""
        self.message = None
        self.hide()

    def _restyle(self) -> None:
        set_margins(self._row, theme.px(14), theme.px(12), theme.px(10), theme.px(14), self.isRightToLeft())
        self._row.setSpacing(theme.px(12))
        self._column.setSpacing(theme.px(4))
        self._buttons.setSpacing(theme.px(8))
        self._text.setFont(theme.font("code"))
        self._fit_details()

    def _fit_details(self) -> None:
        lines = min(max(self._text.blockCount(), 2), MAX_LINES)
        self._text.setFixedHeight(lines * self._text.fontMetrics().lineSpacing() + theme.px(30))

    def _choose_remedy(self) -> None:
        if self.message is not None:
            self.remedy.emit(self.message.remedy_action)

    def _choose_second(self) -> None:
        if self.message is not None and self.message.second is not None:
            self.remedy.emit(self.message.second[1])

    def _toggle_details(self) -> None:
        shown = not self._text.isVisibleTo(self)
        self._text.setVisible(shown)
        self._copy.setVisible(shown)
        self._copy.setText(tr("Copy details"))
        self._details.setText(tr("Hide details") if shown else tr("Details"))

    def _copy_details(self) -> None:
        QGuiApplication.clipboard().setText(self._text.toPlainText())
        self._copy.setText(tr("Copied"))

    def _close_by_hand(self) -> None:
        self.clear()
        self.closed.emit()


class BannerPlace(QScrollArea):
    """A place for a banner: as high as the banner, at most `most`; a higher banner scrolls inside.

    Its height is 0 while the banner is hidden.
    """

    def __init__(self, banner: Banner, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._most = 0
        self.setProperty("kind", "plain")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.viewport().setAutoFillBackground(False)
        self.banner = banner
        hidden = banner.isHidden()
        self.setWidget(banner)
        banner.setHidden(hidden)  # QScrollArea shows the widget that it is given
        banner.setAutoFillBackground(False)
        banner.installEventFilter(self)
        self._fit()

    def set_most(self, height: int) -> None:
        self._most = height
        self._fit()

    def _fit(self) -> None:
        wanted = 0 if self.banner.isHidden() else self.banner.heightForWidth(self.width())
        self.setFixedHeight(min(wanted, self._most))
        width = self.viewport().width()  # less than our own while the scroll bar is visible
        self.banner.resize(width, self.banner.heightForWidth(width))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() in _REFITS and watched is self.banner:
            self._fit()
        return super().eventFilter(watched, event)
