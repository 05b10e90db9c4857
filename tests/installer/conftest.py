"""The installer's modules are scripts beside each other, not a package: put their folder on the path."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

INSTALLER = Path(__file__).resolve().parents[2] / "installer"
sys.path.append(str(INSTALLER))

FAKE_PYTHON = """#!{python}
import os, sys, time
here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "calls"), "a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
if "--version" not in sys.argv:
    print(open(os.path.join(here, "says")).read(), flush=True)
    time.sleep(float(open(os.path.join(here, "sleeps")).read()))
    with open(os.path.join(here, "calls"), "a") as calls:
        calls.write("ended by itself\\n")
    lacks = open(os.path.join(here, "lacks")).read()
    if lacks and any(lacks in word for word in sys.argv):
        print("ERROR: No matching distribution found for torch==2.13.0+cpu")
        sys.exit(1)
    sys.exit(int(open(os.path.join(here, "code")).read()))
"""


class Project:
    """A folder that looks like the project with a .venv, whose python only writes down what it was asked."""

    def __init__(self, root: Path) -> None:
        import setup_venv

        self.root = root
        (root / "pyproject.toml").write_text("[project]\nname = 'hearth'\n")
        (root / "constraints.txt").write_text("sympy==1.0\ntorch==2.13.0\n")
        locked = root / "installer" / "locked"
        locked.mkdir(parents=True)
        for name in ("app", "tests", "torch", "torch_cpu", "cuda"):
            (locked / f"{name}.txt").write_text(f"# {name}\n")
        self.venv = setup_venv.Venv(root)
        self.bin = self.venv.python.parent
        self.make_venv()

    def make_venv(self, version: str = "{}.{}.1".format(*sys.version_info[:2])) -> None:
        self.bin.mkdir(parents=True, exist_ok=True)
        self.venv.site_packages().mkdir(parents=True, exist_ok=True)
        (self.venv.path / "pyvenv.cfg").write_text(f"home = /somewhere\nversion = {version}\n")
        self.venv.python.write_text(FAKE_PYTHON.format(python=sys.executable))
        self.venv.python.chmod(0o755)
        self.pip()

    def pip(self, says: str = "", code: int = 0, sleeps: float = 0, lacks: str = "") -> None:
        """lacks: pip finds nothing where an argument has this in it."""
        for name, value in {"says": says, "code": code, "sleeps": sleeps, "calls": "", "lacks": lacks}.items():
            (self.bin / name).write_text(str(value))

    def calls(self) -> list[str]:
        return [line for line in (self.bin / "calls").read_text().splitlines() if line != "ended by itself"]

    def ended_by_itself(self) -> bool:
        return "ended by itself" in (self.bin / "calls").read_text()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    if sys.platform == "win32":
        pytest.skip("the fake for python is a script with a #! line")
    root = tmp_path / "project"
    root.mkdir()
    return Project(root)
