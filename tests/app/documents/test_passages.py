"""Documents are divided into passages that, joined, are the document."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.documents.passages import MOST_CHARS, divided
from app.documents.reading.document import Part


@given(st.text(alphabet="ab. \n#é火\t", max_size=6_000))
def test_the_passages_of_a_part_are_its_text(text: str) -> None:
    found = divided([Part(text, 3)])
    assert "".join(one.text for one in found).rstrip() == text.rstrip() or not text.strip()
    assert all(one.part == 3 and one.text.strip() for one in found)
    assert all(len(one.text.strip()) <= MOST_CHARS + MOST_CHARS for one in found)


def test_a_passage_says_its_line_and_its_headings() -> None:
    body = "\n\n".join(f"Paragraph {n}. " + "word " * 60 for n in range(6))
    text = f"# Lease\n\n{body}\n\n## Deposit\n\nThree months.\n\n## Notice\n\n{body}"
    found = divided([Part(text, 1)])
    lines = text.split("\n")
    for one in found:
        assert lines[one.line - 1].strip() == "" or one.text.lstrip("\n").startswith(lines[one.line - 1][:20])
    assert found[0].heading == "Lease"
    assert found[-1].heading == "Lease · Notice"


def test_a_long_line_is_cut_where_a_sentence_ends() -> None:
    found = divided([Part("One short sentence. " * 300, 1)])
    assert len(found) > 4
    assert all(one.text.endswith(". ") for one in found[:-1])


def test_pages_are_never_joined() -> None:
    found = divided([Part("first", 1), Part("second", 2, "Summary")])
    assert [(one.part, one.name, one.text) for one in found] == [(1, "", "first"), (2, "Summary", "second")]
