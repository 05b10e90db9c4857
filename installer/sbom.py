"""The software bill of materials (SBOM) of a built program, as CycloneDX 1.6 JSON.

It lists what is in the program's folder: the packages by their own metadata, and Python and the system libraries as
installer/system_licences.py listed them there. Needs only Python's standard library.
"""

from __future__ import annotations

import json
import platform
import uuid
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote

from build_error import BuildError

from app.third_party import PROJECT, licence_name

SPEC = "1.6"


def write(program: Path, target: Path, version: str, made_at_s: int) -> Path:
    """Write the SBOM of the program's folder. made_at_s: seconds since 1970, so that a build can be repeated.

    Raises: BuildError if the folder has no packages.
    """
    parts = components(program)
    if not parts:
        raise BuildError(f"{program} has no packages.", "build the program again.")
    own: dict[str, Any] = {"type": "application", "bom-ref": PROJECT, "name": "Hearth", "version": version,
                           "licenses": [{"license": {"id": "MIT"}}]}  # fmt: skip
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": SPEC,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([version, made_at_s, parts]))}",
        "version": 1,
        "metadata": {"timestamp": datetime.fromtimestamp(made_at_s, UTC).isoformat(), "component": own},
        "components": parts,
        "dependencies": [{"ref": PROJECT, "dependsOn": [part["bom-ref"] for part in parts]}],
    }
    target.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n")
    return target


def components(program: Path) -> list[dict[str, Any]]:
    """The parts of a built program, sorted by reference."""
    inside = program / "_internal"
    found = {}
    for one in metadata.distributions(path=[str(inside)]):
        name = one.metadata["Name"]
        if name.lower() != PROJECT:
            purl = f"pkg:pypi/{name.lower().replace('_', '-')}@{quote(one.version)}"
            found[purl] = _component(purl, name, one.version, licence_name(one.metadata)) | {"purl": purl}
    for listed in inside.glob("engine/_assets/licences/added/added.json"):
        for one in json.loads(listed.read_text(encoding="utf-8")):
            found[one["key"]] = _component(one["key"], one["name"], one["version"], one["licence"])
    if found:
        found.setdefault("python", _component("python", "Python", platform.python_version(), "PSF-2.0"))
    return [found[key] for key in sorted(found)]


def _component(ref: str, name: str, version: str, licence: str) -> dict[str, Any]:
    part: dict[str, Any] = {"type": "library", "bom-ref": ref, "name": name, "version": version}
    return part | ({"licenses": [{"license": {"name": licence}}]} if licence not in ("", "–") else {})
