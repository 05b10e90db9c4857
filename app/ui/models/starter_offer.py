"""Offers a larger model under an answer of the starter model whose question is beyond it, once in each chat."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt

from app.chat.answers.beyond_starter import is_beyond_starter
from app.chat.store.conversation import Message, MessageState, Role
from app.models.model_switch import STARTER

if TYPE_CHECKING:
    from app.chat.chat_controller import ChatController
    from app.models.models_controller import ModelsController
    from app.ui.chat.chat_page import ChatPage

OFFERED = "offered"  # key of a chat's choices: whether it had its offer


class StarterOffer(QObject):
    """Shows and hides the offer as messages arrive, and passes its buttons to the models controller."""

    def __init__(self, parent: QObject, page: ChatPage, chat: ChatController, models: ModelsController) -> None:
        super().__init__(parent)
        self._page, self._chat, self._models = page, chat, models
        card = page.offer
        card.download.connect(models.download)
        card.use.connect(models.use)
        card.pause.connect(models.pause)
        card.resume.connect(models.resume)
        card.cancel.connect(models.cancel_download)
        card.dismissed.connect(self._dismiss)
        chat.message_added.connect(self._added)
        chat.message_finished.connect(self._finished)
        chat.conversation_opened.connect(self._leave)
        models.rows_changed.connect(self._update)

    def _added(self, message: Message) -> None:
        row = self._page.offer.row
        if message.role is Role.USER and row is not None and row.download is None and row.installed is None:
            self._page.show_offer(None)

    def _finished(self, answer: Message) -> None:
        chat = self._chat
        question = chat.question_of(answer)
        if (
            answer.state not in (MessageState.COMPLETE, MessageState.LENGTH)  # beyond it, it may never come to an end
            or question is None
            or chat.place is not None
            or chat.model != STARTER
            or chat.choices.values.get(OFFERED)
            or not is_beyond_starter(question)
        ):
            return
        row = self._models.recommended()
        if row is not None:
            self._page.show_offer(row, chat.status.model)
            chat.choices.set(**{OFFERED: True})

    def _update(self) -> None:
        row = self._page.offer.row
        if row is not None:
            now = self._models.recommended(row.id)
            self._page.show_offer(None if now is None or now.in_use else now, self._page.offer.instead_of)

    def _leave(self) -> None:
        self._page.show_offer(None)

    def _dismiss(self) -> None:
        self._page.show_offer(None)
        self._page.composer.field.setFocus(Qt.FocusReason.OtherFocusReason)
