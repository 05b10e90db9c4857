"""D-Bus calls to a Linux desktop that never wait for an answer.

QtDBus is not used: PySide6 6.11 sends every Python number as int32, but ending an inhibition and showing a notification
take uint32. Only local sockets: an address on another machine is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from PySide6.QtCore import QObject, QSocketNotifier, Signal

if TYPE_CHECKING:
    from jeepney import Message
    from jeepney.io.blocking import DBusConnection

log = logging.getLogger(__name__)

Reply = Callable[[tuple[Any, ...]], None]


class Place(NamedTuple):
    """The target of a call: bus name, object path, interface."""

    name: str
    path: str
    interface: str


class DesktopBus(QObject):
    """One connection, made when first needed. Without a bus all calls fail silently."""

    signalled = Signal(str, str, tuple)  # interface, member, arguments

    def __init__(self, which: Literal["SESSION", "SYSTEM"] = "SESSION") -> None:
        super().__init__()
        self._which = which
        self._bus: DBusConnection | None = None
        self._tried = False
        self._notifier: QSocketNotifier | None = None
        self._waiting: dict[int, tuple[Reply | None, Callable[[], None] | None]] = {}

    def call(
        self,
        place: Place,
        method: str,
        signature: str = "",
        body: tuple[Any, ...] = (),
        then: Reply | None = None,
        otherwise: Callable[[], None] | None = None,
    ) -> None:
        """Call a method. `then` gets the answer; `otherwise` is called if it fails."""
        bus = self._connected()
        if bus is None:
            if otherwise is not None:
                otherwise()
            return
        from jeepney import DBusAddress, new_method_call

        serial = next(bus.outgoing_serial)
        self._waiting[serial] = (then, otherwise)
        address = DBusAddress(place.path, place.name, place.interface)
        try:
            bus.send(new_method_call(address, method, signature or None, body), serial=serial)
        except OSError as error:
            self._lose(error)

    def listen(self, place: Place) -> None:
        """Emit the signals of an interface by `signalled`."""
        rule = f"type='signal',interface='{place.interface}',path='{place.path}'"
        daemon = Place("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus")
        self.call(daemon, "AddMatch", "s", (rule,))

    def close(self) -> None:
        """Close the connection, which releases whatever it held."""
        if self._notifier is not None:
            self._notifier.setEnabled(False)
            self._notifier.deleteLater()
            self._notifier = None
        if self._bus is not None:
            self._bus.close()
            self._bus = None
        self._waiting.clear()

    def _connected(self) -> DBusConnection | None:
        if self._bus is None and not self._tried:
            self._tried = True
            try:
                from jeepney.io.blocking import open_dbus_connection

                self._bus = open_dbus_connection(self._which, enable_fds=True)
            except Exception as error:  # noqa: BLE001 - no bus, a strange address, one that does not answer: no desktop
                log.info("no %s bus of the desktop: %s", self._which.lower(), type(error).__name__)
                return None
            self._notifier = QSocketNotifier(self._bus.sock.fileno(), QSocketNotifier.Type.Read, self)
            self._notifier.activated.connect(self._read)
        return self._bus

    def _lose(self, error: Exception) -> None:
        """The connection was lost; no more calls."""
        log.info("the %s bus of the desktop is gone: %s", self._which.lower(), type(error).__name__)
        waiting = list(self._waiting.values())
        self.close()
        for _, otherwise in waiting:
            if otherwise is not None:
                otherwise()

    def _read(self) -> None:
        while self._bus is not None:
            try:
                message = self._bus.receive(timeout=0)
            except TimeoutError:
                return
            except Exception as error:  # noqa: BLE001 - whatever a bus may send must not end Hearth
                self._lose(error)
                return
            self._take(message)

    def _take(self, message: Message) -> None:
        from jeepney import HeaderFields, MessageType

        fields = message.header.fields
        kind = message.header.message_type
        if kind is MessageType.signal:
            interface, member = fields.get(HeaderFields.interface, ""), fields.get(HeaderFields.member, "")
            self.signalled.emit(interface, member, message.body)
            return
        then, otherwise = self._waiting.pop(fields.get(HeaderFields.reply_serial, -1), (None, None))
        if kind is MessageType.method_return and then is not None:
            then(message.body)
        elif kind is MessageType.error and otherwise is not None:
            log.info("the desktop refused: %s", fields.get(HeaderFields.error_name, ""))
            otherwise()
