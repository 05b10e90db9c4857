"""The results of a comparison as a table of text, a CSV file and a web page that loads and runs nothing."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import fields
from html import escape

from engine.evaluation.comparison import Answer, ComparisonFile

_HEADS = ("model and mode", "answers", "tok/s", "first token, s", "tokens")
_VOTES = ("wins", "losses", "equal", "neither", "won")
_NUMBER = re.compile(r"[+-]?\d+(?:[.,]\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_FORMULA = re.compile(r"""(?:^|(?<=[;,\t\r\n]))(?=[\s"']*[=+\-@＝＋－＠])|^(?=[\t\r])""")
_STYLE = """
:root { color-scheme: light dark; --line: light-dark(#e6e1da, #35312d); --meta: light-dark(#71685f, #a0978d) }
body { margin: 2rem auto; max-width: 80rem; padding: 0 1rem; font: 15px/1.5 Inter, system-ui, sans-serif;
  background: light-dark(#fbfaf8, #1b1917); color: light-dark(#221d19, #eae5df); font-variant-numeric: tabular-nums }
h1, h2, h3, th { font-weight: 600 } h1 { font-size: 20px } h2 { font-size: 17px; margin: 2.5rem 0 0 }
h3 { font-size: 15px; margin: 0 } .meta { color: var(--meta); font-size: 12px; margin: 0 }
table { border-collapse: collapse } th { font-size: 13px } tr { border-bottom: 1px solid var(--line) }
th, td { text-align: right; padding: 7px 0 7px 2rem } :is(th, td):first-child { text-align: left; padding-left: 0 }
h2, article p { white-space: pre-wrap; overflow-wrap: anywhere } article p { margin: .75rem 0 0 }
.answers { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(18rem, 100%), 1fr)); gap: 14px }
.answers { margin-top: .75rem } article { border: 1px solid var(--line); border-radius: 12px; padding: 16px }
article { background: light-dark(#fff, #242120) }
"""


def table(file: ComparisonFile) -> list[list[str]]:
    """Return the heads and the rows as texts. Votes have columns once there are any."""
    lines = [[*_HEADS, *(_VOTES if file.votes else ())]]
    for row in file.rows():
        cells = [row.label, str(row.answers), _text(row.decode_tok_s), _text(row.ttft_s, ".2f"), f"{row.tokens:.0f}"]
        cells += [str(n) for n in (row.wins, row.losses, row.equal, row.neither)]
        cells.append("–" if row.win_share is None else f"{100 * row.win_share:.0f}%")
        lines.append(cells[: len(lines[0])])
    return lines


def text_table(file: ComparisonFile) -> str:
    """Return the table for a terminal, and what failed."""
    lines = table(file)
    wide = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    out = ["  ".join([line[0].ljust(wide[0]), *map(str.rjust, line[1:], wide[1:])]) for line in lines]
    return "\n".join([*out, *(f"failed: {words}" for words in file.failed)])


def csv_text(file: ComparisonFile) -> str:
    """Return all answers as CSV, one a line."""
    out, names = io.StringIO(), [one.name for one in fields(Answer)]
    writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(names)
    for one in file.answers.values():
        writer.writerow([inert(getattr(one, name)) for name in names])
    return out.getvalue()


def html_text(file: ComparisonFile) -> str:
    """Return a web page with the table, and the answers to each prompt side by side."""
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        '<meta name="viewport" content="width=device-width"><title>Comparison of models</title>',
        f"<style>{_STYLE}</style><h1>Comparison of models</h1><table>",
    ]
    for n, line in enumerate(table(file)):
        tag = "td" if n else "th"
        parts.append(f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in line)}</tr>")
    parts += ["</table>", *(f'<p class="meta">Failed: {escape(words)}</p>' for words in file.failed)]
    for group in file.questions():
        parts.append(f'<h2>{escape(group[0].prompt)}</h2><p class="meta">seed {group[0].seed}</p><div class="answers">')
        for one in group:
            first = f"first after {_text(one.ttft_s, '.2f')} s"
            parts.append(f'<article><h3>{escape(one.label)}</h3><span class="meta">{_text(one.decode_tok_s)} tok/s · ')
            parts.append(f"{one.tokens} tokens · {first}</span><p>{escape(one.text)}</p></article>")
        parts.append("</div>")
    return "\n".join(parts)


def inert(value: object) -> object:
    """Return a value that no spreadsheet runs as a formula: an apostrophe stands before what could begin one, at the
    start of a cell and of each part that other separators would make a cell. Numbers stay as they are.

    Source: OWASP, CSV Injection. Where commas are decimal marks, spreadsheets separate cells by semicolons, and then
    ignore quotes inside of a cell.
    """
    if value is None or isinstance(value, int | float) or _NUMBER.fullmatch(str(value)):
        return value
    return _FORMULA.sub("'", str(value))


def _text(value: float | None, form: str = ".1f") -> str:
    return "–" if value is None else f"{value:{form}}"
