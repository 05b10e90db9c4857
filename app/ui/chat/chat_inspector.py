"""Connects the inspector with the open chat: what was recorded, branches, recording on and off, export."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QStandardPaths, Qt
from PySide6.QtWidgets import QFileDialog, QWidget

from app.clients.engine_status import Phase
from app.translation import tr

if TYPE_CHECKING:
    from app.chat.answers.inspection import Inspection
    from app.chat.chat_controller import ChatController
    from app.chat.chat_memory import ChatMemory
    from app.chat.store.conversation import Message
    from app.ui.chat.chat_page import ChatPage
    from app.ui.inspector.inspector_dialog import InspectorDialog


class ChatInspector(QObject):
    """Opens the inspector for an answer, switches recording of tokens, and exports them."""

    def __init__(self, window: QWidget, page: ChatPage, chat: ChatController, memory: ChatMemory) -> None:
        super().__init__(window)
        self._window, self._page, self._chat, self._memory = window, page, chat, memory
        page.inspect_requested.connect(self.open)

    def toggle_recording(self) -> None:
        """Record the tokens of the open chat's answers from now on, or stop that."""
        self._chat.record_tokens(not self._chat.records_tokens)

    def open(self, message_id: str) -> InspectorDialog | None:
        from app.ui.inspector.inspector_dialog import InspectorDialog

        message = self._message(message_id)
        if message is None:
            return None
        dialog = InspectorDialog(self._window)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.branched.connect(lambda begun: self._chat.branch_at(message_id, begun))
        dialog.recording_wanted.connect(lambda: self._record_from_now_on(dialog))
        is_open = [True]
        dialog.finished.connect(lambda _: is_open.clear())

        def show(record: Inspection | None) -> None:
            if is_open:
                self._show(dialog, message, record)
                if record is not None:
                    self._follow(dialog, record)

        self._memory.read_inspection(message_id, show)
        dialog.open()
        return dialog

    def export_last(self) -> None:
        """Ask for a file, and write what was recorded of the last answer to it."""
        answer = self._page.transcript.last_answer()
        if answer is not None:
            self._memory.read_inspection(answer.id, self._export_or_say)

    def _message(self, message_id: str) -> Message | None:
        chat = self._chat.open_conversation
        return next((m for m in (self._memory.messages(chat) if chat else None) or [] if m.id == message_id), None)

    def _show(self, dialog: InspectorDialog, message: Message, record: Inspection | None) -> None:
        if record is not None and record.rows:
            dialog.show_record(record, self._why_not(record))
            dialog.export_wanted.connect(lambda: self._export(record, dialog))
        elif (message.stats or {}).get("server"):
            line = tr("A server gave this answer. Hearth records tokens only of answers from this PC.")
            dialog.show_nothing(tr("No tokens recorded"), line, offers=False)
        else:
            is_on = self._chat.records_tokens
            line = tr("Recording is on in this chat. Answer again to inspect the tokens.")
            if not is_on:
                line = tr("Turn on recording for this chat, then answer again.")
            dialog.show_nothing(tr("No tokens recorded"), line, offers=not is_on)

    def _follow(self, dialog: InspectorDialog, record: Inspection) -> None:
        """Keep it up to date whether alternatives can be chosen."""

        def update() -> None:
            dialog.set_cannot(self._why_not(record))

        self._chat.chat_status_changed.connect(update)
        dialog.finished.connect(lambda _: self._chat.chat_status_changed.disconnect(update))

    def _why_not(self, record: Inspection) -> str:
        """Say why this PC cannot continue from an alternative now; "" if it can."""
        status = self._chat.status
        if status.phase is not Phase.READY or self._page.status.answering:
            return tr("To continue from one of them, load the model and wait until no answer is being written.")
        if status.model != record.model:
            return tr("To continue from one of them, load {model}, which wrote this answer.", model=record.model)
        return ""

    def _record_from_now_on(self, dialog: InspectorDialog) -> None:
        dialog.accept()
        self._chat.record_tokens(True)

    def _export_or_say(self, record: Inspection | None) -> None:
        if record is None:
            self._chat.toast.emit(tr("The tokens of the last answer were not recorded"), "info")
        else:
            self._export(record, self._window)

    def _export(self, record: Inspection, parent: QWidget) -> None:
        folder = QStandardPaths.writableLocation(QStandardPaths.StandardLocation.DocumentsLocation)
        name = str(Path(folder) / "tokens.jsonl")
        path, _ = QFileDialog.getSaveFileName(parent, tr("Export the tokens"), name, tr("JSON lines (*.jsonl)"))
        if path:
            self._write(record, Path(path))

    def _write(self, record: Inspection, path: Path) -> None:
        def failed(error: BaseException) -> None:
            why = getattr(error, "strerror", None) or error
            self._chat.toast.emit(tr("Couldn't write {name}: {why}", name=path.name, why=why), "warn")

        def done(_: None) -> None:
            self._chat.toast.emit(tr("Tokens exported to {name}", name=path.name), None)

        self._memory.export_inspection(record, path, done, failed)
