"""Keys of servers in the keyring, by address, and the jobs that keep and use them."""

from __future__ import annotations

import keyring
import pytest

from engine.errors import InvalidRequestError
from engine.remote_servers.keys import ServerKeys


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    found: dict[str, str] = {}
    monkeypatch.setattr(keyring, "get_password", lambda service, name: found.get(name))
    monkeypatch.setattr(keyring, "set_password", lambda service, name, secret: found.__setitem__(name, secret))
    monkeypatch.setattr(keyring, "delete_password", lambda service, name: found.pop(name))
    return found


def test_a_key_belongs_to_its_address_alone(kept: dict[str, str]) -> None:
    keys = ServerKeys()
    assert keys.keep_for_server("https://a.org/v1", " sk-a\n") == {"kept": True, "note": ""}
    assert keys.of_server("https://a.org/other") == "sk-a"
    assert keys.of_server("https://b.org/v1") == ""
    assert keys.of_server("https://a.org:8443/v1") == ""
    assert ServerKeys().of_server("https://a.org/v1") == "sk-a"
    assert kept == {"server https://a.org": "sk-a"}
    keys.keep_for_server("https://a.org/v1", "")
    assert keys.of_server("https://a.org/v1") == ""
    assert kept == {}


def test_without_a_keyring_nothing_is_kept_and_it_is_said() -> None:
    keys = ServerKeys()
    state = keys.keep_for_server("https://a.org/v1", "sk-a")
    assert state["kept"] is False
    assert "keyring" in state["note"]
    assert keys.of_server("https://a.org/v1") == ""
    assert keys.keep_own("own-key")["key"] == "own-key"
    assert keys.own()["key"] == ""


def test_the_own_servers_key_is_kept(kept: dict[str, str]) -> None:
    assert ServerKeys().keep_own("hearth-1") == {"key": "hearth-1", "kept": True, "note": ""}
    assert ServerKeys().own() == {"key": "hearth-1", "kept": True, "note": ""}


def test_what_is_no_key_is_refused_without_repeating_it() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        ServerKeys().keep_for_server("https://a.org/v1", "two words-secret")
    assert "secret" not in str(caught.value)
