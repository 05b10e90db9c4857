"""Error messages for users: what failed, why, and what to do.

Messages for failed jobs of the library are in library_messages.py. Titles and sentences contain no
codes and no internal names; those are in the details. Handles no failures itself.
"""

from __future__ import annotations

import errno
import traceback
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

from app import library_messages
from app.engine_text import is_plain, named_file, plain_figures
from app.errors import ChatFileError, RescueReport, StoreError
from app.later import Later
from app.library_messages import ModelAction
from app.settings import SettingsError
from app.translation import figure, noted, tr, tr_n
from app.units import gigabytes
from engine import __version__, errors

if TYPE_CHECKING:
    from engine.service import protocol
else:
    protocol = Later("engine.service.protocol")

Severity = Literal["bad", "warn", "info"]
During = str  # "load", "answer", "export", "import", or the name of a library job


class Action(StrEnum):
    """Action of a remedy button."""

    RETRY_LOAD = "retry-load"  # load the same model again
    LOAD_STARTER = "load-starter"  # load the bundled starter model
    RESTART_ENGINE = "restart-engine"  # restart the engine's process and load
    SEND_AGAIN = "send-again"  # answer the user's last message again
    NEW_CHAT = "new-chat"
    RETRY_SAVE = "retry-save"  # Operations.retry_now()
    REPAIR_CHATS = "repair-chats"  # Store.repair() in the background
    REOPEN_CHATS = "reopen-chats"  # the same, for chats that are in memory only
    USE_COPY = "use-copy"  # the copy from before an update, in place of a newer version's file
    ANSWER_HERE = "answer-here"  # let this PC answer a chat that was sent to a server
    ENTER_KEY = "enter-key"  # of the chat's server
    USE_CPU = "use-cpu"  # use only the CPU from now on
    USE_ANY = "use-any"  # let the engine choose between GPU and CPU
    OPEN_SETTINGS = "open-settings"
    OPEN_UPDATES = "open-updates"
    OPEN_DATA_FOLDER = "open-data-folder"
    OPEN_MODELS = ModelAction.OPEN_MODELS.value
    REFRESH_MODELS = ModelAction.REFRESH_MODELS.value
    ENTER_TOKEN = ModelAction.ENTER_TOKEN.value


@dataclass(frozen=True)
class UserMessage:
    """A failure as shown to the user. Empty remedy_action: no button. second: (label, action) of another button."""

    title: str
    sentence: str
    remedy: str = ""
    details: str = ""
    severity: Severity = "bad"
    remedy_action: str = ""
    second: tuple[str, str] | None = None


@dataclass(frozen=True)
class _Words:
    """Texts for one class of errors. They may use {model}, {fact} (the error's own message) and {hint} (its advice),
    the latter two with plain figures.

    `instead` replaces the sentence if the message contains an internal name (a tensor, a code).
    """

    sentence: str
    instead: str = ""
    title: str = ""  # empty: chosen by `during`
    during: During = "load"  # if the caller does not say
    remedies: tuple[Action, ...] = ()  # empty: chosen by `during`


_BUTTONS = {
    Action.RETRY_LOAD: noted("Try again"),
    Action.LOAD_STARTER: noted("Load the starter model"),
    Action.RESTART_ENGINE: noted("Restart the engine"),
    Action.SEND_AGAIN: noted("Send again"),
    Action.ANSWER_HERE: noted("Answer with Hearth"),
    Action.ENTER_KEY: noted("Enter a key"),
    Action.NEW_CHAT: noted("Start a new chat"),
    Action.RETRY_SAVE: noted("Try again"),
    Action.REPAIR_CHATS: noted("Repair"),
    Action.REOPEN_CHATS: noted("Try again"),
    Action.USE_COPY: noted("Use the copy from before"),
    Action.USE_CPU: noted("Use the CPU only"),
    Action.USE_ANY: noted("Choose automatically"),
    Action.OPEN_SETTINGS: noted("Open settings"),
    Action.OPEN_UPDATES: noted("Show"),
    Action.OPEN_DATA_FOLDER: noted("Open the folder"),
    **{Action(action): words for action, words in library_messages.BUTTONS.items()},
}
_TITLES: dict[During, str] = {
    "load": noted("Couldn't load {model}"),
    "answer": noted("The answer was not finished"),
    "server": noted("Couldn't ask the server"),
    "serve": noted("The local server is not on"),
    **library_messages.TITLES,
}
_REMEDIES: dict[During, tuple[Action, ...]] = {"load": (Action.RETRY_LOAD,), "answer": (Action.SEND_AGAIN,)}
_OTHER_MODEL = (Action.LOAD_STARTER, Action.RETRY_LOAD)

# By class name, as some classes are in modules that the window's process never loads.
_ENGINE_WORDS: dict[str, _Words] = {
    "EngineError": _Words("{fact}", noted("The engine could not do what was asked."), during="answer"),
    "ModelNotFoundError": _Words("{fact}", remedies=_OTHER_MODEL),
    "ModelFormatError": _Words(
        noted("{file} is damaged or incomplete. Download it again, or use another model."),
        noted("One of the model's files is damaged or incomplete. Download it again, or use another model."),
        remedies=_OTHER_MODEL,
    ),
    "UnsupportedModelError": _Words(noted("The model is of a kind that Hearth does not run."), remedies=_OTHER_MODEL),
    "HeaderTooLargeError": _Words(
        noted("The model's header would take too much memory. Choose another file of it, or another model."),
        remedies=_OTHER_MODEL,
    ),
    "TokenizerMismatchError": _Words(
        noted("The tokenizer beside the model's weights belongs to another model."), remedies=_OTHER_MODEL
    ),
    "ChatTemplateError": _Words(
        noted("The model's chat template, which lays a chat out for it, does not work."),
        during="answer", remedies=(Action.LOAD_STARTER,),
    ),
    "ContextOverflowError": _Words(
        "{fact}", noted("The message is longer than what the model can see at once."),
        title=noted("The message was not answered"), during="answer", remedies=(Action.NEW_CHAT, Action.OPEN_SETTINGS),
    ),
    "HostMemoryError": _Words(
        "{fact} {hint}",
        noted("There is not enough free memory. Close other programs, or give the model a smaller context."),
        title=noted("{model} does not fit right now"), remedies=(Action.RETRY_LOAD, Action.OPEN_SETTINGS),
    ),
    "DiskSpaceError": _Words(
        noted("{fact} Free some space there, or choose a folder on another disk."),
        noted("The disk is full. Free some space there, or choose a folder on another disk."),
        title=noted("The disk is full"), remedies=(Action.OPEN_DATA_FOLDER,),
    ),
    "HubError": _Words("", during="search"),
    "OfflineError": _Words("", during="search"),
    "RepositoryNotFoundError": _Words("", during="look"),
    "GatedModelError": _Words("", during="download"),
    "DownloadDamagedError": _Words("", during="download"),
    "RemoteServerError": _Words(
        "{fact} {hint}", noted("The server did not answer properly. The text so far is kept."),
        during="answer", remedies=(Action.SEND_AGAIN, Action.ANSWER_HERE),
    ),
    "RemoteUnreachableError": _Words(
        noted("{fact} The text so far is kept."),
        noted("The server cannot be reached. The text so far is kept."),
        during="answer", remedies=(Action.SEND_AGAIN, Action.ANSWER_HERE),
    ),
    "RemoteKeyError": _Words(
        "{fact}", noted("The server does not accept the key."), during="answer",
        remedies=(Action.ENTER_KEY, Action.ANSWER_HERE),
    ),
    "UpdateError": _Words("{fact} {hint}", noted("Nothing was installed. The details say why."), during="update_look"),
    "LibraryError": _Words("{fact}", noted("The list of models on this PC cannot be used."), remedies=_OTHER_MODEL),
    "DeviceMemoryError": _Words(
        noted("{fact} Close programs that use the GPU."),
        noted("There is not enough free memory on the GPU. Close programs that use it."),
        title=noted("{model} does not fit right now"), remedies=(Action.RETRY_LOAD, Action.USE_CPU),
    ),
    "DeviceUnavailableError": _Words(
        "{fact}", noted("The GPU cannot be used on this PC."), remedies=(Action.USE_ANY, Action.RETRY_LOAD),
    ),
    "DeviceFailedError": _Words(
        noted("{fact} The text so far is kept, and the model is being loaded again."),
        noted("The GPU stopped working. The text so far is kept, and the model is being loaded again."),
        during="answer", remedies=(Action.SEND_AGAIN, Action.USE_CPU),
    ),
    "KernelUnavailableError": _Words("{fact}", noted("Part of the engine does not run on this PC's CPU.")),
    "ArtifactMismatchError": _Words(
        noted(
            "The prepared data does not belong to this model. In the settings, let its neurons be chosen automatically."
        ),
        remedies=(Action.OPEN_SETTINGS, Action.SEND_AGAIN),
    ),
    "InvalidRequestError": _Words(
        noted("A setting has a value that this model does not allow."), during="answer",
        remedies=(Action.OPEN_SETTINGS, Action.SEND_AGAIN),
    ),
    "ServerError": _Words("{fact}", noted("The local server could not be switched on."), during="answer"),
    "EngineProcessError": _Words(
        noted("The engine stopped in the middle of it. The text so far is kept."), during="answer"
    ),
    "ProtocolError": _Words(
        noted("The window and the engine have different versions. Install Hearth again."),
        title=noted("Couldn't start the engine"), remedies=(Action.RESTART_ENGINE,),
    ),
    "BrokenLogitsError": _Words(
        noted("The model's computation went wrong. If it happens again, its files are damaged."),
        during="answer", remedies=(Action.RETRY_LOAD, Action.LOAD_STARTER),
    ),
}  # fmt: skip

# Errors of a server that is being entered: no remedy, the form below the message is the way to try again.
_SERVER_WORDS = _Words("{fact} {hint}", noted("This does not seem to be such a server. Check the address."))

# The same failures in a library job, which does not affect the chats.
_JOB_WORDS = {
    name: _Words(sentence, instead, remedies=tuple(map(Action, actions)))
    for name, (sentence, instead, actions) in library_messages.SENTENCES.items()
}

_FILE_TITLES = {"export": noted("Couldn't export the chats"), "import": noted("Couldn't import the chats")}

_BUG_SENTENCES: dict[During | None, str] = {
    "load": noted("The model could not be loaded. Your chats are safe."),
    "answer": noted("The answer ends here; the text so far is kept. Your chats are safe."),
    None: noted("Something did not work as it should. Your chats are safe."),
}
_INSTALL_AGAIN = noted("If this continues, install Hearth again.")


def describe(
    error: BaseException | protocol.Failed | RescueReport,
    *,
    during: During | None = None,
    model: str = "",
    is_starter: bool = False,
) -> UserMessage:
    """Return the message for a failure.

    during: what was running, if the caller knows. model: the model's display name. is_starter: it is the bundled
    model, so loading that does not help.
    """
    if isinstance(error, protocol.Failed):
        if error.crash:
            return _bug(during, f"{error.error}: {error.message}\n\n{error.details}".strip())
        return _engine_message(error.as_error(), during, model, is_starter, error.error, error.details)
    if isinstance(error, errors.EngineError):
        return _engine_message(error, during, model, is_starter, type(error).__name__, "")
    if isinstance(error, StoreError):
        return _store_message(error)
    if during in _FILE_TITLES and isinstance(error, ChatFileError | OSError):
        return _file_message(error, during)
    if isinstance(error, SettingsError):
        why = (tr("The disk is full, so they last only until Hearth is closed.") if error.is_full else
               tr("The folder {folder} cannot be written, so they last only until Hearth is closed.",
                  folder=error.path.parent))  # fmt: skip
        return _message(
            tr("Couldn't save your settings"),
            why,
            error.message,
            "warn",
            Action.OPEN_SETTINGS,
        )
    if isinstance(error, RescueReport):
        return _rescue_message(error)
    return _bug(during, "".join(traceback.format_exception(error)).strip())


def describe_settings_problem(problem: str) -> UserMessage:
    """Return the message for a problem that `load_settings` found."""
    return _message(
        tr("Some of your settings could not be read"),
        tr("Hearth uses its defaults in their place."),
        problem,
        "warn",
        Action.OPEN_SETTINGS,
    )


def describe_newer_release(version: str) -> UserMessage:
    title = tr("Hearth {version} is available", version=version)
    return _message(title, tr("This is version {version}.", version=__version__), "", "info", Action.OPEN_UPDATES)


def describe_engine_death(reason: str, restarting: bool, details: str = "") -> UserMessage:
    """Return the message for an engine process that died: restarted, or given up after several deaths."""
    details = f"{reason}\n\n{details}".strip()
    if restarting:
        return _message(
            tr("The engine stopped"),
            tr("It is restarting. Nothing in the chat is lost."),
            details,
            "warn",
            Action.SEND_AGAIN,
        )
    return _message(
        tr("The engine keeps stopping"),
        tr("It stopped several times in a row, so Hearth does not restart it. Nothing in the chat is lost."),
        details,
        "bad",
        Action.RESTART_ENGINE,
        Action.OPEN_SETTINGS,
    )


def describe_library_death(reason: str, details: str = "") -> UserMessage:
    """Return the message for a library process that died so often that it is not restarted."""
    return _message(
        tr("Models cannot be managed right now"),
        tr("The model manager stopped several times in a row. You can keep chatting; nothing is lost."),
        f"{reason}\n\n{details}".strip(),
        "warn",
        Action.REFRESH_MODELS,
    )


def _message(title: str, sentence: str, details: str, severity: Severity, *actions: Action) -> UserMessage:
    if not actions:  # details alone
        return UserMessage(title, sentence, details=details, severity=severity)
    second = (tr(_BUTTONS[actions[1]]), actions[1].value) if len(actions) > 1 else None
    return UserMessage(title, sentence, tr(_BUTTONS[actions[0]]), details, severity, actions[0].value, second)


# --- the engine


def _engine_message(
    error: errors.EngineError, during: During | None, model: str, is_starter: bool, class_name: str, details: str
) -> UserMessage:
    words = _find(_ENGINE_WORDS, type(error), class_name)
    if during in library_messages.TITLES or words.during in library_messages.TITLES:
        words = replace(_find(_JOB_WORDS, type(error), class_name), during=words.during)
    if during == "server":
        words = _SERVER_WORDS
    during = during or words.during
    name = model or tr("the model")
    fact = plain_figures(error.message)
    sentence = words.sentence
    hint = plain_figures(error.hint)
    shown = (fact.replace(name, ""), hint if "{hint}" in sentence else "")
    if "{fact}" in sentence and words.instead and not is_plain(*shown):
        sentence = words.instead
    file = named_file(error.message)
    if "{file}" in sentence and not file:
        sentence = words.instead
    fact = library_messages.in_users_language(fact)
    sentence = (
        tr(sentence).replace("{fact}", fact).replace("{hint}", hint).replace("{model}", name).replace("{file}", file)
    )
    actions = words.remedies or _REMEDIES.get(during, ())
    if is_starter and Action.LOAD_STARTER in actions:
        actions = tuple(action for action in actions if action != Action.LOAD_STARTER) or (Action.RETRY_LOAD,)
        sentence += " " + tr(_INSTALL_AGAIN)
    details = "\n".join(part for part in (f"{class_name}: {error.message}", error.hint, details) if part)
    title = tr(words.title or _TITLES[during]).replace("{model}", name)
    return _message(title[:1].upper() + title[1:], sentence, details, "bad", *actions)


def _find(words: dict[str, _Words], cls: type[errors.EngineError], class_name: str) -> _Words:
    """Return the texts for a class, else for its nearest base class."""
    names = (class_name, *(base.__name__ for base in cls.__mro__))
    return next(words[name] for name in names if name in words)


def _bug(during: During | None, details: str) -> UserMessage:
    sentence = tr(
        library_messages.BUG if during in library_messages.TITLES else _BUG_SENTENCES.get(during, _BUG_SENTENCES[None])
    )
    actions = _REMEDIES.get(during or "", ())
    return _message(tr("Something went wrong in Hearth"), sentence, details, "bad", *actions)


# --- chats on disk


def _store_message(error: StoreError) -> UserMessage:
    details = _store_details(error)
    if error.kind == "damaged":
        return _message(
            tr("Some of your chats could not be read"),
            tr("Their file is damaged. Repairing copies everything readable into a new file and keeps the old one."),
            details,
            "bad",
            Action.REPAIR_CHATS,
            Action.OPEN_DATA_FOLDER,
        )
    if error.kind == "newer":
        return _message(tr("Couldn't open your chats"), _why(error), details, "bad", Action.OPEN_DATA_FOLDER)
    return _message(
        tr("Your chats are not saved right now"),
        f"{_why(error)} {tr('New messages are kept in memory until they can be saved.')}",
        details,
        "bad",
        Action.RETRY_SAVE,
        Action.OPEN_DATA_FOLDER,
    )


def _file_message(error: ChatFileError | OSError, during: During) -> UserMessage:
    if isinstance(error, ChatFileError):
        sentence = f"{error.message} {tr('Nothing was imported.')}"
    elif error.errno in {errno.ENOSPC, errno.EDQUOT}:
        sentence = tr("The disk is full. Free some space there, or choose a folder on another disk.")
    elif during == "export":
        sentence = tr("The file cannot be written there. Choose another folder.")
    else:
        sentence = tr("The file cannot be read. Choose one on this PC that you are allowed to open.")
    return UserMessage(tr(_FILE_TITLES[during]), sentence, details=str(error))


def _rescue_message(report: RescueReport) -> UserMessage:
    error = report.error
    details = _store_details(error)
    if not report.in_memory:
        found = tr("Nothing in it could be read.")
        if report.messages:
            chats = tr_n("{n} chat", "{n} chats", report.conversations, n=figure(report.conversations))
            messages = tr_n("{n} message", "{n} messages", report.messages, n=figure(report.messages))
            found = tr("{chats} with {messages} could be read.", chats=chats, messages=messages)
        if report.kept_aside:
            details += "\n" + tr("The damaged file is kept as {name}.", name=report.kept_aside)
        return _message(
            tr("The file of your chats was damaged"),
            f"{found} {tr('It was kept next to a new one.')}",
            details,
            "warn",
            Action.OPEN_DATA_FOLDER,
        )
    sentence = f"{_why(error)} {tr('What you write now is lost when Hearth is closed.')}"
    if error.kind == "newer":
        acts = (Action.USE_COPY, Action.OPEN_DATA_FOLDER) if report.kept_aside else (Action.OPEN_DATA_FOLDER,)
        return _message(tr("Couldn't open your chats"), sentence, details, "bad", *acts)
    return _message(
        tr("Your chats cannot be saved"), sentence, details, "bad", Action.REOPEN_CHATS, Action.OPEN_DATA_FOLDER
    )


def _why(error: StoreError) -> str:
    match error.kind:
        case "full":
            if error.free_bytes is None:
                return tr("The disk is full.")
            return tr("The disk is full: {size} is free.", size=gigabytes(error.free_bytes))
        case "read-only":
            if error.path is None:
                return tr("The folder of your chats cannot be written.")
            return tr("The folder {folder} cannot be written.", folder=error.path.parent)
        case "locked":
            return tr("Another program is using the file of your chats.")
        case "damaged":
            return tr("The file of your chats is damaged, and no new one can be written beside it.")
        case "missing":
            return tr("Their file is a link to a file that does not exist. Connect that disk, or remove the link.")
        case "newer":
            return tr("They were saved by a newer Hearth and stay untouched. Install the newer version to read them.")


def _store_details(error: StoreError) -> str:
    return f"{error.path}: {error.message}" if error.path else error.message
