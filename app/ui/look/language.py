"""The user's language: chooses it, and loads the translations that app/translation.py looks up.

English is the source and needs no file.
"""

from __future__ import annotations

import logging
import lzma
from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QCoreApplication, QLibraryInfo, QLocale, QTranslator

from app import translation
from engine.assets import asset_root

log = logging.getLogger(__name__)

CONTEXT = "Hearth"  # the context of all texts in the files
TRANSLATED = ("de", "zh_CN")
FILE = "hearth_{language}.qm.z"  # compressed by LZMA: a fifth of the size, and a few ms


def language_for(choice: str, desktop: Sequence[str]) -> str:
    """Return the language for the setting: "en" or one of TRANSLATED.

    "system" gives the first of the desktop's languages that Hearth has. desktop: names such as "de-AT", preferred
    first.
    """
    if choice != "system":
        return choice
    for name in desktop:
        language = name.replace("_", "-").split("-")[0]
        if language == "en":
            break
        if found := next((one for one in TRANSLATED if one.split("_")[0] == language), None):
            return found
    return "en"


def words_in(path: Path) -> bytes:
    """Return the compiled words of a language; b"" if the file cannot be read."""
    try:
        return lzma.decompress(path.read_bytes())
    except (OSError, lzma.LZMAError):
        return b""


_words: dict[str, bytes] = {}  # by language; kept, because Qt does not copy them
_of_qt: list[QTranslator] = []  # installed translators of Qt's own dialogs


def use_language(choice: str) -> None:
    """Switch to the language of the setting, in Qt's own dialogs too. Existing widgets keep their text.

    If a file cannot be read, the window stays English and a warning is logged.
    """
    language = language_for(choice, QLocale.system().uiLanguages())
    application = QCoreApplication.instance()
    translation.install(None)
    while _of_qt and application is not None:
        application.removeTranslator(_of_qt.pop())
    if language == "en" or application is None:
        return
    locale = QLocale(language)
    ours, of_qt = QTranslator(application), QTranslator(application)
    _words[language] = words_in(asset_root() / "translations" / FILE.format(language=language))
    if not ours.load(_words[language]):
        log.warning("there are no words in %s", language)
        return
    QLocale.setDefault(locale)
    if of_qt.load(locale, "qtbase", "_", QLibraryInfo.path(QLibraryInfo.LibraryPath.TranslationsPath)):
        application.installTranslator(of_qt)
        _of_qt.append(of_qt)

    def look_up(text: str, about: str, count: int | None) -> str:
        return ours.translate(CONTEXT, text, about or None, -1 if count is None else count) or ""

    translation.install(look_up, locale.decimalPoint(), locale.groupSeparator())
