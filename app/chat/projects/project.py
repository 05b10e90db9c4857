"""The projects: settings of chat folders, which their chats inherit. A small JSON file in the config folder. No Qt.

A folder is a project while it has settings. A chat's own choices come before those of its project. Chats store nothing
of their project, so that moving a chat changes what it inherits, and exported chats hold no settings of a folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from app.chat.projects.notes import NotesFile
from app.chat.store.preset_store import PresetStoreError, keep_aside, read_json, write_json

SCHEMA_VERSION = 1
MOST_PROJECTS, MOST_TOOLS, MOST_DOCUMENTS = 2_000, 200, 100
MAX_INSTRUCTIONS = 20_000  # characters
LONGEST_NAME, LONGEST_PATH = 1_000, 4_000
SERVER, MODEL, INSTRUCTIONS = "server", "model", "instructions"  # keys of a chat's choices


@dataclass(frozen=True)
class Project:
    """The settings of a folder. persona, model: ids; "" leaves them open. server: as in a chat's choices, in place of a
    model on this PC. tools: names of those that are on; None leaves it open. notes: path of a text file; "" has none.
    proposes: whether the model may propose lines for the notes. documents: paths of folders.
    """

    instructions: str = ""
    persona: str = ""
    model: str = ""
    server: Mapping[str, str] | None = None
    tools: tuple[str, ...] | None = None
    notes: str = ""
    proposes: bool = False
    documents: tuple[str, ...] = ()

    @property
    def choices(self) -> dict[str, Any]:
        """The defaults of its chats, as in Conversation.choices."""
        inherited: dict[str, Any] = {}
        if self.persona:
            inherited["persona"] = self.persona
        if self.server is not None:
            inherited[SERVER] = dict(self.server)
        elif self.model:
            inherited[MODEL] = self.model
        if self.tools is not None:
            inherited["tools"] = list(self.tools)
        if self.documents:
            inherited["documents"] = list(self.documents)
        return inherited


class Projects:
    def __init__(self, path: Path | None = None) -> None:
        """Read nothing. path: None keeps them in memory."""
        self._path = path
        self._projects: dict[str, Project] = {}
        self._files: dict[str, NotesFile] = {}  # by path
        self._newer = False  # the file is a newer version's or cannot be read, and is not written

    def read(self) -> None:
        """Read the file. A damaged one is renamed and kept; entries that are not valid are skipped."""
        if self._path is None:
            return
        try:
            values = read_json(self._path)
            version = values.get("schema_version") if isinstance(values, dict) else None
            self._newer = type(version) is int and version > SCHEMA_VERSION
            listed = {} if self._newer else values.get("projects") if isinstance(values, dict) else None
            if not isinstance(listed, dict):
                raise PresetStoreError(f"{self._path.name} lists no projects.")
        except FileNotFoundError:
            return
        except OSError:
            self._newer = True
            return
        except PresetStoreError as error:
            self._newer = not keep_aside(self._path, error)
            return
        known = list(listed.items())[:MOST_PROJECTS]
        self._projects = {
            name: project for name, one in known if 0 < len(name) <= LONGEST_NAME and (project := _checked(one))
        }

    @property
    def folders(self) -> list[str]:
        return list(self._projects)

    def of(self, folder: str) -> Project | None:
        """Return the settings of a folder; None: it has none."""
        return self._projects.get(folder) if folder else None

    def put(self, folder: str, project: Project | None) -> None:
        """Set the settings of a folder; None removes them."""
        if project is not None and folder:
            self._projects[folder] = project
        else:
            self._projects.pop(folder, None)

    def rename(self, folder: str, name: str) -> None:
        """Move the settings of a folder to its new name. A project of that name keeps its own."""
        project = self._projects.pop(folder, None)
        if project is not None:
            self._projects.setdefault(name, project)

    def in_force(self, choices: Mapping[str, Any], folder: str) -> Mapping[str, Any]:
        """Return a chat's own choices on top of those of its project."""
        project = self.of(folder)
        if project is None:
            return choices
        inherited = project.choices
        if choices.get(SERVER):
            inherited.pop(MODEL, None)
        return {**inherited, **choices}

    def notes_of(self, folder: str) -> NotesFile | None:
        """Return the file of notes of a folder; None: it has none."""
        project = self.of(folder)
        return self._files.setdefault(project.notes, NotesFile(project.notes)) if project and project.notes else None

    def to_json(self) -> dict[str, Any]:
        """Return what `save` writes."""
        return {"schema_version": SCHEMA_VERSION, "projects": {name: asdict(p) for name, p in self._projects.items()}}

    def save(self, values: dict[str, Any]) -> None:
        """Write the values of `to_json`. Thread-safe. Raises OSError."""
        if self._path is not None and not self._newer:
            write_json(self._path, values)


def instructions_of(choices: Mapping[str, Any]) -> str:
    """Return the instructions for one chat, from its choices; "" if it has none."""
    given = choices.get(INSTRUCTIONS)
    return given[:MAX_INSTRUCTIONS] if isinstance(given, str) else ""


def _checked(values: Any) -> Project | None:
    """Return the valid settings of an entry; None if it is none."""
    if not isinstance(values, dict):
        return None
    server = values.get("server")
    if isinstance(server, dict):
        server = {key: server[key] for key in ("id", "model") if isinstance(server.get(key), str)}
    tools = values.get("tools")
    return Project(
        _text(values.get("instructions"), MAX_INSTRUCTIONS),
        _text(values.get("persona"), 100),
        _text(values.get("model"), LONGEST_PATH),
        server if isinstance(server, dict) and len(server) == 2 else None,
        _texts(tools, MOST_TOOLS, 100) if isinstance(tools, list) else None,
        _text(values.get("notes"), LONGEST_PATH).replace("\0", ""),
        values.get("proposes") is True,
        _texts(values.get("documents"), MOST_DOCUMENTS, LONGEST_PATH),
    )


def _text(value: Any, most: int) -> str:
    return value if isinstance(value, str) and len(value) <= most else ""


def _texts(values: Any, most: int, longest: int) -> tuple[str, ...]:
    listed = values[:most] if isinstance(values, list) else []
    return tuple(one for one in listed if isinstance(one, str) and 0 < len(one) <= longest)
