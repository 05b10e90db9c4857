"""The dialogs of personas, presets and saved prompts, with their editors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QPlainTextEdit, QScrollArea, QVBoxLayout, QWidget

from app.chat.answers.personas import MAX_INSTRUCTIONS, Persona, Personas
from app.chat.answers.presets import Preset, Presets
from app.chat.answers.saved_prompts import MAX_TEXT, SavedPrompt, SavedPrompts
from app.translation import figure, noted, tr, tr_n
from app.ui.chat.preset_store_dialog import Editor, PresetStoreDialog, PresetStoreTexts
from app.ui.composer.sampling_editor import SamplingEditor
from app.ui.look import theme
from app.ui.widgets.controls import Label


class TextEditor(Editor):
    """An editor for one long text field."""

    def __init__(self, name: str, hint: str, most: int) -> None:
        """most: the highest number of characters."""
        super().__init__()
        self._most = most
        self.field = QPlainTextEdit()
        self.field.setProperty("kind", "field")
        self.field.setTabChangesFocus(True)
        self.field.setAccessibleName(name)
        self.field.setPlaceholderText(hint)
        self.length = Label("", "meta", wrap=True)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(6)
        column.addWidget(self.field, 1)
        column.addWidget(self.length)
        self.field.textChanged.connect(self._typed)
        theme.current().changed.connect(self._restyle)
        self._restyle()

    def text_of(self, thing: Any) -> str:
        raise NotImplementedError  # a QWidget cannot be an abstract base class

    def about(self, text: str) -> str:
        """Return what is said below the text."""
        raise NotImplementedError

    def show_thing(self, thing: Any, editable: bool) -> None:
        text = self.text_of(thing)
        self.field.blockSignals(True)
        if text != self.field.toPlainText():
            self.field.setPlainText(text)
        self.field.setReadOnly(not editable)
        self.field.blockSignals(False)
        self._tell()

    def _typed(self) -> None:
        if len(self.field.toPlainText()) > self._most:
            self.field.undo()
        self._tell()
        self.edited.emit()

    def _tell(self) -> None:
        self.length.setText(self.about(self.field.toPlainText()))

    def _restyle(self) -> None:
        self.field.setFont(theme.font("row"))


class InstructionsEditor(TextEditor):
    """The editor of a persona's instructions, with their length."""

    def __init__(self) -> None:
        hint = tr("What the model reads before the chat begins, in your words")
        super().__init__(tr("Instructions"), hint, MAX_INSTRUCTIONS)

    def text_of(self, thing: Persona) -> str:
        return thing.instructions

    def taken(self, thing: Persona) -> Persona:
        return replace(thing, instructions=self.field.toPlainText()[:MAX_INSTRUCTIONS])

    def about(self, text: str) -> str:
        n = len(text)
        words = tr_n(
            "{n} character. It takes up context in every chat with this persona.",
            "{n} characters. They take up context in every chat with this persona.",
            n,
            n=figure(n),
        )
        return words if n else tr("Small models may not follow long instructions.")


class PromptEditor(TextEditor):
    def __init__(self) -> None:
        super().__init__(tr("Prompt"), tr("The text that is put into the message"), MAX_TEXT)

    def text_of(self, thing: SavedPrompt) -> str:
        return thing.text

    def taken(self, thing: SavedPrompt) -> SavedPrompt:
        return replace(thing, text=self.field.toPlainText()[:MAX_TEXT])

    def about(self, text: str) -> str:
        names = SavedPrompt("", "", text).variables
        shown = ", ".join(names[:8]) + ("…" if len(names) > 8 else "")
        if names:
            return tr("To fill in: {names}. Tab goes to the next one.", names=shown)
        return tr("Write a word in braces, such as {example}, where something is to be filled in.", example="{topic}")


class SamplingPage(Editor):
    """The editor of a preset's values; values it lacks come from the settings and the model."""

    def __init__(self, inherited: Mapping[str, Any]) -> None:
        super().__init__()
        self._inherited = inherited
        self.about = Label("", "small", wrap=True)
        self.editor = SamplingEditor()
        inside = QFrame()
        inside.setAutoFillBackground(False)
        within = QVBoxLayout(inside)
        within.setContentsMargins(0, 0, theme.px(8), 0)
        within.addWidget(self.editor)
        within.addStretch(1)
        area = QScrollArea()
        area.setProperty("kind", "plain")
        area.setFrameShape(QFrame.Shape.NoFrame)
        area.setWidgetResizable(True)
        area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        area.viewport().setAutoFillBackground(False)
        area.setWidget(inside)
        inside.setAutoFillBackground(False)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.addWidget(self.about)
        column.addWidget(area, 1)
        self.editor.edited.connect(lambda _: self.edited.emit())

    def show_thing(self, thing: Preset, editable: bool) -> None:
        self.about.setText(f"{thing.about}." if thing.about else "")
        self.about.setVisible(bool(thing.about))
        self.editor.set_values(thing.values, self._inherited)
        self.editor.setEnabled(editable)

    def taken(self, thing: Preset) -> Preset:
        self.editor.flush()
        return replace(thing, values=self.editor.values(), about="")


PERSONA_TEXTS = PresetStoreTexts(
    many=noted("Personas"),
    new=noted("New persona"),
    name_of=noted("Name of the persona"),
    import_file=noted("Import personas from a file"),
    export_file=noted("Export your personas to a file"),
    importing=noted("Import personas"),
    exporting=noted("Export personas"),
)
PRESET_TEXTS = PresetStoreTexts(
    many=noted("Presets"),
    new=noted("New preset"),
    name_of=noted("Name of the preset"),
    import_file=noted("Import presets from a file"),
    export_file=noted("Export your presets to a file"),
    importing=noted("Import presets"),
    exporting=noted("Export presets"),
)


PROMPT_TEXTS = PresetStoreTexts(
    many=noted("Prompts"),
    new=noted("New prompt"),
    name_of=noted("Name of the prompt"),
    import_file=noted("Import prompts from a file"),
    export_file=noted("Export your prompts to a file"),
    importing=noted("Import prompts"),
    exporting=noted("Export prompts"),
)


def personas_dialog(parent: QWidget | None, personas: Personas) -> PresetStoreDialog[Persona]:
    return PresetStoreDialog(parent, personas, InstructionsEditor(), PERSONA_TEXTS, "chat", Persona("", "", ""))


def prompts_dialog(parent: QWidget | None, prompts: SavedPrompts) -> PresetStoreDialog[SavedPrompt]:
    return PresetStoreDialog(parent, prompts, PromptEditor(), PROMPT_TEXTS, "lines", SavedPrompt("", "", ""))


def presets_dialog(parent: QWidget | None, presets: Presets, inherited: Mapping[str, Any]) -> PresetStoreDialog[Preset]:
    """Return the dialog of all presets. inherited: the values used where a preset has none."""
    return PresetStoreDialog(parent, presets, SamplingPage(inherited), PRESET_TEXTS, "tune", Preset("", ""))
