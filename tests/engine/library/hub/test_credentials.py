"""Where the access token is found and kept, and that it is told to nobody."""

from __future__ import annotations

import logging
import os
import stat
import threading
from pathlib import Path
from typing import Any, ClassVar

import keyring
import keyring.backend
import keyring.errors
import pytest

from engine.errors import InvalidRequestError, LibraryError
from engine.library.hub import credentials, system_keyring
from engine.library.hub.credentials import Credentials


class Ring(keyring.backend.KeyringBackend):
    """A keyring in memory. mood: what it does instead of answering."""

    priority: ClassVar[float] = 1.0  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[str, str], str] = {}
        self.mood: Any = None

    def _answer(self) -> None:
        if isinstance(self.mood, Exception):
            raise self.mood
        if isinstance(self.mood, threading.Event):
            self.mood.wait(10)

    def get_password(self, service: str, username: str) -> str | None:
        self._answer()
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self._answer()
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        self._answer()
        if (service, username) not in self.kept:
            raise keyring.errors.PasswordDeleteError("not there")
        del self.kept[service, username]


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ring:
    for variable in (*credentials.ENVIRONMENT, "HF_TOKEN_PATH"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    found = Ring()
    for name in ("get_password", "set_password", "delete_password"):
        monkeypatch.setattr(keyring, name, getattr(found, name))
    return found


def test_a_token_is_kept_in_the_keyring(ring: Ring) -> None:
    assert Credentials().state() == {"has_token": False, "where": "", "note": ""}
    assert Credentials().set("hf_abc\n") == {"has_token": True, "where": "keyring", "note": ""}
    assert Credentials().token() == "hf_abc"
    assert list(ring.kept.values()) == ["hf_abc"]
    mine = Credentials()
    mine.set("hf_other")
    assert mine.set("")["has_token"] is False
    assert ring.kept == {}
    assert Credentials().set("")["has_token"] is False, "taking away what is not there is no failure"


def test_the_environment_goes_first(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    Credentials().set("hf_ring")
    monkeypatch.setenv("HF_TOKEN", "hf_env")
    found = Credentials()
    assert found.token() == "hf_env"
    assert found.state()["where"] == "environment"
    assert "HF_TOKEN" in found.state()["note"]


def test_another_programs_login_is_honoured(ring: Ring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "token").write_text("hf_file\n")
    assert Credentials().token() == "hf_file"
    (tmp_path / "elsewhere").write_text("hf_else")
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "elsewhere"))
    state = Credentials().state()
    assert (state["where"], state["has_token"]) == ("file", True)
    assert Credentials().token() == "hf_else"


def test_without_a_keyring_a_token_is_kept_in_memory(ring: Ring) -> None:
    ring.mood = keyring.errors.NoKeyringError("none")
    mine = Credentials()
    state = mine.set("hf_abc")
    assert (state["where"], state["has_token"]) == ("memory", True)
    assert "keyring" in state["note"]
    assert mine.token() == "hf_abc"
    assert Credentials().token() is None
    note = Credentials().state()["note"]
    assert "keyring" in note
    assert "Error" not in note


def test_a_file_holds_it_where_the_person_agreed(ring: Ring, tmp_path: Path) -> None:
    ring.mood = keyring.errors.NoKeyringError("none")
    file = tmp_path / "config" / "hub-token"
    state = Credentials(file).set("hf_abc", allow_file=True)
    assert state["where"] == "file"
    assert str(file) in state["note"]
    if os.name == "posix":
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert Credentials(file).token() == "hf_abc"
    ring.mood = None
    assert Credentials(file).set("hf_def")["where"] == "keyring"
    assert not file.exists(), "it is not left behind in the open"


def test_a_file_that_cannot_be_written_fails_kindly(ring: Ring, tmp_path: Path) -> None:
    ring.mood = keyring.errors.NoKeyringError("none")
    (tmp_path / "file").write_text("")
    with pytest.raises(LibraryError) as caught:
        Credentials(tmp_path / "file" / "hub-token").set("hf_secret", allow_file=True)
    assert "hf_secret" not in caught.value.message


@pytest.mark.parametrize("mood", [RuntimeError("D-Bus is gone"), keyring.errors.KeyringLocked("locked")])
def test_a_keyring_that_fails_is_no_failure(ring: Ring, mood: Exception) -> None:
    ring.mood = mood
    state = Credentials().state()
    assert state["has_token"] is False
    assert "keyring refused" in state["note"]
    assert type(mood).__name__ not in state["note"]


def test_a_keyring_that_never_answers_is_left(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_keyring, "WAIT_S", 0.1)
    ring.mood = threading.Event()
    state = Credentials().state()
    ring.mood.set()
    assert "did not answer" in state["note"]


@pytest.mark.parametrize("token", ["hf abc", "hf_äbc", "a\nb", "x" * 5000, "a\x00b"])
def test_what_is_no_token_is_refused(ring: Ring, token: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        Credentials().set(token)
    assert token not in caught.value.message
    assert ring.kept == {}


def test_a_token_is_in_no_log_and_no_repr(ring: Ring, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    ring.mood = RuntimeError("cannot keep hf_secret")
    mine = Credentials()
    state = mine.set("hf_secret")
    assert mine.token() == "hf_secret"
    assert "hf_secret" not in caplog.text + repr(mine) + str(mine) + str(state)


def test_the_keyring_of_the_person_is_out_of_reach_of_tests() -> None:
    assert os.environ["PYTHON_KEYRING_BACKEND"] == "keyring.backends.fail.Keyring"
    assert Credentials().set("hf_abc")["where"] == "memory"
