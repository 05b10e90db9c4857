"""The settings as the window uses them: applies changes, and opens the settings and About dialogs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QWidget

from app.clients.engine_status import sentence, short_name, why_there
from app.engine_text import plain_figures
from app.settings import AppPaths, AppSettings, description_of, paths
from app.translation import tr
from app.ui.look import theme

if TYPE_CHECKING:
    from app.servers.local_server import LocalServer
    from engine.service.protocol import LoadedModelInfo


class WindowSettings(QObject):
    """The current settings of a window. changed: new settings, to be saved.

    opening: a SettingsDialog, before it opens, so that others can add rows. act_wanted: a command of app/shortcuts.py.
    report_wanted: save a report on this PC. log_wanted: open the log folder.
    """

    changed = Signal(AppSettings)
    opening = Signal(object)
    act_wanted = Signal(str)
    report_wanted = Signal()
    log_wanted = Signal()
    _model_changed = Signal(object, object)  # to an open dialog: automatic values, and notes

    def __init__(self, window: QWidget, settings: AppSettings, places: AppPaths) -> None:
        super().__init__(window)
        self.current = settings
        self.notes: dict[str, str] = {}  # setting name: a note on its effect
        self._window, self._places = window, places
        self._automatic: dict[str, Any] = {}  # the values of settings that are left to the model
        self._local_server: LocalServer | None = None

    # --- changes

    def take(self, settings: AppSettings) -> None:
        before, self.current = self.current, settings
        if any(getattr(settings, name) != getattr(before, name) for name in ("theme", "text_px", "contrast")):
            apply_look(settings)
        self.changed.emit(settings)

    def set(self, **values: object) -> None:
        self.take(replace(self.current, **values))  # type: ignore[arg-type]

    def resize_text(self, step: int | None) -> None:
        """Change the text size by `step` px; None restores the default."""
        size = description_of("text_px")
        low, high = size.bounds.low, size.bounds.high
        assert low is not None
        assert high is not None
        px = size.default if step is None else min(max(self.current.text_px + step, int(low)), int(high))
        self.set(text_px=px)

    # --- dialogs

    def open(self, name: str = "") -> None:
        from app.ui.settings.settings_dialog import SettingsDialog

        dialog = SettingsDialog(self.current, self._window, self._automatic, self.notes)
        self._model_changed.connect(dialog.show_model)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.changed.connect(self.take)
        dialog.show_folders(str(self._places.data), str(paths().data / "models"))
        self.opening.emit(dialog)
        if self._local_server is not None:
            self._show_local_server_note()
            dialog.add_local_server(self._local_server)
        dialog.act_wanted.connect(self.act_wanted)
        dialog.report_wanted.connect(self.report_wanted)
        dialog.log_wanted.connect(self.log_wanted)
        dialog.open()
        if name:
            dialog.reveal(name)

    def open_about(self, page: str = "model") -> None:
        from app.ui.settings.about_dialog import AboutDialog

        dialog = AboutDialog(self._window)
        dialog.show_page(page)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.open()

    # --- notes

    def set_note(self, name: str, words: str) -> None:
        """Set the note of a setting; an empty text removes it."""
        self.notes = {**self.notes, name: words}
        self._model_changed.emit(self._automatic, self.notes)

    def take_model(self, info: LoadedModelInfo) -> None:
        """Show the loaded model's automatic values, and where it runs."""
        self._automatic = {**info.sampling, "threads": info.threads, "context": info.context}
        self.set_note("device", where_it_runs(info))

    def connect_local_server(self, server: LocalServer) -> None:
        """Show the local server's state as the note of its switch."""
        self._local_server = server
        server.changed.connect(self._show_local_server_note)

    def _show_local_server_note(self) -> None:
        from app.ui.settings.local_server_rows import state_text

        if self._local_server is not None:
            self.set_note("serve", state_text(self._local_server))


def apply_look(settings: AppSettings) -> None:
    zoom = settings.text_px / theme.BODY_PX
    contrast = settings.contrast == "high"
    theme.apply(theme.application(), settings.theme, zoom, contrast, in_turns=True)  # type: ignore[arg-type]


def where_it_runs(info: LoadedModelInfo) -> str:
    """Return where the model runs, and why."""
    if info.device == "cpu":
        now = tr("Now on the CPU")
    elif info.gpu:
        now = tr("Now on {card} and the CPU", card=short_name(info.gpu))
    else:
        now = tr("Now on the GPU and the CPU")
    return plain_figures(sentence(now, why_there(info.device_reason), *info.gpu_notes))
