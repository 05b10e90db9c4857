"""The About dialog: version, licence, the starter model's card, privacy, and the parts with their licences.

Everything shown is stored on this PC.
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from PySide6.QtCore import Qt, QUrl, Signal
from PySide6.QtGui import QDesktopServices, QTextOption
from PySide6.QtWidgets import QDialog, QFrame, QHBoxLayout, QTextBrowser, QVBoxLayout, QWidget

from app import third_party
from app.translation import noted, tr
from app.ui.look import theme
from app.ui.look.icons import Glyph
from app.ui.widgets import focus_ring
from app.ui.widgets.controls import Button, Label, Segments
from app.ui.widgets.floating import resize_within_screen, set_smallest
from engine import __version__
from engine.assets import asset_root

SENTENCE = noted(
    "Hearth chats with language models on this PC, with an engine of its own that skips the neurons which do not fire. "
    "Where there is an NVIDIA GPU, it computes the busy neurons there and the others on the CPU at the same time."
)
PRIVACY = (
    noted(
        "What you write, what is answered and what you attach stay on this PC. There is no account and no telemetry. "
        "Nothing is sent when Hearth starts, runs or crashes."
    ),
    noted(
        "Hearth uses the network only when you search for or download a model, write to a server that you added, open "
        "a link, or look for updates."
    ),
    noted(
        "Other programs on this PC can ask your model only while the local server is switched on, and only with its "
        "key."
    ),
    noted(
        "Chats are stored unencrypted in your own folder. “Data folder” in the settings opens it. Delete single chats "
        "in Hearth, or all that Hearth stores with “Delete everything…” in the settings."
    ),
)
NOTICE = noted("Hearth's own code is under the MIT licence. The starter model and the parts below are under their own.")
PART = "part"  # the scheme of links that show the licence of a part


def model_card() -> Path:
    """Return the path of the starter model's card."""
    return asset_root() / "models" / "starter-chat" / "MODEL_CARD.md"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        return tr("This text cannot be read: {path} ({why}). Install Hearth again.", path=path, why=why)


def built_with() -> str:
    """Return the parts as a Markdown table: name, installed version, licence. Cost: about 0.3 s."""
    rows = [f"| [{one.name}]({PART}:{one.key}) | {one.version} | {one.licence} |" for one in third_party.parts()]
    return "\n".join(
        (tr(NOTICE), "", f"| {tr('Part')} | {tr('Version')} | {tr('Licence')} |", "| --- | --- | --- |", *rows)
    )


class Page(QTextBrowser):
    """Our own Markdown, to read and scroll. It loads nothing; links open in the web browser."""

    part_wanted = Signal(str)  # key of the part whose licence was requested; empty for the list

    def __init__(self, name: str, markdown: str = "", parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName(name)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setProperty("kind", "prose")
        self.setOpenLinks(False)
        self.anchorClicked.connect(self._follow)
        self.document().setDocumentMargin(0)
        self.viewport().setAutoFillBackground(False)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setWordWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        self._html = ""
        theme.current().changed.connect(self.restyle)
        self.set_markdown(markdown)

    def set_markdown(self, markdown: str) -> None:
        """Show a text from its beginning."""
        made: str = MarkdownIt("commonmark", {"html": False}).enable("table").render(markdown)
        made = re.sub(r"<thead>\s*<tr>(\s*<th></th>)+\s*</tr>\s*</thead>", "", made)  # a table head without text
        made = made.replace("<table>", '<table width="100%" cellspacing="0">')
        # Qt scales headings again, so headings become paragraphs with a class.
        self._show(re.sub(r"<(/?)h([1-3])>", lambda m: "</p>" if m[1] else f'<p class="h{m[2]}">', made))

    def set_licence(self, title: str, text: str) -> None:
        """Show the licence of a part verbatim, with a link back to the list."""
        back = f'<p><a href="{PART}:">‹ {html.escape(tr("Built with"))}</a></p>'
        self._show(f'{back}<p class="h2">{html.escape(title)}</p><pre>{html.escape(text)}</pre>')

    def _show(self, made: str) -> None:
        self._html = made
        self.restyle()
        self.verticalScrollBar().setValue(0)

    def _follow(self, link: QUrl) -> None:
        if link.scheme() == PART:
            self.part_wanted.emit(link.path())
        else:
            QDesktopServices.openUrl(link)

    def loadResource(self, kind: int, name: QUrl | str) -> Any:
        return None

    def restyle(self) -> None:
        """Apply colours and sizes, which a document keeps from when it was built."""
        t, at = theme.current().tokens, self.verticalScrollBar().value()
        mono = ", ".join(f"'{family}'" for family in theme.families(True))
        px = theme.px
        self.document().setDefaultFont(theme.font("small"))
        self.document().setDefaultStyleSheet(f"""
            body, p, li {{ color: {t.ink}; line-height: 122%; }}
            p {{ margin: 0 0 {px(9)}px 0; }} li {{ margin: 0 0 {px(4)}px 0; }}
            p.h1 {{ font-size: {px(17)}px; font-weight: 600; margin: 0 0 {px(8)}px 0; color: {t.ink}; }}
            p.h2 {{ font-size: {px(15)}px; font-weight: 600; margin: {px(14)}px 0 {px(6)}px 0; color: {t.ink}; }}
            p.h3 {{ font-size: {px(14)}px; font-weight: 600; margin: {px(10)}px 0 {px(4)}px 0; color: {t.ink}; }}
            a {{ color: {t.cold}; text-decoration: none; }}
            code, pre {{ font-family: {mono}; font-size: {px(12)}px; color: {t.ink2}; white-space: pre-wrap; }}
            table {{ border-collapse: collapse; margin: {px(2)}px 0 {px(12)}px 0; }}
            th {{ font-weight: 600; color: {t.ink2}; text-align: left;
                  padding: {px(5)}px {px(14)}px {px(5)}px 0; border-bottom: 1px solid {t.edge}; }}
            td {{ color: {t.ink}; padding: {px(5)}px {px(14)}px {px(5)}px 0; border-bottom: 1px solid {t.line}; }}""")
        self.setHtml(self._html)
        self.verticalScrollBar().setValue(at)


class AboutDialog(QDialog):
    """The About dialog: logo, name, version, one sentence, and a choice of texts."""

    def __init__(self, parent: QWidget | None = None, card: Path | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle(tr("About Hearth"))
        self.setAccessibleName(tr("About Hearth"))
        self.setProperty("kind", "page")
        self._column = QVBoxLayout(self)
        self._head = QHBoxLayout()
        self._head.addWidget(Glyph("mark", px=56), 0, Qt.AlignmentFlag.AlignTop)
        words = QVBoxLayout()
        words.setSpacing(2)
        words.addWidget(Label("Hearth", "title"))
        words.addWidget(Label(tr("Version {version}", version=__version__), "meta"))
        words.addSpacing(4)
        words.addWidget(Label(tr(SENTENCE), "small", wrap=True))
        self._head.addLayout(words, 1)
        self._column.addLayout(self._head)
        self.pages = {
            "model": Page(tr("Starter model"), _read(card or model_card())),
            "licence": Page(tr("Licence"), _read(asset_root() / "licences" / "hearth.txt")),
            "privacy": Page(tr("Privacy"), "\n\n".join(map(tr, PRIVACY))),
            "parts": Page(tr("Built with")),  # filled when first shown
            "text": Page(tr("Licence")),  # of one part
        }
        self._has_parts = False
        for page in (self.pages["parts"], self.pages["text"]):
            page.part_wanted.connect(self.show_part)
        choices = [("model", tr("Starter model")), ("privacy", tr("Privacy")), ("licence", tr("Licence")),
                   ("parts", tr("Built with"))]  # fmt: skip
        self.segments = Segments(choices, "model", tr("Text"))
        self.segments.picked.connect(self.show_page)
        self._column.addWidget(self.segments, 0, Qt.AlignmentFlag.AlignLeft)
        card_frame = QFrame()
        card_frame.setProperty("kind", "card")
        self._inside = QVBoxLayout(card_frame)
        for page in self.pages.values():
            self._inside.addWidget(page)
        self._column.addWidget(card_frame, 1)
        self._foot = QHBoxLayout()
        self._foot.addStretch(1)
        self.close_button = Button(tr("Close"))
        self.close_button.clicked.connect(self.reject)
        self._foot.addWidget(self.close_button)
        self._column.addLayout(self._foot)
        self.show_page("model")
        focus_ring.install(self)
        theme.current().changed.connect(self._restyle)
        self._restyle()
        resize_within_screen(self, theme.px(700), theme.px(620))

    def show_page(self, name: str) -> None:
        """Show one of the texts: "model", "privacy", "licence" or "parts"."""
        self.segments.set_value(name)
        if name == "parts" and not self._has_parts:
            self._has_parts = True
            self.pages["parts"].set_markdown(built_with())
        self._show_only(name)

    def show_part(self, key: str) -> None:
        """Show the licence of a part; an empty key shows the list."""
        found = next((one for one in third_party.parts() if one.key == key), None)
        if found is None:
            self.show_page("parts")
            self.pages["parts"].setFocus()
            return
        none = tr("It includes no text of its licence, {licence}.", licence=found.licence)
        self.pages["text"].set_licence(f"{found.name} {found.version}", third_party.licence_text(key) or none)
        self._show_only("text")
        self.pages["text"].setFocus()

    def _show_only(self, name: str) -> None:
        for key, page in self.pages.items():
            page.setVisible(key == name)

    def _restyle(self) -> None:
        self._column.setContentsMargins(theme.px(24), theme.px(24), theme.px(24), theme.px(20))
        self._column.setSpacing(theme.px(16))
        self._head.setSpacing(theme.px(16))
        self._inside.setContentsMargins(theme.px(18), theme.px(14), theme.px(4), theme.px(4))
        set_smallest(self, 520, 400)
