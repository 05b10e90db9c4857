"""How texts and questions become words of the full-text index, and how much of a context texts take. No Qt."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable

# Scripts without spaces between words: each character is a word.
_ALONE = re.compile("([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f\u0e00-\u0e7f])")
_WORD = re.compile(r"\w+")
MOST_WORDS = 64  # of a question
_STEM_FROM, _STEM_LESS = 6, 2  # longer words are found by their beginnings as well, so other endings are found
_LIKE_FROM, _LIKE = 4, 0.75  # for a word of so many letters that no document has: how like another has to be

# Words of questions that say nothing about what is asked: frequent in all texts or in no text at all.
_SILENT_WORDS = """
a an the and or of to in on at for from by with is are was were be been do does did has have had i me my we our you your
it its this that these those what which who whom whose when where why how can could may might must shall should will
would there if not no about into as than then so please tell show find
der die das den dem des ein eine einen einem einer und oder von zu im in am an auf für mit ist sind war waren wird
werden hat haben ich mein meine wir uns du ihr sie es was welche welcher welches wer wen wem wann wo warum wie kann
muss darf soll nicht kein keine bitte
le la les un une des du de et ou à au aux en sur pour par avec est sont était que qui quoi quel quelle quand où comment
pourquoi je mon ma mes nous vous il elle ce cette ne pas
el los las una unos unas y o del al con por para es son era qué quién cuál cuándo dónde cómo yo mi mis no
"""
_SILENT = frozenset(_SILENT_WORDS.split())


CHARS_PER_TOKEN = 3  # fewer than texts of most languages have, so that what is found fits
_WIDE = re.compile("[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]")  # scripts with about a token per character


def weight(text: str) -> int:
    """Return a text's length in characters of which CHARS_PER_TOKEN make a token."""
    return len(text) + (CHARS_PER_TOKEN - 1) * len(_WIDE.findall(text))


# How a question is put to embedding models of this name; passages are taken as they are.
_QUESTION_FORMS = {
    "qwen3-embedding": "Instruct: Given a question, retrieve the passages of documents that answer it\nQuery:{}"
}


def question_for(model: str, question: str) -> str:
    """Return a question as an embedding model reads it."""
    form = next((form for name, form in _QUESTION_FORMS.items() if name in model.casefold()), "{}")
    return form.replace("{}", question)


def words_of(text: str) -> str:
    """Return a text for the index: characters of scripts without spaces stand alone."""
    return _ALONE.sub(r" \1 ", text)


def query_of(question: str, is_known: Callable[[str], bool], vocabulary: Callable[[str], Iterable[str]]) -> str:
    """Return a question as a query of FTS5; "" without a word.

    is_known: whether some document has a term of such a query. vocabulary: words of the documents that begin with a
    letter.
    """
    words = list(dict.fromkeys(word.casefold() for word in _WORD.findall(words_of(question))))
    telling = [word for word in words if word not in _SILENT] or words
    terms: list[str] = []
    for word in telling[:MOST_WORDS]:
        is_long = len(word) >= _STEM_FROM and word.isalpha()
        forms = [f'"{word[:-_STEM_LESS]}"*' if is_long else f'"{word}"']
        if len(word) >= _LIKE_FROM and word.isalpha() and not any(map(is_known, forms)):
            forms += [f'"{one}"' for one in difflib.get_close_matches(word, vocabulary(word[0]), 2, _LIKE)]
        terms += forms
    return " OR ".join(terms)
