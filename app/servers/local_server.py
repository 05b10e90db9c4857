"""Switches the local server on this PC on and off: the loaded model for other programs, with OpenAI's API.

The engine's process runs it and forgets port and key when it ends; they are sent to every new process. The key is in
the system's keyring; without one a new key is made at every start, and the user is told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, Signal

from app.clients.engine_client import EngineClient
from app.clients.engine_status import EngineStatus, Phase
from app.clients.library_client import Library
from app.later import Later
from app.servers.client_loads import Chat, ClientLoads
from app.settings import AppSettings
from app.translation import tr
from app.user_messages import UserMessage, describe

if TYPE_CHECKING:
    from engine.service import protocol
else:
    protocol = Later("engine.service.protocol")

_SETTLED = (Phase.READY, Phase.FAILED, Phase.OFF)


class LocalServer(QObject):
    """Switches the server and keeps its key. changed: state, key or problem."""

    changed = Signal()
    toast = Signal(str, object)

    def __init__(self, engine: EngineClient, library: Library, settings: AppSettings) -> None:
        super().__init__()
        self._engine, self._library = engine, library
        self._on, self._port, self._loads, self._unload_after_s = _how(settings)
        self.client_loads: ClientLoads | None = None
        self.key = ""
        self._state: protocol.ServerState | None = None  # None: off
        self.trouble: UserMessage | None = None  # why it is off although wanted
        self._asked = False  # the key was requested
        self._is_sent = False  # this engine process has the current settings
        engine.process_started.connect(self._began_anew)
        engine.status_changed.connect(self._update)
        engine.served.connect(self._take)
        engine.serve_failed.connect(self._failed)

    @property
    def state(self) -> protocol.ServerState:
        """The server's current state."""
        return self._state or protocol.ServerState()

    @property
    def is_wanted(self) -> bool:
        return self._on

    @property
    def loads_models(self) -> bool:
        """Whether programs may have models loaded."""
        return self._loads

    def take_settings(self, settings: AppSettings) -> None:
        if _how(settings) == (self._on, self._port, self._loads, self._unload_after_s):
            return
        self._on, self._port, self._loads, self._unload_after_s = _how(settings)
        self.trouble = None
        self._is_sent = False
        self._update()
        self.changed.emit()

    def connect_chat(self, chat: Chat) -> None:
        """Load the models that programs ask for in place of the chats' model."""
        self.client_loads = ClientLoads(self._engine, chat)
        self.client_loads.said.connect(self.toast)
        self.client_loads.changed.connect(self.changed)

    @property
    def loaded_for(self) -> tuple[str, str]:
        """The model that was loaded for a program, and the program's name; empty if the user chose the model."""
        return ("", "") if self.client_loads is None else (self.client_loads.model, self.client_loads.client)

    def need_key(self) -> None:
        """Read or create the key, once: the user looks at it."""
        if not self.key and not self._asked:
            self._asked = True
            self._library.ask("own_key", {}, self._take_key, lambda failed: self._take_key({}))

    def renew_key(self) -> None:
        """Create a new key. Programs with the old one are refused from now on."""
        self._keep_key(_new_key())

    # --- the key

    def _take_key(self, found: dict[str, Any]) -> None:
        self._asked = False
        if key := str(found.get("key", "")):
            self.key = key
            self._update()
            self.changed.emit()
        else:
            self._keep_key(_new_key())

    def _keep_key(self, key: str) -> None:
        self.key, self._is_sent = key, False
        self._library.ask("own_key", {"set": key}, self._kept)
        self._update()
        self.changed.emit()

    def _kept(self, state: dict[str, Any]) -> None:
        if not state.get("kept"):
            self.toast.emit(tr("No keyring is available: the key is kept until Hearth is closed"), "warn")

    # --- the engine's process

    def _began_anew(self, _: int) -> None:
        self._is_sent = False
        if self.state.on:
            self._state = None
            self.changed.emit()
        self._update()

    def _update(self, _: EngineStatus | None = None) -> None:
        """Send the wanted state once the engine is up, so that the first answer comes first."""
        if self._is_sent or (not self._on and not self.state.on):
            return
        if self._on and self._engine.status.phase not in _SETTLED:
            return
        if self._on and not self.key:
            self.need_key()
            return
        self._is_sent = True
        self._engine.serve(self._on, self._port, self.key, self._loads, self._unload_after_s)

    def _take(self, state: protocol.ServerState) -> None:
        self._state = state
        if state.on:
            self.trouble = None
        if state.on and not self._on:  # switched off while it was starting
            self._is_sent = False
            self._update()
        self.changed.emit()

    def _failed(self, failed: protocol.Failed) -> None:
        self._state = None
        self.trouble = describe(failed, during="serve")
        self.changed.emit()


def _how(settings: AppSettings) -> tuple[bool, int, bool, float | None]:
    """Return on, port, loads and unload_after_s as in protocol.Serve."""
    minutes = settings.serve_unload_min if settings.serve_loads else None
    return settings.serve, settings.serve_port, settings.serve_loads, None if minutes is None else minutes * 60.0


def _new_key() -> str:
    from engine.local_api.keys import make_key

    return make_key()
