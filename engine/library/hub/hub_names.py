"""Check names that come from a hub or a user: repositories, and files to write below a folder.

The network is not trusted: names that could leave their folder or mean a device are refused.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from urllib.parse import unquote, urlsplit

from engine.errors import HubError, InvalidRequestError

HUB_HOSTS = ("huggingface.co", "www.huggingface.co", "hf.co")
_PART = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
_REPOSITORY = re.compile(rf"({_PART})/({_PART})")
_DEVICES = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$)(\..*)?", re.IGNORECASE)
_FORBIDDEN = re.compile(r'[<>:"|?*\\]')
# Control characters, which terminals obey; marks that change the reading direction; unpaired surrogates.
_UNREADABLE = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
MAX_NAME_BYTES = 255  # of one path component, the limit of most file systems
MAX_PATH_CHARACTERS = 1000


def parse_repository(text: str, endpoint: str = "") -> tuple[str, str]:
    """Return ("owner/name", revision or "") for a repository's id or the address of its page.

    endpoint: the hub in use; its pages are understood as well as those of the public hub. Raises: InvalidRequestError
    for anything else.
    """
    wanted = text.strip()
    revision = ""
    if "://" in wanted or wanted.lower().startswith(tuple(host + "/" for host in HUB_HOSTS)):
        parts = urlsplit(wanted if "://" in wanted else "https://" + wanted)
        hosts = {*HUB_HOSTS, (urlsplit(endpoint).hostname or "").lower()} - {""}
        if parts.scheme not in ("http", "https", "hf") or (parts.hostname or "").lower() not in hosts:
            raise _no_repository(text)
        path = [unquote(part) for part in parts.path.split("/") if part]
        if path[:1] == ["models"] and len(path) > 2:
            path = path[1:]
        if path[:1] in (["datasets"], ["spaces"]):
            raise InvalidRequestError(f"{wanted[:200]} is not a model.", "Give the address of a model's page.")
        if len(path) > 3 and path[2] in ("tree", "blob", "resolve"):
            revision = path[3]
        wanted = "/".join(path[:2])
    if not is_repository(wanted):
        raise _no_repository(text)
    return wanted, revision


def is_repository(text: str) -> bool:
    """Return whether this is a possible "owner/name" of a hub, and a valid folder name on every system."""
    found = _REPOSITORY.fullmatch(text)
    return found is not None and ".." not in text and not any(_is_bad_part(part) for part in found.groups())


def is_model_id(text: object) -> bool:
    """Return whether this is a possible id of a hub: "owner/name", or the bare name of one of its oldest models."""
    return isinstance(text, str) and (is_repository(text) or is_repository(f"hub/{text}"))


def check_readable_name(name: str) -> None:
    """Raise HubError for a file name that is unsafe even to show."""
    if len(name) > MAX_PATH_CHARACTERS or _UNREADABLE.search(name):
        raise _bad_name(name)


def check_file_name(name: str) -> str:
    """Return the name if it is valid on every system and stays below its folder; "/" separates folders.

    Raises: HubError.
    """
    parts = name.split("/")
    if not name or len(name) > MAX_PATH_CHARACTERS or any(_is_bad_part(part) for part in parts):
        raise _bad_name(name)
    return name


def _bad_name(name: str) -> HubError:
    return HubError(
        f"The repository has a file called {name[:100]!a}, which cannot be written safely.",
        "Choose another model, or tell its makers.",
    )


def check_file_names(names: Iterable[str]) -> None:
    """Raise HubError for a name that cannot be written, and for two names that some systems consider equal: by case, or
    by the encoding of an accented letter.
    """
    seen: set[str] = set()
    for name in names:
        check_file_name(name)
        folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
        if folded in seen:
            raise HubError(f"The repository has two files called {name[:100]!r}.", "Choose another model.")
        seen.add(folded)


def _is_bad_part(part: str) -> bool:
    try:
        too_long = len(part.encode("utf-8")) > MAX_NAME_BYTES
    except UnicodeEncodeError:
        return True
    return (
        part in ("", ".", "..")
        or too_long
        or part[-1] in ". "
        or part[0] == " "
        or _FORBIDDEN.search(part) is not None
        or _UNREADABLE.search(part) is not None
        or _DEVICES.fullmatch(part) is not None
    )


def _no_repository(text: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{text.strip()[:200]!r} names no model on the hub.", "Give owner/name, or the address of the model's page."
    )
