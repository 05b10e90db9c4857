"""The update manifest: what a release offers, signed with Ed25519.

The file is a JSON object {"manifest": TEXT, "signatures": [HEX, ...]}. Each signature is over CONTEXT and TEXT. The
program accepts a manifest that one of its public keys signed, so that a second key, kept offline, can replace the
first. installer/sign_release.py makes keys and manifests. This module reads no clock and no network.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

from engine.errors import UpdateError

MAX_BYTES = 256 << 10  # of the signed manifest
MAX_FILE_BYTES = 4_000_000_000
CONTEXT = b"Hearth update manifest 1\n"  # a signature over other data of the same key is worth nothing here
_VERSION = re.compile(r"\d{1,6}(\.\d{1,6}){1,3}")  # no pre-releases
_ADDRESS = re.compile(r"https?://[!-~]{1,500}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}")
_HASH = re.compile(r"[0-9a-f]{64}")
_DAMAGED = "Try again later. If it happens again, tell the people who released Hearth."


@dataclass(frozen=True)
class UpdateFile:
    """A file to install from. platform: as installed.platform() returns it. size in bytes; sha256 in hex digits."""

    platform: str
    name: str
    url: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """A release. released, expires: days; after `expires` the manifest counts no more. page: its web page, or ""."""

    version: str
    released: date
    expires: date
    notes: str
    page: str
    files: tuple[UpdateFile, ...]

    def file_for(self, platform: str) -> UpdateFile | None:
        """Return the file for a platform; None if there is none."""
        return next((file for file in self.files if file.platform == platform), None)


def numbers(version: str) -> tuple[int, ...]:
    """Return a version as numbers to compare; 1.2 equals 1.2.0."""
    found = [int(number) for number in re.findall(r"\d+", version)]
    return tuple(found + [0] * (4 - len(found)))


def signed(manifest: Manifest, private_keys: Sequence[bytes]) -> bytes:
    """Return the manifest file, signed with each of the private keys (32 bytes)."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    text = json.dumps(asdict(manifest), default=date.isoformat, sort_keys=True)
    keys = [Ed25519PrivateKey.from_private_bytes(key) for key in private_keys]
    signatures = [key.sign(CONTEXT + text.encode()).hex() for key in keys]
    return json.dumps({"manifest": text, "signatures": signatures}, indent=1).encode() + b"\n"


def verified(data: bytes, public_keys: Sequence[bytes]) -> Manifest:
    """Return the manifest of a signed file. public_keys: of 32 bytes; one of them must have signed.

    Raises: UpdateError "signature" or "damaged". Nothing of the manifest is parsed before its signature is verified.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        envelope = json.loads(data)
        text, signatures = envelope["manifest"].encode(), [bytes.fromhex(one) for one in envelope["signatures"][:8]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UpdateError.of("damaged", "The list of updates is damaged.", _DAMAGED) from None
    for key in public_keys:
        for signature in signatures:
            try:
                Ed25519PublicKey.from_public_bytes(key).verify(signature, CONTEXT + text)
            except InvalidSignature:
                continue
            return _parsed(text)
    raise UpdateError.of("signature", "The list of updates is not signed by the people who released this Hearth.")


def _parsed(text: bytes) -> Manifest:
    try:
        values = json.loads(text)
        files = tuple(_file(one) for one in values["files"])
        page = values["page"]
        return Manifest(
            _matching(_VERSION, values["version"]), date.fromisoformat(values["released"]),
            date.fromisoformat(values["expires"]), str(values["notes"])[:20_000],
            _matching(_ADDRESS, page) if page else "", files,
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UpdateError.of("damaged", "The list of updates is damaged.", _DAMAGED) from None


def _file(values: Any) -> UpdateFile:
    size = values["size"]
    if type(size) is not int or not 0 < size <= MAX_FILE_BYTES:
        raise ValueError(size)
    return UpdateFile(
        _matching(_NAME, values["platform"]), _matching(_NAME, values["name"]), _matching(_ADDRESS, values["url"]),
        size, _matching(_HASH, values["sha256"]),
    )  # fmt: skip


def _matching(form: re.Pattern[str], text: str) -> str:
    if not form.fullmatch(text):
        raise ValueError(text)
    return text
