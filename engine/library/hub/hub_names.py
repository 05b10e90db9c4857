"""Names that come from a hub or from a person: repositories, and files that are to be written below a folder.

What the network says is not trusted: a name that could leave its folder, or means a device, is refused.
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
# Control characters, which a terminal would obey; marks that turn the reading order; halves of characters.
_UNREADABLE = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
MAX_NAME_BYTES = 255  # of one part of a path, as most file systems have it
MAX_PATH_CHARACTERS = 1000


def parse_repository(text: str, endpoint: str = "") -> tuple[str, str]:
    """("owner/name", revision or "") that a repository's id or the address of its page means.

    endpoint: the hub that is asked; pages of it are understood beside those of the public hub.
    Raises: InvalidRequestError for anything else.
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
            raise InvalidRequestError(f"{wanted[:200]} is no model.", "Give the address of a model's page.")
        if len(path) > 3 and path[2] in ("tree", "blob", "resolve"):
            revision = path[3]
        wanted = "/".join(path[:2])
    if not is_repository(wanted):
        raise _no_repository(text)
    return wanted, revision


def is_repository(text: str) -> bool:
    """Whether it is an "owner/name" that a hub could have, and that can be a folder's name on every system."""
    found = _REPOSITORY.fullmatch(text)
    return found is not None and ".." not in text and not any(_is_bad_part(part) for part in found.groups())


def is_model_id(text: object) -> bool:
    """Whether it is an id that a hub gives: "owner/name", or the name alone of one of its oldest."""
    return isinstance(text, str) and (is_repository(text) or is_repository(f"hub/{text}"))


def check_readable_name(name: str) -> None:
    """Raises HubError for a file's name that must not even be shown."""
    if len(name) > MAX_PATH_CHARACTERS or _UNREADABLE.search(name):
        raise _bad_name(name)


def check_file_name(name: str) -> str:
    """The name, where it can be written below a folder on every system and stays there; "/" parts its folders.

    Raises: HubError.
    """
    parts = name.split("/")
    if not name or len(name) > MAX_PATH_CHARACTERS or any(_is_bad_part(part) for part in parts):
        raise _bad_name(name)
    return name


def _bad_name(name: str) -> HubError:
    return HubError(
        f"The repository has a file called {name[:100]!a}, which cannot be written safely.",
        "Choose another model, or tell the people who made this one.",
    )


def check_file_names(names: Iterable[str]) -> None:
    """Raises HubError for a name that cannot be written, and for two that some systems take for one: by case, or by
    how a letter with an accent is written."""
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
