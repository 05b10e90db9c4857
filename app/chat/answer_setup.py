"""The open chat's answer settings for the window: what applies, what else there is, costs of modes, comparisons."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, Signal, Slot

from app.chat.answers.answer_choices import NAMES, Chosen, checked_choices
from app.chat.answers.answer_policy import AnswerPolicy
from app.chat.answers.mode_rates import ModeRate, ModeRates, costs
from app.chat.answers.presets import Preset
from app.chat.chat_controller import ChatController
from app.chat.chat_memory import ChatMemory
from app.chat.projects.notes import NotesText
from app.chat.side_by_side import SideBySide
from app.chat.store.conversation import Message, Role
from app.chat.store.preset_store import PresetStore, PresetStoreError, new_id
from app.clients.answer_request import Answered
from app.clients.engine_client import EngineClient
from app.settings import AppSettings
from app.tools.tool_box import ToolBox
from app.tools.tool_offer import ToolOffer
from app.translation import tr
from engine.thinking_level import LEVELS, Level, nearest_level

if TYPE_CHECKING:
    from engine.service import protocol

Save = Callable[[str, Callable[[], object]], None]  # name of the file, and what writes it in the background


@dataclass(frozen=True)
class Offer:
    """The choices for the open chat, and the values that apply."""

    chosen: Chosen
    presets: tuple[Preset, ...]
    model: str = ""  # name of the loaded model; empty: none
    loaded_mode: str = ""  # what auto stands for
    has_predictors: bool = True
    rates: Mapping[str, ModeRate] = field(default_factory=dict)
    cannot_compare: str = ""  # why not, in a sentence
    is_default: bool = False  # the chat's choices equal the model's default
    has_default: bool = False  # the model has a default of its own
    is_elsewhere: bool = False  # a server answers: modes do not apply
    thinking_levels: tuple[Level, ...] = ()  # that the loaded model has; fewer than two: there is no choice
    thinking: Level | None = None  # of these, in force; None: the model decides
    settings_decide: bool = False  # the settings change the sampling, so Balanced is not the model's own


class AnswerSetup(QObject):
    """Reads and changes the open chat's answer settings. changed: any field of the Offer. usual_answer: a
    GenerationResult in the model's own mode, whose rate counts for the model."""

    changed = Signal()
    usual_answer = Signal(object)
    said = Signal(str, object)  # text, and a callable that undoes the action, or None

    def __init__(
        self,
        chat: ChatController,
        engine: EngineClient,
        memory: ChatMemory,
        policy: AnswerPolicy,
        rates: ModeRates,
        box: ToolBox,
        save: Save,
    ) -> None:
        """Read nothing. box: the tools that can be called. save: writes a small file in the background."""
        super().__init__()
        self.chat, self._engine, self._memory = chat, engine, memory
        self.side_by_side = SideBySide(chat, engine, memory)
        self._policy, self.choices, self.rates = policy, policy.choices, rates
        self._save, self._box = save, box
        box.changed.connect(self.changed)
        self._info: protocol.LoadedModelInfo | None = None
        chat.choices.changed.connect(self.changed)
        engine.loaded.connect(self._model_is_there)
        engine.unloaded.connect(self._model_is_gone)
        engine.answered.connect(self._answered)

    def read(self) -> None:
        """Read three small files."""
        self.choices.read()
        self.rates.read()
        self.changed.emit()

    # --- what is in force

    @property
    def _model(self) -> str:
        return self._policy.known_as(self.chat.choices.in_force, self.chat.model)

    @property
    def model_defaults(self) -> Mapping[str, Any]:
        """The loaded model's recommended sampling; empty without a model."""
        return self._info.sampling if self._info is not None and self.chat.place is None else {}

    @property
    def settings(self) -> AppSettings:
        return self._policy.settings

    @property
    def chosen(self) -> Chosen:
        """The values that apply to the open chat."""
        return self._policy.chosen(self.chat.choices.in_force, self.chat.model)

    @property
    def inherited(self) -> dict[str, Any]:
        """The open chat's sampling without the changes by hand."""
        return {**self.model_defaults, **self.settings.sampling(), **self.chosen.preset.values}

    @property
    def offer(self) -> Offer:
        """The choices for the open chat."""
        place = self.chat.place
        status, info = self._engine.status, self._info if place is None else None
        own, default = self._own, self.choices.default_of(self._model)
        levels = tuple(level for level in LEVELS if info is not None and level in info.thinking)
        usual = next((level for level in levels if info is not None and level == info.thinking_default), None)
        return Offer(
            chosen=self.chosen,
            presets=tuple(self.choices.presets.things),
            model=place.model if place is not None else status.model if info is not None else "",
            loaded_mode=info.mode if info is not None else "",
            has_predictors=info.has_predictors if info is not None else True,
            rates=self.rates.of(info.name, "cuda" if status.gpu else "cpu") if info is not None else {},
            cannot_compare=self.cannot_compare,
            is_elsewhere=place is not None,
            thinking_levels=levels,
            thinking=nearest_level(self.chosen.thinking, levels, usual) or usual,
            is_default=not own or own == default,
            has_default=bool(default),
            settings_decide=bool(self.settings.sampling().keys() - {"max_tokens", "thought_tokens"}),
        )

    @property
    def tool_offer(self) -> ToolOffer:
        """The tools that can be chosen for the open chat, and those that are on. Servers get none."""
        can_call = self.chat.place is None and self._info is not None
        return ToolOffer(self._box.tools(), frozenset(self.chosen.tools), can_call=can_call)

    @property
    def notes(self) -> NotesText:
        """The notes of the open chat's project, as its prompt has them."""
        return self._policy.notes_for(self.chat.choices.folder, self.chat.place)

    @property
    def cost_note(self) -> str:
        """The cost of each mode with the loaded model, in a sentence; empty if nothing was measured."""
        offer = self.offer
        return tr("{model} here: {costs}.", model=offer.model, costs=costs(offer.rates)) if offer.rates else ""

    @property
    def _own(self) -> dict[str, Any]:
        """The open chat's own choices."""
        return checked_choices(self.chat.choices.values)

    # --- choosing

    def settings_changed(self) -> None:
        """Emit `changed`. The chat controller has taken the settings before."""
        self.changed.emit()

    def pick_preset(self, preset_id: str) -> None:
        """Set the open chat's preset and drop the changes by hand."""
        self.chat.choices.set(preset=preset_id, sampling=None)

    def pick_persona(self, persona_id: str) -> None:
        self.chat.choices.set(persona=persona_id)

    def pick_mode(self, mode: str) -> None:
        self.chat.choices.set(mode=mode)

    def pick_thinking(self, level: Level) -> None:
        self.chat.choices.set(thinking=level)

    def pick_tools(self, names: Sequence[str]) -> None:
        """Switch these tools on in the open chat, and all others off."""
        self.chat.choices.set(tools=list(names))

    def pick_documents(self, folders: Sequence[str]) -> None:
        """Search these folders of documents for each question of the open chat."""
        self.chat.choices.set(documents=list(folders))

    def set_sampling(self, values: Mapping[str, Any]) -> None:
        """Set the changes by hand, on top of the preset."""
        preset = self.chosen.preset.id  # keeps a default's preset below the changes
        self.chat.choices.set(preset=preset, sampling=dict(values) or None)

    def keep_default(self, keep: bool) -> None:
        """Make the open chat's choices the model's default for all chats, or remove that default."""
        place = self.chat.place
        name = place.model if place is not None else self._engine.status.model
        before = self.choices.default_of(self._model)
        chosen = self.chosen
        wanted = {"persona": chosen.persona.id if chosen.persona else "", "preset": chosen.preset.id,
                  "sampling": dict(chosen.sampling), "mode": chosen.mode,
                  "thinking": chosen.thinking, "tools": list(chosen.tools),
                  "documents": list(chosen.documents)}  # fmt: skip
        self._set_default(self._model, wanted if keep else None)
        # From now on the chat follows its model's default.
        own = self._own
        self.chat.choices.set(**dict.fromkeys(NAMES))
        undo = _undo(lambda: self._set_default(self._model, before), lambda: self.chat.choices.set(**own))
        self.said.emit(
            tr("Every new chat with {name} starts with these choices", name=name)
            if keep
            else tr("New chats with {name} use the settings again", name=name),
            undo,
        )

    def _set_default(self, model: str, values: Mapping[str, Any] | None) -> None:
        self.choices.set_default(model, values)
        written = self.choices.to_json()
        self._save("save the answer settings", lambda: self.choices.save(written))
        self.changed.emit()

    def save_preset(self, name: str) -> None:
        """Save the open chat's sampling as a preset and use it in the chat."""
        chosen = self.chosen
        values = {**chosen.preset.values, **chosen.sampling}
        try:
            preset = self.choices.presets.put(Preset(new_id(), name, values))
        except PresetStoreError as error:
            self.said.emit(str(error).rstrip("."), "warn")
            return
        self.store_changed(self.choices.presets)
        self.pick_preset(preset.id)
        self.said.emit(tr("Saved as {name}", name=preset.name), None)

    def store_changed(self, store: PresetStore[Any]) -> None:
        """Save personas or presets after a change."""
        written = store.to_json()
        self._save(f"save the {store.kind}", lambda: store.save(written))
        self.changed.emit()

    # --- comparing

    @property
    def cannot_compare(self) -> str:
        """Why modes cannot be compared now; empty if they can."""
        if self.chat.place is not None:
            return tr("This chat uses a server. Only answers from this PC can be compared.")
        if self._info is None:
            return tr("No model is loaded.")
        if self._info.mode == "dense":
            return tr("This model computes every neuron anyway, so there is nothing to compare.")
        return ""

    @property
    def last_question(self) -> Message | None:
        """The last question of the open chat."""
        shown = self.shown
        return next((message for message in reversed(shown) if message.role is Role.USER), None)

    @property
    def messages(self) -> list[Message]:
        """All messages of the open chat, of every branch."""
        chat = self.chat.open_conversation
        return (self._memory.messages(chat) if chat else None) or []

    @property
    def shown(self) -> list[Message]:
        """The messages of the open chat's branch."""
        chat = self.chat.open_conversation
        return (self._memory.branch_of(chat) if chat else None) or []

    # --- the engine's words

    @Slot(object)
    def _model_is_there(self, info: protocol.LoadedModelInfo) -> None:
        self._info = info
        self.changed.emit()

    @Slot()
    def _model_is_gone(self) -> None:
        self._info = None
        self.changed.emit()

    @Slot(object)
    def _answered(self, end: Answered) -> None:
        result = end.result
        assert result is not None, "the engine's own answers have one"
        if self.rates.take(result):
            written = self.rates.to_json()
            self._save("save the rates", lambda: self.rates.save(written))
            self.changed.emit()
        if self._info is None or result.mode == self._info.mode:
            self.usual_answer.emit(result)


def _undo(*acts: Callable[[], object]) -> Callable[[], None]:
    def undo() -> None:
        for act in acts:
            act()

    return undo
