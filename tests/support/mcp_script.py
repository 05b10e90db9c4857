"""A small MCP server over stdio that follows a script, also where a server must not. Standard library only.

    python mcp_script.py SCRIPT

SCRIPT is a JSON object: "tools" (a list of pages of tools), or "made" (how many, with descriptions of which length),
"changed" (the pages after a call of "change"), "starts"
("dies", "silent", "floods"), and "listed" ("endless" pages). A call of the tool ask puts a question to the user, or
several at once.
"""

from __future__ import annotations

import json
import sys
from typing import Any

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
script = json.loads(sys.argv[1])
if made := script.get("made"):
    script["tools"] = [[{"name": str(n), "description": "x" * made[1], "inputSchema": {}} for n in range(made[0])]]


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def received() -> dict[str, Any]:
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    message: dict[str, Any] = json.loads(line)
    return message


def page(cursor: str | None) -> dict[str, Any]:
    if script.get("listed") == "endless":
        return {"tools": [], "nextCursor": "again"}
    pages = script["tools"]
    n = int(cursor or 0)
    return {"tools": pages[n], **({"nextCursor": str(n + 1)} if n + 1 < len(pages) else {})}


def called(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    if name == "change":
        script["tools"] = script["changed"]
        send(method="notifications/tools/list_changed")
    if name == "ask":
        params = {
            "message": "Which city?",
            "requestedSchema": script.get("schema", SCHEMA),
            "mode": arguments.get("mode", "form"),
        }
        if params["mode"] == "url":
            params |= {"url": "https://example.org/login", "elicitationId": "1"}
        waiting, found = {f"q{i}" for i in range(arguments.get("times", 1))}, list[Any]()
        for number in waiting:
            send(id=number, method="elicitation/create", params=params)
        while waiting:
            answer = received()
            if answer.get("id") in waiting:
                waiting.remove(answer["id"])
                found.append(answer.get("result", answer.get("error")))
        text = json.dumps(found if len(found) > 1 else found[0])
        return {"content": [{"type": "text", "text": text}]}
    if name == "wrong":
        return {"content": "no list"}
    return {"content": [{"type": "text", "text": name}], **({"isError": True} if name == "fails" else {})}


def main() -> None:
    start = script.get("starts")
    if start == "dies":
        sys.stderr.write("no such module\n")
        sys.exit(3)
    if start == "silent":
        sys.stdin.read()
    while start == "floods":
        sys.stdout.write("x" * (1 << 20))
    while True:
        message = received()
        method, number = message.get("method"), message.get("id")
        params = message.get("params") or {}
        if number is None:
            continue
        if method == "initialize":
            able = {"tools": {"listChanged": True}}
            about = {"name": "script", "version": "1"}
            send(id=number, result={"protocolVersion": "2025-06-18", "capabilities": able, "serverInfo": about})
        elif method == "tools/list":
            send(id=number, result=page(params.get("cursor")))
        elif method == "tools/call" and params["name"] == "never":
            sys.stderr.write("thinking\n")
            sys.stderr.flush()
        elif method == "tools/call":
            send(id=number, result=called(params["name"], params.get("arguments") or {}))
        else:
            send(id=number, error={"code": -32601, "message": "Method not found"})


if __name__ == "__main__":
    main()
