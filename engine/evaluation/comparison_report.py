"""The results of a comparison as a table of text, a CSV file and a web page that loads and runs nothing."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from html import escape

from engine.evaluation.comparison import Answer, ComparisonFile, Row

_CSV_NAMES = (
    "prompt", "system", "model", "name", "mode", "ran", "seed", "text", "finish_reason", "tokens", "prompt_tokens",
    "ttft_s", "decode_tok_s", "total_s", "active_share",
)  # fmt: skip
_STYLE = """
:root { color-scheme: light dark; --ink: #221d19; --soft: #71685f; --page: #fbfaf8; --card: #fff; --line: #e6e1da; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #eae5df; --soft: #a0978d; --page: #1b1917; --card: #242120; --line: #35312d; } }
body { margin: 2rem auto; max-width: 80rem; padding: 0 1rem; background: var(--page); color: var(--ink);
  font: 15px/1.5 Inter, system-ui, sans-serif; }
table { border-collapse: collapse; } th, td { text-align: left; padding: .4rem 1rem .4rem 0;
  border-bottom: 1px solid var(--line); } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
h2 { font-size: 1rem; margin: 2.5rem 0 .5rem; white-space: pre-wrap; overflow-wrap: anywhere; }
.answers { display: grid; grid-template-columns: repeat(auto-fit, minmax(18rem, 1fr)); gap: 1rem; }
article { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 1rem; }
article p { white-space: pre-wrap; overflow-wrap: anywhere; margin: .5rem 0 0; }
h3 { font-size: .95rem; margin: 0; } .meta { color: var(--soft); font-size: .8rem; }
"""


def cells(row: Row, votes: bool) -> list[str]:
    """Return a row as texts, in the order of `heads`."""
    texts = [row.label, str(row.answers), _number(row.decode_tok_s), _number(row.ttft_s, ".2f"), f"{row.tokens:.0f}"]
    if votes:
        texts += [str(row.wins), str(row.losses), str(row.equal), str(row.neither)]
        texts.append("–" if row.win_share is None else f"{100 * row.win_share:.0f}%")
    return texts


def heads(votes: bool) -> list[str]:
    """Return the names of the columns."""
    names = ["model and mode", "answers", "tok/s", "first token, s", "tokens"]
    return names + (["wins", "losses", "equal", "neither", "won"] if votes else [])


def text_table(file: ComparisonFile) -> str:
    """Return the table for a terminal."""
    votes = bool(file.votes)
    lines = [heads(votes), *(cells(row, votes) for row in file.rows())]
    wide = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    out = ["  ".join(_pad(text, wide[i], i) for i, text in enumerate(line)).rstrip() for line in lines]
    out += [f"failed: {words}" for words in file.failed]
    return "\n".join(out)


def csv_text(file: ComparisonFile) -> str:
    """Return all answers as CSV, one a line."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_CSV_NAMES)
    for one in file.answers.values():
        task = {"prompt": one.task.prompt.text, "system": one.task.prompt.system}
        values = {**vars(one), **vars(one.task), **task}
        writer.writerow([_safe(values[name]) for name in _CSV_NAMES])
    return out.getvalue()


def html_text(file: ComparisonFile) -> str:
    """Return a web page with the table, and the answers to each prompt side by side."""
    votes = bool(file.votes)
    groups: dict[str, list[Answer]] = {}
    for one in file.answers.values():
        groups.setdefault(one.task.question, []).append(one)
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        '<meta name="viewport" content="width=device-width"><title>Comparison of models</title>',
        f"<style>{_STYLE}</style><h1>Comparison of models</h1><table>",
        _html_row(heads(votes), "th"),
        *(_html_row(cells(row, votes), "td") for row in file.rows()),
        "</table>",
        *(f'<p class="meta">Failed: {escape(words)}</p>' for words in file.failed),
    ]
    for group in groups.values():
        parts.append(f"<h2>{escape(group[0].task.prompt.text)}</h2>")
        parts.append(f'<p class="meta">seed {group[0].task.seed}</p><div class="answers">')
        parts += [
            f'<article><h3>{escape(one.label)}</h3><span class="meta">{_number(one.decode_tok_s)} tok/s · '
            f"{one.tokens} tokens · first after {_number(one.ttft_s, '.2f')} s</span>"
            f"<p>{escape(one.text)}</p></article>"
            for one in group
        ]
        parts.append("</div>")
    return "\n".join([*parts, "</html>\n"])


def _html_row(texts: Sequence[str], tag: str) -> str:
    marks = ["" if i == 0 else ' class="n"' for i in range(len(texts))]
    return "<tr>" + "".join(f"<{tag}{m}>{escape(t)}</{tag}>" for t, m in zip(texts, marks, strict=True)) + "</tr>"


def _pad(text: str, width: int, column: int) -> str:
    return text.ljust(width) if column == 0 else text.rjust(width)


def _safe(value: object) -> object:
    """Return a value that no spreadsheet takes for a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def _number(value: float | None, form: str = ".1f") -> str:
    return "–" if value is None else f"{value:{form}}"
