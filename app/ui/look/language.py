"""The person's language: which one it is, and the files of words that app/translation.py looks up from then on.

It has no words of its own. English is the source and needs no file.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from PySide6.QtCore import QCoreApplication, QLibraryInfo, QLocale, QTranslator

from app import translation
from engine.assets import asset_root

log = logging.getLogger(__name__)

CONTEXT = "Hearth"  # all words are under this one name in the files
TRANSLATED = ("de", "zh_CN")
FILE = "hearth_{language}.qm"


def spoken(choice: str, desktop: Sequence[str]) -> str:
    """The language for the setting: "en" or one of TRANSLATED. "system" is the first that there is of those that the
    desktop names, the most wanted first: "de-AT", "en"."""
    if choice != "system":
        return choice
    for name in desktop:
        language = name.replace("_", "-").split("-")[0]
        if language == "en":
            break
        if found := next((one for one in TRANSLATED if one.split("_")[0] == language), None):
            return found
    return "en"


_of_qt: list[QTranslator] = []  # the words of Qt's own dialogs that are in force


def speak(choice: str) -> None:
    """Speak the language of the setting from now on, in Qt's own dialogs too. Widgets that are there keep their words.

    A file that cannot be read leaves the window in English, and the log says so.
    """
    language = spoken(choice, QLocale.system().uiLanguages())
    application = QCoreApplication.instance()
    translation.install(None)
    while _of_qt and application is not None:
        application.removeTranslator(_of_qt.pop())
    if language == "en" or application is None:
        return
    locale = QLocale(language)
    ours, of_qt = QTranslator(application), QTranslator(application)
    if not ours.load(FILE.format(language=language), str(asset_root() / "translations")):
        log.warning("there are no words in %s", language)
        return
    QLocale.setDefault(locale)
    if of_qt.load(locale, "qtbase", "_", QLibraryInfo.path(QLibraryInfo.LibraryPath.TranslationsPath)):
        application.installTranslator(of_qt)
        _of_qt.append(of_qt)

    def look_up(text: str, about: str, count: int | None) -> str:
        return ours.translate(CONTEXT, text, about or None, -1 if count is None else count) or ""

    translation.install(look_up, locale.decimalPoint(), locale.groupSeparator())
