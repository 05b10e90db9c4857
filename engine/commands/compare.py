"""The command compare: prompts x models x modes x seeds, each answer stored at once."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from engine.commands.console import ProgressBar, interrupt_as_cancel
from engine.commands.output import SETTLING_S, load_model, print_json, sampling_values
from engine.errors import Cancelled, DeviceFailedError, EngineError, InvalidRequestError
from engine.evaluation.comparison import Answer, ComparisonFile, Prompt, Task, read_prompts
from engine.evaluation.comparison_report import csv_text, html_text, text_table
from engine.job import Job

if TYPE_CHECKING:
    from engine.session.chat_session import ChatSession


def compare(arguments: argparse.Namespace) -> int:
    """Compute the answers that the file lacks, then show the table. Ctrl-C ends it; the same command goes on."""
    prompts = [Prompt(text) for text in arguments.prompt or ()]
    prompts += read_prompts(Path(arguments.prompts)) if arguments.prompts else []
    if arguments.models and not prompts:
        raise InvalidRequestError("There is no prompt.", "Give --prompts FILE, or --prompt TEXT.")
    modes = list(dict.fromkeys(arguments.modes.split(",")))
    if bad := set(modes) - {"auto", "sparse", "exact", "dense"}:
        raise InvalidRequestError(f"There is no mode {sorted(bad)[0]!r}.", "Modes are auto, sparse, exact and dense.")
    try:
        seeds = list(dict.fromkeys(int(part) for part in arguments.seeds.split(",")))
    except ValueError as error:
        raise InvalidRequestError(
            f"--seeds {arguments.seeds!r} is no list of numbers.", "Write it as 1,2,3."
        ) from error
    file = ComparisonFile(Path(arguments.out), create=bool(arguments.models))
    sampling = sampling_values(arguments)
    tasks = [
        Task(prompt, model, mode, seed, sampling)
        for model, mode, seed, prompt in product(dict.fromkeys(arguments.models), modes, seeds, dict.fromkeys(prompts))
    ]
    missing = [task for task in tasks if task.id not in file.answers]
    with interrupt_as_cancel() as cancelled:
        n_failed = _answer_all(file, missing, arguments, cancelled)
        stopped = cancelled()
    _write(arguments.csv, csv_text, file)
    _write(arguments.html, html_text, file)
    if arguments.json:
        made = sum(task.id in file.answers for task in missing)
        print_json({
            "file": str(file.path), "answers": made, "already_there": len(tasks) - len(missing), "failed": n_failed,
            "rows": [asdict(row) for row in file.rows()],
        })  # fmt: skip
    else:
        print(text_table(file))
    return 130 if stopped else 1 if n_failed else 0


def _answer_all(
    file: ComparisonFile, tasks: list[Task], arguments: argparse.Namespace, cancelled: Callable[[], bool]
) -> int:
    """Compute answers, one model after another. Return the number of those that failed."""
    n_failed = n_done = 0
    for model_name in dict.fromkeys(task.model for task in tasks):
        mine = [task for task in tasks if task.model == model_name]
        arguments.model = model_name
        try:
            session = _session(arguments, cancelled)
        except Cancelled:
            return n_failed
        except EngineError as error:
            n_failed += len(mine)
            for mode in dict.fromkeys(task.mode for task in mine):
                file.add_failure(model_name, mode, error.message)
            print(f"{model_name}: {error.message}\n{error.hint}", file=sys.stderr)
            continue
        try:
            for task in mine:
                with ProgressBar("Answering") as progress:
                    progress(n_done, len(tasks))
                    try:
                        answer = _answer(session, task, cancelled)
                    except EngineError as error:
                        if isinstance(error, Cancelled):
                            return n_failed
                        progress.clear()
                        n_failed += 1
                        file.add_failure(model_name, task.mode, error.message, task.id)
                        print(f"{model_name}, {task.mode}: {error.message}\n{error.hint}", file=sys.stderr)
                        if isinstance(error, DeviceFailedError):
                            break
                        continue
                if answer is None:
                    return n_failed
                file.add_answer(answer)
                n_done += 1
        finally:
            session.model.close()
    return n_failed


def _session(arguments: argparse.Namespace, cancelled: Callable[[], bool]) -> ChatSession:
    from engine.session.chat_session import ChatSession

    model = load_model(arguments, cancelled)
    model.wait_for_weights(SETTLING_S)  # otherwise the first answers would be slower
    return ChatSession(model)


def _answer(session: ChatSession, task: Task, cancelled: Callable[[], bool]) -> Answer | None:
    """Return an answer, computed without the KV cache of others; None if it was cancelled."""
    session.set_mode(task.mode)
    session.forget()
    messages = [{"role": "system", "content": task.prompt.system}] if task.prompt.system else []
    messages.append({"role": "user", "content": task.prompt.text})
    sampling = session.model.sampling.changed({**task.sampling, "seed": task.seed})
    _, events = session.chat(messages, sampling, Job(cancelled))
    text: list[str] = []
    for event in events:
        text.append(event.text)
        if event.finish_reason == "cancelled":
            return None
        if event.finish_reason is not None:
            stats = event.stats
            return Answer(
                task, session.model.name, session.model.resolve_mode(task.mode), "".join(text), event.finish_reason,
                stats.tokens, stats.prompt_tokens, stats.ttft_s, stats.decode_tok_s, stats.total_s, stats.active_share,
            )  # fmt: skip
    return None


def _write(path: str | None, text: Callable[[ComparisonFile], str], file: ComparisonFile) -> None:
    if path is None:
        return
    try:
        Path(path).write_text(text(file), encoding="utf-8", newline="")
    except OSError as error:
        raise InvalidRequestError(f"{path} cannot be written: {error.strerror}.", "Choose another path.") from error
