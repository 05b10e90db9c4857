"""The command compare: prompts x models x modes x seeds, each answer stored at once."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from engine.commands.console import ProgressBar, interrupt_as_cancel
from engine.commands.output import SETTLING_S, load_model, print_json, sampling_values
from engine.config import MODES
from engine.errors import Cancelled, DeviceFailedError, EngineError, InvalidRequestError
from engine.evaluation.comparison import Answer, ComparisonFile, Task, read_prompts
from engine.evaluation.comparison_report import csv_text, html_text, text_table
from engine.job import CancelCheck, Job

if TYPE_CHECKING:
    from engine.session.chat_session import ChatSession


def compare(arguments: argparse.Namespace) -> int:
    """Compute the answers that the file lacks, then show the table. Ctrl-C ends it; the same command continues."""
    prompts = [(text, "") for text in arguments.prompt or ()]
    prompts += read_prompts(Path(arguments.prompts)) if arguments.prompts else []
    if arguments.models and not prompts:
        raise InvalidRequestError("There is no prompt.", "Give --prompts FILE, or --prompt TEXT.")
    modes = arguments.modes.split(",")
    if bad := next((mode for mode in modes if mode not in MODES), None):
        raise InvalidRequestError(f"There is no mode {bad!r}.", "Modes are auto, sparse, exact and dense.")
    try:
        seeds = [int(part) for part in arguments.seeds.split(",")]
    except ValueError as error:
        raise InvalidRequestError(
            f"--seeds {arguments.seeds!r} is not a list of numbers.", "Write it as 1,2,3."
        ) from error
    file, sampling = ComparisonFile(Path(arguments.out), create=bool(arguments.models)), sampling_values(arguments)
    every = (
        Task(prompt=prompt, system=system, model=model, mode=mode, seed=seed, sampling=sampling)
        for model, mode, seed, (prompt, system) in product(arguments.models, modes, seeds, prompts)
    )
    tasks = {task.id: task for task in every}
    missing = [task for task in tasks.values() if task.id not in file.answers]
    n_failed = 0
    with interrupt_as_cancel() as cancelled:
        for model in dict.fromkeys(task.model for task in missing):
            if not cancelled():
                mine = [task for task in missing if task.model == model]
                arguments.model = model
                n_failed += _answer_all(file, mine, arguments, cancelled)
        stopped = cancelled()
    for path, text in ((arguments.csv, csv_text), (arguments.html, html_text)):
        if path is not None:
            _write(Path(path), text(file))
    if arguments.json:
        n_made = sum(task.id in file.answers for task in missing)
        rows = [{**asdict(row), "win_share": row.win_share} for row in file.rows()]
        print_json({"file": str(file.path), "answers": n_made, "already_there": len(tasks) - len(missing),
                    "failed": n_failed, "rows": rows})  # fmt: skip
    else:
        print(text_table(file))
    return 130 if stopped else 1 if n_failed else 0


def _answer_all(
    file: ComparisonFile, tasks: Sequence[Task], arguments: argparse.Namespace, cancelled: CancelCheck
) -> int:
    """Compute the answers of one model, until Ctrl-C. Return the number of those that failed."""
    from engine.session.chat_session import ChatSession

    name, n_failed = tasks[0].model, 0
    try:
        model = load_model(arguments, cancelled)
    except Cancelled:
        return 0
    except EngineError as error:
        for mode in dict.fromkeys(task.mode for task in tasks):
            file.add_failure(name, mode, error.message)
        print(f"{name}: {error.message}\n{error.hint}", file=sys.stderr)
        return len(tasks)
    try:
        model.wait_for_weights(SETTLING_S)  # otherwise the first answers would be slower
        session = ChatSession(model)
        with ProgressBar(f"Answering with {model.name}") as progress:
            for n, task in enumerate(tasks):
                progress(n, len(tasks))
                try:
                    if (answer := _answer(session, task, cancelled)) is None:
                        break
                    file.add_answer(answer)
                except Cancelled:
                    break
                except EngineError as error:
                    progress.clear()
                    n_failed += 1
                    file.add_failure(name, task.mode, error.message, task.id)
                    print(f"{name}, {task.mode}: {error.message}\n{error.hint}", file=sys.stderr)
                    if isinstance(error, DeviceFailedError):
                        return n_failed + len(tasks) - n - 1
    finally:
        model.close()
    return n_failed


def _answer(session: ChatSession, task: Task, cancelled: CancelCheck) -> Answer | None:
    """Return an answer, computed without the KV cache of others; None if it was cancelled."""
    session.set_mode(task.mode)
    session.clear()
    messages = [{"role": "system", "content": task.system}] if task.system else []
    messages.append({"role": "user", "content": task.prompt})
    sampling = session.model.sampling.changed({**task.sampling, "seed": task.seed})
    events = list(session.chat(messages, sampling, Job(cancelled))[1])
    stats, reason = events[-1].stats, events[-1].finish_reason
    if reason is None or reason == "cancelled":
        return None
    return Answer(
        **asdict(task), name=session.model.name, ran=session.model.resolve_mode(task.mode),
        text="".join(event.text for event in events), finish_reason=reason, tokens=stats.tokens,
        prompt_tokens=stats.prompt_tokens, ttft_s=stats.ttft_s, decode_tok_s=stats.decode_tok_s,
        total_s=stats.total_s, active_share=stats.active_share,
    )  # fmt: skip


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise InvalidRequestError(f"{path} cannot be written: {error.strerror}.", "Choose another path.") from error
