"""Settings and About: every described field has its row, changes are told at once, the card is shown."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, Qt, QUrl
from PySide6.QtGui import QDesktopServices
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from app.settings import AppSettings, Bounds, described
from app.ui.look import theme
from app.ui.settings.about_dialog import AboutDialog, Page
from app.ui.settings.setting_groups import Group, LinkRow
from app.ui.settings.setting_rows import ChoiceRow, NumberRow, SliderRow, TextRow, row_for
from app.ui.settings.settings_dialog import SettingsDialog
from app.ui.widgets import tab_order
from app.ui.widgets.controls import Label
from engine import __version__
from engine.assets import asset_root

pytestmark = pytest.mark.gui


@pytest.fixture(autouse=True)
def plain_theme(qapp: QApplication) -> None:
    theme.apply(qapp, "light", 1.0)


@pytest.fixture
def dialog(qtbot: QtBot) -> SettingsDialog:
    out = SettingsDialog(AppSettings(), automatic={"temperature": 0.3, "top_p": 0.9})
    qtbot.addWidget(out)
    out.show()
    out.activateWindow()
    qtbot.waitUntil(lambda: QApplication.activeWindow() is out)
    return out


def test_every_described_field_that_people_may_change_has_a_row(dialog: SettingsDialog) -> None:
    assert list(dialog.rows) == [setting.name for setting in described() if setting.group]
    assert "window_geometry" not in dialog.rows


def test_the_control_fits_the_kind(dialog: SettingsDialog) -> None:
    kinds = {
        "theme": ChoiceRow,
        "text_px": SliderRow,
        "temperature": SliderRow,
        "seed": NumberRow,
        "system_prompt": TextRow,
    }
    for name, kind in kinds.items():
        assert type(dialog.rows[name]) is kind, name


def test_a_choice_applies_at_once(dialog: SettingsDialog, qtbot: QtBot) -> None:
    row = dialog.rows["theme"]
    with qtbot.waitSignal(dialog.changed) as told:
        QTest.mouseClick(row.segments.buttons["dark"], Qt.MouseButton.LeftButton)
    assert told.args == [AppSettings(theme="dark")]


def test_a_slider_applies_and_a_double_click_goes_back(dialog: SettingsDialog, qtbot: QtBot) -> None:
    row = dialog.rows["temperature"]
    assert isinstance(row, SliderRow)
    assert row.words.text() == "The model's own"
    assert row.slider.value() == 6  # 0.3, what the model's own is
    with qtbot.waitSignal(dialog.changed) as told:
        row.slider.setValue(14)
    assert told.args[0].temperature == 0.7
    assert row.words.text() == "0.70"
    assert row.back.isVisible()
    with qtbot.waitSignal(dialog.changed) as told:
        QTest.mouseDClick(row.slider, Qt.MouseButton.LeftButton, pos=QPoint(5, 16))
    assert told.args[0].temperature is None
    assert not row.back.isVisible()


def test_the_text_size_reads_in_px(dialog: SettingsDialog) -> None:
    row = dialog.rows["text_px"]
    assert isinstance(row, SliderRow)
    row.slider.setValue(row.slider.maximum())
    assert row.words.text() == "24\u202fpx"
    assert dialog.settings.text_px == 24


def test_a_number_applies_while_it_is_typed_and_empty_is_automatic(dialog: SettingsDialog, qtbot: QtBot) -> None:
    row = dialog.rows["seed"]
    assert isinstance(row, NumberRow)
    assert row.field.placeholderText() == "New each time"
    QTest.keyClicks(row.field, "42")
    assert dialog.settings.seed == 42
    row.field.selectAll()
    with qtbot.waitSignal(dialog.changed) as told:
        QTest.keyClick(row.field, Qt.Key.Key_Backspace)
    assert told.args[0].seed is None


@pytest.mark.parametrize(("name", "typed", "word"), [("seed", "-1", "between"), ("threads", "two", "not a number")])
def test_a_wrong_number_is_explained_not_kept(
    dialog: SettingsDialog, qtbot: QtBot, name: str, typed: str, word: str
) -> None:
    row = dialog.rows[name]
    assert isinstance(row, NumberRow)
    with qtbot.assertNotEmitted(dialog.changed):
        QTest.keyClicks(row.field, typed)
    assert word in row.description.text()
    assert row.field.property("state") == "bad"
    row.field.editingFinished.emit()
    assert row.field.text() == ""
    assert row.field.property("state") == ""


def test_text_is_told_when_typing_rests_and_when_the_dialog_closes(dialog: SettingsDialog, qtbot: QtBot) -> None:
    row = dialog.rows["system_prompt"]
    assert isinstance(row, TextRow)
    with qtbot.waitSignal(dialog.changed) as told:
        QTest.keyClicks(row.field, "Be brief.")
    assert told.args[0].system_prompt == "Be brief."
    QTest.keyClicks(row.field, " Please.")
    with qtbot.waitSignal(dialog.changed) as told:
        QTest.keyClick(dialog, Qt.Key.Key_Escape)
    assert told.args[0].system_prompt == "Be brief. Please."
    assert not dialog.isVisible()


def test_the_model_s_own_value_is_shown_and_changes_no_setting(dialog: SettingsDialog, qtbot: QtBot) -> None:
    with qtbot.assertNotEmitted(dialog.changed):
        dialog.show_model({"temperature": 0.5}, {})
    assert dialog.rows["temperature"].slider.value() == 10


def test_stored_settings_are_shown(qtbot: QtBot) -> None:
    dialog = SettingsDialog(AppSettings(text_px=18, seed=7, system_prompt="Hi", mode="dense"))
    qtbot.addWidget(dialog)
    assert dialog.rows["text_px"].words.text() == "18\u202fpx"
    assert dialog.rows["seed"].field.text() == "7"
    assert dialog.rows["system_prompt"].field.toPlainText() == "Hi"
    assert dialog.rows["mode"].segments.value() == "dense"


def test_the_wheel_scrolls_the_page_and_changes_no_value(dialog: SettingsDialog) -> None:
    from PySide6.QtCore import QPointF
    from PySide6.QtGui import QWheelEvent

    slider = dialog.rows["temperature"].slider
    before = slider.value()
    point = QPointF(5, 5)
    event = QWheelEvent(point, slider.mapToGlobal(point), QPoint(0, -120), QPoint(0, -120), Qt.MouseButton.NoButton,
                        Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase, False)  # fmt: skip
    QApplication.sendEvent(slider, event)
    assert slider.value() == before


@pytest.mark.parametrize("zoom", [1.0, 1.6])
def test_rows_are_at_least_58_high_and_cut_no_word(
    dialog: SettingsDialog, qapp: QApplication, qtbot: QtBot, zoom: float
) -> None:
    theme.apply(qapp, "dark", zoom)
    dialog.resize(dialog.minimumSize())
    QApplication.processEvents()
    for row in dialog.rows.values():
        row.description.setText(row.description.text() * 2)

    def cut() -> list[str]:
        labels = [(row, label) for row in dialog.rows.values() for label in row.findChildren(Label)]
        wrapped = [(row, label) for row, label in labels if label.isVisible() and label.wordWrap()]
        return [row.setting.name for row, label in wrapped if label.height() < label.heightForWidth(label.width())]

    qtbot.waitUntil(lambda: not cut())
    assert all(row.height() >= theme.px(58) for row in dialog.rows.values())


def test_tab_follows_what_one_sees_also_through_late_groups(dialog: SettingsDialog) -> None:
    dialog.add_tools()
    dialog.add_row("Answers", late := LinkRow("Personas", ""), late.is_found_by)
    QApplication.processEvents()
    tops: list[int] = []
    dialog.search.setFocus()
    for _ in range(len(tab_order.stops(dialog)) - 1):
        dialog.focusNextChild()
        focus = dialog.focusWidget()
        tops.append(focus.mapTo(dialog._column_host, focus.rect().center()).y())
    assert late in tab_order.stops(dialog)
    assert all(after > before - 30 for before, after in pairwise(tops)), "never upwards, but within a row"


def test_a_theme_is_applied_while_what_is_out_of_view_is_hidden(dialog: SettingsDialog, qapp: QApplication) -> None:
    bar, groups = dialog.area.verticalScrollBar(), [group for group in dialog._groups.values() if group.isVisible()]
    bar.setValue(bar.maximum() // 2)
    at, shown = bar.value(), []
    look = theme.current().changing.connect(lambda: shown.extend(group.isVisible() for group in groups))
    theme.apply(qapp, "dark", 1.0)
    theme.current().changing.disconnect(look)
    assert 0 < sum(shown) < len(groups) == len(shown)
    assert all(group.isVisible() for group in groups)
    assert bar.value() == at


def test_what_only_developers_need_is_folded_at_the_end_and_found_all_the_same(dialog: SettingsDialog) -> None:
    placed = [dialog._column.itemAt(i).widget() for i in range(dialog._column.count())]
    assert [w for w in placed if isinstance(w, Group)][-1].isAncestorOf(dialog.rows["engine_location"])
    advanced = next(g for g in dialog._groups.values() if g.isAncestorOf(dialog.rows["engine_location"]))
    assert not dialog.rows["engine_location"].isVisible()
    assert advanced.fold.isVisible()
    dialog.search.setText("engine runs")
    assert dialog.rows["engine_location"].isVisible()
    dialog.search.clear()
    assert not dialog.rows["engine_location"].isVisible()
    advanced.fold.click()
    assert dialog.rows["engine_location"].isVisible()


def test_what_is_stored_and_where_is_reached_from_the_settings(dialog: SettingsDialog, qtbot: QtBot) -> None:
    dialog.show_folders("/data", "/models")
    for link, act in ((dialog.privacy, "privacy"), (dialog.move_models, "move_models"), (dialog.token, "access_token"),
                      (dialog.erase, "delete_everything")):  # fmt: skip
        with qtbot.waitSignal(dialog.act_wanted) as told:
            link.click()
        assert told.args == [act]
        dialog.show()


def test_the_folders_are_opened_and_their_paths_copied(
    dialog: SettingsDialog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialog.show_folders(str(tmp_path), str(tmp_path / "models"))
    opened: list[str] = []
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: opened.append(url.toLocalFile()) or True)
    for row in (dialog.data_folder, dialog.models_folder):
        row.open.click()
    assert [Path(one) for one in opened] == [tmp_path, tmp_path / "models"]
    assert (tmp_path / "models").is_dir()
    dialog.models_folder.copy.click()
    assert QApplication.clipboard().text() == str(tmp_path / "models")
    assert dialog.models_folder.note.isHidden()
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: False)
    dialog.data_folder.open.click()
    assert not dialog.data_folder.note.isHidden()


def test_every_row_goes_back_to_what_it_was_at_first(dialog: SettingsDialog, qtbot: QtBot) -> None:
    others = {"choice": None, "switch": None, "text": "Be brief.", "whole": None, "number": None}
    for name, row in dialog.rows.items():
        kept = row.setting
        other = others[kept.kind]
        if kept.kind == "choice":
            other = next(value for value, _ in kept.choices if value != kept.default)
        elif kept.kind == "switch":
            other = not kept.default
        elif kept.kind in ("whole", "number"):
            low, high = kept.bounds.low, kept.bounds.high
            other = type(low)(low) if kept.default != low else high
        assert not row.back.isVisible(), name
        dialog.settings = AppSettings(**{name: other})
        row.show_value(other)
        dialog.reveal(name)
        assert row.back.isVisible(), name
        assert row.back.accessibleName().startswith(f"{kept.title}: back to "), name
        assert not row.back.accessibleName().endswith("back to "), name
        with qtbot.waitSignal(dialog.changed) as told:
            row.back.click()
        assert told.args == [AppSettings()], name
        assert not row.back.isVisible(), name


def test_a_setting_is_found_by_any_word_that_it_says(dialog: SettingsDialog, qtbot: QtBot) -> None:
    def found() -> list[str]:
        return [name for name, row in dialog.rows.items() if row.isVisible()]

    everything = found()
    qtbot.keyClick(dialog, Qt.Key.Key_F, Qt.KeyboardModifier.ControlModifier)
    assert dialog.search.hasFocus()
    qtbot.keyClicks(dialog.search, "predict neur")
    assert found() == ["mode"]
    assert not dialog.about.isVisible()
    dialog.search.setText("DARK")  # a word of one of its choices
    assert found() == ["theme"]
    dialog.search.setText("report")
    assert found() == []
    assert dialog.report.isVisible()
    dialog.search.setText("zebra")
    assert dialog.nothing.isVisible()
    assert "zebra" in dialog.nothing.text()
    qtbot.keyClick(dialog.search, Qt.Key.Key_Escape)
    assert dialog.isVisible()
    assert found() == everything
    qtbot.keyClick(dialog.search, Qt.Key.Key_Escape)
    assert not dialog.isVisible()


def test_hairlines_part_the_rows_that_are_left(dialog: SettingsDialog) -> None:
    dialog.search.setText("tokens")
    for group in dialog.findChildren(Group):
        shown = [(rule.isVisible(), row.isVisible()) for rule, row, _ in group._rows]
        lines, rows = sum(line for line, _ in shown), sum(row for _, row in shown)
        assert lines == max(rows - 1, 0)


def test_everything_focusable_in_the_dialogs_has_a_name(dialog: SettingsDialog, qtbot: QtBot) -> None:
    about = AboutDialog()
    qtbot.addWidget(about)
    for widget in (*dialog.findChildren(QWidget), *about.findChildren(QWidget)):
        if widget.focusPolicy() & Qt.FocusPolicy.TabFocus and not widget.objectName().startswith("qt_"):
            said = widget.accessibleName() or (widget.text() if isinstance(widget, QPushButton) else "")
            assert said, widget


def test_a_short_text_is_one_line(qtbot: QtBot) -> None:
    from dataclasses import replace

    prompt = next(setting for setting in described() if setting.name == "system_prompt")
    long, short = row_for(prompt), row_for(replace(prompt, bounds=Bounds(high=80)))
    for row in (long, short):
        qtbot.addWidget(row)
    assert short.field.height() < long.field.height()


def test_the_about_row_opens_about(dialog: SettingsDialog) -> None:
    dialog.about.click()
    about = dialog.findChild(AboutDialog)
    assert about.isVisible()
    about.reject()


# --- about

CARD = "# starter-chat\n\nA small model.\n\n| source | licence |\n| --- | --- |\n| books | public domain |\n"


@pytest.fixture
def about(qtbot: QtBot, tmp_path: Path) -> AboutDialog:
    card = tmp_path / "MODEL_CARD.md"
    card.write_text(CARD + "\n![x](http://example.com/x.png)\n<script>no</script>\n", encoding="utf-8")
    out = AboutDialog(card=card)
    qtbot.addWidget(out)
    out.show()
    return out


def test_about_tells_the_version_and_shows_the_card_with_its_licence_table(about: AboutDialog) -> None:
    words = [label.text() for label in about.findChildren(Label)]
    assert f"Version {__version__}" in words
    assert about.pages["model"].isVisible()
    assert "public domain" in about.pages["model"].toPlainText()
    assert "|" not in about.pages["model"].toPlainText()
    assert "border-bottom" in about.pages["model"].document().defaultStyleSheet()


def test_about_shows_the_licence_text_as_it_is(about: AboutDialog) -> None:
    about.show_page("licence")
    assert about.pages["licence"].isVisible()
    assert "Permission is hereby granted, free of charge" in about.pages["licence"].toPlainText()
    root = Path(__file__).resolve().parents[2]
    shipped = (asset_root() / "licences" / "hearth.txt").read_text(encoding="utf-8")
    assert shipped == (root / "LICENSE").read_text(encoding="utf-8")


def test_about_names_the_parts_with_their_licences(about: AboutDialog) -> None:
    about.segments.buttons["parts"].click()
    words = about.pages["parts"].toPlainText()
    assert "Qt and Qt for Python\n" in words
    assert "LGPL-3.0-only" in words
    assert "Python\n" in words
    assert "[NumPy]" not in words


def test_about_shows_the_licence_of_a_part_and_leads_back(about: AboutDialog) -> None:
    about.segments.buttons["parts"].click()
    about.pages["parts"].anchorClicked.emit(QUrl("part:pyside6-essentials"))
    words = about.pages["text"].toPlainText()
    assert about.pages["text"].isVisible()
    assert "GNU LESSER GENERAL PUBLIC LICENSE" in words
    assert "‹ Built with" in words
    about.pages["text"].anchorClicked.emit(QUrl("part:"))
    assert about.pages["parts"].isVisible()
    assert not about.pages["text"].isVisible()


def test_nothing_in_a_card_is_fetched(about: AboutDialog) -> None:
    page = about.pages["model"]
    assert page.loadResource(2, QUrl("http://example.com/x.png")) is None
    assert "<script>no</script>" in page.toPlainText()  # shown as the text it is


def test_a_missing_card_says_so(qtbot: QtBot, tmp_path: Path) -> None:
    about = AboutDialog(card=tmp_path / "none.md")
    qtbot.addWidget(about)
    assert "cannot be read" in about.pages["model"].toPlainText()


def test_about_takes_up_another_theme(about: AboutDialog, qapp: QApplication) -> None:
    theme.apply(qapp, "dark", 1.0)
    assert theme.DARK.line in about.pages["model"].document().defaultStyleSheet()


def test_esc_closes_about(about: AboutDialog) -> None:
    QTest.keyClick(about, Qt.Key.Key_Escape)
    assert not about.isVisible()


def test_qt_asks_the_page_for_what_a_text_embeds(qtbot: QtBot) -> None:
    asked: list[str] = []

    class Watched(Page):
        def loadResource(self, kind: int, name: QUrl | str) -> None:
            asked.append(name.toString() if isinstance(name, QUrl) else name)

    page = Watched("Card", "![x](http://example.com/x.png)")
    qtbot.addWidget(page)
    page.grab()
    assert asked == ["http://example.com/x.png"] * len(asked)
    assert asked


def test_a_dialog_is_never_larger_than_the_screen(qtbot: QtBot, qapp: QApplication) -> None:
    theme.apply(qapp, "light", 1.6)
    try:
        for dialog in (SettingsDialog(AppSettings()), AboutDialog()):
            qtbot.addWidget(dialog)
            room = dialog.screen().availableSize()
            assert dialog.height() <= max(room.height() * 0.9, dialog.minimumHeight())
    finally:
        theme.apply(qapp, "light", 1.0)


def test_groups_out_of_view_come_back_after_two_changes_of_look_at_once(dialog: SettingsDialog, qtbot: QtBot) -> None:
    bar = dialog.area.verticalScrollBar()
    bar.setValue(bar.maximum() // 2)
    shown, at = [group.isVisible() for group in dialog._groups.values()], bar.value()
    theme.apply(theme.application(), "dark", 1.0, in_turns=True)
    theme.apply(theme.application(), "light", 1.0, in_turns=True)
    qtbot.waitUntil(dialog.updatesEnabled)
    assert [group.isVisible() for group in dialog._groups.values()] == shown
    assert bar.value() == at
