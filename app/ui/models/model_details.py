"""The dialog with all details of a model: fit, licence, files, folder, and actions.

It shows the row as it was when the dialog opened.
"""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QWidget

from app.clients.engine_status import translated
from app.library_messages import remark
from app.models import model_labels
from app.models.model_rows import ModelRow
from app.translation import figure, noted, tr
from app.ui.look import theme
from app.ui.models.model_card import ACTION_TEXTS, can_prepare, main_actions
from app.ui.widgets.controls import Button, Chip, Label, ShareBar
from app.ui.widgets.dialog import Dialog, Facts
from app.units import gigabytes

ORIGINS = {
    "download": noted("downloaded"), "copied": noted("copied here"),
    "in place": noted("used where it is; not Hearth's to delete"),
    "hub cache": noted("in the hub's cache; not Hearth's to delete"),
    "LM Studio": noted("LM Studio's file; Hearth never changes or deletes it"),
    "Ollama": noted("Ollama's file; Hearth never changes or deletes it"),
    "Jan": noted("Jan's file; Hearth never changes or deletes it"),
    "GPT4All": noted("GPT4All's file; Hearth never changes or deletes it"), "shipped": noted("comes with Hearth"),
    "converted": noted("made here by converting"),
}  # fmt: skip
MOST_FILES = 8


class DetailsDialog(Dialog):
    """asked: as for a card. Actions: the card's, "prepare", "delete", "verify", "repair", "folder", "page"."""

    asked = Signal(str, str)

    def __init__(self, parent: QWidget, row: ModelRow) -> None:
        super().__init__(parent, row.name, row.summary, 520)
        self.row = row
        self._fit_part()
        self.body.addWidget(Facts(self._facts()))
        self._files_part()
        self._buttons()

    def _fit_part(self) -> None:
        row, estimate = self.row, self.row.estimate
        line = QHBoxLayout()
        line.setSpacing(theme.px(8))
        if row.verdict:
            line.addWidget(Chip(row.verdict, row.verdict_token))  # type: ignore[arg-type]
        rate, span = row.speed
        if rate != "–":
            line.addWidget(Label(rate, "rate"))
            line.addWidget(Label(span, "meta"))
        line.addStretch(1)
        if line.count() > 1:
            self.body.addLayout(line)
        if estimate is None:
            return
        share, rest = model_labels.bar(estimate)
        self.body.addWidget(ShareBar(share, height=6, rest=rest))
        self.body.addWidget(Label(" ".join(fit_reasons(row)), "small", wrap=True))

    def _facts(self) -> list[tuple[str, str]]:
        row, entry, model = self.row, self.row.entry, self.row.installed
        facts = [
            (tr("Made by"), row.maker),
            (
                tr("Kind"),
                {
                    "chat": tr("chat model"),
                    "base": tr("base model, continues text"),
                    "embedding": tr("embedding model"),
                }.get(row.kind, ""),
            ),
            (tr("Licence"), row.licence),
            (tr("Parameters"), model_labels.parameters(row.parameters)),
            (tr("Weights"), model_labels.codec(row.codec)),
            (tr("Size"), gigabytes(row.n_bytes) if row.n_bytes else ""),
        ]
        if entry is not None:
            share, shape = entry.sparsity.active_share, entry.shape
            if share is not None:
                active = tr("about {share}% per token", share=figure(100 * share, ".0f"))
            elif shape.n_experts:
                active = tr("{used} of {all} experts per token", used=shape.n_experts_used, all=shape.n_experts)
            else:
                active = tr("all (dense model)")
            source = entry.sparsity.source_note or tr(_SOURCES[entry.sparsity.source])
            facts += [
                (tr("Neurons in use"), active),
                (tr("Source"), source if share is not None else ""),
                (tr("Context"), tr("up to {max_context} tokens", max_context=figure(shape.max_context))),
                (tr("Repository"), entry.repo),
                (tr("Predictors"), entry.predictor_repo),
                (
                    tr("Access"),
                    tr("Needs an access token: its maker requires you to accept terms.") if entry.gated else "",
                ),
            ]
        if model is not None:
            facts += [
                (tr("Repository"), model.repo if entry is None else ""),
                (tr("Folder"), model.folder),
                (tr("Origin"), tr(ORIGINS[model.origin])),
                (tr("Prepared"), model.prepared),
                (tr("State"), remark(model.reason) if model.state != "ready" else ""),
            ]
        return [(name, value) for name, value in facts if value]

    def _files_part(self) -> None:
        model, entry = self.row.installed, self.row.entry
        if model is not None and model.files:
            files = [f"{file.name}, {gigabytes(file.n_bytes)}" for file in model.files]
        elif entry is not None:
            files = list(entry.files)
        else:
            return
        more = len(files) - MOST_FILES
        shown = files[:MOST_FILES] + ([tr("and {more} more", more=more)] if more > 0 else [])
        label = Label("\n".join(shown), "meta", "ink2", wrap=True)
        label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        label.setAccessibleName(tr("Files: {names}", names=", ".join(shown)))
        self.body.addWidget(Label(tr("Files"), "smallstrong"))
        self.body.addWidget(label)

    def _buttons(self) -> None:
        row, model = self.row, self.row.installed
        if model is not None and model.origin != "shipped":
            words = tr("Delete") if model.owned else tr("Remove from list")
            self._offer("delete", words, "danger", at_start=True)
        elif row.entry is not None and row.entry.repo:
            self._offer("page", tr("Open its page"), "quiet", at_start=True)
        if model is not None and model.owned and model.state == "broken":
            self._offer("repair", tr("Repair"), "secondary")
        elif model is not None and model.state != "broken" and not row.preparing and can_prepare(row):
            self._offer("prepare", tr("Prepare for this PC"), "secondary")
        self.add_close()
        actions = main_actions(row)
        main = actions[-1] if actions else ""
        if main in {"download", "chat"} and not (row.download or row.preparing or row.loading):
            self._offer(main, tr(ACTION_TEXTS[main]), "primary")

    def _offer(self, act: str, words: str, look: str, at_start: bool = False) -> None:
        button = self.add_button(Button(words, look), at_start)  # type: ignore[arg-type]
        button.setAccessibleName(f"{words}: {self.row.name}")
        button.clicked.connect(lambda: self._ask(act))

    def _ask(self, act: str) -> None:
        self.accept()
        self.asked.emit(self.row.id, act)


_SOURCES = {"published": noted("published measurements of this model"), "family": noted("models of the same family")}


def fit_reasons(row: ModelRow) -> list[str]:
    """Return why a model fits or not, as sentences."""
    estimate = row.estimate
    if estimate is None:
        return []
    out = []
    where = model_labels.place(estimate)
    if estimate.fits == "no":
        out.append(model_labels.short_of(estimate))
    elif estimate.vram_budget_bytes:
        out.append(
            tr(
                "{where}, of {vram} of VRAM and {ram} of RAM that models may take.",
                where=where,
                vram=model_labels.memory(estimate.vram_budget_bytes),
                ram=model_labels.whole_memory(estimate.ram_budget_bytes),
            )
        )
    else:
        out.append(
            tr(
                "{where}, of {ram} that models may take.",
                where=where,
                ram=model_labels.whole_memory(estimate.ram_budget_bytes),
            )
        )
    if estimate.disk_bytes:
        out.append(model_labels.from_disk(estimate))
    if estimate.gpu_neuron_load and estimate.fits in ("hybrid", "disk"):
        words = noted("The GPU computes {share}% of the active neurons, the CPU the others at the same time.")
        if estimate.by_expert:
            words = noted("The GPU computes {share}% of a token's experts, the CPU the others at the same time.")
        out.append(tr(words, share=figure(100 * estimate.gpu_neuron_load, ".0f")))
    if estimate.fits != "no":
        out.append(tr("With a context of {context} tokens.", context=figure(estimate.context)))
    notes = map(translated, estimate.notes)
    out += [note if note.endswith((".", "。")) else f"{note}." for note in notes]
    return out
