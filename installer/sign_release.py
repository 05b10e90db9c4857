#!/usr/bin/env python3
"""Makes the keys that sign updates, and signs the update manifest of a release.

    .venv/bin/python installer/sign_release.py make-keys FOLDER     # outside the repository
    .venv/bin/python installer/sign_release.py sign --key FILE --url https://…/v1.2.0 --page https://… [--notes FILE]
    .venv/bin/python installer/sign_release.py check MANIFEST

`sign` writes dist/hearth-update.json for the packages in dist/. docs/releasing.md says when to run what.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
for place in (str(HERE), str(ROOT)):
    if place not in sys.path:
        sys.path.insert(0, place)

import build  # noqa: E402 - the path above comes first

from engine.errors import UpdateError  # noqa: E402
from engine.library.updates.manifest import Manifest, UpdateFile, signed, verified  # noqa: E402
from engine.library.updates.release import public_keys  # noqa: E402

NAME = "hearth-update.json"
VALID_DAYS = 120
# How the names of packages end, and the platform that each is for (engine/library/updates/installed.py).
PLATFORMS = {
    "-linux-x86_64.tar.xz": "linux-x86_64-tarball",
    "-linux-aarch64.tar.xz": "linux-aarch64-tarball",
    "_amd64.deb": "linux-x86_64-deb",
    "_arm64.deb": "linux-aarch64-deb",
    "-windows-x86_64.exe": "win32-AMD64-installer",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description="Make keys, and sign the updates of Hearth.")
    acts = parser.add_subparsers(dest="act", required=True)
    make = acts.add_parser("make-keys", help="make a key for releases and one to keep offline")
    make.add_argument("folder", type=Path, help="where the private keys go; outside the repository")
    sign = acts.add_parser("sign", help=f"write dist/{NAME}")
    sign.add_argument("--key", type=Path, required=True, action="append", help="file of a private key; may be repeated")
    sign.add_argument("--url", required=True, help="the address of the folder that the packages are fetched from")
    sign.add_argument("--page", default="", help="the web page of the release")
    sign.add_argument("--notes", type=Path, help="a text file: what is new")
    sign.add_argument("--days", type=int, default=VALID_DAYS, help="until the manifest expires (default: %(default)s)")
    sign.add_argument("--packages", type=Path, default=build.DIST, metavar="FOLDER", help="default: dist")
    check = acts.add_parser("check", help="verify a manifest with the keys of this source")
    check.add_argument("manifest", type=Path)
    given = parser.parse_args(argv)
    try:
        if given.act == "make-keys":
            make_keys(given.folder)
        elif given.act == "sign":
            notes = given.notes.read_text(encoding="utf-8") if given.notes else ""
            manifest = manifest_of(given.packages, given.url, given.page, notes, given.days)
            target = given.packages / NAME
            target.write_bytes(signed(manifest, [bytes.fromhex(key.read_text()) for key in given.key]))
            print(target)
        else:
            for name, value in asdict(verified(given.manifest.read_bytes(), public_keys())).items():
                print(f"{name}: {value}")
    except (UpdateError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def make_keys(folder: Path) -> None:
    """Write two private keys that only this user can read, and print the public ones. Raises: OSError, ValueError."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    folder = folder.expanduser().resolve()
    if folder.is_relative_to(ROOT):
        raise ValueError(
            f"{folder} is in the repository. Name a folder outside it, best on a disk that you can remove."
        )
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    print("Add these lines to assets/update-keys.txt. Keep offline.key on another disk, away from this PC.")
    for name in ("release", "offline"):
        key = Ed25519PrivateKey.generate()
        descriptor = os.open(folder / f"{name}.key", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(key.private_bytes_raw().hex() + "\n")
        print(f"{key.public_key().public_bytes_raw().hex()}  # {name}")


def manifest_of(packages: Path, url: str, page: str, notes: str, days: int, today: date | None = None) -> Manifest:
    """The manifest of the packages in a folder. url: of the folder that holds them. Raises: ValueError without any."""
    today = today or datetime.now(UTC).date()
    version = build.version()
    files = []
    for path in sorted(packages.iterdir()):
        platform = next((one for end, one in PLATFORMS.items() if path.name.endswith(end)), "")
        if platform and path.name.startswith((f"hearth-{version}-", f"hearth_{version}_")):
            files.append(UpdateFile(platform, path.name, f"{url.rstrip('/')}/{path.name}",
                                    path.stat().st_size, build.sha256(path)))  # fmt: skip
    if not files:
        raise ValueError(f"{packages} has no package of version {version}. Run installer/build.py first.")
    return Manifest(version, today, today + timedelta(days=days), notes, page, tuple(files))


if __name__ == "__main__":
    sys.exit(main())
