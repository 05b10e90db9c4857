"""The user's settings as typed data: default, bounds, unit and label of each field, and the JSON file that holds them.

Also the only place that knows Hearth's folders. The settings dialog is built from the descriptions here. No Qt.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import reprlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import platformdirs

from app.translation import noted, tr
from engine.files import replace_file
from engine.service import DEFAULT_PORT

SCHEMA_VERSION = 2
MAX_FILE_BYTES = 1 << 20  # a larger file is not ours

Kind = Literal["choice", "number", "whole", "text", "switch"]


_OWN_FOLDERS = ("hearth", "cache", "log", "logs")  # these contain nothing but Hearth's files


@dataclass(frozen=True)
class AppPaths:
    """Hearth's folders for this user, by the platform's convention."""

    data: Path
    config: Path
    cache: Path
    log: Path

    @property
    def chats_file(self) -> Path:
        return self.data / "chats.db"

    @property
    def settings_file(self) -> Path:
        return self.config / "settings.json"

    @property
    def choices_file(self) -> Path:
        return self.config / "models.json"

    @property
    def personas_file(self) -> Path:
        return self.config / "personas.json"

    @property
    def presets_file(self) -> Path:
        return self.config / "presets.json"

    @property
    def prompts_file(self) -> Path:
        return self.config / "prompts.json"

    @property
    def projects_file(self) -> Path:
        return self.config / "projects.json"

    @property
    def projects_folder(self) -> Path:
        """Holds the notes of projects, unless the user chose another place for them."""
        return self.data / "projects"

    @property
    def answers_file(self) -> Path:
        return self.config / "answers.json"

    @property
    def consents_file(self) -> Path:
        return self.config / "consents.json"

    @property
    def servers_file(self) -> Path:
        return self.config / "servers.json"

    @property
    def tool_servers_file(self) -> Path:
        return self.config / "tool-servers.json"

    @property
    def tool_servers_folder(self) -> Path:
        return self.cache / "tool-servers"

    @property
    def documents_file(self) -> Path:
        return self.config / "documents.json"

    @property
    def document_index_file(self) -> Path:
        return self.data / "documents.db"

    @property
    def rates_file(self) -> Path:
        return self.data / "rates.json"

    @property
    def prompts_folder(self) -> Path:
        return self.cache / "prompts"

    @property
    def log_file(self) -> Path:
        return self.log / "hearth.log"


def make_private(places: AppPaths) -> None:
    """Make Hearth's folders readable by this user only, also those of earlier starts. On Windows they already are.

    A folder that the user chose and that holds other files keeps its permissions.
    """
    if os.name == "nt":
        return
    for folder in {places.data, places.config, places.cache, places.log}:
        with contextlib.suppress(OSError):  # the code that writes there reports the error
            shared = folder.is_dir() and folder.name.casefold() not in _OWN_FOLDERS and any(folder.iterdir())
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not shared or (folder / places.chats_file.name).exists():
                folder.chmod(0o700)


def paths() -> AppPaths:
    """Return Hearth's folders. Creates nothing."""
    dirs = platformdirs.PlatformDirs("Hearth", appauthor=False)
    return AppPaths(dirs.user_data_path, dirs.user_config_path, dirs.user_cache_path, dirs.user_log_path)


class SettingsError(Exception):
    """The settings could not be written. The message holds the system's reason. is_full: the disk is full."""

    def __init__(self, message: str, path: Path, is_full: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.is_full = is_full


@dataclass(frozen=True)
class Bounds:
    """Inclusive bounds of a value, the step of its control, and the unit. For text, high is the maximum length."""

    low: float | None = None
    high: float | None = None
    step: float | None = None
    unit: str = ""


@dataclass(frozen=True)
class Setting:
    """One field of AppSettings: its label for users and the check of its value.

    `none` is the label for None ("Automatic"); empty: None is not allowed. `group` is empty for values that the window
    keeps itself and no dialog shows.
    """

    name: str
    kind: Kind
    default: Any
    title: str
    description: str
    group: str
    bounds: Bounds
    choices: tuple[tuple[str, str], ...]  # value, label
    none: str

    def fault(self, value: object) -> str | None:
        """Return why a value is invalid, as one sentence; None if it is valid."""
        if value is None:
            return None if self.none else tr("{name} has no value.", name=self.name)
        low, high = self.bounds.low, self.bounds.high
        shown = reprlib.repr(value)  # shortened, whatever a damaged file holds
        if self.kind == "choice":
            allowed = [choice for choice, _ in self.choices]
            return None if value in allowed else f"{self.name} is {shown}; it must be one of {', '.join(allowed)}."
        if self.kind == "switch":
            return None if isinstance(value, bool) else f"{self.name} is {shown}; it must be true or false."
        if self.kind == "text":
            if not isinstance(value, str):
                return f"{self.name} is {shown}; it must be text."
            if high is not None and len(value) > high:
                return f"{self.name} has {len(value)} characters; at most {high:.0f} are kept."
            return None
        if isinstance(value, bool) or not isinstance(value, int if self.kind == "whole" else (int, float)):
            return f"{self.name} is {shown}; it must be {'a whole number' if self.kind == 'whole' else 'a number'}."
        # Written so that NaN, which JSON files can hold, fails too.
        if low is not None and high is not None and not low <= value <= high:
            return f"{self.name} is {shown}; it must be between {low:.10g} and {high:.10g}."
        return None


def _setting(
    kind: Kind,
    default: Any,
    title: str,
    description: str = "",
    *,
    group: str = "",
    bounds: Bounds = Bounds(),
    choices: tuple[tuple[str, str], ...] = (),
    none: str = "",
) -> Any:
    words = {"kind": kind, "title": title, "description": description, "group": group, "bounds": bounds,
             "choices": choices, "none": none}  # fmt: skip
    return field(default=default, metadata=words)


# The arguments of `_setting` are marked for translation by being there.
_APPEARANCE, _MANNERS = noted("Appearance"), noted("In the background")
_SERVER = noted("For other programs")
_ANSWERS, _ENGINE = noted("Answers"), noted("Engine")
_SAMPLING = noted("How words are chosen, in the preset Balanced")
_ADVANCED = noted("Advanced")  # collapsed, at the end: for people who work on Hearth
_OWN = noted("The model's own")
_AUTOMATIC = noted("Automatic")


@dataclass(frozen=True)
class AppSettings:
    """Everything that a user can set, and what the window remembers. Raises ValueError for a value out of bounds."""

    theme: str = _setting(
        "choice", "system", "Theme", "Light, dark, or like the desktop.", group=_APPEARANCE,
        choices=(("system", "System"), ("light", "Light"), ("dark", "Dark")))  # fmt: skip
    language: str = _setting(
        "choice", "system", "Language", "Takes effect after a restart.", group=_APPEARANCE,
        choices=(("system", "System"), ("en", "English"), ("de", "Deutsch"), ("zh_CN", "简体中文")))  # fmt: skip
    text_px: int = _setting(
        "whole", 15, "Text size", "Ctrl + and Ctrl - work everywhere.",
        group=_APPEARANCE, bounds=Bounds(10, 24, 1, "px"))  # fmt: skip
    contrast: str = _setting(
        "choice", "system", "Contrast", "High makes text and borders stronger.", group=_APPEARANCE,
        choices=(("system", "System"), ("high", "High")))  # fmt: skip
    motion: str = _setting(
        "choice", "system", "Motion", "Reduced animates progress only.", group=_APPEARANCE,
        choices=(("system", "System"), ("reduced", "Reduced")))  # fmt: skip
    system_prompt: str = _setting(
        "text", "", "Instructions",
        "The model reads them before every chat without a persona. Small models may not follow them.",
        group=_ANSWERS, bounds=Bounds(high=20_000))  # fmt: skip
    max_tokens: int | None = _setting(
        "whole", None, "Longest answer", "An answer ends here at the latest.", group=_ANSWERS,
        bounds=Bounds(1, 1 << 20, 64, "tokens"), none="No limit")  # fmt: skip
    thought_tokens: int | None = _setting(
        "whole", None, "Longest thought", "The model stops thinking after this many tokens and answers.",
        group=_ANSWERS, bounds=Bounds(0, 1 << 20, 64, "tokens"), none="No limit")  # fmt: skip
    inspect: bool = _setting(
        "switch", False, "Record tokens", "Keeps the probability, alternatives and cost of each token with new "
        "answers. “Inspect tokens” in an answer's menu shows them.", group=_ANSWERS)  # fmt: skip
    temperature: float | None = _setting(
        "number", None, "Temperature", "0 always takes the likeliest word; higher is more varied.", group=_SAMPLING,
        bounds=Bounds(0.0, 2.0, 0.05), none=_OWN)  # fmt: skip
    top_k: int | None = _setting(
        "whole", None, "Top k", "Only the k likeliest tokens are considered; 0 considers all.", group=_SAMPLING,
        bounds=Bounds(0, 1000, 1), none=_OWN)  # fmt: skip
    top_p: float | None = _setting(
        "number", None, "Top p", "Only the likeliest tokens that together reach this share; 1 considers all.",
        group=_SAMPLING, bounds=Bounds(0.0, 1.0, 0.01), none=_OWN)  # fmt: skip
    min_p: float | None = _setting(
        "number", None, "Min p", "Leaves out tokens below this share of the likeliest one; 0 leaves out none.",
        group=_SAMPLING, bounds=Bounds(0.0, 1.0, 0.01), none=_OWN)  # fmt: skip
    repeat_penalty: float | None = _setting(
        "number", None, "Repeat penalty", "Above 1, words that were just used become less likely.", group=_SAMPLING,
        bounds=Bounds(0.5, 2.0, 0.05), none=_OWN)  # fmt: skip
    seed: int | None = _setting(
        "whole", None, "Seed", "The same seed and the same question give the same answer.", group=_SAMPLING,
        bounds=Bounds(0, 2**31 - 1, 1), none="New each time")  # fmt: skip
    mode: str = _setting(
        "choice", "auto", "Neurons",
        "Sparse computes the neurons that predictors expect to be active, and needs a model with predictors. "
        "Exact skips inactive neurons, with the same result. Dense computes every one.", group=_ENGINE,
        choices=(("auto", "Automatic"), ("sparse", "Sparse"), ("exact", "Exact"), ("dense", "Dense")))  # fmt: skip
    device: str = _setting(
        "choice", "auto", "Runs on",
        "With the GPU, busy neurons run there and the others on the CPU at the same time. Automatic uses the GPU "
        "if it can.", group=_ENGINE,
        choices=(("auto", "Automatic"), ("cpu", "CPU only"), ("cuda", "GPU")))  # fmt: skip
    vram_budget_gib: float | None = _setting(
        "number", None, "GPU memory", "How much of it a model may use. Automatic leaves some for other programs.",
        group=_ENGINE, bounds=Bounds(0.5, 96.0, 0.1, "GB"), none=_AUTOMATIC)  # fmt: skip
    threads: int | None = _setting(
        "whole", None, "Threads", "CPU threads that work on an answer.", group=_ENGINE,
        bounds=Bounds(1, 1024, 1), none=_AUTOMATIC)  # fmt: skip
    context: int | None = _setting(
        "whole", None, "Context", "How much of a chat the model sees. More takes more memory.", group=_ENGINE,
        bounds=Bounds(8, 1 << 24, 256, "tokens"), none=_AUTOMATIC)  # fmt: skip
    kept_chats_gb: float = _setting(
        "number", 8.0, "Keep chats ready", "Hearth saves the work of reading your chats, up to this size. A long "
        "chat then continues at once after a restart. At 0, nothing is saved.", group=_ENGINE,
        bounds=Bounds(0.0, 1000.0, 1.0, "GB"))  # fmt: skip
    notify: bool = _setting(
        "switch", True, "Notifications", "When a long answer ends while Hearth is in the background. They "
                                         "contain no chat text.", group=_MANNERS)  # fmt: skip
    stay_awake: bool = _setting(
        "switch", True, "Keep this PC awake", "While it answers, downloads or prepares a model.",
        group=_MANNERS)  # fmt: skip
    tray: bool = _setting(
        "switch", False, "Stay in the tray", "Closing the window then leaves Hearth in the tray; Ctrl Q ends it.",
        group=_MANNERS)  # fmt: skip
    look_for_updates: bool = _setting(
        "switch", False, "Look for updates", "At a start, Hearth asks the place where it is released for the newest "
        "version. The question holds nothing of yours, and nothing is installed by itself.")  # fmt: skip
    # The dialog shows it if the build names such an address.
    serve: bool = _setting(
        "switch", False, "Local server", "Lets other programs on this PC use the loaded model through OpenAI's "
                                         "API. Nothing outside this PC can reach it, and every program needs the "
                                         "key.", group=_SERVER)  # fmt: skip
    serve_port: int = _setting(
        "whole", DEFAULT_PORT, "Port", "Change it if another program uses this port.", group=_SERVER,
        bounds=Bounds(1024, 65535, 1))  # fmt: skip
    serve_loads: bool = _setting(
        "switch", False, "Load models on request", "A program may name any model on this PC, which is then loaded in "
                                                   "place of the current one, after a running answer.",
        group=_SERVER)  # fmt: skip
    serve_unload_min: int | None = _setting(
        "whole", None, "Unload after", "After this long without messages or requests, the model is unloaded. The "
        "next one loads it again. Needs “Load models on request”.", group=_SERVER, bounds=Bounds(1, 1440, 5, "min"),
        none="Never")  # fmt: skip
    serve_requests: int = _setting(
        "whole", 1, "Requests at once", "Further requests wait. Each one needs memory of its own, so the model is "
        "loaded again if you change this.", group=_SERVER, bounds=Bounds(1, 4, 1))  # fmt: skip
    search_service: str = _setting(
        "choice", "", "Web search",
        choices=(("", "None"), ("searxng", "SearXNG"), ("brave", "Brave")))  # fmt: skip
    search_address: str = _setting("text", "", "Address of SearXNG", bounds=Bounds(high=500))
    # The dialog has a row of its own for these three.
    search_has_key: bool = _setting("switch", False, "Key for Brave Search is kept")
    engine_location: str = _setting(
        "choice", "process", "Engine runs in",
        "In its own process, a failure of the engine does not close the window.",
        group=_ADVANCED, choices=(("process", "Its own process"), ("in-thread", "The window's process")))  # fmt: skip
    model: str = _setting("text", "", "Model", bounds=Bounds(high=4096))  # id, to load at start; empty: the shipped one
    offer_dismissed: bool = _setting("switch", False, "Bigger model not wanted")  # offered at the first launch
    sidebar_open: bool = _setting("switch", True, "Sidebar open")
    # base64 of QWidget.saveGeometry()
    window_geometry: str = _setting("text", "", "Window geometry", bounds=Bounds(high=10_000))
    last_conversation: str = _setting("text", "", "Last chat", bounds=Bounds(high=100))  # its id; empty: none
    # their names, one per line
    closed_folders: str = _setting("text", "", "Closed folders", bounds=Bounds(high=20_000))

    def __post_init__(self) -> None:
        for setting in described():
            value = getattr(self, setting.name)
            if fault := setting.fault(value):
                raise ValueError(fault)
            if setting.kind == "number" and isinstance(value, int):
                object.__setattr__(self, setting.name, float(value))

    def sampling(self) -> dict[str, Any]:
        """Return the fields of engine.config.SamplingConfig that override the model's own."""
        names = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "seed", "max_tokens",
                 "thought_tokens")  # fmt: skip
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def engine(self) -> dict[str, Any]:
        """Return the fields of engine.config.EngineConfig for the next load."""
        return {
            "device": self.device,
            "vram_budget_gib": self.vram_budget_gib,
            "threads": self.threads,
            "context": self.context,
            **({"sequences": self.serve_requests} if self.serve and self.serve_requests > 1 else {}),
        }


_described: tuple[Setting, ...] | None = None


def described() -> tuple[Setting, ...]:
    """Return all fields of AppSettings with labels and bounds, in the dialog's order."""
    global _described
    if _described is None:
        _described = tuple(Setting(f.name, default=f.default, **f.metadata) for f in dataclasses.fields(AppSettings))
    return _described


def worded(setting: Setting) -> Setting:
    """Return the setting with its labels in the user's language."""
    return dataclasses.replace(
        setting,
        title=tr(setting.title),
        description=tr(setting.description),
        group=tr(setting.group),
        bounds=dataclasses.replace(setting.bounds, unit=tr(setting.bounds.unit)),
        none=tr(setting.none),
        choices=tuple((value, tr(words)) for value, words in setting.choices),
    )


def description_of(name: str) -> Setting:
    return next(one for one in described() if one.name == name)


# --- the file


def _zoom_in_pixels(values: dict[str, Any]) -> dict[str, Any]:
    """Convert the text size: it was a factor of 15 px."""
    zoom = values.pop("zoom", None)
    if isinstance(zoom, (int, float)) and not isinstance(zoom, bool) and 0.6 < zoom <= 1.6:
        values["text_px"] = round(15 * zoom)
    return values


# Step n converts the values of schema version n to those of n + 1.
_MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _zoom_in_pixels}


def load_settings(path: Path) -> tuple[AppSettings, str | None]:
    """Return the settings in the file, and what was wrong with it in one or more sentences, or None.

    No file: the defaults. A damaged file is renamed and kept; a newer version's file is not touched; both give the
    defaults. A single bad value gives that field's default only.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return AppSettings(), None
    except OSError as error:
        return AppSettings(), f"{path} could not be read: {error.strerror or error}."
    values = _parsed(data)
    if isinstance(values, str):
        return AppSettings(), f"{path.name} {values} {_kept_aside(path)}"
    version = values.pop("schema_version")
    if version > SCHEMA_VERSION:
        return AppSettings(), f"{path.name} was written by a newer Hearth and stays as it is; changes are not kept."
    for step in range(version, SCHEMA_VERSION):
        values = _MIGRATIONS[step](values)
    good: dict[str, Any] = {}
    faults: list[str] = []
    for setting in described():
        if setting.name not in values:
            continue
        if fault := setting.fault(values[setting.name]):
            faults.append(fault)
        else:
            good[setting.name] = values[setting.name]
    return AppSettings(**good), " ".join(faults) or None


def save_settings(path: Path, settings: AppSettings) -> bool:
    """Write the settings atomically. Values that only another version knows are kept.

    Returns False, and writes nothing, if the file belongs to a newer version. Raises SettingsError.
    """
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        old = _parsed(path.read_bytes()) if path.is_file() else {}
        kept = old if isinstance(old, dict) else {}
        if kept.get("schema_version", 0) > SCHEMA_VERSION:
            return False
        values = {**kept, "schema_version": SCHEMA_VERSION, **dataclasses.asdict(settings)}
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("w", encoding="utf-8") as file:
            json.dump(values, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        replace_file(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        raise SettingsError(f"{path} could not be written: {error.strerror or error}.", path, full) from error
    return True


def _parsed(data: bytes) -> dict[str, Any] | str:
    """Return the values with their schema version, or what is wrong with the file."""
    if len(data) > MAX_FILE_BYTES:
        return f"is larger than {MAX_FILE_BYTES} bytes."
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        return "is damaged: it is not JSON."
    if not isinstance(values, dict):
        return "is damaged: it is not a JSON object."
    version = values.get("schema_version")
    if isinstance(version, bool) or not isinstance(version, int) or version < min(_MIGRATIONS, default=SCHEMA_VERSION):
        return f"is damaged: its schema version is {version!r}."
    return values


def _kept_aside(path: Path) -> str:
    stamp = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S-%f")
    aside = path.with_name(f"{path.stem}-damaged-{stamp}{path.suffix}")
    try:
        path.rename(aside)
    except OSError as error:
        return f"It could not be moved aside: {error.strerror or error}."
    return f"It is kept as {aside.name}."
