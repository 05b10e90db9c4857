"""Who is let in to the local API: keys, hosts, and the size and pace of bodies."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from engine.errors import InvalidRequestError
from engine.local_api import access
from engine.local_api.access import MOST_BODY_BYTES, MOST_REQUESTS, Access
from engine.local_api.failures import ApiError
from engine.local_api.keys import KEY_VARIABLE, KeyCheck, check_key, find_key, make_key

KEY = "correct-horse-battery"
HOST = (b"host", b"127.0.0.1:8434")
BEARER = (b"authorization", b"Bearer " + KEY.encode())


class Door:
    """An Access in front of an application that says what body it got."""

    def __init__(self) -> None:
        self.refused: list[ApiError] = []
        self.bodies: list[bytes] = []
        self.access = Access(self._app, KeyCheck(KEY), 8434, self.refused.append)

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        self.bodies.append((await receive())["body"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    def knock(
        self, headers: list[tuple[bytes, bytes]], pieces: list[bytes] | None = None, path: str = "/v1/models"
    ) -> tuple[int, Any]:
        """Status and values of the reply. pieces: of the body; a body that never ends where the last one is empty."""
        return asyncio.run(self.knocking(headers, pieces, path))

    async def knocking(
        self, headers: list[tuple[bytes, bytes]], pieces: list[bytes] | None = None, path: str = "/v1/models"
    ) -> tuple[int, Any]:
        waiting = list(pieces or [b"body"])
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            if not waiting[0]:
                await asyncio.Event().wait()
            return {"type": "http.request", "body": waiting.pop(0), "more_body": bool(waiting)}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.access({"type": "http", "path": path, "headers": headers}, receive, send)
        return sent[0]["status"], json.loads(b"".join(message.get("body", b"") for message in sent[1:]))


def test_with_host_and_key_a_body_comes_through_whole() -> None:
    door = Door()
    assert door.knock([HOST, BEARER], [b"a", b"b", b"c"])[0] == 200
    assert door.knock([(b"host", b"LocalHost:8434"), (b"authorization", b"bearer " + KEY.encode())])[0] == 200
    assert door.bodies == [b"abc", b"body"]
    assert door.refused == []


@pytest.mark.parametrize(
    "hosts",
    [[], [b""], [b"evil.example:8434"], [b"127.0.0.1"], [b"127.0.0.1:80"], [b"localhost.evil.example:8434"],
     [b"127.0.0.1:8434@evil.example"], [b"127.0.0.1:8434", b"127.0.0.1:8434"], [b"\xff"]],
)  # fmt: skip
def test_another_name_than_this_machines_is_refused_whatever_the_key(hosts: list[bytes]) -> None:
    status, values = Door().knock([*((b"host", host) for host in hosts), BEARER])
    assert (status, values["error"]["code"]) == (403, "host_not_allowed")


@pytest.mark.parametrize(
    ("given", "words"),
    [([], "missing"), ([b"Bearer"], "wrong"), ([b"Bearer "], "wrong"), ([b"Bearer " + KEY.encode() + b"x"], "wrong"),
     ([b"Basic " + KEY.encode()], "wrong"), ([KEY.encode()], "wrong"), ([b"Bearer \xff\x00"], "wrong"),
     ([BEARER[1], BEARER[1]], "wrong")],
)  # fmt: skip
def test_without_the_key_nothing_is_read(given: list[bytes], words: str) -> None:
    door = Door()
    status, values = door.knock([HOST, *((b"authorization", value) for value in given)], [b""])
    assert (status, values["error"]["code"]) == (401, "invalid_api_key")
    assert words in values["error"]["message"]
    assert door.bodies == []
    assert KEY not in json.dumps(values)


def test_the_key_may_come_as_x_api_key() -> None:
    key, wrong = (b"x-api-key", KEY.encode()), (b"x-api-key", b"another-key")
    for headers in ([key], [BEARER, wrong], [(b"authorization", b"Bearer another-key"), key]):
        assert Door().knock([HOST, *headers])[0] == 200
    for headers in ([wrong], [key, key], [(b"x-api-key", b"")], [(b"x-api-key", b"Bearer " + KEY.encode())]):
        door = Door()
        status, values = door.knock([HOST, *headers], path="/v1/messages")
        assert (status, values["error"]["code"], values["type"]) == (401, "invalid_api_key", "error")
        assert door.bodies == []


def test_another_key_counts_from_the_next_request_on() -> None:
    door = Door()
    door.access.key = KeyCheck("another-key")
    assert door.knock([HOST, BEARER])[0] == 401


def test_a_body_is_bounded_by_what_it_says_and_by_what_comes() -> None:
    door = Door()
    said = (b"content-length", str(MOST_BODY_BYTES + 1).encode())
    assert door.knock([HOST, BEARER, said], [b""])[0] == 413
    status, values = door.knock([HOST, BEARER], [b"x" * (MOST_BODY_BYTES // 2)] * 3)
    assert (status, values["error"]["code"]) == (413, "body_too_large")
    assert door.knock([HOST, BEARER], [b"x" * MOST_BODY_BYTES])[0] == 200


def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "BODY_S", 0.01)
    status, values = Door().knock([HOST, BEARER], [b"{", b""])
    assert (status, values["error"]["code"]) == (408, "body_too_slow")


def test_so_many_requests_at_once_and_no_more() -> None:
    door = Door()

    async def crowd() -> tuple[int, Any]:
        waiting = [asyncio.create_task(door.knocking([HOST, BEARER], [b""])) for _ in range(MOST_REQUESTS)]
        await asyncio.sleep(0)
        answer = await door.knocking([HOST, BEARER])
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return answer

    status, values = asyncio.run(crowd())
    assert (status, values["error"]["code"]) == (429, "too_many_requests")
    assert door.knock([HOST, BEARER])[0] == 200


def test_a_made_key_is_new_each_time_and_good() -> None:
    keys = {make_key() for _ in range(20)}
    assert len(keys) == 20
    assert all(check_key(key) == key and len(key) > 40 for key in keys)


def test_the_key_comes_from_the_flag_then_the_file_then_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "key"
    file.write_text("from-the-file\n", encoding="utf-8")
    monkeypatch.setenv(KEY_VARIABLE, "from-the-environment")
    assert find_key("from-the-flag", str(file)) == ("from-the-flag", False)
    assert find_key(None, str(file)) == ("from-the-file", False)
    assert find_key(None, None) == ("from-the-environment", False)
    monkeypatch.delenv(KEY_VARIABLE)
    made, is_new = find_key(None, None)
    assert (is_new, made.startswith("hearth-")) == (True, True)


@pytest.mark.parametrize("key", ["", "short", "with space", "x" * 201, "schlüssel-und-loch", "line\nbreak"])
def test_a_key_that_will_not_do_is_refused_without_being_shown(key: str, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(key or "-", encoding="utf-8")
    for given in ((key, None), (None, str(file))):
        with pytest.raises(InvalidRequestError) as caught:
            find_key(*given)
        assert not key or key not in caught.value.message


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
def test_a_key_file_that_cannot_be_read_is_named(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InvalidRequestError, match="cannot be read from"):
        find_key(None, str(file))
