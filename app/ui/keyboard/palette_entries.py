"""The entries of the command palette: available commands, chats, models on this PC, settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from app.chat.store.conversation import UNTITLED, Conversation
from app.clients.servers import Place
from app.models.model_rows import ModelRow
from app.settings import AppSettings, Setting, described, worded
from app.shortcuts import keys
from app.text.palette_search import Entry
from app.translation import figure as number
from app.translation import tr
from app.ui.keyboard.commands import Commands
from app.ui.models.model_list import can_answer, figure, section

RECENT = 4  # chats that are listed before the user types


def of_commands(commands: Commands) -> list[Entry]:
    """Return all available commands except the palette's own."""
    return [
        Entry(tr("Commands"), tr(known.words), partial(commands.run, known.act), known.glyph,
              keys(known.act), f"{tr(known.also)} {tr(known.group)}")
        for known in commands.listed() if known.act != "palette"
    ]  # fmt: skip


def of_chats(newest_first: Sequence[Conversation], shown: str, opened: Callable[[str], object]) -> list[Entry]:
    """Return all chats except the shown one; only the newest are listed before the user types."""
    others = [chat for chat in newest_first if chat.id != shown]
    return [
        Entry(tr("Chats"), chat.title or tr(UNTITLED), partial(opened, chat.id),
              "pin" if chat.pinned else "chat", detail=chat.folder, is_first=place < RECENT)
        for place, chat in enumerate(others)
    ]  # fmt: skip


def of_models(rows: Sequence[ModelRow], used: Callable[[str], object]) -> list[Entry]:
    """Return the models that can answer and are not in use."""
    return [
        Entry(tr("Models"), row.name, partial(used, row.id), "chip",
              figure(row), tr("use load switch model"), row.maker, is_first=False)
        for row in rows if can_answer(row) and not row.in_use
    ]  # fmt: skip


def of_places(places: Sequence[Place], used: Callable[[Place], object]) -> list[Entry]:
    return [
        Entry(tr("Models"), place.model, partial(used, place), "away",
              place.server.name, tr("use server switch model"), section(place), is_first=False)
        for place in places
    ]  # fmt: skip


def of_settings(settings: AppSettings, opened: Callable[[str], object]) -> list[Entry]:
    """Return the settings that users can change, with their values."""
    return [
        Entry(tr("Settings"), setting.title, partial(opened, setting.name),
              "settings", _value(setting, getattr(settings, setting.name)), setting.description, setting.group,
              is_first=False)
        for setting in map(worded, described()) if setting.group
    ]  # fmt: skip


def _value(setting: Setting, value: object) -> str:
    """Return a setting's value as text; empty where a value says little."""
    if value is None:
        return setting.none
    if setting.kind == "choice":
        return dict(setting.choices).get(str(value), "")
    if setting.kind == "switch":
        return tr("On") if value else tr("Off")
    if setting.kind == "text":
        return ""
    words = number(value, "g")  # type: ignore[arg-type]
    return f"{words}\u202f{setting.bounds.unit}" if setting.bounds.unit else words


def in_messages(text: str, searched: Callable[[str], object]) -> Entry:
    return Entry(
        tr("Messages"),
        tr("Search all chats for “{text}”", text=text),
        partial(searched, text),
        "search",
        keys("search_chats"),
    )
