"""The window in other languages: which one it speaks, words by number, figures, and English as it is written."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import QLocale
from PySide6.QtWidgets import QApplication
from support.shown_text import numbers_in

from app import translation
from app.chat.answers.presets import Presets
from app.clients.engine_status import EngineStatus, Phase
from app.settings import description_of, worded
from app.translation import figure, noted, tr, tr_n, unfigured
from app.ui.look import language
from app.ui.sidebar.chat_model import FOLDERS
from app.units import gigabytes, rate
from app.user_messages import describe
from engine.errors import DeviceMemoryError, DiskSpaceError


@pytest.fixture
def german(qapp: QApplication) -> Iterator[None]:
    before = QLocale()
    language.use_language("de")
    yield
    language.use_language("en")
    QLocale.setDefault(before)


def test_english_is_what_the_source_says() -> None:
    assert tr("{title} was deleted", title="A {b}") == "A {b} was deleted"
    assert tr("as it is: {}") == "as it is: {}"
    assert [tr_n("{n} chat", "{n} chats", n) for n in (0, 1, 2)] == ["0 chats", "1 chat", "2 chats"]
    assert tr_n("{n} chat", "{n} chats", 12_000, n=figure(12_000)) == "12,000 chats"
    assert (noted("Chats"), figure(39.1, ".1f")) == ("Chats", "39.1")
    assert [unfigured(words) for words in (" 1,024 ", "0.5", "2\u202f048")] == ["1024", "0.5", "2048"]


@pytest.mark.parametrize(
    ("choice", "desktop", "expected"),
    [
        ("de", ["en"], "de"),
        ("en", ["de"], "en"),
        ("system", ["de-AT", "de", "en"], "de"),
        ("system", ["zh-Hans-CN", "en"], "zh_CN"),
        ("system", ["en-GB", "de"], "en"),
        ("system", ["fr-FR", "de-DE"], "de"),
        ("system", ["fr_FR", "C"], "en"),
        ("system", [], "en"),
    ],
)
def test_the_language_is_the_chosen_one_else_the_desktops(choice: str, desktop: list[str], expected: str) -> None:
    assert language.language_for(choice, desktop) == expected


def test_the_setting_offers_what_there_is() -> None:
    setting = description_of("language")
    assert {value for value, _ in setting.choices} == {"system", "en", *language.TRANSLATED}
    assert setting.default == "system"


@pytest.mark.usefixtures("german")
class TestGerman:
    def test_words_are_looked_up_and_bent_by_number(self) -> None:
        assert tr("New chat") == "Neuer Chat"
        assert tr("Load {model}", model="{Pip}") == "{Pip} laden"
        assert [tr_n("{n} message", "{n} messages", n) for n in (1, 2)] == ["1 Nachricht", "2 Nachrichten"]
        assert tr(FOLDERS) == "Ordner"

    def test_what_nobody_has_translated_stays_english(self) -> None:
        assert tr("Never seen {a}", a=1) == "Never seen 1"
        assert [tr_n("{n} thing", "{n} things", n) for n in (1, 2)] == ["1 thing", "2 things"]

    def test_figures_have_the_decimal_mark_of_the_language(self) -> None:
        assert (rate(39.14), gigabytes(9.4e9)) == ("39,1\u202ftok/s", "9,4\u202fGB")
        assert figure(12_345) == "12.345"
        typed = ["1.024", "0,5", "0.5", "1.234,5", "12"]
        assert [float(unfigured(words)) for words in typed] == [1024, 0.5, 0.5, 1234.5, 12]

    def test_the_plain_rooms_speak_it_too(self) -> None:
        assert numbers_in(EngineStatus(Phase.READING, total=512, done=128).word) == ["512", "25%"]
        message = describe(
            DeviceMemoryError("It needs 9 GB and 4 GB is free.", "Free some."), during="load", model="Pip"
        )
        assert message.title.startswith("Pip ")
        assert message.sentence.startswith("It needs 9")  # the engine's own words are shown as they come
        full = describe(DiskSpaceError("It needs 9 GB.", "Free some."), during="load", model="Pip")
        assert " Sie " in full.sentence
        assert message.remedy == "Erneut versuchen"
        assert worded(description_of("theme")).choices[1] == ("light", "Hell")
        assert [preset.name for preset in Presets().things] == ["Präzise", "Ausgewogen", "Kreativ"]

    def test_english_comes_back(self) -> None:
        language.use_language("en")
        assert (tr("New chat"), figure(1.5, ".1f")) == ("New chat", "1.5")


@pytest.mark.expects_log("there are no words in de")
def test_without_its_file_the_window_speaks_english(monkeypatch: pytest.MonkeyPatch, qapp: QApplication) -> None:
    monkeypatch.setattr(language, "FILE", "nothing_{language}.qm.z")
    language.use_language("de")
    assert translation.tr("New chat") == "New chat"
