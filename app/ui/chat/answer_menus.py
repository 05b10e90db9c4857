"""The menus for how a chat is answered: presets, personas, sampling, comparison.

Connects them with the AnswerSetup, which has the state.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, QPoint, Qt
from PySide6.QtWidgets import QApplication, QFileDialog, QWidget

from app.chat.answers.answer_labels import THINKING
from app.chat.answers.personas import NO_PERSONA
from app.chat.store.preset_store import PresetStore
from app.translation import tr
from app.ui.chat.comparing import Comparing

if TYPE_CHECKING:
    from app.chat.answer_setup import AnswerSetup
    from app.ui.chat.chat_page import ChatPage
    from app.ui.chat.preset_store_dialog import PresetStoreDialog
    from app.ui.composer.persona_menu import PersonaMenu
    from app.ui.composer.preset_menu import PresetMenu
    from app.ui.composer.sampling_popup import SamplingPopup
    from app.ui.live.live_page import LivePage
    from app.ui.settings.setting_groups import LinkRow
    from app.ui.settings.settings_dialog import SettingsDialog
    from app.ui.widgets.floating import Menu
    from app.ui.widgets.popover import Popover


class AnswerMenus(QObject):
    """The answer menus of a window; create one per window."""

    def __init__(self, window: QWidget, page: ChatPage, setup: AnswerSetup) -> None:
        super().__init__(window)
        self._window, self._page, self.setup = window, page, setup
        page.composer.preset_menu_requested.connect(self.open_presets)
        page.composer.prompts.edit_requested.connect(self.edit_prompts)
        page.composer.thinking_menu_requested.connect(self.open_thinking)
        self.comparing = Comparing(window, page, setup)
        setup.changed.connect(self._show)
        self._show()

    @cached_property
    def presets(self) -> PresetMenu:
        """The preset menu. Like all menus here, built on first use."""
        from app.ui.composer.preset_menu import PresetMenu

        menu, setup = PresetMenu(self._window), self.setup
        menu.picked.connect(setup.pick_preset)
        menu.mode_picked.connect(setup.pick_mode)
        menu.persona_requested.connect(self.open_personas)
        menu.adjust_requested.connect(self.open_sampling)
        menu.compare_requested.connect(self.comparing.open_with_dense)
        menu.keep_requested.connect(setup.keep_default)
        menu.edit_requested.connect(self.edit_presets)
        return menu

    @cached_property
    def personas(self) -> PersonaMenu:
        from app.ui.composer.persona_menu import PersonaMenu

        menu = PersonaMenu(self._window)
        menu.picked.connect(self.setup.pick_persona)
        menu.edit_requested.connect(self.edit_personas)
        menu.instructions_requested.connect(self._page.composer.inherited.instructions_requested)
        return menu

    @cached_property
    def sampling(self) -> SamplingPopup:
        from app.ui.composer.sampling_popup import SamplingPopup

        popup = SamplingPopup(self._window)
        popup.changed.connect(self.setup.set_sampling)
        popup.save_requested.connect(self.setup.save_preset)
        return popup

    @cached_property
    def thinking(self) -> Menu:
        from app.ui.widgets.floating import Menu

        return Menu(tr("Thinking"), self._window)

    @property
    def commands(self) -> dict[str, Callable[[], object]]:
        """The commands of app/shortcuts.py that are implemented here."""
        return {"presets": self.open_presets, "personas": self.open_personas, "sampling": self.open_sampling,
                "thinking": self.open_thinking, "compare": self.comparing.open_with_dense,
                "edit_presets": self.edit_presets, "compare_models": self.comparing.open_dialog,
                "blind_votes": self.pick_votes, "edit_personas": self.edit_personas, "edit_prompts": self.edit_prompts,
                "prompts": self._page.composer.prompts.begin}  # fmt: skip

    def serve(self, live: LivePage) -> None:
        """Connect the Live page's mode switch with the open chat."""
        live.mode_picked.connect(self.setup.pick_mode)
        live.compare_requested.connect(self.comparing.open_with_dense)
        self.setup.changed.connect(lambda: live.set_offer(self.setup.offer))
        live.set_offer(self.setup.offer)

    # --- opening

    def open_presets(self) -> None:
        if self.presets.is_open:
            self.presets.dismiss()
        elif (anchor := self._anchor()) is not None:
            self.presets.show_offer(self.setup.offer)
            self.presets.open_at(anchor)

    def open_personas(self) -> None:
        if (anchor := self._anchor()) is not None:
            chosen = self.setup.chosen.persona
            store = self.setup.choices.personas
            plain = self.setup.settings.system_prompt
            self.personas.show_personas(store.things, chosen.id if chosen else NO_PERSONA, plain)
            self.personas.open_at(anchor)

    def open_thinking(self) -> None:
        """Open the menu of how much the model thinks, if it has a choice."""
        offer, button = self.setup.offer, self._page.composer.thinking_button
        if len(offer.thinking_levels) < 2 or self._anchor() is None:
            return
        self.thinking.clear()
        for level in offer.thinking_levels:
            action = self.thinking.add(tr(THINKING[level]), "check", partial(self.setup.pick_thinking, level))
            action.setCheckable(True)
            action.setChecked(level == offer.thinking)
            action.setIconVisibleInMenu(level == offer.thinking)
        self.thinking.popup(button.mapToGlobal(button.rect().topLeft()) - QPoint(0, self.thinking.sizeHint().height()))

    def open_sampling(self) -> None:
        if (anchor := self._anchor()) is not None:
            self._show_sampling()
            self.sampling.open_at(anchor)

    def pick_votes(self) -> None:
        """Ask for a file of results, and open it for votes."""
        from app.ui.chat.votes_dialog import open_votes

        kinds = tr("Results of a comparison (*.jsonl)")
        path, _ = QFileDialog.getOpenFileName(self._window, tr("Blind votes"), "", kinds)
        if path:
            open_votes(self._window, Path(path))

    def edit_personas(self) -> PresetStoreDialog[Any]:
        from app.ui.chat.preset_dialogs import personas_dialog

        store = self.setup.choices.personas
        return self._open(personas_dialog(self._owner(), store), lambda: self.setup.store_changed(store))

    def edit_prompts(self) -> PresetStoreDialog[Any]:
        from app.ui.chat.preset_dialogs import prompts_dialog

        store = self.setup.choices.prompts
        return self._open(prompts_dialog(self._owner(), store), lambda: self.setup.store_changed(store))

    def edit_presets(self) -> PresetStoreDialog[Any]:
        from app.ui.chat.preset_dialogs import presets_dialog

        setup, store = self.setup, self.setup.choices.presets
        inherited = {**setup.model_defaults, **setup.settings.sampling()}
        return self._open(presets_dialog(self._owner(), store, inherited), lambda: setup.store_changed(store))

    def add_to(self, dialog: SettingsDialog) -> None:
        """Add rows to the settings that open personas, presets and prompts."""
        from app.ui.settings.setting_groups import LinkRow

        choices = self.setup.choices
        for title, store, act in (
            (tr("Personas"), choices.personas, self.edit_personas),
            (tr("Presets"), choices.presets, self.edit_presets),
            (tr("Prompts"), choices.prompts, self.edit_prompts),
        ):
            row = LinkRow(title, _count(store))
            row.clicked.connect(partial(self._edit_from, row, store, act))
            dialog.add_row(tr("Answers"), row, row.is_found_by)

    @staticmethod
    def _edit_from(row: LinkRow, store: PresetStore[Any], act: Callable[[], PresetStoreDialog[Any]]) -> None:
        def count() -> None:
            row.line = _count(store)
            row.setAccessibleDescription(row.line)
            row.update()

        act().changed.connect(count)

    def _open(self, dialog: PresetStoreDialog[Any], changed: Callable[[], None]) -> PresetStoreDialog[Any]:
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.changed.connect(changed)
        dialog.open()
        return dialog

    @property
    def _made(self) -> list[Popover]:
        return [self.__dict__[name] for name in ("presets", "personas", "sampling") if name in self.__dict__]

    def _owner(self) -> QWidget:
        """Return the open dialog, or else the window: the parent for new dialogs."""
        return QApplication.activeModalWidget() or self._window

    def _anchor(self) -> QWidget | None:
        """Close the open menus and return the widget to open at, if it is visible."""
        for menu in self._made:
            menu.dismiss()
        button = self._page.composer.preset_button
        return button if button.isVisible() else None

    # --- showing

    def _show(self) -> None:
        prompts = self.setup.choices.prompts
        self._page.composer.prompts.set_prompts([*prompts.own, *prompts.built_in])
        chosen = self.setup.chosen
        words = [tr("{name}, changed", name=chosen.preset.name) if chosen.is_changed else chosen.preset.name]
        if chosen.persona is not None:
            words.append(chosen.persona.name)
        about = "\n".join([tr("Preset, persona, neurons"), *([chosen.preset.about] if chosen.preset.about else [])])
        self._page.composer.set_preset(" · ".join(words), about)
        offer = self.setup.offer
        level = tr("the model decides") if offer.thinking is None else tr(THINKING[offer.thinking]).lower()
        self._page.composer.set_thinking(level if len(offer.thinking_levels) > 1 else "", offer.thinking != "off")
        if "presets" in self.__dict__ and self.presets.is_open:
            self.presets.show_offer(self.setup.offer)

    def _show_sampling(self) -> None:
        chosen = self.setup.chosen
        self.sampling.show_sampling(chosen.preset.name, chosen.sampling, self.setup.inherited)


def _count(store: PresetStore[Any]) -> str:
    own = len(store.own)
    return (
        tr("{own} of yours, {built_in} built in", own=own, built_in=len(store.built_in))
        if own
        else tr("{built_in} built in", built_in=len(store.built_in))
    )
