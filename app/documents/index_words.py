"""How texts and questions become words of the full-text index, and how much of a context texts take. No Qt."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable

# The patterns are compiled when they are first used. Scripts without spaces between words: each character is a word.
_ALONE = "([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f\u0e00-\u0e7f])"
_HYPHENED = r"\b[^\W\d_]+(?:-[^\W\d_]+)+\b"
_WORD = re.compile(r"\d+(?:[.,:]\d+)+|\w+")  # FTS5 takes "0.8" as a phrase
MOST_WORDS = 64  # of a question
_STEM_FROM, _STEM_LESS = 8, 3  # longer words are found by their beginnings as well, so other endings are found
_ENDED_FROM, _ENDINGS = 6, ("en", "er", "es", "em", "rn")  # shorter ones without a German ending: others find too much
_PART_FROM, _LONGEST_PART = 4, 30  # letters of a word in a compound, such as "Chatgruppe"
_BEGINS_FROM = 5  # letters with which a compound may begin another: "Eigenwert" for "Eigenvektor"
_LIKE_FROM, _LIKE = 4, 0.75  # for a word of this many letters that no document has: how like another has to be

# Function words of English, German, French and Spanish: they say nothing about what is asked.
_SILENT_WORDS = """
a an the and or but of to in on at for from by with without before after since until during over under between is are
was were be been being am do does did done doing has have had having i me my mine we us our you your he him his she
her it its they them their this that these those there here what which who whom whose when where why how can could may
might must shall should will would if not no nor about into out off up down as than then so too very just only also
again ever never once any some all each every more most much many such own same other because while though now went
says said please tell show find get got let like want need know say said make made take give go going d ll m re s t ve
don doesn didn isn aren wasn won cannot

der die das den dem des ein eine einen einem einer eines und oder aber von vom zu zum zur im in am an ab auf aus bei
beim bis für mit nach ohne um über unter vor ist sind war waren wird werden wurde hat haben hatte habe bin sein seine
seinen seiner ich mich mir mein meine meinen meiner wir uns unser unsere du dich dir dein deine er ihn ihm ihr ihre
ihren sie es man sich was welche welcher welches wer wen wem wann wo warum wieso wie kann könnte können muss müssen
darf dürfen soll sollen will nicht kein keine keinen auch noch nur schon sehr so als dass wenn weil ob mehr dieser
diese dieses diesen da dann denn doch hier dort es bitte

le la les l un une des du de d et ou mais à au aux en dans sur sous pour par avec sans est sont était être a ai as ont
avoir que qui quoi quel quelle quels quelles quand où comment combien pourquoi je j me m mon ma mes tu te ton ta tes
il elle on nous vous ils elles leur leurs son sa ses se s ce c cette ces cet notre nos votre vos ne n pas plus y si
peut dois doit faut

el la los las un una unos unas y e o u pero de del al con sin por para en a es son era ser está están estar que qué
quién cuál cuáles cuándo dónde cómo cuánto cuánta cuántos cuántas porqué yo me mi mis tú te tu tus él ella nos nuestro
nuestra lo le les se su sus este esta estos estas eso no si sí más muy ya también puedo puede hay
"""
_SILENT = [frozenset(words.split()) for words in _SILENT_WORDS.split("\n\n")]


CHARS_PER_TOKEN = 3  # fewer than texts of most languages have, so that what is found fits
_WIDE = "[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]"  # scripts with about a token per character


def weight(text: str) -> int:
    """Return a text's length in characters of which CHARS_PER_TOKEN make a token."""
    return len(text) + (CHARS_PER_TOKEN - 1) * len(re.findall(_WIDE, text))


def words_of(text: str) -> str:
    """Return a text for the index: characters of scripts without spaces stand alone, and "e-bike" is "ebike" too."""
    return re.sub(_HYPHENED, lambda found: f"{found[0]} {found[0].replace('-', '')}", re.sub(_ALONE, r" \1 ", text))


def terms_of(
    question: str, is_known: Callable[[str], bool], vocabulary: Callable[[str], Iterable[str]]
) -> list[list[str]]:
    """Return the words of a question, each as the queries of FTS5 that find it in one of its forms.

    is_known: whether some document has a term of such a query. vocabulary: words of the documents that begin with a
    letter.
    """
    words = list(dict.fromkeys(word.casefold() for word in _WORD.findall(words_of(question))))
    silent = max(_SILENT, key=lambda language: len(language.intersection(words)))  # "war" is one in German alone
    telling = [word for word in words if word not in silent] or words
    return [_forms_of(word, is_known, vocabulary) for word in telling[:MOST_WORDS]]


def _forms_of(word: str, is_known: Callable[[str], bool], vocabulary: Callable[[str], Iterable[str]]) -> list[str]:
    """Return the word, which FTS5 reduces to its English stem, and its beginning for endings of other languages. For a
    word that no document has, also like ones, and the words that it is composed of.
    """
    forms = [f'"{word}"']
    if not word.isalpha():
        return forms
    if len(word) >= _STEM_FROM:
        forms.append(f'"{word[:-_STEM_LESS]}"*')
    elif len(word) >= _ENDED_FROM and word.endswith(_ENDINGS):
        forms.append(f'"{word[:-2]}"*')
    if len(word) >= _LIKE_FROM and not any(map(is_known, forms)):
        forms += [f'"{one}"' for one in difflib.get_close_matches(word, vocabulary(word[0]), 2, _LIKE)]
        sizes = range(min(len(word) - 1, _LONGEST_PART), _PART_FROM - 1, -1)
        begins = (f'"{word[:size]}"' + "*" * (size >= _BEGINS_FROM) for size in sizes)  # of other compounds, too
        first = next(filter(is_known, begins), None)
        last = next(filter(is_known, (f'"{word[-size:]}"' for size in sizes)), None)
        forms += [part for part in (first, last) if part is not None]
    return forms
