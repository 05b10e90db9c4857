"""Notifies the user when a long answer ends in the background. Contains no chat text.

By D-Bus on Linux, through the tray elsewhere.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from PySide6.QtCore import QObject, Qt, QTimer, Signal
from PySide6.QtGui import QGuiApplication

from app.clients.engine_status import EngineStatus
from app.desktop.desktop_bus import DesktopBus, Place
from app.desktop.single_instance import LaunchRequest, take_activation
from app.translation import figure, tr, tr_n
from app.units import seconds

LONG_S = 10.0  # users do something else during longer answers

_NOTES = Place("org.freedesktop.Notifications", "/org/freedesktop/Notifications", "org.freedesktop.Notifications")


class Poster(Protocol):
    clicked: Any  # Signal()

    def show(self, title: str, sentence: str) -> None: ...
    def withdraw(self) -> None: ...


class AnswerNotices(QObject):
    """Follows the start and end of answers."""

    wanted = Signal(str)  # id of the chat whose notification was clicked

    def __init__(self, poster: Poster, in_front: Callable[[], bool] | None = None) -> None:
        """in_front: whether the user has the window in front."""
        super().__init__()
        self._poster = poster
        self._in_front = in_front or is_in_front
        self.allowed = True
        self._chat = ""  # the chat that is being answered
        self._called = ""  # the chat whose last answer had calls
        self._began = 0.0
        self._failed = False
        self._asks: bool | None = None  # whether calls of the last answer wait for the user; None: it had no calls
        self._status = EngineStatus()
        self._shown_for = ""
        poster.clicked.connect(self._clicked)

    def set_status(self, status: EngineStatus) -> None:
        """Take the engine's status; it holds the tokens of an answer."""
        self._status = status

    def set_running(self, chat: str | None) -> None:
        """Set the chat that is being answered; None: none."""
        if self._chat and chat != self._chat:
            if self._asks is None:
                # Failure and token count follow in the same turn of the event loop.
                QTimer.singleShot(0, partial(self._ended, self._chat, time.monotonic() - self._began))
            elif self._asks:
                self._asked(self._chat)
            self._called = "" if self._asks is None else self._chat
            self._asks = None
        if chat:
            self._failed = False
            if chat != self._called:  # else it continues after its calls
                self._began = time.monotonic()
        self._chat = chat or ""

    def set_calls(self, chat: str, asks: bool) -> None:
        """Note that the answer that is just ending calls tools, and whether one waits for the user."""
        if chat == self._chat:
            self._asks = asks

    def set_failed(self, *_: object) -> None:
        """Note that the answer that has just ended failed."""
        self._failed = True

    def come_to_front(self, state: Qt.ApplicationState) -> None:
        """Withdraw the notification: the user is back."""
        if state is Qt.ApplicationState.ApplicationActive and self._shown_for:
            self._shown_for = ""
            self._poster.withdraw()

    def _ended(self, chat: str, took_s: float) -> None:
        if not self.allowed or took_s < LONG_S or self._in_front():
            return
        self._shown_for = chat
        if self._failed:
            self._poster.show(tr("The answer was not finished"), tr("Open Hearth to see why."))
            return
        model, tokens = self._status.model or tr("The model"), self._status.tokens
        sentence = tr("{model} ended in {time}.", model=model, time=seconds(took_s))
        if tokens:
            sentence = tr_n(
                "{model} wrote {n} token in {time}.",
                "{model} wrote {n} tokens in {time}.",
                tokens,
                n=figure(tokens),
                model=model,
                time=seconds(took_s),
            )
        self._poster.show(tr("The answer is ready"), sentence)

    def _asked(self, chat: str) -> None:
        if self.allowed and not self._in_front():
            self._shown_for = chat
            self._poster.show(tr("A tool waits for your permission"), tr("Open Hearth to allow or refuse it."))

    def _clicked(self) -> None:
        chat, self._shown_for = self._shown_for, ""
        if chat:
            self.wanted.emit(chat)


def is_in_front() -> bool:
    """Return whether a window of Hearth has the keyboard focus, the best a desktop tells."""
    return QGuiApplication.applicationState() is Qt.ApplicationState.ApplicationActive


class DesktopPoster(QObject):
    """Notifications of a Linux desktop; one of Hearth's at a time."""

    clicked = Signal()

    def __init__(self, bus: DesktopBus | None = None) -> None:
        super().__init__()
        self._bus = bus or DesktopBus("SESSION")
        self._number = 0  # id of the shown one, given by the desktop
        self._heard = False
        self._bus.signalled.connect(self._on_signal)

    def show(self, title: str, sentence: str) -> None:
        if not self._heard:
            self._heard = True
            self._bus.listen(_NOTES)
        hints = {"desktop-entry": ("s", "io.github.hearth.Hearth"), "category": ("s", "transfer.complete")}
        self._bus.call(
            _NOTES, "Notify", "susssasa{sv}i",
            ("Hearth", self._number, "io.github.hearth.Hearth", title, sentence, ["default", tr("Show")], hints, -1),
            self._take_number,
        )  # fmt: skip

    def withdraw(self) -> None:
        number, self._number = self._number, 0
        if number:
            self._bus.call(_NOTES, "CloseNotification", "u", (number,))

    def close(self) -> None:
        self._bus.close()

    def _take_number(self, body: tuple[Any, ...]) -> None:
        self._number = int(body[0])

    def _on_signal(self, interface: str, member: str, body: tuple[Any, ...]) -> None:
        if interface != _NOTES.interface or not self._number or body[:1] != (self._number,):
            return  # the signal covers all programs' notifications
        if member == "ActivationToken":
            take_activation(LaunchRequest(activation=str(body[1])))
        elif member == "ActionInvoked":
            self._number = 0
            self.clicked.emit()
        elif member == "NotificationClosed":
            self._number = 0


def poster_of_this_system(tray: Poster) -> Poster:
    """Return this system's poster. tray: the fallback."""
    return DesktopPoster() if sys.platform.startswith("linux") else tray
