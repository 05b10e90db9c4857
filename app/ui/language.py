"""The person's language: which one it is, and the files of words that app/translation.py looks up from then on.

It has no words of its own. English is the source and needs no file.
"""

from __future__ import annotations

import logging

from PySide6.QtCore import QCoreApplication, QLibraryInfo, QLocale, QTranslator

from app import translation
from engine.assets import asset_root

log = logging.getLogger(__name__)

CONTEXT = "Hearth"  # all words are under this one name in the files
TRANSLATED = ("de", "zh_CN")


def spoken(choice: str) -> str:
    """The language for the setting: "en" or one of TRANSLATED; "system" is the first of the desktop's that there is."""
    if choice != "system":
        return choice
    for name in QLocale.system().uiLanguages():
        language = name.replace("_", "-").split("-")[0]
        if language == "en":
            break
        if found := next((one for one in TRANSLATED if one.split("_")[0] == language), None):
            return found
    return "en"


def speak(choice: str) -> None:
    """Speak the language of the setting from now on, in Qt's own dialogs too. Widgets that are there keep their words.

    A file that cannot be read leaves the window in English, and the log says so.
    """
    language = spoken(choice)
    application = QCoreApplication.instance()
    if language == "en" or application is None:
        translation.install(None)
        return
    locale = QLocale(language)
    QLocale.setDefault(locale)
    ours, qts = QTranslator(application), QTranslator(application)
    if not ours.load(f"hearth_{language}.qm", str(asset_root() / "translations")):
        log.warning("there are no words in %s", language)
        return
    if qts.load(locale, "qtbase", "_", QLibraryInfo.path(QLibraryInfo.LibraryPath.TranslationsPath)):
        application.installTranslator(qts)

    def look_up(text: str, about: str, count: int | None) -> str:
        return ours.translate(CONTEXT, text, about or None, -1 if count is None else count) or ""

    translation.install(look_up, locale.decimalPoint(), locale.groupSeparator())
