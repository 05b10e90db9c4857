"""Connects the comparison of models with the chat page: its dialog, and the answers side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget

from app.chat.answer_setup import AnswerSetup
from app.chat.answers.mode_rates import MEASURED_MODES
from app.chat.chat_turns import STILL_ANSWERING
from app.chat.side_by_side import ModelChoice
from app.chat.store.conversation import Message, siblings
from app.clients.engine_status import Phase
from app.clients.servers import Place
from app.models.model_rows import STARTER, ModelRow
from app.translation import tr
from app.ui.chat.answer_columns import AnswerColumns
from app.ui.chat.chat_page import ChatPage
from app.ui.chat.compare_models_dialog import CompareModelsDialog


class Comparing(QObject):
    """One per window. begun: a question is answered by several."""

    begun = Signal()

    def __init__(self, window: QWidget, page: ChatPage, setup: AnswerSetup) -> None:
        super().__init__(window)
        self._window, self._page, self._setup = window, page, setup
        self._usable: Callable[[], Sequence[ModelRow | Place]] = tuple
        self._shown = ""  # id of an answer whose versions are shown
        self.columns: AnswerColumns | None = None
        chat, self._run = setup.chat, setup.side_by_side
        self._run.changed.connect(self._run_changed)
        page.side_by_side_requested.connect(self.show_versions)
        page.over_left.connect(self._leave)
        chat.text_appended.connect(lambda message_id, text: self._tell("append_text", message_id, text))
        chat.chat_status_changed.connect(lambda status: self._tell("set_status", status))
        for signal in (chat.message_finished, chat.message_updated, chat.message_resumed, chat.branch_changed):
            signal.connect(self._refresh)
        chat.conversation_opened.connect(self._show_run)

    def use_models(self, usable: Callable[[], Sequence[ModelRow | Place]]) -> None:
        """Offer the models that `usable` returns."""
        self._usable = usable

    # --- the dialog

    def offered(self) -> list[ModelChoice]:
        """Return all that can answer, the loaded model first."""
        chat, models = self._setup.chat, self._usable()
        model, name = chat.model, chat.status.model
        choices = [
            ModelChoice(f"{one.model} · {one.server.name}", place=one) for one in models if isinstance(one, Place)
        ]
        local = [one for one in models if isinstance(one, ModelRow) and one.installed is not None]
        here = [ModelChoice(one.name, model if one.in_use else _as_loaded(one)) for one in local]
        if name and chat.status.phase is not Phase.FAILED and not any(one.in_use for one in local):
            here.insert(0, ModelChoice(name, model))
        return sorted(here, key=lambda choice: choice.model != model) + choices

    def open_with_dense(self) -> CompareModelsDialog:
        """Ask the same with the loaded model, as it is and dense, as the first choice."""
        return self.open_dialog(with_dense=True)

    def open_dialog(self, with_dense: bool = False) -> CompareModelsDialog:
        """Ask which models and modes answer the draft, or else the last question."""
        setup, composer, offered = self._setup, self._page.composer, self.offered()
        draft, attached = composer.text().strip(), bool(composer.draft.items)
        question = None if draft or attached else setup.last_question
        choices = [choice for choice in offered if choice.place is None][: 1 if with_dense else 2]
        if len(choices) == 1:
            choices.append(replace(choices[0], mode="dense" if setup.offer.loaded_mode != "dense" else "exact"))
        choices = choices or offered[:2]
        words = draft or (question.text if question is not None else "")
        if with_dense and setup.cannot_compare:
            cannot = setup.cannot_compare
        elif not words and not attached:
            cannot = tr("Write a message first")
        elif len(choices) < 2:
            cannot = tr("No models on this PC yet.")
        elif self._page.status.answering:
            cannot = tr(STILL_ANSWERING)
        else:
            cannot = composer.why_not() if question is None else ""
        dialog = CompareModelsDialog(self._window, words, choices, offered, self._modes, cannot)
        dialog.chosen.connect(lambda choices: self._begin(choices, question))
        dialog.open()
        return dialog

    def _modes(self, choice: ModelChoice) -> Sequence[str]:
        offer = self._setup.offer
        lacks = choice.model == self._setup.chat.model and not offer.has_predictors
        return [mode for mode in MEASURED_MODES if mode != "sparse" or not lacks]

    def _begin(self, choices: Sequence[ModelChoice], question: Message | None) -> None:
        self.begun.emit()
        if question is not None:
            self._run.start(choices, question=question.id)
        else:
            self._page.composer.submit_to(lambda text, files: self._run.start(choices, text, files))

    # --- the columns

    def show_versions(self, message_id: str) -> None:
        """Show all versions of an answer of the open chat side by side."""
        self._shown = message_id
        if self.columns is None:
            self.columns = AnswerColumns()
            self.columns.continued.connect(self._continue)
            self.columns.left.connect(lambda: self._page.show_over(None))
            self.columns.link_activated.connect(self._page.transcript.link_activated)
        self.columns.set_status(self._page.status)
        self._refresh()
        self._page.show_over(self.columns)

    def _run_changed(self) -> None:
        if len(self._run.made) == 1:  # later the user may have gone back to the chat
            self._show_run()
        self._refresh()

    def _show_run(self, *_: object) -> None:
        run = self._run
        if run.is_running and run.made and run.chat == self._setup.chat.opened.id:
            self.show_versions(run.made[-1])

    def _refresh(self, *_: object) -> None:
        """Show the newest state of all versions."""
        run, found = self._run, self._setup.messages
        if self.columns is None or not self._shown:
            return
        ids = siblings(found, self._shown)
        answers = [one for one in found if one.id in ids]
        if not answers:
            self._page.show_over(None)
            return
        question = next((one for one in found if one.id == answers[0].parent), None)
        mine = run.is_running and run.question is not None and run.question.id == answers[0].parent
        shown = {one.id for one in self._setup.shown}
        self.columns.show_answers(
            question.text if question is not None else "",
            answers,
            list(run.waiting) if mine else [],
            next((one for one in ids if one in shown), ""),
            mine,
        )

    def _tell(self, act: str, *values: object) -> None:
        if self.columns is not None and self._shown:
            getattr(self.columns, act)(*values)

    def _continue(self, message_id: str) -> None:
        self._page.show_over(None)
        if self._setup.chat.opened.id is not None:
            self._setup.chat.open_at(self._setup.chat.opened.id, message_id)

    def _leave(self) -> None:
        self._shown = ""
        if self.columns is not None:
            self.columns.deleteLater()
            self.columns = None


def _as_loaded(row: ModelRow) -> str:
    assert row.installed is not None
    return STARTER if row.installed.origin == "shipped" else row.installed.id
