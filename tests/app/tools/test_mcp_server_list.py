"""The MCP servers as data: the file, hostile files, and files of other programs."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.systems import needs_links

from app.settings import paths
from app.tools.mcp import server_list
from app.tools.mcp.server_list import Definition, ToolServer, ToolServerError, ToolServerList, checked_endpoint

ADD = Definition("add", "Sum", "Add.", {"type": "object"}, {"readOnlyHint": True})


def program(**values: Any) -> ToolServer:
    return ToolServer(**{"name": "Files", "kind": "stdio", "command": "npx", "args": ("-y", "files"), **values})


def web(address: str = "https://example.org/mcp", **values: Any) -> ToolServer:
    return ToolServer("Web", "http", address=address, **values)


def read(path: Path) -> ToolServerList:
    servers = ToolServerList(path)
    servers.read()
    return servers


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "tool-servers.json"
    servers = ToolServerList(path)
    folder = tmp_path / "notes"
    servers.put(program(folders=(str(folder),), variables={"KEY": "ü"}, is_on=True, is_confined=False, approved=(ADD,)))
    servers.put(web(headers={"Authorization": "Bearer x"}))
    servers.save(servers.to_json())
    assert read(path).servers == servers.servers
    assert [one.is_on for one in servers.servers] == [True, False]
    if os.name == "posix":
        assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", '{"servers": 3}', '{"schema_version": 1, "servers": {}}', "[" * 100_000, "\0", "{",
     '{"schema_version": true, "servers": []}', '{"schema_version": "1", "servers": []}'],
)  # fmt: skip
def test_a_damaged_file_gives_no_servers(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tool-servers.json"
    path.write_text(text)
    assert read(path).servers == []


GOOD = program().to_json()
DEEP: Any = json.loads('{"a":' * 500 + "1" + "}" * 500)


@pytest.mark.parametrize(
    "change",
    [
        {"id": "../../etc"}, {"id": ""}, {"id": 3}, {"id": "x" * 65}, {"kind": "sse"}, {"kind": ["stdio"]},
        {"command": ""}, {"command": None}, {"command": "a\0b"}, {"command": "x" * 10_000},
        {"args": "rm -rf"}, {"args": [3]}, {"args": ["x"] * 65}, {"args": ["\ud800"]},
        {"variables": {"A B": "1"}}, {"variables": {"A": 1}}, {"variables": {"A=B": "1"}}, {"variables": []},
        {"folders": ["relative"]}, {"folders": ["~"]}, {"folders": ["/"]}, {"folders": [None]},
        {"approved": {}}, {"approved": [3]}, {"approved": [{"name": "add"}]},
        {"approved": [ADD.to_json()] * 201}, {"approved": [{**ADD.to_json(), "description": "x" * 200_001}]},
        {"approved": [{**ADD.to_json(), "parameters": DEEP}]},
        {"kind": "http", "address": "file:///etc/passwd"}, {"kind": "http", "address": ""},
        {"kind": "http", "address": "https://example.org", "headers": {"A": "b\r\nC: d"}},
        {"kind": "http", "address": "https://example.org", "headers": {"A B": "c"}},
    ],
)  # fmt: skip
def test_a_hostile_entry_is_skipped_and_the_others_stay(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "tool-servers.json"
    other = {**GOOD, "id": "other", "name": "Other"}
    path.write_text(json.dumps({"schema_version": 1, "servers": [{**GOOD, **change}, 3, other]}))
    assert [one.name for one in read(path).servers] == ["Other"]


def test_a_file_of_a_newer_version_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "tool-servers.json"
    path.write_text('{"schema_version": 99, "servers": []}')
    servers = read(path)
    servers.put(program())
    servers.save(servers.to_json())
    assert json.loads(path.read_text())["schema_version"] == 99


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tool-servers.json"
    path.write_text(json.dumps({"schema_version": 1, "servers": [GOOD]}))
    assert len(read(path).servers) == 1
    monkeypatch.setattr(server_list, "MAX_FILE_BYTES", 100)
    assert read(path).servers == []


def test_the_largest_list_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "tool-servers.json"
    servers = ToolServerList(path)
    large = tuple(Definition(f"tool{n}", "", "ü" * 100, {"properties": {"a": {}}}) for n in range(200))
    for n in range(server_list.MAX_SERVERS):
        servers.put(program(id=str(n), approved=large))
    with pytest.raises(ToolServerError):
        servers.put(program())
    servers.save(servers.to_json())
    assert len(read(path).servers) == server_list.MAX_SERVERS


def test_names_are_unique_and_in_one_line() -> None:
    servers = ToolServerList()
    assert servers.put(program(name="  My\n files ")).name == "My files"
    assert servers.put(program(name="my files")).name == "my files 2"


def test_approvals_end_when_another_program_answers() -> None:
    servers = ToolServerList()
    server = servers.put(program(approved=(ADD,)))
    assert servers.put(replace(server, name="Other", is_on=True)).approved == (ADD,)
    assert servers.put(replace(server, args=("-y", "other"))).approved == ()


@pytest.mark.parametrize("place", ["data", "config", "cache", "log"])
def test_no_server_may_write_to_the_folders_of_hearth(place: str) -> None:
    folder = getattr(paths(), place)
    for given in (folder, folder / "below", folder.parent):
        with pytest.raises(ToolServerError):
            ToolServerList().put(program(folders=(str(given),)))


@needs_links
def test_a_link_to_a_folder_of_hearth_is_no_way_around(tmp_path: Path) -> None:
    paths().config.mkdir(parents=True)
    (tmp_path / "link").symlink_to(paths().config)
    with pytest.raises(ToolServerError):
        ToolServerList().put(program(folders=(str(tmp_path / "link"),)))


@pytest.mark.parametrize("field", ["name", "title", "description", "parameters", "annotations"])
def test_the_digest_covers_every_part_of_a_definition(field: str) -> None:
    other = {"type": "string"} if field in ("parameters", "annotations") else "other"
    assert replace(ADD, **{field: other}).digest != ADD.digest
    assert replace(ADD).digest == ADD.digest


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/mcp"),
        (" https://example.org/a/mcp/ ", "https://example.org/a/mcp/"),
        ("https://example.org/mcp?room=1", "https://example.org/mcp?room=1"),
    ],
)
def test_addresses(given: str, kept: str) -> None:
    assert checked_endpoint(given) == kept


@pytest.mark.parametrize(
    "given",
    ["http://example.org/mcp", "https://user:word@example.org", "https://", "example.org", "ftp://127.0.0.1",
     "https://example.org:x", "https://exa mple.org", "https://[::1", "https://example.org/#a"],
)  # fmt: skip
def test_addresses_that_are_refused(given: str) -> None:
    with pytest.raises(ToolServerError):
        checked_endpoint(given)


# --- other programs


def test_a_file_of_another_program_is_a_proposal(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(
        json.dumps(
            {
                "mcpServers": {
                    "files": {"command": "npx", "args": ["-y", "files"], "env": {"KEY": "1"}, "disabled": False},
                    "web": {"url": "https://example.org/mcp", "headers": {"X-Key": "2"}, "autoApprove": ["*"]},
                    "old": {"url": "https://example.org/sse", "type": "sse"},
                    "open": {"url": "http://example.org/mcp"},
                    "empty": {},
                    "odd": 3,
                }
            }
        )
    )
    servers = ToolServerList()
    proposal = servers.proposal(file)
    assert servers.servers == []
    files, other = proposal.servers
    assert (files.command, files.args, files.variables) == ("npx", ("-y", "files"), {"KEY": "1"})
    assert (other.kind, other.address, other.headers) == ("http", "https://example.org/mcp", {"X-Key": "2"})
    assert not any(one.is_on or one.approved or one.folders for one in proposal.servers)
    assert all(one.is_confined for one in proposal.servers)
    assert [name for name, _ in proposal.refused] == ["old", "open", "empty", "odd"]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"mcpServers": []}', "[" * 100_000, "x" * (2 << 20)])
def test_a_file_that_lists_no_servers_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(text)
    with pytest.raises(ToolServerError):
        ToolServerList().proposal(file)
    with pytest.raises(ToolServerError):
        ToolServerList().proposal(tmp_path / "none.json")
