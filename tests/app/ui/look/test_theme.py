"""The token table keeps its promises: contrast, a restyle without a restart, fonts that exist, one icon file."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, Qt
from PySide6.QtGui import QColor, QFontDatabase, QFontInfo, QFontMetricsF, QIcon, QPaintEvent, QPalette
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from app.ui.look import icons, theme
from app.ui.widgets.controls import Button, Label
from engine.assets import asset_root

pytestmark = pytest.mark.gui

BOTH = pytest.mark.parametrize("tokens", [theme.LIGHT, theme.DARK], ids=["light", "dark"])
GROUNDS = ("page", "side", "card", "sunken", "bubble")


@BOTH
@pytest.mark.parametrize("token", ["ink", "ink2", "ink3", "hot", "cold", "ok", "warn", "bad"])
def test_text_reaches_4_5_on_every_ground(tokens: theme.Tokens, token: str) -> None:
    grounds = [getattr(tokens, ground) for ground in GROUNDS]
    assert min(theme.contrast(getattr(tokens, token), ground) for ground in grounds) >= 4.5


@BOTH
@pytest.mark.parametrize("token", ["control", "hot_fill", "cold_fill"])
def test_lines_that_carry_meaning_reach_3(tokens: theme.Tokens, token: str) -> None:
    grounds = [getattr(tokens, ground) for ground in GROUNDS]
    assert min(theme.contrast(getattr(tokens, token), ground) for ground in grounds) >= 3.0


@BOTH
@pytest.mark.parametrize("tone", ["hot", "cold", "ok", "warn", "bad"])
def test_chips_are_readable_on_their_soft_ground(tokens: theme.Tokens, tone: str) -> None:
    assert theme.contrast(getattr(tokens, tone), getattr(tokens, f"{tone}_soft")) >= 4.5


@BOTH
def test_primary_button_selection_and_code_are_readable(tokens: theme.Tokens) -> None:
    for share in (0.0, 0.12, 0.22):  # at rest, hovered, pressed
        assert theme.contrast(tokens.on_ink, theme.mix(tokens.ink, tokens.page, share)) >= 4.5
    for name in ("ink", "ink2", "cold"):
        assert theme.contrast(getattr(tokens, name), tokens.selection) >= 4.5
    for name in ("code_keyword", "code_string", "code_function", "code_number", "ink3"):
        assert theme.contrast(getattr(tokens, name), tokens.sunken) >= 4.5


@BOTH
@pytest.mark.parametrize("overlay", ["hover", "selected", "pressed"])
def test_words_in_a_marked_row_stay_readable(tokens: theme.Tokens, overlay: str) -> None:
    for ground in ("page", "side", "card"):
        marked = theme.mix(getattr(tokens, ground), tokens.wash, getattr(tokens, overlay))
        assert theme.contrast(tokens.ink, marked) >= 4.5
        assert theme.contrast(tokens.ink2, marked) >= 4.5


def test_contrast_is_wcags() -> None:
    assert theme.contrast("#000000", "#FFFFFF") == pytest.approx(21.0)
    assert theme.contrast("#777777", "#FFFFFF") == pytest.approx(4.48, abs=0.01)


def test_high_contrast_strengthens_borders_and_washes() -> None:
    strong = theme.with_more_contrast(theme.LIGHT)
    assert (strong.line, strong.edge) == (theme.LIGHT.edge, theme.LIGHT.control)
    assert strong.hover == 2 * theme.LIGHT.hover


def test_a_theme_switch_restyles_what_is_open(qtbot: QtBot, qapp: QApplication) -> None:
    theme.apply(qapp, "light", 1.0)
    button, label = Button("Load"), Label("Ready", "meta")
    for widget in (button, label):
        qtbot.addWidget(widget)
        widget.show()
    before = button.grab().toImage()
    with qtbot.waitSignal(theme.current().changed):
        theme.apply(qapp, "dark", 1.0)
    assert button.grab().toImage() != before
    assert label.palette().color(QPalette.ColorRole.WindowText) == QColor(theme.DARK.ink3)
    assert qapp.palette().color(QPalette.ColorRole.Window) == QColor(theme.DARK.page)
    assert theme.DARK.card in qapp.styleSheet()
    assert theme.LIGHT.card not in qapp.styleSheet()


def test_a_switch_sets_palette_and_sheet_once_each(
    qtbot: QtBot, qapp: QApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    theme.apply(qapp, "light", 1.0)
    sheets: list[str] = []
    monkeypatch.setattr(QApplication, "setStyleSheet", lambda _self, sheet: sheets.append(sheet))
    theme.apply(qapp, "dark", 1.0)
    assert len([sheet for sheet in sheets if sheet]) == 1


def test_system_follows_the_desktop(qtbot: QtBot, qapp: QApplication, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(theme, "desktop_is_dark", lambda: False)
    theme.apply(qapp, "system", 1.0)
    assert not theme.current().is_dark
    monkeypatch.setattr(theme, "desktop_is_dark", lambda: True)
    qapp.styleHints().colorSchemeChanged.emit(Qt.ColorScheme.Dark)
    assert theme.current().is_dark
    theme.apply(qapp, "light", 1.0)
    qapp.styleHints().colorSchemeChanged.emit(Qt.ColorScheme.Dark)
    assert not theme.current().is_dark


def test_zoom_scales_fonts_and_measures_within_bounds(qtbot: QtBot, qapp: QApplication) -> None:
    theme.apply(qapp, "light", 1.0)
    assert (theme.font("body").pixelSize(), theme.px(32)) == (15, 32)
    theme.apply(qapp, "light", 1.6)
    assert (theme.font("body").pixelSize(), theme.px(32)) == (24, 51)
    theme.apply(qapp, "light", 9.0)
    assert theme.current().zoom == theme.MAX_ZOOM


def test_nothing_is_below_11_px_at_zoom_1() -> None:
    assert min(role.px for role in theme.ROLES.values()) >= 11


def test_inter_ships_with_hearth_in_three_weights_and_italic(qtbot: QtBot, qapp: QApplication) -> None:
    theme.apply(qapp, "light", 1.0)
    assert QFontInfo(theme.font("body")).family() == "Inter"
    roles = {role: QFontInfo(theme.font(role)).weight() for role in ("body", "label", "heading")}
    assert roles == {"body": 400, "label": 500, "heading": 600}
    widths = []
    for font in map(theme.font, roles):
        font.setPixelSize(200)  # widths are whole pixels under Wine
        widths.append(QFontMetricsF(font).horizontalAdvance("Wide"))
    assert widths == sorted(set(widths)), "each weight has its own file"
    theme.load_fonts("italic")
    italic = theme.font("body")
    italic.setItalic(True)
    assert QFontInfo(italic).styleName() == "Italic", "not slanted by Qt"


def test_titles_stand_out_in_a_family_without_a_medium_weight(qtbot: QtBot, qapp: QApplication,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.setattr(theme, "families", lambda mono: ("DejaVu Sans",))
    monkeypatch.setattr(theme.QFontDatabase, "styles", lambda family: ["Book", "Bold"])
    monkeypatch.setattr(theme.QFontDatabase, "weight", lambda family, style: {"Book": 400, "Bold": 700}[style])
    theme._font.cache_clear()
    try:
        assert theme.font("label").weight() > theme.font("small").weight()
        assert theme.font("label").weight() == 600
        assert theme.font("button").weight() == 500
    finally:
        theme._font.cache_clear()


@pytest.mark.parametrize("zoom", [0.8, 1.0, 1.25, 1.6])
def test_no_role_cuts_a_descender_in_the_usual_fonts(qtbot: QtBot, qapp: QApplication, zoom: float) -> None:
    theme.apply(qapp, "light", zoom)
    installed = set(QFontDatabase.families())
    for family in {"Inter", "DejaVu Sans", "Noto Sans", "Liberation Sans"} & installed:
        for name in theme.ROLES:
            font = theme.font(name)
            font.setFamilies([family])
            ink = QFontMetricsF(font).tightBoundingRect("Agjpqy").height()
            assert ink <= theme.line_height(name), (family, name)


def test_a_missing_inter_gives_the_desktops_own_font(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(theme.QFontDatabase, "families", lambda: ["DejaVu Sans", "Noto Sans CJK JP"])
    theme.families.cache_clear()
    try:
        first, *rest = theme.families(False)
        assert first not in {"Inter", "Noto Sans CJK JP"}
        assert rest == ["Noto Sans CJK JP"]
    finally:
        theme.families.cache_clear()


def test_no_rule_of_the_sheet_catches_every_widget() -> None:
    heads = [rule.split("{")[0] for rule in theme.qss().split("}") if "{" in rule]
    assert not [head for head in heads if "QWidget" in head.split("[")[0]]
    frames = [head for head in heads if head.strip().startswith(("QFrame", "QLineEdit", "QListView"))]
    assert all("[" in head for head in frames)


def test_every_icon_draws_something_in_the_colour_it_is_asked_for(qtbot: QtBot, qapp: QApplication) -> None:
    theme.apply(qapp, "light", 1.0)
    for name in icons.PATHS:
        image = icons.icon(name, "bad", 96).pixmap(96, 96).toImage()
        pixels = [image.pixelColor(x, y) for x in range(0, 96, 2) for y in range(0, 96, 2)]
        colours = {pixel.name() for pixel in pixels if pixel.alpha() > 250}
        assert theme.LIGHT.bad.lower() in colours, name


def test_disabled_icons_are_drawn_in_their_own_colour(qtbot: QtBot, qapp: QApplication) -> None:
    theme.apply(qapp, "light", 1.0)
    icon = icons.icon("stop", "ink")
    normal, off = (icon.pixmap(17, mode).toImage() for mode in (QIcon.Mode.Normal, QIcon.Mode.Disabled))
    assert normal.pixelColor(8, 8) != off.pixelColor(8, 8)


def test_the_mark_is_the_file_that_ships(qtbot: QtBot) -> None:
    assert (asset_root() / "icons" / "hearth.svg").read_text(encoding="utf-8").startswith("<svg")
    assert not icons.app_icon().pixmap(64, 64).isNull()


def test_set_property_has_the_rule_looked_up_again(qtbot: QtBot) -> None:
    class Counting(Label):
        restyled = 0

        def changeEvent(self, event: QEvent) -> None:
            self.restyled += event.type() == QEvent.Type.StyleChange
            super().changeEvent(event)

    widget = Counting("x")
    qtbot.addWidget(widget)
    theme.set_property(widget, "state", "bad")
    assert widget.property("state") == "bad"


def test_a_damaged_font_is_left_out(qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fonts = tmp_path / "fonts"
    fonts.mkdir()
    (fonts / "upright.z").write_bytes(b"damaged")
    monkeypatch.setattr(theme, "asset_root", lambda: tmp_path)
    theme.load_fonts.__wrapped__("upright")


def test_a_change_in_turns_paints_the_window_once_it_is_complete(qtbot: QtBot, qapp: QApplication) -> None:
    theme.apply(qapp, "light", 1.0)
    painted: list[tuple[bool, bool]] = []  # whether in dark colours, and whether with the style sheet

    class Page(QWidget):
        def paintEvent(self, event: QPaintEvent) -> None:
            painted.append((label.palette().text().color() == theme.colour("ink"), qapp.styleSheet() == theme.qss()))

    page = Page()
    qtbot.addWidget(page)
    label = Label("Words", token="ink", parent=page)
    page.show()
    qtbot.waitUntil(lambda: bool(painted))
    try:
        for look, zoom in (("dark", 1.0), ("dark", 1.2), ("light", 1.0)):
            painted.clear()
            theme.apply(qapp, look, zoom, in_turns=True)  # type: ignore[arg-type]
            page.update()
            qtbot.waitUntil(lambda: bool(painted))
            assert set(painted) == {(True, True)}
        theme.apply(qapp, "dark", 1.0, in_turns=True)
        theme.apply(qapp, "light", 1.0)
        assert label.palette().text().color() == theme.colour("ink"), "one at once ends the one before"
        assert page.updatesEnabled()
        assert qapp.styleSheet() == theme.qss()
    finally:
        theme.apply(qapp, "light", 1.0)
