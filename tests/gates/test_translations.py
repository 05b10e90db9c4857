"""Every word of the window goes through the hook of app/translation.py, and every language has all of them."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Set
from pathlib import Path

import pytest
from PySide6.QtCore import QTranslator

from app.ui.look.language import words_in
from installer.translations import CONTEXT, FOLDER, FORMS, ROOT, Words, collected, read, written

HOOK = {"tr", "tr_n", "noted"}
# Modules whose words nobody reads in the window, or not in any language but one.
SILENT = {
    "command_line.py", "terminal.py", "self_report.py",  # the command line
    "diagnostics.py", "shareable_log.py", "crash_notes.py", "engine_process.py",  # reports and details for others
    "desktop_bus.py", "desktop_motion.py", "single_instance.py", "thinking.py",  # names of programs, and marks
    "store.py", "store_file.py", "store_rescue.py", "store_search.py", "index_file.py",  # SQL, and details of failures
    "math_rules.py", "math_symbols.py", "math_text.py", "math_typeset.py", "markdown_parser.py",  # marks of texts
    "icons.py", "theme.py", "prose.py", "compositor.py",  # shapes, style sheets
    "chat_titles.py", "personas.py", "model_texts.py", "tool_error.py", "expression.py", "calculate.py",
    "page_fetch.py", "page_text.py", "web_page.py", "web_search.py",
    "built_in.py", "results.py", "document_tool.py", "propose_note.py", "index_words.py",  # what a model is told
    "plans.py",  # names of files and folders
    "third_party.py",  # names of licences and of parts
    "formats.py", "opendocument.py", "package.py", "powerpoint.py", "word.py",  # names in files, and what a model reads
}  # fmt: skip
# What goes to a model with an attachment or in the place of a picture, what a damaged file of settings is said to hold,
# in the details, and names in files and folders of other programs.
SILENT_FUNCTIONS = {
    "attachment_texts.py": {"cut"},
    "conversation.py": {"content_of", "_label"},
    "gathering.py": {"_whole", "_passage"},
    "documents.py": {"search"},
    "settings.py": {"fault", "load_settings", "_parsed", "_kept_aside"},
    "building.py": {"picture", "audio", "video", "file", "other", "_mark"},
    "gpt4all.py": {"_part"},
    "import_dialogs.py": {"known_folders"},
}
PASTED = "Pasted text"  # goes to the model as the name of an attachment
# Calls whose words are for programs, for the log, or for Qt.
DEAF = re.compile(
    r"Error$|(^|\.)(run|_keep|_save|call|Place|DesktopBus|setObjectName|setProperty|property|compile"
    r"|setStyleSheet|setDefaultStyleSheet|normalize|Failed|getenv|value|insert|startswith|endswith|removeprefix"
    r"|removesuffix|replace|setApplicationName|setOrganizationName|setDesktopFileName|setStyle|PlatformDirs|CDLL"
    r"|figure|sub|Literal|set_look|getattr|strftime|write|find_spec|fullmatch|TypeVar)$"
)
NAMES = re.compile(
    r"Hearth|Inter|Embedding|[A-Z]{2,}s?|N[Vv]IDIA|GeForce|PyTorch|Qt.*|Markdown|JSON|Unicode|Safetensors|Ctrl|Esc|Del|Return|Shift|Up"
    r"|ChatGPT|Claude|Studio|Jan|Open WebUI"
    r"|None|PgUp|PgDown|UTF|Linux|Python|WAYLAND_DISPLAY|tok|k?B|Me?i?B|Ge?i?B|HF|TOKEN"
)


@functools.cache
def sources() -> list[tuple[Path, ast.Module]]:
    return [(path, ast.parse(path.read_text(encoding="utf-8"))) for path in sorted((ROOT / "app").rglob("*.py"))]


@functools.cache
def of_the_source() -> dict[Words, list[str]]:
    return collected()


def called(node: ast.Call) -> str:
    """The last two names of what is called: "tr", "log.info"."""
    function = node.func
    if isinstance(function, ast.Attribute):
        owner = function.value.id if isinstance(function.value, ast.Name) else ""
        return f"{owner}.{function.attr}"
    return function.id if isinstance(function, ast.Name) else ""


class Reader(ast.NodeVisitor):
    """Finds words that somebody could read, outside the hook."""

    def __init__(self, silent: Set[str] = frozenset()) -> None:
        """silent: functions that are not looked into."""
        self.found: list[tuple[int, str]] = []
        self._silent = silent

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # which is what it says of itself
            self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = called(node)
        if name in HOOK | {"Command", "_setting"}:
            for word in node.keywords:
                if word.arg not in {"about", "group", "where", "also", "unit", "none", "choices", "title"}:
                    self.visit(word.value)
        elif name.startswith(("log.", "logging.")):
            return
        elif DEAF.search(name):
            for word in (*node.args, *(word.value for word in node.keywords)):
                if not isinstance(word, ast.Constant | ast.JoinedStr):
                    self.visit(word)
        else:
            self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        if node.exc is not None and "AttachmentError" in ast.unparse(node.exc):
            self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        return

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Dict(self, node: ast.Dict) -> None:
        for value in node.values:
            self.visit(value)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name in self._silent:
            return
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(default)
        for line in node.body:
            self.visit(line)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self.visit(node.value)

    def visit_Compare(self, node: ast.Compare) -> None:
        return

    def visit_Assign(self, node: ast.Assign) -> None:
        if ast.unparse(node.targets[0]) != "__all__":
            self.visit(node.value)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if not any("Enum" in ast.unparse(base) for base in node.bases):
            self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        self._look(node, "".join(part.value if isinstance(part, ast.Constant) else "\0" for part in node.values))
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.visit(part.value)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self._look(node, node.value)

    def _look(self, node: ast.expr, text: str) -> None:
        if text.islower() and " " not in text:
            return
        plain = NAMES.sub("", text)
        # Two words, or one that begins as a sentence does: the rest are keys and names.
        if re.search(r"(?<![\w.#<&\\/-])([A-Z][a-z]{2,}|[a-z]{2,} [a-z]{2,})", plain) and not re.search(
            r"^[\w.-]+\.(png|svg|md|json|txt|so\.\d)$|</?[a-z]+[ >]|^ ?(AND|SELECT|WITH) ", text
        ):
            self.found.append((node.lineno, text))


def test_no_words_stand_outside_the_hook() -> None:
    bare = []
    for path, module in sources():
        if path.name in SILENT:
            continue
        reader = Reader(SILENT_FUNCTIONS.get(path.name, frozenset()))
        reader.visit(module)
        bare += [f"{path.relative_to(ROOT)}:{line}: {text!r}" for line, text in reader.found if text != PASTED]
    assert bare == []


def test_a_bare_word_is_found() -> None:
    reader = Reader()
    reader.visit(
        ast.parse('label = Label("Not now")\nLabel(f"{n} chats are here")\nlog.info("Not this one")\ntr("Nor it")')
    )
    assert [text for _, text in reader.found] == ["Not now", "\0 chats are here"]


class AtImport(ast.NodeVisitor):
    """Every call of the hook, and whether it runs while the module is read."""

    def __init__(self) -> None:
        self.calls: list[tuple[ast.Call, bool]] = []
        self._within = 0

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(default)
        self._within += 1
        for part in node.body if isinstance(node.body, list) else [node.body]:
            self.visit(part)
        self._within -= 1

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit_FunctionDef(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_Call(self, node: ast.Call) -> None:
        if called(node) in HOOK:
            self.calls.append((node, not self._within))
        self.generic_visit(node)


def test_nothing_is_looked_up_at_import_and_words_are_written_out() -> None:
    wrong = []
    for path, module in sources():
        finder = AtImport()
        finder.visit(module)
        for node, at_import in finder.calls:
            name, words = called(node), node.args[: 2 if called(node) == "tr_n" else 1]
            where = f"{path.relative_to(ROOT)}:{node.lineno}"
            if name != "noted" and at_import:
                wrong.append(f"{where}: {name} is called at import")
            if any(isinstance(one, ast.JoinedStr | ast.BinOp) for one in words):
                wrong.append(f"{where}: words that are put together cannot be translated")
            if name != "tr" and not all(isinstance(one, ast.Constant) for one in words):
                wrong.append(f"{where}: {name} takes words that are written out")
    assert wrong == []


def names_in(text: str) -> set[str]:
    return set(re.findall(r"{(\w+)}", text))


@pytest.mark.parametrize("language", FORMS)
def test_every_word_has_a_finished_translation_with_the_same_values(language: str) -> None:
    entries, places = read(language), of_the_source()
    assert {words.text for words in places if words not in entries or entries[words].is_unfinished} == set()
    assert {words.text for words in entries if words not in places} == set(), "words that are gone"
    wrong = []
    for words, entry in entries.items():
        assert len(entry.forms) == (FORMS[language] if words.counted else 1)
        for form in entry.forms:
            lacking = names_in(words.text) - names_in(form)
            if (
                not form.strip()
                or names_in(form) - names_in(words.text)
                or lacking - ({"n"} if words.counted else set())
            ) or (words.text[:1] == " ", words.text[-1:] == " ") != (form[:1] == " ", form[-1:] == " "):
                wrong.append((words.text, form))
    assert wrong == []
    assert written(language, entries, places) == (FOLDER / f"hearth_{language}.ts").read_text(encoding="utf-8")


@pytest.mark.parametrize("language", FORMS)
def test_what_the_window_reads_is_made_from_what_translators_write(language: str) -> None:
    translator, data = QTranslator(), words_in(FOLDER / f"hearth_{language}.qm.z")  # the data is not copied
    assert translator.load(data)
    old = []
    for words, entry in read(language).items():
        for form, count in zip(entry.forms, (1, 2), strict=False):
            if translator.translate(CONTEXT, words.text, words.about or None, count if words.counted else -1) != form:
                old.append(words.text)
    assert old == [], "run python -m installer.translations"


def test_words_are_collected_with_what_they_are_about() -> None:
    from installer.translations import words_of

    source = 'tr("Open", about="state")\ntr_n("{n} chat", "{n} chats", 2)\nnoted("Later")\ntr(LATER)\n'
    assert set(words_of(source)) == {Words("Open", "state"), Words("{n} chats", counted=True), Words("Later")}
    with pytest.raises(ValueError, match="literal"):
        list(words_of('tr_n("one", many, 2)'))
