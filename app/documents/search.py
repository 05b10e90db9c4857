"""Search the index: passages by words and by vectors, whose scores are added. No Qt."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.documents.index_file import Found, IndexFile

if TYPE_CHECKING:
    from app.documents.index_file import F32

_CANDIDATES = 60  # of each ranking
_MORE_OF_A_FILE = 0.3  # weight of each further passage of a file that is ranked by its passages


@dataclass(frozen=True)
class Asked:
    """A question's vector by the embedding model of that name."""

    vector: F32
    model: str


@dataclass(frozen=True)
class Hit:
    """A file that fits a question, with its passages that do, best first."""

    path: str
    score: float
    passages: tuple[Found, ...]


def search(
    index: IndexFile,
    question: str,
    within: Collection[int],
    most: int = 5,
    asked: Asked | None = None,
) -> list[Hit]:
    """Return the files that fit a question best, best first. within: ids of the files to search.

    asked: the question's vector; None: only words count. Raises: sqlite3.Error.
    """
    scores: dict[int, float] = defaultdict(float)  # each ranking gives 0 to 1
    owners: dict[int, int] = {}
    by_words = index.with_words(question, within, _CANDIDATES)
    for key, file, score in by_words:
        scores[key] += score / by_words[0][2] if by_words[0][2] > 0 else 0.0
        owners[key] = file
    by_vector = index.near(asked.vector, asked.model, within, _CANDIDATES) if asked is not None else []
    for key, file, cosine in by_vector:
        least, most_like = by_vector[-1][2], by_vector[0][2]
        scores[key] += (cosine - least) / (most_like - least) if most_like > least else 1.0
        owners[key] = file
    by_file: dict[int, list[int]] = defaultdict(list)
    for key in sorted(scores, key=lambda one: -scores[one]):
        by_file[owners[key]].append(key)
    hits = []
    for keys in by_file.values():
        score = sum(scores[key] * _MORE_OF_A_FILE**place for place, key in enumerate(keys[:4]))
        hits.append((score, keys))
    hits.sort(key=lambda one: -one[0])
    found = [(score, [one for key in keys if (one := index.passage(key)) is not None]) for score, keys in hits[:most]]
    return [Hit(passages[0].file.path, score, tuple(passages)) for score, passages in found if passages]
