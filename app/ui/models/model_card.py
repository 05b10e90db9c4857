"""The card of one model: what it is, whether it fits, its speed, and its download, preparation or load.

A card has one bar: progress replaces the bar of the placement.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from PySide6.QtCore import QRect, QRectF, Qt, QTimer, QVariantAnimation, Signal
from PySide6.QtGui import QFontMetrics, QPainter
from PySide6.QtWidgets import QWidget

from app.clients.engine_status import EngineStatus, Phase
from app.library_messages import remark
from app.models import model_labels
from app.models.model_rows import ModelRow
from app.translation import noted, tr
from app.ui.look import icons, theme
from app.ui.look.direction import leading, order
from app.ui.look.painting import block, say_changed
from app.ui.widgets.card_frame import CardFrame, chip_width, elided
from app.ui.widgets.controls import Button, IconButton
from app.ui.widgets.indicators import paint_dot, paint_share
from app.units import gigabytes

PROBLEM_LINES = 3  # of a sentence that says why a download stopped
RATE_PX = 118  # the column of rates at the card's end
PROGRESS_MS = 200
SHIPPED = noted("Tiny and always there. Good for a first try.")
STAGES = ("convert", "profile", "train", "solve")
BASE_STAGES = ("profile", "train", "solve")  # converting is listed only if it is needed


@dataclass(frozen=True)
class Activity:
    """Work in progress on a model, as bar and text. done: 0 to 1, None if unknown."""

    done: float | None
    left: str
    right: str
    resting: bool = False  # paused or waiting: the bar is grey
    stage: str = ""  # of preparing
    actions: tuple[str, ...] = ()


def activity_of(row: ModelRow, status: EngineStatus | None = None) -> Activity | None:
    """Return the work in progress on a row's model, None if there is none."""
    if row.loading:
        share = status.done / status.total if status is not None and status.total else None
        words = status.word if status is not None and status.phase is Phase.LOADING else tr("Loading")
        return Activity(share, words, "", actions=("cancel-load",))
    if row.preparing is not None:
        now = row.preparing
        share = now.done / now.total if now.total else None
        doing = tr(model_labels.STAGES_DOING.get(now.stage, noted("Preparing")))
        words = f"{doing}, {100 * share:.0f}%" if share is not None else doing
        return Activity(share, words, model_labels.time_left(now.eta_s), stage=now.stage,
                     actions=("cancel-prepare",))  # fmt: skip
    get = row.download
    if get is None or get.state == "done":
        return None
    left, right = model_labels.download_lines(get)
    share = get.done_bytes / get.total_bytes if get.total_bytes else None
    goes = get.state in {"downloading", "checking"}
    actions = {"failed": ("retry", "cancel"), "paused": ("resume", "cancel"), "checking": ("cancel",)}
    return Activity(share, left, right, not goes, actions=actions.get(get.state, ("pause", "cancel")))


def main_actions(row: ModelRow) -> tuple[str, ...]:
    """Return the actions of a card's buttons without work in progress; the main action, if any, comes last."""
    if row.in_use:
        return ("unload",)
    if row.installed is not None:
        if row.installed.state == "broken":
            if row.installed.owned and row.installed.repo:
                return ("repair",)
            if row.entry is not None:
                return ("download",)
            return ("delete" if row.installed.owned else "remove",)
        if row.estimate is not None and row.estimate.fits == "no":
            return ("fits",)
        if row.kind == "embedding":
            return ()
        return ("prepare", "chat") if row.installed.state == "needs preparing" else ("chat",)
    if row.estimate is not None and row.estimate.fits == "no":
        return ("fits",)
    return ("download",)


def can_prepare(row: ModelRow) -> bool:
    """Return whether the model on this PC is one that Hearth prepares: not its own, and one that answers."""
    return row.installed is not None and row.installed.origin != "shipped" and row.kind != "embedding"


ACTION_TEXTS = {
    "download": noted("Download"), "fits": noted("What would fit?"), "chat": noted("Chat"), "unload": noted("Unload"),
    "prepare": noted("Prepare"), "retry": noted("Try again"), "delete": noted("Delete"), "repair": noted("Repair"),
    "remove": noted("Remove from list"),
}  # fmt: skip
DEAF_MS = 1000  # how long a button ignores clicks if it appears where Cancel was pressed
GLYPHS = {
    "pause": ("pause", noted("Pause the download")), "resume": ("go-on", noted("Resume the download")),
    "cancel": ("close", noted("Cancel the download")), "cancel-load": ("close", noted("Stop loading")),
    "cancel-prepare": ("close", noted("Stop preparing")), "more": ("more", noted("More")),
}  # fmt: skip


class _More(IconButton):
    """The menu button of a card, visible while the card is hovered or focused."""

    def paintEvent(self, event: object) -> None:
        card = self.parentWidget()
        if self.hasFocus() or (isinstance(card, ModelCard) and (card.hovered or card.hasFocus())):
            super().paintEvent(event)  # type: ignore[arg-type]


class ModelCard(CardFrame):
    """A model. asked: row id and action: a key of ACTION_TEXTS or GLYPHS, or "details"."""

    asked = Signal(str, str)

    def __init__(self, row: ModelRow, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.row = row
        self.activity: Activity | None = None
        self.suggested = False  # whether its Download is the page's only primary button
        self._status: EngineStatus | None = None
        self._converts = False  # whether preparing began with that stage
        self.buttons: dict[str, Button] = {}  # the visible ones, from the leading edge
        self._made: dict[str, Button] = {}
        self._cancelled: QRect | None = None  # where the pressed Cancel button was
        self._deaf: set[str] = set()  # buttons that have just appeared there and ignore clicks
        self._shown = 0.0  # the bar's current value while it animates
        self._run = QVariantAnimation(self)
        self._run.valueChanged.connect(self._move_bar)
        self.pressed.connect(lambda: self.asked.emit(self.row.id, "details"))
        self._take(None)
        self.restyle()

    # --- updates

    def set_row(self, row: ModelRow) -> None:
        """Show the model's current state."""
        if row == self.row:
            return
        before, self.row = self.activity, row
        self._take(before)

    def set_status(self, status: EngineStatus) -> None:
        """Show the engine's status: the progress of loading this model."""
        if not self.row.loading:
            self._status = None
            return
        self._status = status
        self._take(self.activity)

    def set_suggested(self, suggested: bool) -> None:
        """Make Download the page's primary button, or a secondary one."""
        if suggested != self.suggested:
            self.suggested = suggested
            if "download" in self._made:
                self._made["download"].set_look("primary" if suggested else "secondary")

    def _take(self, before: Activity | None) -> None:
        self.activity = activity_of(self.row, self._status)
        self._converts = self.activity is not None and (self.activity.stage == "convert" or self._converts)
        self._show_buttons()
        target = self.activity.done if self.activity is not None and self.activity.done is not None else 0.0
        if before is None or self.activity is None or not self.isVisible() or target < self._shown:
            self._run.stop()
            self._shown = target
        elif target != self._run.endValue() or self._run.state() != QVariantAnimation.State.Running:
            self._run.stop()
            self._run.setDuration(theme.duration(PROGRESS_MS))
            self._run.setStartValue(self._shown)
            self._run.setEndValue(target)
            self._run.start()
        words = self.words()
        if words != self.accessibleName():
            self.setAccessibleName(words)
            say_changed(self)
        self.setToolTip(self._full_text())
        self.update()

    def _move_bar(self, value: float) -> None:
        self._shown = value
        self.update(self.mirrored(self._bar_rect()).toAlignedRect().adjusted(-1, -1, 1, 1))

    def words(self) -> str:
        """Return the card's text for a screen reader."""
        row = self.row
        rate, span = self.rate()
        where = model_labels.place(row.estimate) if row.estimate is not None else ""
        activity = f"{self.activity.left} {self.activity.right}".strip() if self.activity is not None else ""
        parts = (row.name, row.verdict, self.by_line(), self.sentence()[0], where, f"{rate} {span}".strip(), activity)
        return ". ".join(part.rstrip(".") for part in parts if part.strip("– "))

    def _full_text(self) -> str:
        """Return the texts that do not fit the card, as tooltip."""
        sentence, _ = self.sentence()
        name = elided(self.row.name, "heading", 100_000)[1] > self.width() - theme.px(140)
        if self._is_stopped:
            long = self.lines_of(sentence) > PROBLEM_LINES
        else:
            long = elided(sentence, "small", 100_000)[1] > self.inside().width()
        return "\n".join(words for words, cut in ((self.row.name, name), (sentence, long)) if cut)

    @property
    def _is_stopped(self) -> bool:
        return self.row.download is not None and bool(model_labels.stopped_why(self.row.download))

    def lines_of(self, sentence: str) -> int:
        """Return how many lines a sentence beside an icon takes."""
        metrics = QFontMetrics(theme.font("small"))
        room = QRect(0, 0, int(self.inside().width()) - theme.px(22), 1 << 20)
        high = metrics.boundingRect(room, Qt.TextFlag.TextWordWrap, sentence).height()
        return math.ceil(high / metrics.lineSpacing())

    def by_line(self) -> str:
        """Return maker, kind if it is not a chat model, access and licence."""
        row = self.row
        gated = tr("asks for access") if row.entry is not None and row.entry.gated and row.installed is None else ""
        here = row.installed is not None  # otherwise the summary says more, and the line is full
        base = tr("base model, continues text") if here else tr("base model")
        kind = {"base": base, "embedding": tr("embedding model")}.get(row.kind, "")  # a chat model is the usual case
        return " · ".join(part for part in (row.maker, kind, row.licence, gated) if part)

    def sentence(self) -> tuple[str, str]:
        """Return the sentence and its colour token. Problems come before the summary."""
        row = self.row
        if row.download is not None and (why := model_labels.stopped_why(row.download)):
            return why, "bad" if row.download.state == "failed" else "warn"
        if row.installed is not None and row.installed.state == "broken":
            return remark(row.installed.reason), "bad"
        if row.estimate is not None and row.estimate.fits == "no":
            return model_labels.short_of(row.estimate), ""
        if row.estimate is not None and row.reads_disk:
            return model_labels.from_disk(row.estimate), ""
        if row.installed is not None and row.installed.state == "needs preparing" and row.installed.reason:
            return remark(row.installed.reason), ""
        if row.installed is not None and row.installed.origin == "shipped" and not row.summary:
            return tr(SHIPPED), ""
        return row.summary, ""

    def rate(self) -> tuple[str, str]:
        """Return the rate, and how reliable it is."""
        return self.row.speed

    def facts(self) -> list[str]:
        """Return the texts of the plain chips."""
        row = self.row
        size = gigabytes(row.n_bytes) if row.n_bytes else ""
        return [fact for fact in (model_labels.parameters(row.parameters), model_labels.codec(row.codec), size) if fact]

    # --- buttons

    def _show_buttons(self) -> None:
        actions = self.activity.actions if self.activity is not None else ("more", *main_actions(self.row))
        new = set(actions) - set(self.buttons)
        if tuple(self.buttons) != actions:
            held = next((act for act, button in self.buttons.items() if button.hasFocus()), None)
            for act, button in self.buttons.items():
                if act not in actions:
                    button.hide()
            self.buttons = {act: self._button(act) for act in actions}
            for button in self.buttons.values():
                button.show()
            if held is not None and held not in self.buttons:  # keep the keyboard focus on this card
                self.buttons[actions[0] if self.activity is not None else actions[-1]].setFocus()
        for act, button in self.buttons.items():
            what = button.text() or tr(GLYPHS.get(act, ("", ""))[1])
            button.setAccessibleName(f"{what}: {self.row.name}")
        self.arrange()
        if new and self._cancelled is not None:  # ignore a second click meant for the Cancel button that was there
            where, self._cancelled = self._cancelled, None
            self._deaf = {act for act in new if self.buttons[act].geometry().intersects(where)}
            QTimer.singleShot(DEAF_MS, self, self._hear_again)

    def _hear_again(self) -> None:
        self._deaf = set()

    def _button(self, act: str) -> Button:
        if act not in self._made:
            self._made[act] = self._make(act)
        return self._made[act]

    def _make(self, act: str) -> Button:
        if act in GLYPHS:
            glyph, words = GLYPHS[act]
            kind = _More if act == "more" else IconButton
            button: Button = kind(glyph, tr(words), parent=self)
        elif act == "download":
            button = Button(tr(ACTION_TEXTS[act]), "primary" if self.suggested else "secondary", "get", parent=self)
            button.glyph_px = 16
        else:
            button = Button(tr(ACTION_TEXTS[act]), "quiet" if act == "prepare" else "secondary", parent=self)
        button.clicked.connect(lambda _=False, act=act: self._act(act))
        button.hide()
        return button

    def _act(self, act: str) -> None:
        if act == "more":
            corner = self._made["more"].rect().bottomLeft()
            self.menu_requested.emit(self._made["more"].mapToGlobal(corner))
        elif act not in self._deaf:
            self._cancelled = self._made[act].geometry() if act.startswith("cancel") else None
            self.asked.emit(self.row.id, act)

    def set_hovered(self, hovered: bool) -> None:
        super().set_hovered(hovered)
        if "more" in self.buttons:
            self.buttons["more"].update()

    def arrange(self) -> None:
        box = self.inside()
        x = box.right()
        for button in reversed(self.buttons.values()):
            wide, high = button.sizeHint().width(), button.sizeHint().height()
            x -= wide
            rect = QRectF(x, box.bottom() - high, wide, high)
            button.setGeometry(self.mirrored(rect).toRect())
            x -= theme.px(2 if self.activity is not None else 6)
        self._buttons_from = x - (theme.px(8) if self.activity is not None and "retry" in self.buttons else 0)

    # --- painting

    def _bar_rect(self) -> QRectF:
        """Return the rectangle of the progress bar, left of the buttons."""
        box, high = self.inside(), theme.px(6)
        top = box.bottom() - theme.px(32) + theme.px(1)
        return QRectF(box.left(), top, max(self._buttons_from - theme.px(4) - box.left(), 0), high)

    def paint_text(self, painter: QPainter) -> None:
        px, box, row = theme.px, self.inside(), self.row
        taken = self.chip(painter, row.verdict, box.right(), box.top(), row.verdict_token, True) if row.verdict else 0
        room = box.width() - (taken + px(10) if taken else 0)
        self.write(painter, row.name, QRectF(box.left(), box.top(), room, px(20)), "heading")
        self.write(painter, self.by_line(), QRectF(box.left(), box.top() + px(21), room, px(16)), "meta")
        sentence, token = self.sentence()
        line = QRectF(box.left(), box.top() + px(45), box.width(), px(18))
        if token:  # colour is never the only cue
            icon_rect = QRectF(line.left(), line.top() + px(1), px(16), px(16))
            icons.paint(painter, "warn", self.mirrored(icon_rect), theme.colour(token))
            line.setLeft(line.left() + px(22))
        lines = min(self.lines_of(sentence), PROBLEM_LINES) if self._is_stopped else 1
        if lines > 1:  # it matters more than the placement below
            painter.setFont(theme.font("small"))
            painter.setPen(theme.colour(token))
            line.setHeight(lines * line.height())
            flags = int(leading(self.isRightToLeft())) | Qt.TextFlag.TextWordWrap | order(sentence)
            painter.drawText(self.mirrored(line), flags, sentence)
        else:
            self.write(painter, sentence, line, "small", token)
            self._paint_fit(painter, box.top() + px(75))
        if self.activity is None:
            self._paint_facts(painter)
        else:
            if self.activity.stage:
                self._paint_stages(painter, box.bottom() - px(32) - px(22))
            self._paint_activity(painter)

    def _paint_fit(self, painter: QPainter, top: float) -> None:
        """Paint the placement bar with its text, and the rate; with work in progress, leave out the bar."""
        px, box, estimate = theme.px, self.inside(), self.row.estimate
        wide = box.width() - px(RATE_PX) - px(12)
        below = top - px(2)
        if estimate is not None:
            if self.activity is None:
                share, rest = model_labels.bar(estimate)
                bar = QRectF(box.left(), top + px(2), wide - px(6), px(6))
                paint_share(painter, self.mirrored(bar), share, rest, self.isRightToLeft())
                below = top + px(15)
            words = model_labels.place(estimate)
            self.write(painter, words, QRectF(box.left(), below, wide, px(16)), "meta", "ink2")
        rate, span = self.rate()
        if rate != "–":
            at = QRectF(box.right() - px(RATE_PX), top - px(5), px(RATE_PX), px(20))
            self.write(painter, rate, at, "rate", at_end=True)
            self.write(painter, span, at.translated(0, px(20)).adjusted(0, 0, 0, -px(4)), "meta", at_end=True)

    def _paint_facts(self, painter: QPainter) -> None:
        px, box = theme.px, self.inside()
        x, top = box.left(), box.bottom() - px(32) / 2 - px(22) / 2
        for fact in self.facts():
            if x + chip_width(fact) > self._buttons_from:
                break
            x += self.chip(painter, fact, x, top) + px(6)

    def _paint_stages(self, painter: QPainter, top: float) -> None:
        """Paint the stages: done with a check, current with a dot, future in grey."""
        assert self.activity is not None
        px, x, now = theme.px, self.inside().left(), self.activity.stage
        stages = STAGES if self._converts else BASE_STAGES
        at = stages.index(now) if now in stages else 0
        for i, stage in enumerate(stages):
            icon_rect, words = QRectF(x, top + px(1), px(14), px(14)), tr(model_labels.STAGE_TEXTS[stage])
            if i < at:
                icons.paint(painter, "check", self.mirrored(icon_rect), theme.colour("ok"))
            else:
                paint_dot(
                    painter, self.mirrored(icon_rect), theme.colour("hot_fill" if i == at else "control"), i == at
                )
            role, token = ("metastrong", "ink") if i == at else ("meta", "ink2" if i < at else "ink3")
            x += px(18)
            room = QRectF(x, top, max(self.inside().right() - x, 0), px(16))
            x += self.write(painter, words, room, role, token) + px(14)

    def _paint_activity(self, painter: QPainter) -> None:
        assert self.activity is not None
        px, bar = theme.px, self._bar_rect()
        block(painter, self.mirrored(bar), theme.colour("bubble"), bar.height() / 2)
        if self._shown > 0:
            done = QRectF(bar.x(), bar.y(), max(bar.width() * self._shown, bar.height()), bar.height())
            colour = theme.colour("control" if self.activity.resting else "hot_fill")
            block(painter, self.mirrored(done), colour, bar.height() / 2)
        line = QRectF(bar.left(), bar.bottom() + px(6), bar.width(), px(16))
        right = elided(self.activity.right, "meta", int(bar.width()))[1]
        self.write(painter, self.activity.left, line.adjusted(0, 0, -right - px(8) if right else 0, 0), "meta", "ink2")
        self.write(painter, self.activity.right, line, "meta", at_end=True)
