"""Blind votes: no name before the end, keys that vote, votes that are stored at once, and a file that is resumed."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QDialog, QLabel, QWidget
from pytestqt.qtbot import QtBot

from app.ui.chat.votes_dialog import CHOICES, VotesDialog, open_votes
from app.ui.widgets.dialog import Dialog
from engine.evaluation.comparison import Answer, ComparisonFile

pytestmark = pytest.mark.gui


def results(path: Path, n: int = 3) -> ComparisonFile:
    file = ComparisonFile(path, create=True)
    for prompt in range(n):
        for model in ("alpha", "beta"):
            file.add_answer(Answer(
                prompt=f"Question {prompt}", model=model, mode="exact", seed=0, sampling={}, name=f"Model {model}",
                ran="exact", text=f"{model[0]}{prompt}", finish_reason="stop", tokens=3, prompt_tokens=5, ttft_s=0.5,
                decode_tok_s=20.0, total_s=1.0, active_share=None,
            ))  # fmt: skip
    return file


@pytest.fixture
def parent(qtbot: QtBot) -> QWidget:
    widget = QWidget()
    qtbot.addWidget(widget)
    return widget


def opened(parent: QWidget, path: Path) -> VotesDialog:
    dialog = open_votes(parent, path)
    assert isinstance(dialog, VotesDialog)
    dialog.activateWindow()
    QTest.qWait(20)
    return dialog


def shown(dialog: QDialog) -> str:
    names = [label.text() for label in dialog.findChildren(QLabel) if label.isVisibleTo(dialog)]
    return "\n".join([*names, *(one.accessibleName() for one in dialog.findChildren(QWidget))])


def texts(dialog: VotesDialog) -> list[str]:
    return [column.message.text for column in dialog.columns.columns if column.message]


def test_keys_vote_and_the_names_come_last(parent: QWidget, tmp_path: Path) -> None:
    file = results(tmp_path / "r.jsonl")
    dialog = opened(parent, file.path)
    pairs = file.pairs()
    for n, (choice, _, key, _) in enumerate(CHOICES[:3]):
        assert "alpha" not in shown(dialog)
        assert texts(dialog) == [pairs[n].left.text, pairs[n].right.text]
        QTest.keyClick(dialog, key)
        assert ComparisonFile(file.path).votes[pairs[n].key] == (pairs[n].left.id, choice)
    assert {"Model alpha, exact", "Model beta, exact"} <= set(shown(dialog).splitlines())
    QTest.keyClick(dialog, Qt.Key.Key_Left)
    assert len(ComparisonFile(file.path).votes) == 3, "a key does nothing behind the last pair"


def test_a_file_is_resumed_and_a_vote_can_be_changed(parent: QWidget, tmp_path: Path) -> None:
    file = results(tmp_path / "r.jsonl")
    pairs = file.pairs()
    opened(parent, file.path).vote("left")
    again = opened(parent, file.path)
    assert texts(again)[0] == pairs[1].left.text
    again.back.click()
    again.vote("right")
    assert texts(again)[0] == pairs[1].left.text
    assert ComparisonFile(file.path).votes == {pairs[0].key: (pairs[0].left.id, "right")}


def test_a_vote_that_cannot_be_stored_stays_at_its_pair(
    parent: QWidget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = results(tmp_path / "r.jsonl")
    dialog = opened(parent, file.path)
    dialog.file.path = tmp_path / "gone" / "r.jsonl"
    dialog.vote("left")
    assert dialog.problem.words
    assert dialog.file.votes == {}
    dialog.file.path = file.path
    dialog.vote("left")
    assert not dialog.problem.words
    assert len(ComparisonFile(file.path).votes) == 1


def test_other_files_and_files_without_pairs_say_so(parent: QWidget, tmp_path: Path) -> None:
    other = tmp_path / "chat.jsonl"
    other.write_text("{}\n")
    refusal = open_votes(parent, other)
    assert isinstance(refusal, Dialog)
    assert "chat.jsonl" in refusal.heading.words
    refusal.reject()
    dialog = opened(parent, results(tmp_path / "none.jsonl", 0).path)
    assert not dialog.columns.isVisibleTo(dialog)
