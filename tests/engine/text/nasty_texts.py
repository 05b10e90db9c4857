"""Texts that tell tokenizers apart: scripts, joined emoji, combining marks, controls, long runs, broken UTF-8."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from random import Random

from hypothesis import strategies as st

from engine.text.tokenizer import Tokenizer

SENTENCES = [
    "The quick brown fox jumps over the lazy dog, doesn't it? I'LL say: WE'VE 1234567 reasons (or 3.14159)!",
    "Grüße aus Köln — naïve façade, Ærøskøbing; œuvre, ﬁne ligatures, ǅungla Ǆ",
    "Съешь же ещё этих мягких французских булок, да выпей чаю. м и мир 999",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. ΌΧΙ",
    "日本語のテキストです。漢字かな交じり文、カタカナ。１２３ ㍿",
    "我能吞下玻璃而不伤身体。2024年01月",
    "키스의 고유조건은 입술끼리 만나야 하고",
    "صِف خَلقَ خَودِ كَمِثلِ الشَمسِ ١٢٣٤ لا",
    "דג סקרן שט בים מאוכזב ולפתע מצא חברה",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा १२३",
    "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า",
    "for (int i = 0; i < n; ++i) {\n\t\tx[i] += y[i] * 0x1F; // done\n}\n\n\n",
    "e\u0301 a\u0308 n\u0303 Z\u0351\u036b\u0343 \u1100\u1161\u11a8 \ufb01 \u212b \u1e9b\u0323",
    "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇩🇪🇫🇷 ☃️ 😀😀😀 ✂︎",
    "\x00\x01\x07\x08\x0b\x0c\x1b[31m\x7f\x80\x9f\u200b\u200d\u200e\u2028\u2029\ufeff\ufffd\U000e0041\U0010ffff",
    "\r\n\r\n \r \n\n  \n   \t \t\t\n",
    "\u00a0\u3000\u2003 wide\u00a0spaces \u1680",
    "½ ¼ ² ³ x²y ⅷ Ⅷ ① 12½3456 ٣٤٥ 1 12 123 1234 12345 123456 1,234,567.89",
    "'s 't 're 'VE 'Ll 'D ’s can't CAN'T 'sit 'tis",
    "_under_score__ snake_case camelCaseWords HTTPServer iPhone15Pro McDonald's ABCdef abcDEF ÀÉÎõü",
    "```python\nprint('\\n')\n``` <b>&amp;</b> $x^2+y~z|w` %%% ###/// ///\n",
    "<s> </s> <unk> <0x41> <|endoftext|> [INST] [/INST] <<SYS>>",
    "▁ ▁▁a Ġ Ċ Â âĢĻ",
    b"\xff\xfe\x80ok\xc3\x28\xe2\x82\xf0\x9f\x98 end \xed\xa0\x80\xc0\xaf".decode("utf-8", "replace"),
]
NASTY = [
    "", " ", "  ", "\n", "\t", "a", " a", "a ", "  a  b  ",
    *SENTENCES,
    "a" * 300, "ab" * 150, " " * 200, "\n" * 77, "\t" * 33, "1" * 100, "é" * 60, "😀" * 40, "!" * 90, "-=" * 60,
    "\n " * 40, " \n" * 40, "a " * 60, "x" + " " * 31 + "y", "日" * 50, "\u0301" * 40, "\u200d" * 20,
    " ".join(SENTENCES), "\n".join(SENTENCES),
]  # fmt: skip

_pieces = st.one_of(
    st.sampled_from(["a", "aa", "the", " ", "  ", "   ", "\n", "\t", "\r\n", "1", "22", "'s", "é", "e\u0301", "日本",
                     "👩‍👩‍👧", "м", "²", "½", "`", "!", "_", "Aa", "A", "\u00a0", "\ufffd", "/"]),
    st.text(max_size=6),
    st.binary(max_size=6).map(lambda data: data.decode("utf-8", "replace")),
    st.tuples(st.sampled_from("a \n1é-"), st.integers(1, 40)).map(lambda run: run[0] * run[1]),
)  # fmt: skip
texts = st.lists(_pieces, max_size=10).map("".join)


def assert_prompts_share_their_beginnings(tokenizer: Tokenizer, marks: Sequence[str]) -> None:
    """Texts of marks and pieces, each a changed copy of an earlier one, have the ids that they have by themselves."""
    random, texts, alone = Random(3), [list[str]()], copy(tokenizer)
    pieces = [*marks, *marks, *SENTENCES, " ", "  ", "\n", "a", "<", "|>", "the", marks[0][:-1], marks[0][1:]]
    for _ in range(150):
        text = list(random.choice(texts[-3:]))
        at = random.randrange(len(text) + 1)
        text[at : at + random.choice((0, 0, 1, 9))] = random.choices(pieces, k=random.choice((1, 2, 6)))
        texts.append(text)
        alone._long = ()
        assert tokenizer.encode("".join(text), special=True) == alone.encode("".join(text), special=True), text
