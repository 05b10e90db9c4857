"""The look: colour tokens, type roles, sizes, palette and style sheet, for light and dark.

Widgets read colours and fonts from here when they paint, and again when `current().changed` is emitted.
"""

from __future__ import annotations

import contextlib
import lzma
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Literal

from PySide6.QtCore import QObject, Qt, QTimer, Signal
from PySide6.QtGui import QColor, QFont, QFontDatabase, QGuiApplication, QPalette
from PySide6.QtWidgets import QApplication, QWidget
from shiboken6 import isValid

from engine.assets import asset_root

Choice = Literal["system", "light", "dark"]
BODY_PX = 15  # of an answer at zoom 1
MIN_ZOOM, MAX_ZOOM = 10 / BODY_PX, 24 / BODY_PX
# Between steps of a change. Qt serves timers of 0 ms in one turn, which took twice as long with a long chat.
STEP_MS = 1


@dataclass(frozen=True)
class Tokens:
    """Every colour of the window. Ember (`hot`) is the GPU and a working machine, slate (`cold`) is the CPU."""

    dark: bool
    page: str
    side: str
    card: str
    sunken: str
    bubble: str
    line: str  # hairlines: decoration only
    edge: str  # borders of what can be pressed or typed in
    control: str  # boundaries that carry meaning, at least 3:1
    ink: str
    ink2: str
    ink3: str
    on_ink: str
    hot: str
    hot_fill: str
    hot_soft: str
    cold: str
    cold_fill: str
    cold_soft: str
    ok: str
    ok_soft: str
    warn: str
    warn_soft: str
    bad: str
    bad_soft: str
    away: str  # what is not on this PC, and nothing else
    away_fill: str
    away_soft: str
    code_keyword: str
    code_string: str
    code_function: str
    code_number: str
    selection: str  # behind selected text, everywhere
    wash: str  # a thin layer over the background: hover, selected, pressed
    hover: float = 0.05
    selected: float = 0.075
    pressed: float = 0.10


LIGHT = Tokens(
    dark=False, page="#FBFAF8", side="#F3F1ED", card="#FFFFFF", sunken="#F3F0EB", bubble="#EFEBE5", line="#E6E1DA",
    edge="#D2CBC1", control="#8C8277", ink="#221D19", ink2="#5A524A", ink3="#71685F", on_ink="#FFFFFF",
    hot="#B43F12", hot_fill="#DE5E25", hot_soft="#FBEADF", cold="#2A678F", cold_fill="#448AB8", cold_soft="#E4EEF5",
    ok="#2A7548", ok_soft="#E4F1E8", warn="#85560A", warn_soft="#FAF0DA", bad="#B3261E", bad_soft="#FBE9E7",
    away="#6B479F", away_fill="#8C69BF", away_soft="#F0EAF8",
    code_keyword="#9A3470", code_string="#2A7548", code_function="#2A678F", code_number="#85560A",
    selection="#F7D9C4", wash="#221D19",
)  # fmt: skip
DARK = Tokens(
    dark=True, page="#1B1917", side="#151311", card="#242120", sunken="#141210", bubble="#2C2825", line="#35312D",
    edge="#4D4741", control="#7C746B", ink="#DDD7D0", ink2="#BDB5AC", ink3="#A0978D", on_ink="#1B1917",
    hot="#F6925E", hot_fill="#EC7638", hot_soft="#3A2519", cold="#86BCE0", cold_fill="#5698C6", cold_soft="#1C2D39",
    ok="#74C795", ok_soft="#1C3024", warn="#E3B65C", warn_soft="#342913", bad="#F39A90", bad_soft="#3D211E",
    away="#C2ABEB", away_fill="#9A82CF", away_soft="#2C2540",
    code_keyword="#E39AC0", code_string="#8CCBA0", code_function="#8FC1E3", code_number="#E0B97A",
    selection="#4F3322", wash="#F0ECE7",
)  # fmt: skip


def with_more_contrast(tokens: Tokens) -> Tokens:
    """Return the tokens for high contrast: text and borders one step stronger, washes doubled."""
    return replace(tokens, line=tokens.edge, edge=tokens.control, ink2=mix(tokens.ink2, tokens.ink, 0.6),
                   ink3=tokens.ink2, hover=0.10, selected=0.15, pressed=0.20)  # fmt: skip


@dataclass(frozen=True)
class TypeRole:
    """One row of the type table, in logical pixels at zoom 1."""

    px: float
    weight: int
    line_height: int
    token: str
    mono: bool = False


ROLES: dict[str, TypeRole] = {
    "display": TypeRole(28, 600, 34, "ink"),
    "title": TypeRole(20, 600, 26, "ink"),
    "figure": TypeRole(36, 600, 42, "ink"),
    "unit": TypeRole(15, 500, 20, "ink2"),
    "number": TypeRole(18, 600, 22, "ink"),
    "heading": TypeRole(15, 600, 20, "ink"),
    "rate": TypeRole(15, 600, 20, "ink"),
    "body": TypeRole(15, 400, 23, "ink"),
    "strong": TypeRole(15, 600, 23, "ink"),
    "h1": TypeRole(20, 600, 27, "ink"),
    "h2": TypeRole(17, 600, 24, "ink"),
    "h3": TypeRole(16, 600, 23, "ink"),
    "label": TypeRole(14, 500, 18, "ink"),
    "cell": TypeRole(14, 400, 20, "ink"),
    "row": TypeRole(13.5, 400, 18, "ink"),
    "rowstrong": TypeRole(13.5, 500, 18, "ink"),
    "button": TypeRole(13.5, 500, 18, "ink"),
    "small": TypeRole(13, 400, 18, "ink2"),
    "smallstrong": TypeRole(13, 600, 18, "ink2"),
    "pill": TypeRole(13, 500, 18, "ink2"),
    "meta": TypeRole(12, 400, 16, "ink3"),
    "metastrong": TypeRole(12, 600, 16, "ink2"),
    "chip": TypeRole(12, 500, 16, "ink2"),
    "axis": TypeRole(11, 400, 14, "ink3"),
    "code": TypeRole(13, 400, 21, "ink", mono=True),
}
# Tabular figures, so that changing numbers stay in place. In Inter they also widen spaces and hyphens, which would tear
# running text apart.
FIGURES = {"figure", "unit", "number", "rate", "meta", "metastrong", "axis"}
TITLES = {"label", "rowstrong"}  # medium weight, which alone distinguishes them from the text beside them


class Theme(QObject):
    """The theme in use; there is one, `current()`.

    changing: emitted before another theme is applied. changed: emitted after it is applied everywhere.
    """

    changing = Signal()
    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.tokens = LIGHT
        self.zoom = 1.0
        self.choice: Choice = "system"
        self.high_contrast = False  # set in Hearth; the desktop may ask for it too
        self.still = False
        self._applying = False
        self._due: list[Callable[[], object]] = []  # steps that remain of a change
        self._held: list[QWidget] = []  # windows that are not painted until then
        self._in_force: tuple[Tokens, float] | None = None

    @property
    def is_dark(self) -> bool:
        return self.tokens.dark

    def apply(
        self, app: QApplication, choice: Choice, zoom: float, high_contrast: bool = False, in_turns: bool = False
    ) -> None:
        """Apply a theme: palette, font, style sheet, then all listening widgets.

        Does nothing if the same colours and size are already applied. in_turns: the widgets follow in the next turns of
        the event loop, and windows are painted only then. At once, a window with a long chat stands still for 100 ms.
        """
        hints = app.styleHints()
        if not app.property("hearthStyled"):
            # Palette and style sheet are written for Fusion; a native style would paint over half of them.
            app.setStyle("Fusion")
            load_fonts("upright")
            app.setProperty("hearthStyled", True)
            hints.colorSchemeChanged.connect(self._follow_desktop)
            hints.accessibility().contrastPreferenceChanged.connect(self._follow_desktop)
        self._applying = True
        if choice == "system":
            hints.unsetColorScheme()
        else:  # so that the window's title bar follows
            hints.setColorScheme(Qt.ColorScheme.Dark if choice == "dark" else Qt.ColorScheme.Light)
        self._applying = False
        self.choice = choice
        self.zoom = min(max(zoom, MIN_ZOOM), MAX_ZOOM)
        tokens = DARK if choice == "dark" or (choice == "system" and desktop_is_dark()) else LIGHT
        self.high_contrast = high_contrast
        if high_contrast or hints.accessibility().contrastPreference() == Qt.ContrastPreference.HighContrast:
            tokens = with_more_contrast(tokens)
        if (tokens, self.zoom) == self._in_force:
            return
        self._in_force = tokens, self.zoom
        self.tokens = tokens
        self.changing.emit()
        _font.cache_clear()
        app.setPalette(palette())
        app.setFont(font("row"))
        for window in app.topLevelWidgets() if in_turns else ():
            if window.isVisible() and window.updatesEnabled():
                window.setUpdatesEnabled(False)
                self._held.append(window)
        # Clear first: replacing a style sheet restyles every widget once per ancestor. With 1,600 widgets that takes
        # 350 ms; clearing and setting takes 170.
        self._due = [partial(app.setStyleSheet, ""), partial(self._set_sheet, app), self.changed.emit]
        if in_turns and self._held:
            QTimer.singleShot(STEP_MS, self, self._tell)
        else:
            while self._due:
                self._tell()

    def before_painting(self, step: Callable[[], object]) -> bool:
        """Do a step in a turn of its own before windows are painted again. Return False if none waits for a change."""
        if self._held:
            self._due.append(step)
        return bool(self._held)

    def _set_sheet(self, app: QApplication) -> None:
        app.setStyleSheet(qss())

    def _tell(self) -> None:
        """Do the next step, and paint the windows again after the last one."""
        if self._due:
            self._due.pop(0)()
        if self._due:
            QTimer.singleShot(STEP_MS, self, self._tell)
            return
        held, self._held = self._held, []
        for window in held:
            if isValid(window):
                window.setUpdatesEnabled(True)

    def _follow_desktop(self) -> None:
        app = QApplication.instance()
        if not self._applying and isinstance(app, QApplication):
            self.apply(app, self.choice, self.zoom, self.high_contrast, in_turns=True)


def application() -> QApplication:
    """Return the QApplication, which must exist."""
    app = QApplication.instance()
    assert isinstance(app, QApplication)
    return app


@cache
def current() -> Theme:
    return Theme()


def apply(app: QApplication, choice: Choice, zoom: float, high_contrast: bool = False, in_turns: bool = False) -> None:
    """Apply a theme; may be called at any time. zoom: scales everything; 1 is body text of BODY_PX. in_turns: as
    `Theme.apply`.
    """
    current().apply(app, choice, zoom, high_contrast, in_turns)


def set_still(still: bool) -> None:
    """Switch reduced motion on or off: only progress may still move."""
    current().still = still


def duration(ms: int) -> int:
    """Return an animation's duration: 0 with reduced motion."""
    return 0 if current().still else ms


def desktop_is_dark() -> bool:
    """Return whether the desktop asks for dark; False if it does not say."""
    return QGuiApplication.styleHints().colorScheme() == Qt.ColorScheme.Dark


# --- colours


def colour(token: str) -> QColor:
    """Return a token's colour in the current theme."""
    return QColor(getattr(current().tokens, token))


def mix(a: str, b: str, share: float) -> str:
    """Mix two colours. share: 0 gives `a`, 1 gives `b`."""
    pairs = zip(QColor(a).getRgb()[:3], QColor(b).getRgb()[:3], strict=True)  # type: ignore[index]
    return QColor(*(round(p + (q - p) * share) for p, q in pairs)).name()


def alpha(colour: str | QColor, a: float) -> QColor:
    """Return a colour with opacity `a`."""
    out = QColor(colour)
    out.setAlphaF(a)
    return out


def wash(strength: Literal["hover", "selected", "pressed"]) -> QColor:
    """Return the overlay of a row or quiet button, to be painted over its background."""
    tokens = current().tokens
    return alpha(tokens.wash, getattr(tokens, strength))


def contrast(a: str, b: str) -> float:
    """Return the WCAG contrast of two opaque colours, 1 to 21."""

    def linear(c: float) -> float:
        return c / 12.92 if c <= 0.04045 else float(((c + 0.055) / 1.055) ** 2.4)

    def luminance(name: str) -> float:
        ink = QColor(name)
        r, g, b = linear(ink.redF()), linear(ink.greenF()), linear(ink.blueF())
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def palette() -> QPalette:
    """Return the palette, which standard widgets use where the style sheet says nothing."""
    t = current().tokens
    group, out = QPalette.ColorRole, QPalette()
    for role, name in {
        group.Window: t.page, group.WindowText: t.ink, group.Base: t.card, group.AlternateBase: t.sunken,
        group.Text: t.ink, group.PlaceholderText: t.ink3, group.Button: t.card, group.ButtonText: t.ink,
        group.BrightText: t.bad, group.Highlight: t.selection, group.HighlightedText: t.ink, group.Link: t.cold,
        group.LinkVisited: t.cold, group.ToolTipBase: t.ink, group.ToolTipText: t.on_ink, group.Light: t.card,
        group.Midlight: t.line, group.Mid: t.edge, group.Dark: t.control, group.Shadow: t.ink, group.Accent: t.hot_fill,
    }.items():  # fmt: skip
        out.setColor(role, QColor(name))
    for role in (group.WindowText, group.Text, group.ButtonText):
        out.setColor(QPalette.ColorGroup.Disabled, role, QColor(t.ink3))
    for role in (group.Base, group.Button):
        out.setColor(QPalette.ColorGroup.Disabled, role, QColor(t.sunken))
    out.setColor(QPalette.ColorGroup.Disabled, group.Highlight, QColor(t.bubble))
    return out


# --- sizes and type


def px(n: float) -> int:
    """Scale a size to the current zoom; halves round up."""
    return int(n * current().zoom + 0.5)


def font(role: str) -> QFont:
    """Return the font of a type role at the current zoom."""
    return QFont(_font(role))


def line_height(role: str) -> int:
    """Return the line height of a type role in pixels at the current zoom."""
    return px(ROLES[role].line_height)


@cache
def _font(role: str) -> QFont:
    kind = ROLES[role]
    out = QFont(list(families(kind.mono)))
    out.setPixelSize(max(px(kind.px), 1))
    out.setWeight(QFont.Weight(_weight(role, out.families()[0])))
    if role in FIGURES:
        out.setFeature(QFont.Tag("tnum"), 1)
    out.setStyleHint(QFont.StyleHint.Monospace if kind.mono else QFont.StyleHint.SansSerif)
    if kind.mono:
        out.setFixedPitch(True)
    return out


def _weight(role: str, family: str) -> int:
    """Return a role's weight in a font family.

    Many families lack medium (500), and Qt would take the regular weight, so that titles look like the text below them.
    Those families show titles in bold.
    """
    weight = ROLES[role].weight
    if role not in TITLES or weight != QFont.Weight.Medium:
        return weight
    has_medium = any(450 <= QFontDatabase.weight(family, style) <= 550 for style in QFontDatabase.styles(family))
    return weight if has_medium else QFont.Weight.DemiBold


@cache
def load_fonts(style: Literal["upright", "italic"]) -> None:
    """Load the fonts of a style that ship with Hearth: each behind its length in 4 bytes, big-endian, all in one LZMA
    stream, a third of their size. A damaged file is left out. The first paint needs no italic ones.

    Cost: 10 ms, once.
    """
    with contextlib.suppress(OSError, lzma.LZMAError):
        data = lzma.decompress((asset_root() / "fonts" / f"{style}.z").read_bytes())
        while data:
            end = 4 + int.from_bytes(data[:4], "big")
            QFontDatabase.addApplicationFontFromData(data[4:end])
            data = data[end:]
    families.cache_clear()


@cache
def families(mono: bool) -> tuple[str, ...]:
    """Return the font families for the interface or for code, best first.

    Inter ships with Hearth; JetBrains Mono is used if installed; else the desktop's own. Only installed families are
    named: otherwise Qt could take Latin letters from the CJK family.
    """
    installed = set(QFontDatabase.families())
    ours = ("JetBrains Mono",) if mono else ("Inter",)
    kind = QFontDatabase.SystemFont.FixedFont if mono else QFontDatabase.SystemFont.GeneralFont
    # The desktop's answer may be only an alias (on a headless screen, for example), so common families follow it.
    usual = ("DejaVu Sans Mono", "Liberation Mono") if mono else ("Noto Sans", "DejaVu Sans", "Liberation Sans")
    wanted = (*ours, QFontDatabase.systemFont(kind).family(), *usual)
    first = next((family for family in wanted if family in installed), usual[-1])
    return (first, *(family for family in ("Noto Sans CJK JP", "Noto Color Emoji") if family in installed))


# --- style sheet


def set_property(widget: QWidget, name: str, value: object) -> None:
    """Set a property that the style sheet uses, and restyle the widget."""
    if widget.property(name) == value:
        return
    widget.setProperty(name, value)
    widget.style().unpolish(widget)
    widget.style().polish(widget)
    widget.update()


def qss() -> str:
    """Return the style sheet: backgrounds and borders of frames, fields and scroll bars. Widgets paint the rest."""
    t = current().tokens
    bad, warn, info = (mix(getattr(t, name), t.card, 0.5) for name in ("bad", "warn", "cold"))
    row = f"font-size: {px(13.5)}px;"
    return f"""
    * {{ outline: none; }}
    QToolTip {{ background: {t.ink}; color: {t.on_ink}; border: 0; padding: {px(4)}px {px(8)}px;
        qproperty-textFormat: PlainText; }} /* names come from outside: an image in one must not be looked for */
    QFrame[kind="page"], QDialog[kind="page"] {{ background: {t.page}; border: 0; }}
    QFrame[kind="side"] {{ background: {t.side}; border: 0; border-right: 1px solid {t.line}; }}
    QFrame[kind="bar"] {{ background: {t.page}; border: 0; border-bottom: 1px solid {t.line}; }}
    QFrame[kind="status"] {{ background: {t.page}; border: 0; border-top: 1px solid {t.line}; }}
    QFrame[kind="card"] {{ background: {t.card}; border: 1px solid {t.line}; border-radius: {px(12)}px; }}
    QFrame[kind="card"][state="hover"] {{ border-color: {t.edge}; }}
    QFrame[kind="composer"] {{ background: {t.card}; border: 1px solid {t.edge}; border-radius: {px(16)}px; }}
    QFrame[kind="composer"][state="focus"] {{ border-color: {t.control}; }}
    QFrame[kind="composer"][away="true"] {{ border-color: {t.away_fill}; }}
    QFrame[kind="composer"][state="drop"] {{ border: 2px solid {t.hot_fill}; }}
    QFrame[kind="bubble"] {{ background: {t.bubble}; border: 0; border-radius: {px(16)}px; }}
    QFrame[kind="code"] {{ background: {t.sunken}; border: 1px solid {t.line}; border-radius: {px(10)}px; }}
    QFrame[kind="banner"] {{ background: {t.card}; border: 1px solid {info}; border-radius: {px(12)}px; }}
    QFrame[kind="banner"][severity="bad"] {{ border-color: {bad}; }}
    QFrame[kind="banner"][severity="warn"] {{ border-color: {warn}; }}
    QLineEdit[kind="field"] {{ {row} color: {t.ink}; placeholder-text-color: {t.ink3};
        background: {t.card}; border: 1px solid {t.edge};
        border-radius: {px(8)}px; padding: 0 {px(9)}px; min-height: {px(30)}px; max-height: {px(30)}px; }}
    QLineEdit[kind="field"][glyph="true"] {{ padding: 0 {px(5)}px; }}
    QLineEdit[kind="field"][place="row"] {{ padding: 0 {px(7)}px; }}
    QLineEdit[kind="field"]:hover, QLineEdit[kind="field"]:focus {{ border-color: {t.control}; }}
    QLineEdit[kind="field"]:disabled {{ color: {t.ink3}; background: {t.sunken}; border-color: {t.line}; }}
    QLineEdit[kind="field"][state="bad"] {{ border-color: {t.bad}; }}
    QPlainTextEdit[kind="field"] {{ color: {t.ink}; placeholder-text-color: {t.ink3};
        background: {t.card}; border: 1px solid {t.edge};
        border-radius: {px(8)}px; padding: {px(4)}px {px(5)}px; }}
    QPlainTextEdit[kind="field"]:hover, QPlainTextEdit[kind="field"]:focus {{ border-color: {t.control}; }}
    QPlainTextEdit[kind="field"][state="bad"] {{ border-color: {t.bad}; }}
    QListView[kind="chats"] {{ background: transparent; border: 0; }}
    QListView[kind="chats"] QScrollBar:vertical {{ width: {px(10)}px; }}
    QListView[kind="chats"] QScrollBar::handle:vertical {{ border-radius: {px(3)}px; }}
    QAbstractScrollArea[kind="plain"] {{ background: transparent; border: 0; }}
    QTextBrowser[kind="prose"] {{ background: transparent; border: 0; }}
    QMenu {{ {row} background: {t.card}; color: {t.ink}; border: 1px solid {t.edge};
        border-radius: {px(12)}px; padding: {px(6)}px; }}
    QMenu[corners="square"] {{ border-radius: 0; }}
    QMenu::item {{ padding: {px(8)}px {px(14)}px {px(8)}px {px(10)}px; border-radius: {px(6)}px; }}
    QMenu::item:selected {{ background: {mix(t.card, t.wash, t.selected)}; }}
    QMenu::item:pressed {{ background: {mix(t.card, t.wash, t.pressed)}; }}
    QMenu::item:disabled {{ color: {t.ink3}; }}
    QMenu::icon {{ padding-left: {px(8)}px; }}
    QMenu::separator {{ height: 1px; background: {t.line}; margin: {px(5)}px {px(4)}px; }}
    QScrollBar:vertical {{ background: transparent; border: 0; width: {px(12)}px; margin: 0; }}
    QScrollBar:horizontal {{ background: transparent; border: 0; height: {px(12)}px; margin: 0; }}
    QScrollBar::handle {{ background: {t.edge}; border-radius: {px(4)}px; margin: {px(2)}px; }}
    QScrollBar::handle:vertical {{ min-height: {px(32)}px; }}
    QScrollBar::handle:horizontal {{ min-width: {px(32)}px; }}
    QScrollBar::handle:hover {{ background: {t.control}; }}
    QScrollBar::add-line, QScrollBar::sub-line, QScrollBar::add-page, QScrollBar::sub-page
        {{ background: none; border: 0; width: 0; height: 0; }}
    """
