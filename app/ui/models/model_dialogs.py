"""The dialogs of the Models page: prepare, what would fit instead, import, repair, access token.

The dialog with a model's details is in model_details.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLineEdit, QVBoxLayout, QWidget

from app.models import model_labels
from app.models.model_labels import Rate, rate_text
from app.models.model_rows import ModelRow
from app.translation import noted, tr, tr_n
from app.ui.look import theme
from app.ui.widgets.controls import Button, Chip, Label, Rule, Segments
from app.ui.widgets.dialog import Dialog
from app.ui.widgets.floating import ConfirmDialog, confirm
from app.units import gigabytes
from app.user_messages import UserMessage
from engine.library.records import PreparePlan, PrepareStep

STEP_TITLES = {
    "convert": noted("Arrange the weights for this PC"), "profile": noted("Count which neurons are active"),
    "train": noted("Train predictors"), "solve": noted("Place the neurons"),
}  # fmt: skip


def card_of_rows(rows: Sequence[QWidget]) -> QFrame:
    """Return a bordered card with hairlines between its rows."""
    card = QFrame()
    card.setProperty("kind", "card")
    inside = QVBoxLayout(card)
    inside.setContentsMargins(1, 1, 1, 1)
    inside.setSpacing(0)
    for i, row in enumerate(rows):
        if i:
            inside.addWidget(Rule())
        inside.addWidget(row)
    return card


def two_lines(title: str, line: str, *right: QWidget) -> QFrame:
    """Return a row of a card: two lines of text, then the given widgets at the right."""
    row = QFrame()
    across = QHBoxLayout(row)
    across.setContentsMargins(theme.px(14), theme.px(9), theme.px(12), theme.px(9))
    across.setSpacing(theme.px(10))
    words = QVBoxLayout()
    words.setSpacing(1)
    words.addWidget(Label(title, "label", wrap=True))
    if line:
        words.addWidget(Label(line, "small", wrap=True))
    across.addLayout(words, 1)
    for widget in right:
        across.addWidget(widget, 0, Qt.AlignmentFlag.AlignVCenter)
    return row


# --- preparing


class PrepareDialog(Dialog):
    """Shows what preparing a model would gain and need, before it starts. chosen: "train" or "sign".

    The steps, and when to train, are in the folded details.
    """

    chosen = Signal(str)

    def __init__(self, parent: QWidget, row: ModelRow) -> None:
        super().__init__(
            parent, tr("Prepare {name} for this PC", name=row.name), tr("Finding out what would help"), 520
        )
        self.row = row
        self.predictors = Segments(
            [("train", tr("Train now")), ("sign", tr("Train when idle"))], "train", tr("Predictors")
        )
        self.steps = QFrame()
        self.steps.setAutoFillBackground(False)
        self.details = self.add_button(Button(tr("Details"), "quiet"), at_start=True)
        self.details.clicked.connect(self._toggle_details)
        for part in (self.steps, self.details):
            part.hide()
        self.later = self.add_close(tr("Not now"))
        self.start = self.add_button(Button(tr("Prepare"), "primary"))
        self.start.setEnabled(False)
        self.start.clicked.connect(self._begin)

    def _begin(self) -> None:
        self.chosen.emit(self.predictors.value())
        self.accept()

    def show_message(self, message: UserMessage) -> None:
        """Show why there is no plan."""
        self.heading.setText(message.title)
        self.start.hide()
        self.later.setText(tr("Close"))
        self.say(message.sentence)

    def show_plan(self, plan: PreparePlan) -> None:
        """Show the steps, their duration, and the gain."""
        gain = gain_text(plan, self.row.rate)
        steps = [step for step in plan.steps if step.stage != "solve"] or list(plan.steps)
        if not plan.steps:
            self.start.hide()
            self.later.setText(tr("Close"))
            self.say(tr("There is nothing to prepare: it already runs here as well as it can."))
            return
        parts = [gain]
        disk = tr("{size} on the disk", size=gigabytes(plan.disk_bytes)) if plan.disk_bytes else ""
        total = model_labels.duration(plan.eta_s)
        needs = tr("{time} and {room}", time=total, room=disk) if total and disk else total or disk
        if needs:
            parts.append(tr("Needs {needs}.", needs=needs))
        if plan.interrupted:
            parts.append(tr("Continues where the last attempt ended."))
        parts.append(tr("You can keep chatting meanwhile."))
        column = QVBoxLayout(self.steps)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(self.body.spacing())
        column.addWidget(card_of_rows([self._step(step) for step in steps]))
        if plan.can_use_sign and any(step.stage == "train" for step in plan.steps):
            foot = QHBoxLayout()
            foot.setSpacing(theme.px(12))
            words = Label(
                tr("Until the predictors are trained, a simpler one is used, which is a little slower."),
                "small",
                wrap=True,
            )
            foot.addWidget(words, 1)
            foot.addWidget(self.predictors)
            column.addLayout(foot)
        else:
            self.predictors.hide()
        self.body.addWidget(self.steps)
        self.details.show()
        self.start.setText(tr("Continue") if plan.interrupted else tr("Prepare"))
        self.start.setEnabled(True)
        self.say(" ".join(part for part in parts if part))

    def _toggle_details(self) -> None:
        shown = self.steps.isHidden()
        self.steps.setVisible(shown)
        self.details.setText(tr("Hide details") if shown else tr("Details"))
        self.fit()

    @staticmethod
    def _step(step: PrepareStep) -> QFrame:
        eta = Label(model_labels.duration(step.eta_s), "meta", "ink2")
        return two_lines(tr(STEP_TITLES[step.stage]), step.why, eta)


def gain_text(plan: PreparePlan, now: Rate | None) -> str:
    """Return the gain of a plan in a sentence. now: the model's rate as its card shows it."""
    if plan.then_tok_s is None:
        return ""
    if plan.now_tok_s is None:
        return tr("It should reach {then}.", then=rate_text(Rate(plan.then_tok_s))[0])
    if plan.then_tok_s < 1.05 * plan.now_tok_s:
        return tr("It will hardly become faster.")
    now = now or Rate(plan.now_tok_s)
    then = now.changed(plan.now_tok_s, plan.then_tok_s)
    assert then is not None
    words = rate_text(now)
    shown = tr("{rate} ({how})", rate=words[0], how=words[1]) if now.is_measured else words[0]
    return tr("From {now} to {then}.", now=shown, then=rate_text(then)[0])


# --- what would fit


class FitDialog(Dialog):
    """Lists models that fit, for one that does not. chosen: a row's id."""

    chosen = Signal(str)

    def __init__(self, parent: QWidget, row: ModelRow, nearest: Sequence[ModelRow]) -> None:
        sentence = model_labels.short_of(row.estimate) if row.estimate is not None else ""
        if nearest:
            sentence += " " + tr("These come nearest to it.")
        else:
            sentence += " " + tr("No other model that Hearth knows of fits either.")
        super().__init__(parent, tr("{name} does not fit", name=row.name), sentence, 480)
        rows = []
        for near in nearest:
            rate, span = near.speed
            line = " · ".join(part for part in (gigabytes(near.n_bytes), f"{rate}, {span}" if span else rate) if part)
            button = Button(tr("Show"))
            button.setAccessibleName(tr("Show {name}", name=near.name))
            button.clicked.connect(lambda _=False, near=near: self._choose(near.id))
            rows.append(two_lines(near.name, line, Chip(near.verdict, near.verdict_token), button))  # type: ignore[arg-type]
        if rows:
            self.body.addWidget(card_of_rows(rows))
        self.add_close()

    def _choose(self, row_id: str) -> None:
        self.accept()
        self.chosen.emit(row_id)


# --- import and removal


class ImportDialog(Dialog):
    """Asks whether to use a model in place or to copy it into Hearth's folder. chosen: path and copy."""

    chosen = Signal(str, bool)

    def __init__(self, parent: QWidget, path: str, name: str) -> None:
        super().__init__(parent, tr("Add {name}", name=name), "", 440)
        self.path = path
        where = Label(path, "meta", wrap=True)
        where.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.body.addWidget(where)
        self.way = Segments([(False, tr("Use it where it is")), (True, tr("Copy it"))], False, tr("How to add it"))
        self.body.addWidget(self.way, 0, Qt.AlignmentFlag.AlignLeft)
        self.says = Label("", "small", wrap=True)
        self.body.addWidget(self.says)
        self.way.picked.connect(self._explain)
        self._explain(False)
        self.add_close(tr("Cancel"))
        self.add = self.add_button(Button(tr("Add"), "primary"))
        self.add.clicked.connect(self._choose)
        self.add.setDefault(True)  # the file is already chosen
        self.add.setFocus()

    def _explain(self, copy: bool) -> None:
        self.says.setText(
            tr("It is copied and checked. You can delete the original afterwards.")
            if copy
            else tr("Takes no extra space. It must stay there; Hearth never changes or deletes it.")
        )
        self.fit()

    def _choose(self) -> None:
        self.accept()
        self.chosen.emit(self.path, bool(self.way.value()))


def ask_remove(parent: QWidget, row: ModelRow, on_yes: Callable[[], None]) -> ConfirmDialog:
    """Confirm before a model is deleted, or removed from the list if its files are not Hearth's."""
    assert row.installed is not None
    model = row.installed
    if not model.owned:
        return confirm(
            parent, tr("Remove {name} from the list?", name=row.name),
            tr("Its files are not Hearth's and stay where they are."), tr("Keep"), tr("Remove from list"), on_yes,
        )  # fmt: skip
    fetched = model.origin == "download" or bool(model.repo)
    again = tr("Getting it back means downloading it again.") if fetched else tr("It was copied here from elsewhere.")
    used = tr("It is unloaded first.") if row.in_use or row.loading else ""
    return confirm(
        parent,
        tr("Delete {name}?", name=row.name),
        " ".join(part for part in (tr("Frees {size}.", size=gigabytes(model.n_bytes)), again, used) if part),
        tr("Keep"),
        tr("Delete"),
        on_yes,
    )


class RepairDialog(Dialog):
    """Offers to download damaged files again after a check."""

    def __init__(self, parent: QWidget, row: ModelRow, damaged: Sequence[str], on_yes: Callable[[], None]) -> None:
        sentence = tr_n(
            "One file differs from the hub's. Repairing downloads only that.",
            "{n} files differ from the hub's. Repairing downloads only those.",
            len(damaged),
        )
        super().__init__(parent, tr("{name} is damaged", name=row.name), sentence, 440)
        self.body.addWidget(Label("\n".join(damaged[:8]), "meta", "ink2", wrap=True))
        self.add_close(tr("Not now"))
        repair = self.add_button(Button(tr("Repair"), "primary"))
        repair.clicked.connect(self.accept)
        self.accepted.connect(on_yes)


# --- token


class TokenDialog(Dialog):
    """Asks for the access token of gated repositories. chosen: the token; "" removes it."""

    chosen = Signal(str)

    def __init__(self, parent: QWidget) -> None:
        super().__init__(
            parent, tr("Access token"),
            tr("Some models require you to accept terms first. Accept them on the model's page, then create a "
               "read token in your account on the hub and paste it here."), 440,
        )  # fmt: skip
        self.field = QLineEdit()
        self.field.setProperty("kind", "field")
        self.field.setEchoMode(QLineEdit.EchoMode.Password)
        self.field.setPlaceholderText("hf_…")
        self.field.setAccessibleName(tr("Access token"))
        self.field.setFont(theme.font("row"))
        self.field.textChanged.connect(self._typed)
        self.field.returnPressed.connect(self._keep)
        self.body.addWidget(self.field)
        self.where = Label(tr("It is stored in this system's keyring and sent only to the hub."), "small", wrap=True)
        self.body.addWidget(self.where)
        self.remove_button = self.add_button(Button(tr("Remove token"), "danger"), at_start=True)
        self.remove_button.hide()
        self.remove_button.clicked.connect(lambda: self._tell(""))
        self.add_close(tr("Cancel"))
        self.keep = self.add_button(Button(tr("Keep"), "primary"))
        self.keep.setEnabled(False)
        self.keep.clicked.connect(self._keep)
        self.field.setFocus()

    def show_state(self, state: dict[str, object]) -> None:
        """Show whether there is a token and where it is kept."""
        has, where, note = bool(state.get("has_token")), str(state.get("where", "")), str(state.get("note", ""))
        places = {
            "keyring": tr("The token is stored in this system's keyring."),
            "environment": tr(
                "A token comes from the environment (HF_TOKEN); it takes precedence over one saved here."
            ),
            "memory": tr("The token is kept until you close Hearth."),
            "file": tr("The token is stored in a file that only you can read."),
        }
        words = places.get(where, "") if has else ""
        self.remove_button.setVisible(has and where != "environment")
        self.where.setText(" ".join(part for part in (words, note) if part) or self.where.words)
        self.fit()

    def _typed(self, text: str) -> None:
        self.keep.setEnabled(bool(text.strip()))

    def _keep(self) -> None:
        if self.field.text().strip():
            self._tell(self.field.text().strip())

    def _tell(self, token: str) -> None:
        self.field.clear()
        self.accept()
        self.chosen.emit(token)
