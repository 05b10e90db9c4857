"""Text to token ids and back, with a model's own vocabulary from tokenizer.json or a GGUF file.

The tokenizers library does the byte-pair merging. This module decodes, streams, and ensures that text typed by a user
never becomes a special token. engine/text/vocabulary.py and engine/text/gguf_vocabulary.py read files.
"""

from __future__ import annotations

import itertools
import re
import threading
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from engine.config import ModelConfig
from engine.errors import ChatTemplateError, InvalidRequestError, ModelFormatError, TokenizerMismatchError
from engine.text import harmony
from engine.text.chat_template import ChatTemplate
from engine.text.chat_templates import ModelKind, choose_template, kind_of
from engine.text.gguf_vocabulary import read_gguf
from engine.text.harmony import HarmonyStream, speaks_harmony
from engine.text.older_vocabularies import read_pair, read_sentencepiece
from engine.text.text_stream import APRIEL, KIMI, KIMI_MARKS, SOLAR, SOLAR_ENDS, Spelling, TagStream
from engine.text.text_stream import TextStream as TextStream
from engine.text.thinking import Thinking, Way, thinking_of, with_words
from engine.text.thoughts import MARK_TOKENS, ReplySplitter, end_of, mark_spans, opened_thought
from engine.text.vocabulary import Vocabulary, guarded, read_files
from engine.thinking_level import Level

_MAX_ID = 1 << 21
_FAR_SMALLER = 0.8  # models pad their embedding by a few rows, never by a fifth of the vocabulary
_THOUGHT_MARK_TOKENS = 40  # more than any of those takes
_JOINER = "\u200d"  # zero-width: breaks a special token's text apart and shows nothing
_CONTENTS = ("content", "reasoning_content", "thinking")  # the texts of a message
# Functionary 3.2's template ends prompts with the first mark; the model names a tool or "all", and a text follows.
_RECIPIENT, _TO_ALL = ">>>", "all\n"
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")

# Texts of this many characters, of which the last ones are kept with their tokens: 49,000 tokens take 0.2 s.
_LONG, _KEPT = 8192, 2
_LONGEST_SPECIAL = 256  # characters of a special token


def _byte_alphabet() -> dict[str, int]:
    """Return GPT-2's printable substitute for each byte -> the byte."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = (byte for byte in range(256) if byte not in printable)
    return {chr(b): b for b in printable} | {chr(256 + n): b for n, b in enumerate(others)}


_BYTES = _byte_alphabet()


class _Parsed(NamedTuple):
    """A text and its tokens: ids, and where each begins and ends in it."""

    text: str
    ids: array[int]
    starts: array[int]
    ends: array[int]


class Tokenizer:
    """One model's vocabulary. Thread-safe."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._backend = backend = vocabulary.backend
        self._lock = threading.Lock()  # whether special tokens are parsed is a switch on the library's object
        self._pieces = vocabulary.pieces
        self._strips_first_space = vocabulary.strips_first_space
        self._origin = vocabulary.origin
        self._piece_bytes: dict[int, bytes] = {}
        self._long: tuple[_Parsed, ...] = ()  # the last long texts
        added = backend.get_added_tokens_decoder()
        self._added = {int(i) for i in added}
        self._special = {int(i): token for i, token in added.items() if token.special and token.content}
        # Characters that a vocabulary cannot spell become its unknown token.
        unknown = getattr(backend.model, "unk_token", None)
        spelt = {None if unknown is None else backend.token_to_id(unknown), vocabulary.unknown_token_id}
        self._forbidden = self._special.keys() - spelt
        ids = vocabulary.ids or sorted(backend.get_vocab(with_added_tokens=True).values())
        if not ids:
            raise ModelFormatError(f"{vocabulary.origin} has no tokens.")
        self._repeated = vocabulary.repeated
        self.vocab_size: int = ids[-1] + 1
        # Text models of families with image input keep tokens for images, beyond the end of their embedding.
        self._n_needed: int = next((i for i in reversed(ids) if not self.is_special(i)), -1) + 1
        self.notes = vocabulary.notes
        self.bos_token_id = vocabulary.bos_token_id
        self.eos_token_ids = vocabulary.eos_token_ids
        self.adds_bos = vocabulary.adds_bos and self.bos_token_id is not None
        self.closing_id = vocabulary.closing_id  # the token that an encoder reads behind each text
        self.chat_template = vocabulary.chat_template
        texts = sorted((token.content for token in self._special.values()), key=len, reverse=True)
        self._special_text = re.compile("|".join(map(re.escape, texts))) if texts else None
        self._special_by_text = {token.content: (i, token) for i, token in self._special.items()}
        self._speaks_harmony = speaks_harmony(self._special_by_text)
        known = self._special_by_text.keys()
        speaks_solar = known >= {*SOLAR.marks, *SOLAR_ENDS}
        self._own_spelling = KIMI if known >= {*KIMI_MARKS} else SOLAR if speaks_solar else None
        # Special tokens that stay in an answer's text, because they tell a thought from the answer.
        marks = MARK_TOKENS if self._own_spelling is None else MARK_TOKENS.union(self._own_spelling.marks)
        self._shown = frozenset(i for i, token in self._special.items() if token.content.lower() in marks)
        self._vocabulary = vocabulary
        self.template: ChatTemplate | None = None
        self.template_reason = ""
        self.kind: ModelKind = "chat"
        self.stop_token_ids: frozenset[int] = frozenset(self.eos_token_ids)
        self.stop_texts: tuple[str, ...] = ()
        if self.chat_template is not None:
            self.use_template("")

    def use_template(self, model_name: str, override: str | None = None) -> None:
        """Use the chat template that suits the model, or the one that `override` names.

        Afterwards `template` and `template_reason` tell which and why, `kind` whether the model was trained to answer,
        `stop_token_ids` and `stop_texts` what ends an answer. Not while another thread encodes a chat. Raises:
        InvalidRequestError for an unknown name.
        """
        self.template, self.template_reason = choose_template(model_name, self._vocabulary, override)
        self.__dict__.pop("thinking", None)  # of the template before
        self.kind = kind_of(model_name, self._vocabulary, override)
        known = [stop for stop in self.template.stops if stop in self._special_by_text]
        self.stop_token_ids = frozenset(self.eos_token_ids) | {self._special_by_text[stop][0] for stop in known}
        self.stop_texts = tuple(stop for stop in self.template.stops if stop not in known)

    # --- where vocabularies come from

    @classmethod
    def from_files(cls, tokenizer_json: Path, tokenizer_config: Path | None = None) -> Tokenizer:
        """Return the tokenizer of a Hugging Face model directory.

        Raises: ModelFormatError for a missing or damaged file, UnsupportedModelError for an unsupported kind of
        vocabulary.
        """
        return cls(read_files(tokenizer_json, tokenizer_config))

    @classmethod
    def from_pair(cls, vocab_json: Path, merges_txt: Path, tokenizer_config: Path | None = None) -> Tokenizer:
        """Return the tokenizer of an older model directory, such as OPT's, without tokenizer.json.

        Raises: as from_files.
        """
        return cls(read_pair(vocab_json, merges_txt, tokenizer_config))

    @classmethod
    def from_sentencepiece(cls, tokenizer_model: Path, tokenizer_config: Path | None = None) -> Tokenizer:
        """Return the tokenizer of a model directory with SentencePiece's own file, without tokenizer.json.

        Raises: as from_files.
        """
        return cls(read_sentencepiece(tokenizer_model, tokenizer_config))

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any]) -> Tokenizer:
        """Return the tokenizer in a GGUF file: SentencePiece's pieces with scores, or GPT-2's with merges.

        Raises: ModelFormatError for missing or contradictory entries, UnsupportedModelError for another kind of
        vocabulary or of splitting.
        """
        return cls(read_gguf(metadata))

    def check_against(self, config: ModelConfig) -> None:
        """Refuse a tokenizer that belongs to another model.

        Raises: TokenizerMismatchError with the figures.
        """
        if self._n_needed > config.vocab_size:
            raise TokenizerMismatchError(
                f"The tokenizer has ids up to {self._n_needed - 1}, the model only {config.vocab_size} tokens."
            )
        if self.vocab_size < _FAR_SMALLER * config.vocab_size:
            raise TokenizerMismatchError(
                f"The tokenizer has {self.vocab_size} tokens, the model {config.vocab_size}: one of them is another's."
            )
        if None not in (self.bos_token_id, config.bos_token_id) and self.bos_token_id != config.bos_token_id:
            raise TokenizerMismatchError(
                f"The tokenizer begins text with token {self.bos_token_id}, the model with {config.bos_token_id}."
            )
        if self.eos_token_ids and config.eos_token_ids and not set(self.eos_token_ids) & set(config.eos_token_ids):
            raise TokenizerMismatchError(
                f"The tokenizer ends text with token {_listed(self.eos_token_ids)}, "
                f"the model with {_listed(config.eos_token_ids)}."
            )

    # --- text to ids

    def encode(self, text: str, special: bool = False, add_bos: bool = False) -> list[int]:
        """Return the ids of a text. special: whether the text of a special token means that token; if not, it is
        ordinary text.

        add_bos puts the BOS token first, if there is one and the ids do not begin with it already.
        """
        text = _without_surrogates(text)
        ids = self._parse(text).ids.tolist() if special else self._encode_literally(text)
        if add_bos and self.bos_token_id is not None and ids[:1] != [self.bos_token_id]:
            ids.insert(0, self.bos_token_id)
        return ids

    @cached_property
    def thinking(self) -> Thinking:
        """How the chat template has the model think. Cost: that of `thinking_of`, once."""
        return Thinking() if self.template is None else thinking_of(self.template)

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        thinking: Level | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> list[int]:
        """Return the prompt for a conversation. Special tokens come only from the template, never from a message.

        thinking: how much to think; the nearest level that the template has. None: as the template does by itself.
        tools: as ChatTemplate.render takes them; no special token comes from them either.

        The template is rendered twice: as it is, and with every character of the messages that could be part of a
        special token replaced by a unique substitute. If both agree, the substitutes show which characters come from
        messages. If no special token touches one of those, the ids are those of plain rendering and parsing; otherwise
        only the template's own special tokens count and the text between them is ordinary text. A template that changes
        the spelling of contents (to upper case, for example) loses the substitutes; then the text of special tokens in
        messages is broken up with a zero-width joiner, if it produces special tokens.

        Raises: ChatTemplateError (also if the model has no template), InvalidRequestError for an invalid role.
        """
        if self.template is None:
            raise ChatTemplateError("The model has no chat template.")
        way = Way() if thinking is None else self.thinking.way(thinking)
        turns = [_mapped(dict(message), _without_surrogates) for message in messages]
        for turn in turns:
            if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", turn.get("role", "")):
                raise InvalidRequestError(f"A message's role is {turn.get('role')!r}; it must be a word like 'user'.")
        turns = with_words(turns, way.words)
        given = None if tools is None else _mapped(list(tools), _without_surrogates)
        ids = self._encode_turns(turns, way.variables, given) + self.encode(way.ending, special=True)
        if not self._names_recipients or ids[-len(mark := self.encode(_RECIPIENT)) :] != mark:
            return ids
        return ids + self.encode(_TO_ALL) if tools is None else ids[: -len(mark)]

    @property
    def _names_recipients(self) -> bool:
        return self.template is not None and f"{_RECIPIENT}all" in self.template.source

    def _encode_turns(self, turns: list[dict[str, Any]], variables: Mapping[str, Any], tools: Any) -> list[int]:
        """Return the ids of what the template makes of checked messages and these variables; see `encode_chat`."""
        assert self.template is not None
        plain = self.template.render(turns, variables=variables, tools=tools)
        if self._special_text is None:
            return self._encode_literally(plain)
        fakes = self._fakes([plain, *_texts([turns, tools])])
        originals = {ord(mark): chr(char) for char, mark in fakes.items()}
        try:
            rewritten, described = _rewritten(turns, tools, fakes)
            marked = self.template.render(rewritten, variables=variables, tools=described)
        except ChatTemplateError:
            marked = ""  # the template checks the spelling of contents; its verdict on the real ones is known
        if marked.translate(originals) == plain:
            parsed = self._parse(plain)
            special = (
                marked[parsed.starts[n] : parsed.ends[n]] for n, i in enumerate(parsed.ids) if i in self._special
            )
            if all(text.translate(originals) == text for text in special):
                return parsed.ids.tolist()
            return self._encode_marked(marked, originals)
        return self._encode_transformed(plain, turns, variables, tools)

    def encode_continued(
        self,
        messages: Sequence[Mapping[str, Any]],
        thinking: Level | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> list[int]:
        """Return the prompt that makes the model continue its own last message, exactly where it ends.

        The template renders only the beginning of that answer, because many templates change an assistant's messages.
        Raises: as encode_chat.
        """
        if not messages or messages[-1].get("role") != "assistant":
            return self.encode_chat(messages, thinking, tools)
        prompt = self.encode_chat(messages[:-1], thinking, tools)
        said = messages[-1]["content"]
        reply = ReplySplitter()
        reply.append(said)
        level = self.thinking.nearest(thinking) or self.thinking.default
        if reply.has_thought and level == "off":  # it was chosen after that answer began
            prompt = self.encode_chat(messages[:-1], "on", tools)
        elif said.strip() and not reply.has_thought and self.opened_thought(prompt):
            prompt = self.encode_chat(messages[:-1], "off", tools)
        if said.strip() and not reply.has_thought and (opened := self.opened_thought(prompt)):
            prompt += self.end_of_thought(end_of(opened).lower())
        if self._speaks_harmony:
            pieces = harmony.continued(said)
            tokens = [[self._special_by_text[text][0]] if mark else self.encode(text) for text, mark in pieces]
            return prompt + list(itertools.chain.from_iterable(tokens))
        prompt += self.encode(_RECIPIENT + _TO_ALL) if tools is not None and self._names_recipients else []
        return prompt + self._encode_begun(said, prompt)

    @property
    def _spelling(self) -> Spelling:
        if self._own_spelling is None and self.template is not None and APRIEL.end in self.template.source:
            return APRIEL
        return self._own_spelling or Spelling()

    def _encode_begun(self, said: str, prompt: list[int]) -> list[int]:
        """Return the ids of the beginning of a reply to the prompt, with the model's own marks around thoughts."""
        opened, ids, spans, spelling = self.opened_thought(prompt), list[int](), mark_spans(said), self._spelling
        start = len(opened) if said.startswith(opened) else 0
        for begin, end in spans:
            mark = self.encode(own := spelling.own(said[begin:end]), special=True)
            if begin >= start and (own != said[begin:end] or any(i in self._special for i in mark)):
                ids += self.encode(said[start:begin]) + mark
                start = end
        rest, header = said[start:], self.encode(spelling.header, special=True) if spelling.header else []
        if header and len(spans) % 2 == 0:  # the model writes the header of its answer
            rest = rest.lstrip() if spans else rest
            ids += header if rest and (prompt + ids)[-len(header) :] != header else []
        return ids + self.encode(rest)

    def opened_thought(self, prompt: Sequence[int]) -> str:
        """Return the marker with which a prompt makes the model begin with a thought, with the white space after it.

        The model does not write this marker, only the end of the thought.
        """
        tail = self.decode(prompt[-_THOUGHT_MARK_TOKENS:], skip_special=False)
        own = self._spelling.opening
        if own and tail.rstrip().endswith(own):
            tail = "<think>" + tail[len(tail.rstrip()) :]
        return opened_thought(tail)

    @property
    def answer_header(self) -> str:
        """The text of the tokens after which the answer begins, in formats that have a header for it; else ""."""
        return harmony.ANSWER_HEADER if self._speaks_harmony else KIMI.header if self._own_spelling is KIMI else ""

    def end_of_thought(self, mark: str, begins_answer: bool = True) -> list[int]:
        """Return the tokens that end a thought and begin the answer. mark: that ends it, in lower case. begins_answer:
        whether the header of an answer follows in formats that have one.
        """
        if self._speaks_harmony:
            return self.encode(harmony.ANSWER_BEGINS if begins_answer else harmony.MESSAGE_BEGINS, special=True)
        spelling, known = self._spelling, self._special_by_text
        spelt = next((text for text in known if text.lower() == mark), spelling.own(mark))
        header = spelling.header or "\n\n"
        return self.encode("\n" + spelt + (header if begins_answer or self.answer_header else ""), special=True)

    def _fakes(self, texts: Iterable[str]) -> dict[int, str]:
        """Return an unused private character for each character of special tokens, except white space (templates trim
        it).
        """
        used = set(itertools.chain.from_iterable(texts))
        free = (char for char in map(chr, range(0xF0000, 0x10FFFE)) if char not in used)
        alphabet = {char for token in self._special.values() for char in token.content if not char.isspace()}
        return {ord(char): next(free) for char in sorted(alphabet)}

    def _encode_marked(self, marked: str, originals: dict[int, str]) -> list[int]:
        """Return the ids of a rendering whose message characters are substitutes: no special token can match one."""
        assert self._special_text is not None
        ids: list[int] = []
        start, strip_left = 0, False
        for match in [*self._special_text.finditer(marked), None]:
            text = marked[start : match.start() if match else None].translate(originals)
            token_id, token = self._special_by_text[match.group()] if match else (None, None)
            text = text.lstrip() if strip_left else text
            text = text.rstrip() if token is not None and token.lstrip else text
            ids += self._encode_literally(text)
            if match and token is not None and token_id is not None:
                ids.append(token_id)
                start, strip_left = match.end(), token.rstrip
        return ids

    def _encode_transformed(
        self, plain: str, turns: list[dict[str, Any]], variables: Mapping[str, Any], tools: Any
    ) -> list[int]:  # fmt: skip
        """Return the ids if the template respells contents, so that no substitute survives."""
        assert self.template is not None
        marks = {char for token in self._special.values() for char in token.content if not char.isalnum()}
        marks |= {token.content[0] for token in self._special.values() if token.content.isalnum()}
        table = {ord(char): char + _JOINER for char in marks if not char.isspace()}
        rewritten, described = _rewritten(turns, tools, table)
        harmless = self.template.render(rewritten, variables=variables, tools=described)

        def special_ids(ids: list[int]) -> list[int]:
            return [i for i in ids if i in self._special]

        ids, safe_ids = (self.encode(text, special=True) for text in (plain, harmless))
        return ids if special_ids(ids) == special_ids(safe_ids) else safe_ids

    def _parse(self, text: str) -> _Parsed:
        """Return the tokens of a text with special tokens parsed.

        A long text that begins like one of the last long ones, as the prompts of a chat do, is parsed from the last
        special token that they share.
        """
        known = [] if len(text) < _LONG else [(self._shared(text, one), one) for one in self._long]
        n, earlier = max(
            known, key=lambda found: found[0], default=(0, _Parsed("", array("i"), array("i"), array("i")))
        )
        at = earlier.starts[n] if n else 0
        new = self._run(text[at:], literally=False)
        starts, ends = (array("i", [at + offset[side] for offset in new.offsets]) for side in (0, 1))
        found = _Parsed(
            text, earlier.ids[:n] + array("i", new.ids), earlier.starts[:n] + starts, earlier.ends[:n] + ends
        )
        if len(text) >= _LONG:
            self._long = (found, *self._long[: _KEPT - 1])
        return found

    def _begins(self, text: str, at: int, token_id: int) -> bool:
        """Return whether that special token begins there, so that no token before it depends on what follows."""
        if token_id not in self._special or self._special_text is None:
            return False
        content = self._special[token_id].content
        matches = self._special_text.finditer(text, max(0, at - _LONGEST_SPECIAL), at + _LONGEST_SPECIAL)
        return any(match.start() == at and match.group() == content for match in matches)

    def _shared(self, text: str, earlier: _Parsed) -> int:
        """Return how many tokens the text shares with an earlier one, up to a special token in both."""
        same, differs = 0, min(len(text), len(earlier.text)) + 1
        while differs - same > 1:
            middle = (same + differs) // 2
            if text[same:middle] == earlier.text[same:middle]:
                same = middle
            else:
                differs = middle
        n = min(bisect_right(earlier.starts, same), len(earlier.ids)) - 1
        while n > 0 and not self._begins(text, earlier.starts[n], earlier.ids[n]):
            n -= 1
        return max(n, 0)

    def _run(self, text: str, literally: bool) -> Any:
        def run() -> Any:
            with self._lock:
                self._backend.encode_special_tokens = literally
                return self._backend.encode(text, add_special_tokens=False)

        return guarded(run, self._origin)

    def _encode_literally(self, text: str) -> list[int]:
        """Return the ids of text without special tokens."""
        if not text:
            return []
        ids: list[int] = self._run(text, literally=True).ids
        if self._special_text is None or self._forbidden.isdisjoint(ids):
            return ids
        # The merges themselves produce a special token: split its text. What cannot be split is omitted.
        matches = list(self._special_text.finditer(text))
        inner = (match.start() + 1 if len(match.group()) > 1 else match.start() for match in matches)
        cuts = sorted({0, *inner, *(match.end() for match in matches), len(text)})
        if len(cuts) == 2:
            return [i for i in ids if i not in self._forbidden]
        return [i for a, b in itertools.pairwise(cuts) for i in self._encode_literally(text[a:b])]

    # --- ids to text

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """Return the text of these ids; invalid UTF-8 becomes U+FFFD."""
        stream = self._stream(skip_special)
        return "".join([*map(stream.push, ids), stream.flush()])

    def raw_stream(self) -> TextStream:
        """Return a new decoder for tokens that arrive one at a time, with the text of special tokens."""
        if (spelling := self._spelling).opening:
            return TagStream(self._bytes_of, self._strips_first_space, spelling)
        return self._stream(skip_special=False)

    def stream(self, continues: bool = False, shown: str = "") -> TextStream:
        """Return a new decoder for tokens that arrive one at a time. It skips special tokens except those that
        mark thoughts, and puts thoughts in Harmony between <think> marks.

        continues: the tokens follow other text, so that a space at their beginning is kept. shown: the special tokens
        in this text are not skipped; in Harmony, the headers of messages to tools are not if it has CALL_HEADER.
        """
        return self._stream(skip_special=True, begins=not continues, shown=shown)

    @property
    def special_ids(self) -> Mapping[str, int]:
        """The ids of the special tokens by their texts."""
        return {text: i for text, (i, _) in self._special_by_text.items()}

    @property
    def tokens(self) -> list[tuple[int, str, bool]]:
        """Every token by ascending id: its id, its text as the vocabulary spells it, and whether it is special."""
        texts = self._backend.get_vocab(with_added_tokens=True)
        by_id = {**{i: text for text, i in texts.items()}, **{i: one.content for i, one in self._special.items()}}
        return [(i, by_id[i], i in self._special) for i in sorted(by_id)]

    def token_bytes(self, token_id: int) -> bytes:
        """Return the token's UTF-8 bytes, possibly part of a character; of a special one its name."""
        return self._bytes_of(token_id)

    def _stream(self, skip_special: bool, begins: bool = True, shown: str = "") -> TextStream:
        is_harmony = skip_special and self._speaks_harmony
        also = () if is_harmony or not shown else (i for i, token in self._special.items() if token.content in shown)
        visible_ids = self._shown.union(also)

        def visible(token_id: int) -> bytes:
            first = self._repeated.get(token_id, token_id)
            return b"" if first in self._special and first not in visible_ids else self._bytes_of(token_id)

        strips = self._strips_first_space and begins
        if is_harmony:
            return HarmonyStream(visible, self._mark_of, strips, shows_calls=harmony.CALL_HEADER in shown)
        if skip_special and self._spelling.tags:
            return TagStream(visible, strips, self._spelling)
        return TextStream(visible if skip_special else self._bytes_of, strip_first_space=strips)

    def _mark_of(self, token_id: int) -> str:
        token = self._special.get(self._repeated.get(token_id, token_id))
        return "" if token is None else str(token.content)

    def is_special(self, token_id: int) -> bool:
        """Return whether this id, or the first of equal ones, is a special token."""
        return self._repeated.get(token_id, token_id) in self._special

    def _bytes_of(self, token_id: int) -> bytes:
        """Return a token's bytes; none for an id without a token (padding rows of the embedding)."""
        known = self._piece_bytes.get(token_id)
        if known is None:
            first = self._repeated.get(token_id, token_id)
            text = self._backend.id_to_token(first) if 0 <= first < _MAX_ID else None
            known = self._piece_bytes[token_id] = b"" if text is None else self._spelt(first, text)
        return known

    def _spelt(self, token_id: int, text: str) -> bytes:
        if token_id in self._special:
            return text.encode("utf-8", "replace")
        if token_id in self._added and self._pieces == "byte-level":
            return text.encode("utf-8", "replace")
        if self._pieces == "byte-level":
            if all(char in _BYTES for char in text):
                return bytes(_BYTES[char] for char in text)
            return text.encode("utf-8", "replace")
        if self._pieces == "words":
            return (text[2:] if text.startswith("##") else f" {text}").encode("utf-8", "replace")
        if match := _BYTE_TOKEN.fullmatch(text):
            return bytes([int(match[1], 16)])
        return text.replace("\u2581", " ").encode("utf-8", "replace")


def _rewritten(turns: list[dict[str, Any]], tools: Any, table: Mapping[int, str]) -> tuple[list[dict[str, Any]], Any]:
    """Return messages and tools with the characters of the table replaced in everything but the roles.

    Templates compare the words of calls and of tools, such as types in a schema, so their letters and digits stay.
    """
    marks = {char: text for char, text in table.items() if not chr(char).isalnum()}

    def changed(key: str, value: Any) -> Any:
        return _mapped(value, lambda text: text.translate(table if key in _CONTENTS else marks))

    rewritten = [
        {key: value if key == "role" else changed(key, value) for key, value in turn.items()} for turn in turns
    ]
    return rewritten, changed("tools", tools)


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """Return nested lists and dictionaries with every text in them changed, also the keys."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_mapped(one, change) for one in value]
    if isinstance(value, dict):
        return {change(key): _mapped(one, change) for key, one in value.items()}
    return value


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts in nested lists and dictionaries."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for one in value if isinstance(value, list) else itertools.chain(value, value.values()):
            yield from _texts(one)


def _without_surrogates(text: str) -> str:
    """Return the text with unpaired surrogates, which some keyboards and files produce, joined or
    replaced by U+FFFD.
    """
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _listed(ids: Iterable[int]) -> str:
    return " or ".join(map(str, ids))
