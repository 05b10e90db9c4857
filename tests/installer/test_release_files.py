"""What goes along with the packages of a release: the SBOM, the winget manifest, and the workflow that attests them."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import uuid
from pathlib import Path

import pytest
import sbom
import winget
import yaml
from build_error import BuildError

from installer import windows_check

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A built program of two packages and a system library."""
    inside = tmp_path / "hearth" / "_internal"
    for name, more in (("hearth", ""), ("torch", "License: BSD-3-Clause\n"), ("Odd_Name", "")):
        folder = inside / f"{name}-1.0.dist-info"
        folder.mkdir(parents=True)
        version = "2.13.0+cpu" if name == "torch" else "1.0"
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{more}")
    added = inside / "engine" / "_assets" / "licences" / "added"
    added.mkdir(parents=True)
    listed = {"key": "libegl1", "name": "libegl1", "version": "1.6", "licence": "MIT"}
    (added / "added.json").write_text(json.dumps([listed]))
    return tmp_path / "hearth"


def test_the_sbom_lists_what_lies_in_the_program(program: Path, tmp_path: Path) -> None:
    found = json.loads(sbom.write(program, tmp_path / "a.json", "1.2.3", 86_400).read_text(encoding="utf-8"))
    assert (found["bomFormat"], found["specVersion"], found["version"]) == ("CycloneDX", "1.6", 1)
    assert uuid.UUID(found["serialNumber"].removeprefix("urn:uuid:"))
    assert found["metadata"]["timestamp"] == "1970-01-02T00:00:00+00:00"
    assert (found["metadata"]["component"]["type"], found["metadata"]["component"]["version"]) == (
        "application",
        "1.2.3",
    )
    parts = {part["name"]: part for part in found["components"]}
    assert set(parts) == {"torch", "Odd_Name", "libegl1", "Python"}
    assert parts["torch"]["purl"] == "pkg:pypi/torch@2.13.0%2Bcpu"
    assert parts["torch"]["licenses"] == [{"license": {"name": "BSD-3-Clause"}}]
    assert (parts["Odd_Name"]["purl"], "licenses" in parts["Odd_Name"]) == ("pkg:pypi/odd-name@1.0", False)
    assert all({"type", "name", "version", "bom-ref"} <= set(part) for part in parts.values())
    references = [part["bom-ref"] for part in found["components"]]
    assert found["dependencies"] == [{"ref": "hearth", "dependsOn": references}]
    assert len(set(references)) == len(references)
    again = sbom.write(program, tmp_path / "b.json", "1.2.3", 86_400)
    assert again.read_bytes() == (tmp_path / "a.json").read_bytes(), "a build can be repeated"
    with pytest.raises(BuildError):
        sbom.write(tmp_path / "nothing", tmp_path / "c.json", "1", 0)


def test_the_sbom_follows_the_schema(program: Path, tmp_path: Path) -> None:
    validation = pytest.importorskip("cyclonedx.validation.json", reason="cyclonedx-python-lib is not installed")
    schema = pytest.importorskip("cyclonedx.schema")
    text = sbom.write(program, tmp_path / "a.json", "1.2.3", 0).read_text(encoding="utf-8")
    assert validation.JsonStrictValidator(schema.SchemaVersion.V1_6).validate_str(text) is None


# The fields that winget's schema 1.6.0 requires, by the type of the manifest.
REQUIRED = {
    "version": {"DefaultLocale"},
    "installer": {"Installers"},
    "defaultLocale": {"PackageLocale", "Publisher", "PackageName", "License", "ShortDescription"},
}


def test_the_winget_manifest_has_the_required_fields(tmp_path: Path) -> None:
    assert winget.main(["--url", "https://example.org/v1", "--packages", str(tmp_path)]) == 1, "no installer"
    version = winget.build.version()
    (tmp_path / f"hearth-{version}-windows-x86_64.exe").write_bytes(b"program")
    assert winget.main(["--url", "https://example.org/v1/", "--packages", str(tmp_path)]) == 0
    found = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in (tmp_path / "winget").iterdir()]
    assert {one["ManifestType"] for one in found} == set(REQUIRED)
    for one in found:
        always = {"PackageIdentifier", "PackageVersion", "ManifestType", "ManifestVersion"}
        assert set(one) >= always | REQUIRED[one["ManifestType"]]
        assert (one["PackageVersion"], one["ManifestVersion"]) == (version, "1.6.0")
        assert re.fullmatch(r"[^.\s]+(\.[^.\s]+){1,3}", one["PackageIdentifier"])
    (file,) = next(one["Installers"] for one in found if one["ManifestType"] == "installer")
    assert file["Architecture"] == "x64"
    assert file["InstallerUrl"] == f"https://example.org/v1/hearth-{version}-windows-x86_64.exe"
    assert file["InstallerSha256"] == hashlib.sha256(b"program").hexdigest().upper()


def test_the_release_workflow_attests_its_files_and_pins_its_actions() -> None:
    text = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    job = yaml.safe_load(text)["jobs"]["attach"]
    assert job["permissions"] == {"contents": "write", "id-token": "write", "attestations": "write"}
    names = [step.get("uses", "").partition("@")[0] for step in job["steps"]]
    attest = next(step for step in job["steps"] if "attest-build-provenance" in step.get("uses", ""))
    assert attest["with"] == {"subject-path": "attached/*"}
    assert names.index("actions/attest-build-provenance") < len(names) - 1, "before it is attached"
    assert "--draft" in job["steps"][-1]["run"]
    used = re.findall(r"uses: (\S+)", text)
    assert [one for one in used if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", one)] == []


@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
def test_git_for_windows_leaves_the_line_endings_alone(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "core.autocrlf=true", *words], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q")
    shutil.copy(ROOT / ".gitattributes", tmp_path)
    (tmp_path / "one.py").write_bytes(b"one = 1\n")
    git("add", ".")
    (tmp_path / "one.py").unlink()
    git("checkout", "one.py")
    assert (tmp_path / "one.py").read_bytes() == b"one = 1\n"


def test_the_release_for_windows_is_made_with_what_was_tried_under_wine() -> None:
    job = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))["jobs"]["build"]
    (row,) = [row for row in job["strategy"]["matrix"]["include"] if row["system"].startswith("windows")]
    assert row["python"] == windows_check.WINDOWS["python_version"]
    steps = {step.get("name"): step.get("run", "") for step in job["steps"]}
    tried = re.search(
        r"innosetup (\d+\.\d+)", (ROOT / "installer/windows/try_installer.sh").read_text(encoding="utf-8")
    )
    assert tried is not None
    assert f"innosetup --version={tried[1]}." in steps["Inno Setup"]
    assert "".join(steps.values()).count("Start-Process") == 1, "in the function that looks at the exit code"
    names = list(steps)
    assert (
        names.index("Try it") < names.index("Pack it") < next(i for i, n in enumerate(names) if n and "installer," in n)
    )
