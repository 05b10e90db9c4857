"""Table of all commands of the window: label, keys, icon. Read by tooltips, the command palette and the list of
shortcuts.

It binds no keys. Keys are in Qt's notation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from app.translation import noted, tr


@dataclass(frozen=True)
class Command:
    """Something that a user can have done.

    keys: the first one is shown. where: the part of the window that handles the keys itself; empty: they work in the
    whole window. also: more search terms for the palette.
    """

    act: str
    words: str
    group: str
    keys: tuple[str, ...] = ()
    glyph: str = "right"
    where: str = ""
    also: str = ""


_CHATS, _ANSWER, _WRITING = noted("Chats"), noted("Answers"), noted("Writing")
_PAGES, _VIEW, _MODELS = noted("Pages"), noted("Window"), noted("Models")

COMMANDS: tuple[Command, ...] = (
    Command("new_chat", "New chat", _CHATS, ("Ctrl+N",), "plus", also="begin start conversation"),
    Command("palette", "Find anything", _CHATS, ("Ctrl+K",), "search", also="command palette"),
    Command("find", "Find in this chat", _CHATS, ("Ctrl+F",), "search", also="search text messages words"),
    Command("find_next", "Next match", _CHATS, ("F3",), "down", also="find again search"),
    Command("find_previous", "Previous match", _CHATS, ("Shift+F3",), "up", also="find search"),
    Command("search_chats", "Search all chats", _CHATS, ("Ctrl+Shift+F",), "search", also="find text messages"),
    Command("previous_chat", "Chat above", _CHATS, ("Ctrl+PgUp",), "up", also="previous"),
    Command("next_chat", "Chat below", _CHATS, ("Ctrl+PgDown",), "down", also="next"),
    Command("rename_chat", "Rename this chat", _CHATS, (), "pen", also="title"),
    Command("pin_chat", "Pin or unpin this chat", _CHATS, ("Ctrl+Shift+P",), "pin", also="keep on top"),
    Command("move_chat", "Move this chat to a folder", _CHATS, (), "folder", also="file sort"),
    Command("print_chat", "Print this chat", _CHATS, (), "put", also="paper printer preview page"),
    Command("export_pdf", "Export this chat as PDF", _CHATS, (), "put", also="save file print"),
    Command("export_web", "Export this chat as a web page", _CHATS, (), "put", also="save file html browser"),
    Command("export_markdown", "Export this chat as Markdown", _CHATS, ("Ctrl+Shift+E",), "put", also="save file"),
    Command("export_json", "Export this chat as JSON", _CHATS, (), "put", also="save file backup"),
    Command("export_all", "Export all chats as JSON", _CHATS, (), "put", also="save file backup"),
    Command("export_all_markdown", "Export all chats as Markdown", _CHATS, (), "put", also="save folder files"),
    Command(
        "import_chats",
        "Import chats",
        _CHATS,
        (),
        "get",
        also="open file json zip restore chatgpt claude lm studio jan open webui gpt4all",
    ),
    Command("delete_chat", "Delete this chat", _CHATS, (), "trash", also="remove"),
    Command("bin", "Bin of deleted chats", _CHATS, (), "trash", also="restore undelete trash recycle empty"),
    Command("new_project", "New project…", _CHATS, (), "folder-new", also="folder create"),
    Command("project_settings", "Project settings…", _CHATS, (), "settings", also="folder instructions notes tools"),
    Command(
        "new_chat_here",
        "New chat in this project",
        _CHATS,
        ("Ctrl+Shift+N",),
        "plus",
        also="folder begin start conversation",
    ),
    Command("rename_in_list", "Rename the chat or folder", _CHATS, ("F2",), "pen", where="in the list of chats"),
    Command("delete_in_list", "Delete the chat", _CHATS, ("Del",), "trash", where="in the list of chats"),
    Command("send", "Send", _WRITING, ("Return",), "send", where="in the message"),
    Command("new_line", "New line", _WRITING, ("Shift+Return",), "down", where="in the message"),
    Command("edit_last", "Edit the last message", _WRITING, ("Up",), "up", where="in an empty message"),
    Command(
        "show_folded", "Show more of a folded text", _WRITING, ("Alt+Down",), "down", where="in a very long message"
    ),
    Command("attach", "Attach files", _WRITING, ("Ctrl+Shift+A",), "file", also="pdf document text open"),
    Command("stop", "Stop the answer", _ANSWER, ("Esc",), "stop", where="while it is written"),
    Command("copy_selection", "Copy the selected text", _ANSWER, ("Ctrl+C",), "copy", where="in the messages"),
    Command(
        "select_message", "Select the message, then the chat", _ANSWER, ("Ctrl+A",), "lines", where="in the messages"
    ),
    Command("copy_answer", "Copy the last answer", _ANSWER, ("Ctrl+Shift+C",), "copy", also="clipboard"),
    Command("copy_chat", "Copy this chat as Markdown", _ANSWER, (), "copy", also="clipboard"),
    Command("presets", "Preset, persona, neurons", _ANSWER, ("Ctrl+P",), "tune", also="sampling mode sparse exact"),
    Command("personas", "System prompt and persona", _ANSWER, ("Ctrl+Shift+I",), "chat", also="instructions role"),
    Command(
        "chat_instructions", "Instructions for this chat…", _ANSWER, (), "chat", also="system prompt without persona"
    ),
    Command("thinking", "Thinking level", _ANSWER, (), "thinking", also="reasoning effort off"),
    Command("sampling", "Adjust sampling", _ANSWER, (), "settings", also="temperature top p seed stop"),
    Command("compare", "Compare with dense", _ANSWER, ("Ctrl+Shift+D",), "table", also="speed neurons sparse exact"),
    Command("compare_models", "Compare models", _ANSWER, (), "table", also="regenerate switch compare"),
    Command("blind_votes", "Blind votes", _ANSWER, (), "table", also="regenerate switch compare"),
    Command("side_by_side", "Versions side by side", _ANSWER, (), "table", also="regenerate switch compare"),
    Command("edit_personas", "Edit personas", _ANSWER, (), "pen", also="add new instructions import export"),
    Command("prompts", "Insert a saved prompt", _WRITING, (), "lines", also="slash template snippet library variables"),
    Command("edit_prompts", "Edit prompts", _WRITING, (), "pen", also="slash add new template import export"),
    Command("edit_presets", "Edit presets", _ANSWER, (), "pen", also="add new sampling temperature import export"),
    Command(
        "add_tool_server", "Add an MCP server", _ANSWER, (), "tool", also="tools program call model context protocol"
    ),
    Command("documents", "Documents", _ANSWER, (), "documents", also="my folders files pdf search sources knowledge"),
    Command("answer_again", "Answer again", _ANSWER, (), "redo", also="regenerate retry last"),
    Command(
        "answer_other_model", "Answer again with another model", _ANSWER, (), "chip", also="regenerate switch compare"
    ),
    Command("continue_answer", "Continue the answer", _ANSWER, (), "go-on", also="go on write more"),
    Command("inspect_answer", "Inspect tokens", _ANSWER, (), "eye", also="probability alternatives prompt ids neurons"),
    Command("record_tokens", "Record tokens in this chat, or stop", _ANSWER, (), "eye"),
    Command("export_tokens", "Export the tokens of the last answer", _ANSWER, (), "put", also="save file"),
    Command("model_menu", "Choose a model", _PAGES, ("Ctrl+L",), "chip", also="switch load"),
    Command("models", "Models", _PAGES, ("Ctrl+M",), "models", also="download catalogue"),
    Command("add_model_file", "Add a model file", _MODELS, (), "plus", also="gguf import open own"),
    Command("add_model_folder", "Add a model folder", _MODELS, (), "folder", also="import open own safetensors bundle"),
    Command("add_server", "Add a server", _MODELS, (), "server", also="openai api remote ollama lm studio llama.cpp"),
    Command("placement", "How it runs here", _MODELS, (), "tune", also="model gpu memory placement layers"),
    Command("unload", "Unload the model", _MODELS, (), "eject", also="free memory stop"),
    Command("load_last", "Load the last model", _MODELS, (), "chip", also="bring back"),
    Command("stop_loading", "Stop loading the model", _MODELS, (), "close", also="cancel load"),
    Command("access_token", "Access token", _MODELS, (), "lock", also="hub hugging face login key add"),
    Command("move_models", "Move the models folder", _MODELS, (), "folder", also="disk storage path where"),
    Command("refresh_models", "Refresh the models", _MODELS, (), "redo", also="look again reload list"),
    Command("live", "Live", _PAGES, ("Ctrl+Shift+L",), "live", also="graphs gpu neurons monitor"),
    Command("settings", "Settings", _PAGES, ("Ctrl+,",), "settings", also="preferences options"),
    Command("local_server", "Local server", _PAGES, (), "server", also="api openai other programs port key"),
    Command("context", "Context", _PAGES, (), "info", also="full drop oldest window tokens"),
    Command("data_folder", "Open the folder of your chats", _PAGES, (), "folder", also="where stored data backup"),
    Command("report", "Save a report", _PAGES, (), "put", also="help bug problem"),
    Command("self_test", "Test this PC", _PAGES, (), "check", also="help self report diagnostics benchmark"),
    Command("log", "Show the log", _PAGES, (), "file", also="help bug problem folder"),
    Command("privacy", "Privacy", _PAGES, (), "lock", also="what leaves this pc network stored"),
    Command(
        "delete_everything", "Delete everything…", _PAGES, (), "trash", also="erase reset remove stored data privacy"
    ),
    Command("updates", "Updates", _PAGES, (), "get", also="newer version install upgrade back"),
    Command("shortcuts", "Keyboard shortcuts", _PAGES, ("F1",), "info", also="help keys"),
    Command("about", "About Hearth", _PAGES, (), "info", also="version licence"),
    Command("sidebar", "Open or close the sidebar", _VIEW, ("Ctrl+B",), "panel"),
    Command("zoom_in", "Larger", _VIEW, ("Ctrl++", "Ctrl+="), "plus", also="zoom in text size"),
    Command("zoom_out", "Smaller", _VIEW, ("Ctrl+-",), "down", also="zoom out text size"),
    Command("zoom_reset", "Usual size", _VIEW, ("Ctrl+0",), "redo", also="zoom reset text size"),
    Command("theme_light", "Light theme", _VIEW, (), "settings", also="appearance colours bright"),
    Command("theme_dark", "Dark theme", _VIEW, (), "settings", also="appearance colours night"),
    Command("theme_system", "Theme of the desktop", _VIEW, (), "settings", also="appearance colours system"),
    Command("quit", "Quit Hearth", _VIEW, ("Ctrl+Q",), "close", also="exit close"),
)


@cache
def _by_act() -> dict[str, Command]:
    return {command.act: command for command in COMMANDS}


def command(act: str) -> Command:
    """Return a command by name. Raises KeyError."""
    return _by_act()[act]


_CAPS = {
    "Return": noted("Enter"),
    "PgUp": noted("Page up"),
    "PgDown": noted("Page down"),
    "Up": noted("Arrow up"),
    "Down": noted("Arrow down"),
    "Alt": noted("Alt"),
    "Ctrl": noted("Ctrl"),
    "Shift": noted("Shift"),
    "Del": noted("Del"),
}


def shown(keys: str) -> str:
    """Return keys as printed on keyboards of the user's language: "Ctrl+N"."""
    return "+".join(caps(keys))


def caps(keys: str) -> list[str]:
    """Split a shortcut into its keys: "Ctrl++" is Ctrl and the plus sign."""
    parts = [*keys.removesuffix("++").split("+"), "+"] if keys.endswith("++") else keys.split("+")
    return [tr(_CAPS.get(part, part)) for part in parts]


def keys(act: str) -> str:
    """Return the command's first shortcut, "Ctrl+N"; empty if it has none."""
    return shown(next(iter(command(act).keys), ""))


def tooltip(act: str, words: str = "") -> str:
    """Return a tooltip: the text, by default the command's label, and its keys."""
    words = words or tr(command(act).words)
    return f"{words}  ({keys(act)})" if keys(act) else words
