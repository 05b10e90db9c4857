#!/usr/bin/env python3
"""Writes the winget manifest of Windows' installer in dist/: three files, to be submitted by hand.

    .venv/bin/python installer/winget.py --url https://…/v1.2.0

docs/releasing.md says when. Needs only Python's standard library.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

import build  # noqa: E402 - the path above comes first

SCHEMA = "1.6.0"
IDENTIFIER = "Hearth.Hearth"


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description="Write the winget manifest.")
    parser.add_argument("--url", required=True, help="the address of the folder that the installer is fetched from")
    parser.add_argument("--packages", type=Path, default=build.DIST, metavar="FOLDER", help="default: dist")
    given = parser.parse_args(argv)
    installer = given.packages / f"hearth-{build.version()}-windows-x86_64.exe"
    if not installer.is_file():
        print(f"{installer} does not exist. Build it on Windows: python installer/build.py", file=sys.stderr)
        return 1
    folder = given.packages / "winget"
    folder.mkdir(exist_ok=True)
    for name, values in manifests(installer, given.url).items():
        text = "".join(f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in values.items())
        kind = values["ManifestType"]
        schema = f"# yaml-language-server: $schema=https://aka.ms/winget-manifest.{kind}.{SCHEMA}.schema.json\n"
        (folder / name).write_text(schema + text, encoding="utf-8", newline="\n")
    print(folder)
    return 0


def manifests(installer: Path, url: str) -> dict[str, dict[str, object]]:
    """The three manifests by file name. JSON values are YAML as well."""
    version = build.version()
    same: dict[str, object] = {"PackageIdentifier": IDENTIFIER, "PackageVersion": version}
    file = {"Architecture": "x64", "InstallerUrl": f"{url.rstrip('/')}/{installer.name}",
            "InstallerSha256": build.sha256(installer).upper()}  # fmt: skip
    parts: dict[str, dict[str, object]] = {
        "": {"DefaultLocale": "en-US", "ManifestType": "version"},
        ".installer": {"InstallerType": "inno", "Scope": "user", "MinimumOSVersion": "10.0.17763.0",
                       "UpgradeBehavior": "install", "Installers": [file], "ManifestType": "installer"},
        ".locale.en-US": {"PackageLocale": "en-US", "Publisher": "The Hearth developers", "PackageName": "Hearth",
                          "License": "MIT", "ShortDescription": "Chat with language models on this PC.",
                          "ManifestType": "defaultLocale"},
    }  # fmt: skip
    return {f"{IDENTIFIER}{end}.yaml": {**same, **values, "ManifestVersion": SCHEMA} for end, values in parts.items()}


if __name__ == "__main__":
    sys.exit(main())
