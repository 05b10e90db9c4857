"""A desktop's services on a D-Bus of their own: says on stdout what it is asked, a line of JSON each.

What it plays stands in argv: "screensaver", "power", "login1", "notifications", "portal". The bus is the session's of
its environment.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

from jeepney import DBusAddress, HeaderFields, Message, MessageType, new_error, new_method_return, new_signal
from jeepney.bus_messages import message_bus
from jeepney.io.blocking import open_dbus_connection

NAMES = {
    "screensaver": "org.freedesktop.ScreenSaver",
    "power": "org.freedesktop.PowerManagement",
    "login1": "org.freedesktop.login1",
    "notifications": "org.freedesktop.Notifications",
    "portal": "org.freedesktop.portal.Desktop",
}
NOTES = DBusAddress("/org/freedesktop/Notifications", interface="org.freedesktop.Notifications")


def say(*words: Any) -> None:
    os.write(1, json.dumps(words).encode() + b"\n")  # in one piece: two threads say something


def tell_of_the_end(descriptor: int) -> None:
    """Says when the other end of a pipe is closed."""
    os.read(descriptor, 1)
    os.close(descriptor)
    say("released")


def reply(bus: Any, message: Message, cookie: int) -> None:
    member, body = message.header.fields[HeaderFields.member], message.body
    interface = message.header.fields.get(HeaderFields.interface, "")
    if member == "Inhibit" and interface.startswith("org.freedesktop.login1"):
        say("login1", *body)
        ours, theirs = os.pipe()
        bus.send(new_method_return(message, "h", (theirs,)))
        os.close(theirs)
        threading.Thread(target=tell_of_the_end, args=(ours,), daemon=True).start()
    elif member == "Inhibit":
        say("inhibit", interface, *body)
        bus.send(new_method_return(message, "u", (cookie,)))
    elif member == "UnInhibit":
        say("uninhibit", *body)
        bus.send(new_method_return(message))
    elif member == "Notify":
        say("notify", body[1], body[3], body[4])
        bus.send(new_method_return(message, "u", (cookie,)))
        if "click" in sys.argv:
            bus.send(new_signal(NOTES, "ActivationToken", "us", (cookie + 1, "of another program")))
            bus.send(new_signal(NOTES, "ActionInvoked", "us", (cookie + 1, "default")))
            bus.send(new_signal(NOTES, "ActivationToken", "us", (cookie, "leave")))
            bus.send(new_signal(NOTES, "ActionInvoked", "us", (cookie, "default")))
    elif member == "CloseNotification":
        say("close", *body)
        bus.send(new_method_return(message))
    elif member == "ReadOne" and body[1] == "enable-animations":
        bus.send(new_method_return(message, "v", (("b", False),)))
    else:
        bus.send(new_error(message, "org.freedesktop.DBus.Error.Failed"))


def main() -> None:
    bus = open_dbus_connection("SESSION", enable_fds=True)
    for part in sys.argv[1:]:
        if part in NAMES:
            bus.send_and_get_reply(message_bus.RequestName(NAMES[part]))
    say("up")
    cookie = 4_000_000_000  # more than a signed number holds
    while True:
        message = bus.receive()
        if message.header.message_type is MessageType.method_call:
            cookie += 1
            reply(bus, message, cookie)


if __name__ == "__main__":
    main()
