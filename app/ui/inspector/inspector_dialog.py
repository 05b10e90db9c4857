"""The inspector: the tokens of an answer, with the probability, the alternatives and the cost of each.

It shows an Inspection, and emits what the user clicks. It knows neither the engine nor the chat.
"""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QGuiApplication, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import (
    QDialog,
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QScrollArea,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from app.chat.answers.answer_labels import count
from app.chat.answers.inspection import Inspection, joined_text
from app.translation import figure, tr, tr_n
from app.ui.inspector.neurons import TokenNeurons, share_text
from app.ui.inspector.token_view import MARKS, TokenView
from app.ui.look import theme
from app.ui.look.painting import antialiased, block
from app.ui.widgets import focus_ring, tab_order
from app.ui.widgets.controls import Button, Label
from app.ui.widgets.empty_state import EmptyState
from app.ui.widgets.floating import announce, resize_within_screen, set_smallest
from app.ui.widgets.flow import Flow
from app.ui.widgets.pick_row import PickRow
from app.ui.widgets.search_field import SearchField
from app.ui.widgets.switches import Segments
from app.units import NARROW, seconds

WIDE, HIGH, BESIDE, ROW = 940, 740, 292, 28
# A token of at least this probability has this wash.
SHADES = ((0.9, 0.0), (0.6, 0.07), (0.3, 0.14), (0.1, 0.22), (0.0, 0.31))
_EVERY_OTHER = 0.06  # wash of every other token of a prompt, to tell them apart


def visible(text: str) -> str:
    """Return a token's text with its white space made visible."""
    return text.replace("\n", "↵").translate(MARKS).replace(" ", "·") or "∅"


class AlternativeRow(PickRow):
    """A token that could have come, behind it a bar of its probability."""

    def __init__(self) -> None:
        super().__init__("")
        self._share = 0.0
        self.height_px = ROW
        self._restyle()

    def show_token(self, words: str, share: float) -> None:
        """Show a token's text and probability."""
        self._share = share
        self.set_name(words)
        self.set_figure(share_text(share))

    def sizeHint(self) -> QSize:
        return QSize(super().sizeHint().width(), theme.px(ROW))

    def minimumSizeHint(self) -> QSize:
        return QSize(super().minimumSizeHint().width(), theme.px(ROW))

    def paintEvent(self, event: QPaintEvent) -> None:
        wide = self.width() * self._share
        left = self.width() - wide if self.isRightToLeft() else 0.0
        painter = antialiased(self)
        if wide > theme.px(2):  # a thinner one is a stray line
            block(painter, QRectF(left, 1, wide, self.height() - 2), theme.colour("bubble"), min(theme.px(6), wide / 2))
        painter.end()
        super().paintEvent(event)


class TokenDetails(QFrame):
    """The details of one token. picked: the id of an alternative, to continue from."""

    picked = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, theme.px(6), 0)
        column.setSpacing(theme.px(2))
        self.token = Label("", "heading", elide=True)
        self.place = Label("", "meta", wrap=True)
        self.likely = Label("", "number")
        self.title = Label(tr("Alternatives"), "smallstrong")
        self.hint = Label("", "meta", wrap=True)
        self.rows: list[AlternativeRow] = []
        self._tokens: list[int] = []  # of the rows
        self._others = QVBoxLayout()
        self._others.setSpacing(theme.px(1))
        self.cost = Label(tr("Cost"), "smallstrong")
        self._grid = QGridLayout()
        self._grid.setHorizontalSpacing(theme.px(12))
        self._grid.setVerticalSpacing(theme.px(4))
        self._grid.setColumnStretch(1, 1)
        self.facts: list[tuple[Label, Label]] = []
        self.note = Label("", "small", wrap=True)
        self.neurons = TokenNeurons()
        self.experts = Label("", "small", wrap=True)
        head = QHBoxLayout()
        head.addWidget(self.token, 1)
        head.addWidget(self.likely)
        column.addLayout(head)
        column.addWidget(self.place)
        parts: list[tuple[int, QWidget | QVBoxLayout | QGridLayout]] = [
            (12, self.title), (4, self._others), (4, self.hint), (14, self.cost), (4, self._grid), (4, self.note),
            (6, self.neurons), (4, self.experts),
        ]  # fmt: skip
        for gap, part in parts:
            column.addSpacing(theme.px(gap))
            if isinstance(part, QWidget):
                column.addWidget(part)
            else:
                column.addLayout(part)
        column.addStretch(1)

    def show_token(self, record: Inspection, place: int, cannot: str) -> str:
        """Show a token of the answer and return it in words. cannot: why no alternative can be chosen; "": it can."""
        row = record.rows[place]
        words = visible(record.text(row["id"]))
        likely = share_text(row["p"])
        self._show_head(words, place, len(record.rows), row["id"], likely)
        others = [*row["top"], *([] if row["id"] in dict(row["top"]) else [[row["id"], row["p"]]])]
        while len(self.rows) < len(others):
            one, at = AlternativeRow(), len(self.rows)
            one.clicked.connect(lambda _=False, at=at: self.picked.emit(self._tokens[at]))
            self.rows.append(one)
            self._others.addWidget(one)
        self._tokens = [token for token, _ in others]
        for one, (token, share) in zip(self.rows, others, strict=False):
            one.show_token(visible(record.text(token)), share)
            one.set_picked(token == row["id"])
            one.setEnabled(not cannot)
        for at, one in enumerate(self.rows):
            one.setVisible(at < len(others))
        self.hint.setText(cannot or tr("Choose one: the model continues from it in another version of this answer."))
        self._show_cost(record, place)
        for part in (self.title, self.hint, self.cost):
            part.show()
        return tr("Token {words}, {share}", words=words, share=likely)

    def show_prompt_token(self, record: Inspection, place: int) -> str:
        token = record.prompt[place]
        words = visible(record.text(token))
        self._show_head(words, place, len(record.prompt), token)
        for part in (self.title, self.hint, self.cost, self.note, self.neurons, self.experts, *self.rows):
            part.hide()
        self._show_facts([])
        return tr("Token {words}, id {id}", words=words, id=token)

    def _show_head(self, words: str, place: int, n: int, token: int, likely: str = "") -> None:
        self.token.setText(words)
        self.likely.setText(likely)
        self.place.setText(tr("Token {place} of {n}, id {id}", place=figure(place + 1), n=figure(n), id=token))

    def _show_facts(self, facts: list[tuple[str, str]]) -> None:
        while len(self.facts) < len(facts):
            pair = Label("", "small", "ink3"), Label("", "small", "ink", wrap=True)
            for column, label in enumerate(pair):
                self._grid.addWidget(label, len(self.facts), column, Qt.AlignmentFlag.AlignTop)
            self.facts.append(pair)
        for at, pair in enumerate(self.facts):
            for label, words in zip(pair, facts[at] if at < len(facts) else ("", ""), strict=True):
                label.setText(words)
                label.setVisible(bool(words))

    def _show_cost(self, record: Inspection, place: int) -> None:
        row, run = record.rows[place], record.rows[place].get("run")
        us = row["us"]
        facts = [(tr("Time"), f"{figure(us)}{NARROW}µs" if us < 10_000 else seconds(us / 1e6))] if us else []
        if (n_bytes := row.get("bytes")) is not None:
            size, unit = (n_bytes / 1e9, "GB") if n_bytes >= 1e9 else (n_bytes / 1e6, "MB")
            facts.append((tr("Bytes read"), f"{figure(size, '.1f')}{NARROW}{unit}"))
        computed, on_gpu = row.get("computed"), row.get("on_gpu")
        if computed is not None:
            gpu = on_gpu or 0
            shown = {"gpu": figure(gpu), "cpu": figure(computed - gpu)}
            words = tr("{gpu} on the GPU, {cpu} on the CPU", **shown) if gpu else tr("{cpu}, all on the CPU", **shown)
            facts.append((tr("Neurons computed"), words))
        fired = row.get("fired") or []
        shares = [n / record.n_neurons for n in fired] if record.n_neurons else []
        if shares:
            facts.append((tr("Neurons active"), share_text(sum(shares) / len(shares))))
        self.neurons.show_token(record, place, bool(on_gpu) and on_gpu == computed)
        if (shared := self.neurons.shared) is not None:
            facts.append((tr("Active before too"), share_text(shared)))
        self._show_facts(facts)
        self.note.setText(_note(run, row))
        self.note.setVisible(bool(self.note.words))
        self.experts.setText("\n".join(_experts(row)))
        self.experts.setVisible(bool(self.experts.words))


def _note(run: int | None, row: dict[str, object]) -> str:
    """Return why some figures of a token are not known; "" if they are."""
    if run is None:
        return tr("This token comes from reading the whole prompt, which its time includes. Its own bytes and neurons "
                  "are not known.")  # fmt: skip
    if run == 0 and not row["us"]:
        return tr("You chose this token; nothing was computed for it.")
    if run == 0:
        return tr("This token was guessed, and computed in one run with an earlier one. Its own bytes and neurons are "
                  "not known.")  # fmt: skip
    if run > 1:
        return tr_n("Computed in one run with {n} guess. Its own bytes and neurons are not known.",
                    "Computed in one run with {n} guesses. Its own bytes and neurons are not known.",
                    run - 1, n=figure(run - 1))  # fmt: skip
    return "" if "fired" in row or "experts" in row else tr("In this model and mode, every neuron is active.")


def _experts(row: dict[str, object]) -> list[str]:
    """Return a line for each layer with experts."""
    experts, missed = row.get("experts"), row.get("missed")
    if not isinstance(experts, list):
        return []
    lines = []
    for layer, ids in enumerate(experts):
        if ids is None and not isinstance(missed, list):
            continue
        said = ", ".join(map(str, ids)) if ids else tr("not known here")
        if isinstance(missed, list) and ids:
            n = len(ids) - missed[layer]
            lines.append(tr("Layer {layer}: experts {ids}; {n} on the GPU", layer=layer, ids=said, n=n))
        else:
            lines.append(tr("Layer {layer}: experts {ids}", layer=layer, ids=said))
    return lines


class InspectorDialog(QDialog):
    """branched: an Inspection that ends with the chosen alternative. recording_wanted, export_wanted: buttons."""

    branched = Signal(object)
    recording_wanted = Signal()
    export_wanted = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle(tr("Tokens of the answer"))
        self.setAccessibleName(tr("Tokens of the answer"))
        self.setProperty("kind", "page")
        self._record: Inspection | None = None
        self._cannot = ""
        self.title, self.line = Label(tr("Tokens of the answer"), "title"), Label("", "small", wrap=True)
        self.views = Segments([("answer", tr("Answer")), ("prompt", tr("Prompt"))], "answer", tr("View"))
        self.search = SearchField()
        self.search.setPlaceholderText(tr("Find"))
        self.search.setAccessibleName(tr("Find in the tokens"))
        self.answer, self.prompt = TokenView(), TokenView()
        self.answer.setAccessibleName(tr("Tokens of the answer"))
        self.prompt.setAccessibleName(tr("Tokens of the prompt"))
        self.stack = QStackedWidget()
        self.stack.addWidget(self.answer)
        self.stack.addWidget(self.prompt)
        self.details = TokenDetails()
        self._side = QScrollArea()
        self._side.setProperty("kind", "plain")
        self._side.setFrameShape(QFrame.Shape.NoFrame)
        self._side.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._side.setWidgetResizable(True)
        self._side.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._side.viewport().setAutoFillBackground(False)
        self._side.setWidget(self.details)
        self.details.setAutoFillBackground(False)
        self.legend = Label(tr("More shading: less likely. Dotted: not the most likely token."), "meta", wrap=True)
        self.empty = EmptyState()
        self.copy_text = Button(tr("Copy text"), "quiet", "copy")
        self.copy_ids = Button(tr("Copy ids"), "quiet", "copy")
        self.export = Button(tr("Export…"), "quiet", "put")
        self.close_button = Button(tr("Close"))
        self._head, self._body, self._foot = QHBoxLayout(), QHBoxLayout(), QHBoxLayout()
        self._head.addWidget(self.views)
        self._head.addStretch(1)
        self._head.addWidget(self.search)
        self._body.addWidget(self.stack, 1)
        self._body.addWidget(self._side)
        self._acts = Flow()
        for act in (self.copy_text, self.copy_ids, self.export):
            self._acts.addWidget(act)
        self._foot.addLayout(self._acts, 1)
        self._foot.addWidget(self.close_button, 0, Qt.AlignmentFlag.AlignBottom)
        self._column = QVBoxLayout(self)
        self._column.addWidget(self.title)
        self._column.addWidget(self.line)
        self._column.addLayout(self._head)
        self._column.addLayout(self._body, 1)
        self._column.addWidget(self.empty, 1, Qt.AlignmentFlag.AlignVCenter)
        self._column.addWidget(self.legend)
        self._column.addLayout(self._foot)
        self.views.picked.connect(self._show_view)
        self.search.entered.connect(self._find)
        self.search.left.connect(self._leave_search)
        self.answer.chosen.connect(self._show_token)
        self.prompt.chosen.connect(self._show_token)
        self.details.picked.connect(self._branch)
        self.copy_text.clicked.connect(lambda: self._copy(ids=False))
        self.copy_ids.clicked.connect(lambda: self._copy(ids=True))
        self.export.clicked.connect(self.export_wanted)
        self.close_button.clicked.connect(self.close)
        self.empty.remedy.connect(lambda _: self.recording_wanted.emit())
        focus_ring.install(self)
        theme.current().changed.connect(self._restyle)
        self._restyle()
        self._show_parts()
        resize_within_screen(self, theme.px(WIDE), theme.px(HIGH))

    def show_record(self, record: Inspection, cannot: str = "") -> None:
        """Show what was recorded. cannot: why no alternative can be chosen; "": it can."""
        self._record, self._cannot = record, cannot
        said = [record.model, count(len(record.rows)), tr("prompt of {n}", n=count(len(record.prompt)))]
        if record.n_left_out:
            said.append(tr("{n} more were too many to keep", n=count(record.n_left_out)))
        self.line.setText(" · ".join(part for part in said if part))
        texts = [record.text(row["id"]) for row in record.rows]
        shades = [next(shade for least, shade in SHADES if row["p"] >= least) for row in record.rows]
        others = frozenset(at for at, row in enumerate(record.rows) if row["id"] != row["top"][0][0])
        self.answer.show_tokens(texts, shades, others)
        self._show_parts()
        self.answer.setFocus()
        self.answer.choose(0)

    def set_cannot(self, cannot: str) -> None:
        """Set why no alternative can be chosen, as `show_record` does."""
        if self._record is not None and cannot != self._cannot:
            self._cannot = cannot
            self._show_token(self._view.current)

    def show_nothing(self, title: str, line: str, offers: bool) -> None:
        """Say why there is nothing to inspect. offers: a button that records the chat's next answers."""
        self._record = None
        resize_within_screen(self, theme.px(520), theme.px(420))
        self.empty.say(title, line, "info", (tr("Record from now on"), "record") if offers else ("", ""))
        self._show_parts()

    def _show_parts(self) -> None:
        there = self._record is not None
        for part in (self.line, self.views, self.search, self.stack, self._side, self.copy_text, self.copy_ids,
                     self.export):  # fmt: skip
            part.setVisible(there)
        self.empty.setVisible(not there and bool(self.empty.title.words))  # at first the record is being read
        self.legend.setVisible(there and self.views.value() == "answer")

    @property
    def _view(self) -> TokenView:
        return self.prompt if self.views.value() == "prompt" else self.answer

    def _show_view(self, name: str) -> None:
        self.views.set_value(name)
        if name == "prompt" and self._record is not None and self.prompt.current < 0:
            texts = [self._record.text(token) for token in self._record.prompt]
            self.prompt.show_tokens(texts, [_EVERY_OTHER * (at % 2) for at in range(len(texts))])
        self.stack.setCurrentWidget(self._view)
        self._show_parts()
        self._view.choose(max(self._view.current, 0))

    def _show_token(self, place: int) -> None:
        record = self._record
        if record is None:
            return
        if self._view is self.prompt:
            words = self.details.show_prompt_token(record, place)
        else:
            words = self.details.show_token(record, place, self._cannot)
        self._view.setAccessibleDescription(words)
        announce(self, words)

    def _find(self) -> None:
        if self.search.text() and not self._view.find_next(self.search.text()):
            announce(self, tr("Not found"))
            self.search.selectAll()

    def _leave_search(self) -> None:
        if self.search.text():
            self.search.clear()
        else:
            self._view.setFocus()

    def _branch(self, token: int) -> None:
        if self._record is not None:
            self.branched.emit(self._record.branched(self.answer.current, token))
            self.accept()

    def _copy(self, ids: bool) -> None:
        record = self._record
        if record is None:
            return
        tokens = record.prompt if self._view is self.prompt else record.ids
        words = " ".join(map(str, tokens)) if ids else joined_text(record, tokens)
        QGuiApplication.clipboard().setText(words)
        announce(self, tr("Copied"))

    def focusNextPrevChild(self, forward: bool) -> bool:
        return tab_order.move_on(self, forward)  # the rows are made late

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._side.setFixedWidth(min(theme.px(BESIDE), self.width() // 2))

    def _restyle(self) -> None:
        px = theme.px
        self._column.setContentsMargins(px(24), px(20), px(24), px(20))
        self._column.setSpacing(px(12))
        self._body.setSpacing(px(18))
        self._head.setSpacing(px(8))
        self._foot.setSpacing(px(4))
        self._acts.setSpacing(px(4))
        self.search.setFixedWidth(px(200))
        font = theme.font("code")
        font.setPixelSize(theme.px(16))
        self.details.token.setFont(font)
        set_smallest(self, 520, 420)
