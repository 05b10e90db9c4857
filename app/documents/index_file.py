"""The index of documents: an SQLite file with the passages of each file, their words, and their vectors. No Qt.

It can be made again from the documents, so a damaged one, or one of another version, is deleted.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.documents.index_words import terms_of, weight, words_of
from app.documents.passages import Passage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    F32 = NDArray[np.float32]

log = logging.getLogger(__name__)

VERSION = 2
_TABLES = """
CREATE TABLE file (id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, size INTEGER NOT NULL, modified INTEGER NOT NULL,
    kind TEXT NOT NULL DEFAULT '', n_parts INTEGER NOT NULL DEFAULT 0, n_scanned INTEGER NOT NULL DEFAULT 0,
    is_cut INTEGER NOT NULL DEFAULT 0, chars INTEGER NOT NULL DEFAULT 0, reason TEXT NOT NULL DEFAULT '',
    why TEXT NOT NULL DEFAULT '');
CREATE TABLE passage (id INTEGER PRIMARY KEY, file INTEGER NOT NULL REFERENCES file (id) ON DELETE CASCADE,
    place INTEGER NOT NULL, part INTEGER NOT NULL, name TEXT NOT NULL, heading TEXT NOT NULL, line INTEGER NOT NULL,
    text TEXT NOT NULL);
CREATE INDEX passage_of_file ON passage (file, place);
CREATE TABLE vector (passage INTEGER PRIMARY KEY REFERENCES passage (id) ON DELETE CASCADE, model TEXT NOT NULL,
    data BLOB NOT NULL);
CREATE VIRTUAL TABLE words USING fts5 (text, title, content='', tokenize='porter unicode61 remove_diacritics 2');
CREATE VIRTUAL TABLE vocabulary USING fts5vocab ('words', 'row');
"""
_PASSING = frozenset(
    {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN,
     sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOMEM}
)  # fmt: skip
_LEAST_READ = 0.9  # share of passages with a vector: the nearest of a few would outrank better ones without
_LONGEST_TITLE = 120


@dataclass(frozen=True)
class IndexedFile:
    """A file as the index knows it. size, modified: bytes and ns, to notice changes. chars: as
    index_words.weight counts them. why: why it could not be read."""

    id: int
    path: str
    size: int
    modified: int
    kind: str = ""
    n_parts: int = 0
    n_scanned: int = 0
    is_cut: bool = False
    chars: int = 0
    reason: str = ""
    why: str = ""


@dataclass(frozen=True)
class Found:
    """A passage of a file. place: its number among the file's passages, from 0."""

    id: int
    file: IndexedFile
    place: int
    passage: Passage


class IndexFile:
    """Thread-safe: one connection behind a lock, each method one transaction. Raises: sqlite3.Error, OSError."""

    def __init__(self, path: Path | None) -> None:
        """Open nothing. path: None keeps the index in memory."""
        self._path = path
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._changes = 0
        self._vectors: tuple[tuple[str, int], NDArray[np.int64], F32] | None = None

    # --- the file

    def open(self) -> None:
        """Open the file, or make it. One that is damaged or of another version is replaced."""
        with self._lock:
            if self._connection is not None:
                return
            if self._path is not None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._connection = self._opened()
            except sqlite3.DatabaseError as error:
                if is_passing(error):
                    raise
                log.warning("The index of documents is made again: %s", error)
                self._delete()
                self._connection = self._opened()

    def remake(self) -> None:
        """Replace the file by an empty one."""
        with self._lock:
            self.close()
            self._delete()
            self._changes += 1
            self.open()

    def _opened(self) -> sqlite3.Connection:
        if self._path is not None:  # the files beside it get its permissions
            os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600))
            if os.name != "nt":
                self._path.chmod(0o600)
        connection = sqlite3.connect(self._path or ":memory:", check_same_thread=False, isolation_level=None)
        try:
            connection.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON")
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version == 0:
                connection.executescript(f"BEGIN; {_TABLES} PRAGMA user_version={VERSION}; COMMIT")
            elif version != VERSION:
                raise sqlite3.DatabaseError(f"its version is {version}, not {VERSION}")
            connection.execute("SELECT count(*) FROM file").fetchone()
        except BaseException:
            connection.close()
            raise
        return connection

    def _delete(self) -> None:
        if self._path is not None:
            for suffix in ("", "-wal", "-shm", "-journal"):
                Path(f"{self._path}{suffix}").unlink(missing_ok=True)

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            assert self._connection is not None, "open() comes first"
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")
            self._changes += 1

    def _rows(self, statement: str, values: Sequence[object] = ()) -> list[Any]:
        with self._lock:
            assert self._connection is not None, "open() comes first"
            return self._connection.execute(statement, values).fetchall()

    # --- files

    def files(self) -> dict[str, IndexedFile]:
        """Return all files by their paths."""
        return {row[1]: _file(row) for row in self._rows(f"SELECT {_FILE} FROM file")}

    def file(self, path: str) -> IndexedFile | None:
        """Return a file by its path; None: it is not in the index."""
        rows = self._rows(f"SELECT {_FILE} FROM file WHERE path = ?", (path,))
        return _file(rows[0]) if rows else None

    def put(self, file: IndexedFile, passages: Sequence[Passage]) -> None:
        """Keep a file's passages, or why it could not be read. `id` is not used: the path says which file."""
        title = _title(file.path, passages[0].text if passages else "")
        with self._writing() as connection:
            self._drop(connection, file.path)
            at = connection.execute(
                "INSERT INTO file (path, size, modified, kind, n_parts, n_scanned, is_cut, chars, reason, why) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (file.path, file.size, file.modified, file.kind, file.n_parts, file.n_scanned, file.is_cut,
                 sum(weight(one.text) for one in passages), file.reason, file.why),
            ).lastrowid  # fmt: skip
            for place, one in enumerate(passages):
                key = connection.execute(
                    "INSERT INTO passage (file, place, part, name, heading, line, text) VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (at, place, one.part, one.name, one.heading, one.line, one.text),
                ).lastrowid
                connection.execute(
                    "INSERT INTO words (rowid, text, title) VALUES (?, ?, ?)",
                    (key, words_of(one.text), f"{title} {words_of(one.name)} {words_of(one.heading)}"),
                )

    def remove(self, paths: Iterable[str]) -> None:
        with self._writing() as connection:
            for path in paths:
                self._drop(connection, path)

    def _drop(self, connection: sqlite3.Connection, path: str) -> None:
        rows = connection.execute(
            "SELECT passage.id, text, name, heading FROM passage JOIN file ON file.id = passage.file WHERE path = ? "
            "ORDER BY place",
            (path,),
        ).fetchall()
        title = _title(path, rows[0][1] if rows else "")
        connection.executemany(
            "INSERT INTO words (words, rowid, text, title) VALUES ('delete', ?, ?, ?)",
            [(key, words_of(text), f"{title} {words_of(name)} {words_of(above)}") for key, text, name, above in rows],
        )
        connection.execute("DELETE FROM file WHERE path = ?", (path,))

    def shrink(self) -> None:
        """Give the space of removed files back to the disk. No word of them stays in the file or its log."""
        with self._lock:
            assert self._connection is not None, "open() comes first"
            self._connection.execute("INSERT INTO words (words) VALUES ('optimize')")
            self._connection.execute("VACUUM")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    # --- passages

    def passages(self, file: int, first: int = 0, last: int = 1 << 60) -> list[Found]:
        """Return passages of a file by their places, in order."""
        return [
            _found(row)
            for row in self._rows(
                f"SELECT {_PASSAGE} {_OF_FILE} WHERE file.id = ? AND place BETWEEN ? AND ? ORDER BY place",
                (file, first, last),
            )
        ]

    def passage(self, key: int) -> Found | None:
        """Return a passage by its id; None: it is no longer there."""
        rows = self._rows(f"SELECT {_PASSAGE} {_OF_FILE} WHERE passage.id = ?", (key,))
        return _found(rows[0]) if rows else None

    def with_words(self, question: str, files: Iterable[int], most: int) -> list[tuple[int, int, float]]:
        """Return the passages that fit a question's words best: (passage, file, score), best first.

        The score is the sum over the words of the mean BM25 of a word's forms. Cost: about 10 µs per passage and word
        that it has: 0.7 s for 120,000 passages and five frequent words.
        """
        with self._lock:
            terms = terms_of(question, self._is_known, self._beginning_with)
            if not terms:
                return []
            each = "SELECT rowid AS id, -bm25(words) / ? AS score FROM words WHERE words MATCH ?"
            scores = self._rows(
                f"SELECT id, sum(score) AS total FROM ({' UNION ALL '.join([each] * len(terms))} LIMIT -1) "
                "GROUP BY id ORDER BY total DESC",  # LIMIT: SQLite computes bm25 in no query with GROUP BY
                [value for forms in terms for value in (len(forms), " OR ".join(forms))],
            )
            wanted, found = set(files), list[tuple[int, int, float]]()
            for key, score in scores:
                if len(found) == most:
                    break
                (file,) = self._rows("SELECT file FROM passage WHERE id = ?", (key,))[0]
                if file in wanted:
                    found.append((key, file, score))
        return found

    def _is_known(self, term: str) -> bool:
        return bool(self._rows("SELECT 1 FROM words WHERE words MATCH ? LIMIT 1", (term,)))

    def _beginning_with(self, letter: str) -> list[str]:
        return [
            row[0]
            for row in self._rows(
                "SELECT term FROM vocabulary WHERE term >= ? AND term < ?", (letter, letter + "\U0010ffff")
            )
        ]

    # --- vectors

    def without_vector(self, model: str, most: int) -> list[tuple[int, str]]:
        """Return passages that have no vector of a model: id, and the text with its headings."""
        rows = self._rows(
            "SELECT passage.id, passage.heading, passage.text FROM passage "
            "LEFT JOIN vector ON vector.passage = passage.id AND vector.model = ? "
            "WHERE vector.passage IS NULL ORDER BY passage.id LIMIT ?",
            (model, most),
        )
        return [(key, f"{heading}\n{text}" if heading else text) for key, heading, text in rows]

    def put_vectors(self, model: str, vectors: Iterable[tuple[int, bytes]]) -> None:
        """Keep vectors [d] as float16; those of passages that are gone by now are dropped."""
        with self._writing() as connection:
            connection.executemany(
                "INSERT OR REPLACE INTO vector (passage, model, data) SELECT id, ?, ? FROM passage WHERE id = ?",
                [(model, data, key) for key, data in vectors],
            )

    def n_without_vector(self, model: str) -> int:
        found = self._rows(
            "SELECT count(*) FROM passage WHERE id NOT IN (SELECT passage FROM vector WHERE model = ?)", (model,)
        )
        return int(found[0][0])

    def near(self, vector: F32, model: str, files: Iterable[int], most: int) -> list[tuple[int, int, float]]:
        """Return the passages nearest to a vector [d] of length 1: (passage, file, cosine), best first.

        The list is empty until a share of _LEAST_READ of all passages has a vector of the model.
        Cost: the vectors stay in memory until the index changes, 4 d + 16 bytes for each; then a product with them.
        """
        import numpy as np

        with self._lock:
            if self._vectors is None or self._vectors[0] != (model, self._changes):
                rows = self._rows(
                    "SELECT passage.id, file, data FROM vector JOIN passage ON passage.id = vector.passage "
                    "WHERE model = ? ORDER BY passage.id",
                    (model,),
                )
                fitting = [row for row in rows if len(row[2]) == 2 * vector.size]
                data = np.frombuffer(b"".join(row[2] for row in fitting), np.float16)
                matrix = data.reshape(len(fitting), vector.size).astype(np.float32)
                owners = np.array([row[:2] for row in fitting], np.int64).reshape(-1, 2)
                if len(fitting) < _LEAST_READ * self._rows("SELECT count(*) FROM passage")[0][0]:
                    owners, matrix = owners[:0], matrix[:0]
                self._vectors = (model, self._changes), owners, matrix
            _, owners, matrix = self._vectors
        wanted = np.isin(owners[:, 1], list(files)).nonzero()[0]
        cosines = (matrix @ vector)[wanted]
        best = np.argsort(-cosines, kind="stable")[:most]
        return [(int(owners[wanted[at], 0]), int(owners[wanted[at], 1]), float(cosines[at])) for at in best]


_FILE = (
    "file.id, file.path, file.size, file.modified, file.kind, file.n_parts, file.n_scanned, file.is_cut, file.chars, "
    "file.reason, file.why"
)
_PASSAGE = (
    f"passage.id, passage.place, passage.part, passage.name, passage.heading, passage.line, passage.text, {_FILE}"
)
_OF_FILE = "FROM passage JOIN file ON file.id = passage.file"


def is_passing(error: sqlite3.Error) -> bool:
    """Whether a fault has its cause outside of the file, such as a full disk, and may end by itself."""
    return (getattr(error, "sqlite_errorcode", 0) & 0xFF) in _PASSING


def _title(path: str, text: str) -> str:
    """Return the words of a file's name, of its folder's, and of the first line of its text."""
    line = next((line for line in text.splitlines() if line.strip()), "")[:_LONGEST_TITLE]
    name = " ".join(Path(path).with_suffix("").parts[-2:]).replace("_", " ").replace("-", " ")
    return words_of(f"{name} {line}")


def _file(row: Sequence[Any]) -> IndexedFile:
    key, path, size, modified, kind, n_parts, n_scanned, is_cut, chars, reason, why = row
    return IndexedFile(key, path, size, modified, kind, n_parts, n_scanned, bool(is_cut), chars, reason, why)


def _found(row: Sequence[Any]) -> Found:
    key, place, part, name, heading, line, text, *file = row
    return Found(key, _file(file), place, Passage(part, name, heading, line, text))
