"""The character sets of HTML and XML files and pages, as browsers know them. No Qt."""

from __future__ import annotations

import codecs
import re

# A character set that a page declares: XML in its first line, HTML in a tag too.
XML = re.compile(rb"\A\s*<\?xml[^>]{1,200}?encoding\s*=\s*[\"']([\w.:-]{1,40})", re.IGNORECASE)
HTML = re.compile(XML.pattern + rb"|<meta[^>]{1,300}?charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE)
_DECLARED_WITHIN = 4096  # bytes
_BOMS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
# By Python's names. Older names mean the larger set that browsers take them for.
_LARGER = {"ascii": "cp1252", "iso8859-1": "cp1252", "iso8859-9": "cp1254", "iso8859-11": "cp874",
           "tis-620": "cp874", "gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949",
           "big5": "big5hkscs"}  # fmt: skip
_ALIASES = {"windows-31j": "cp932", "x-sjis": "cp932", "windows-874": "cp874"}  # which Python does not know
_CHARSETS = {
    "utf-8", "utf-16", "utf-16-le", "utf-16-be", "gb18030", "big5hkscs", "euc_jp", "iso2022_jp", "cp932", "cp949",
    "koi8-r", "koi8-u", "cp866", "cp874", "mac-roman", "mac-cyrillic",
    *(f"cp{number}" for number in range(1250, 1259)),
    *(f"iso8859-{number}" for number in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)),
}  # fmt: skip


def decoded(data: bytes, charset: str, declaration: re.Pattern[bytes]) -> str:
    """Decode text by its byte order mark, its header, its declaration, or as UTF-8. Wrong bytes are replaced."""
    for mark, name in _BOMS.items():
        if data.startswith(mark):
            return data.decode(name, "replace")
    declared = declaration.search(data[:_DECLARED_WITHIN])
    name = _python_name(charset)
    if not name and declared is not None:
        name = _python_name(declared[declared.lastindex or 1].decode("ascii", "replace"))
        if name.startswith("utf-16"):  # it could not have been read so far
            name = "utf-8"
    return data.decode(name or "utf-8", "replace")


def _python_name(charset: str) -> str:
    """Return a character set's name in Python; "" if it is none of the web's: some of Python's others are unsafe."""
    try:
        name = codecs.lookup(_ALIASES.get(charset.lower(), charset)).name
    except (LookupError, ValueError):
        return ""
    name = _LARGER.get(name, name)
    return name if name in _CHARSETS else ""
