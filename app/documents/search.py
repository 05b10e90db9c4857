"""Search the index: passages by words and by vectors, fused by their ranks. No Qt."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.documents.index_file import Found, IndexFile

if TYPE_CHECKING:
    from app.documents.index_file import F32

_CANDIDATES = 60  # of each ranking
_RANK_OFFSET = 60  # of reciprocal rank fusion (Cormack, Clarke and Büttcher 2009)
_MORE_OF_A_FILE = 0.5  # weight of each further passage of a file that is ranked by its passages


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
    rankings = [index.with_words(question, within, _CANDIDATES)]
    if asked is not None:
        rankings.append(index.near(asked.vector, asked.model, within, _CANDIDATES))
    scores: dict[int, float] = defaultdict(float)
    owners: dict[int, int] = {}
    for ranking in rankings:
        for rank, (key, file, _) in enumerate(ranking):
            scores[key] += 1 / (_RANK_OFFSET + rank)
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
