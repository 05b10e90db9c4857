"""Chats of other programs become chats of Hearth: branches, times, models, thoughts, tools, files."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
from exports import AT, Read, answer_of, gpt4all_chat, gpt_chat, gpt_node, shown, simple_gpt_chat, write

from app.chat.imports.sources import ImportFailedError
from app.chat.store.conversation import CallState, MessageState, Role, siblings
from engine.text.thoughts import split

# --- ChatGPT


def test_a_chat_of_chatgpt_keeps_branches_thoughts_tools_and_models(tmp_path: Path) -> None:
    o3 = {"model_slug": "o3"}
    nodes = [
        gpt_node("s", "root", "system", [""]),
        gpt_node("ctx", "s", "user", [], content={
            "content_type": "user_editable_context", "user_profile": "I watch birds.",
            "user_instructions": "Be brief."}),
        gpt_node("q1", "ctx", "user", ["first"], at=AT + 1),
        gpt_node("a1", "q1", "assistant", ["old answer"], at=AT + 2, metadata={"model_slug": "gpt-4o"}),
        gpt_node("t", "q1", "assistant", [], at=AT + 3, metadata=o3, content={
            "content_type": "thoughts", "thoughts": [{"summary": "Look", "content": "Think of it."}]}),
        gpt_node("r", "t", "assistant", [], at=AT + 4, content={"content_type": "reasoning_recap", "content": "5 s"}),
        gpt_node("c", "r", "assistant", [], at=AT + 5, metadata=o3, recipient="python", content={
            "content_type": "code", "language": "python", "text": "6*7"}),
        gpt_node("o", "c", "tool", [], at=AT + 6, name="python", content={
            "content_type": "execution_output", "text": "42"}),
        gpt_node("a2", "o", "assistant", ["It is 42.", {"content_type": "image_asset_pointer"}], at=AT + 7,
                 kind="multimodal_text", metadata={**o3, "finish_details": {"type": "max_tokens"}}),
        gpt_node("q2", "a2", "user", ["second"], at=AT + 8, metadata={
            "attachments": [{"name": "a.pdf", "mime_type": "application/pdf"}, {"mime_type": "image/png"}]}),
    ]  # fmt: skip
    read = Read(write(tmp_path / "conversations.json", [gpt_chat(nodes, is_starred=True)]))
    chat = read.chat
    head = chat.conversation
    assert (head.title, head.folder, head.pinned, head.created_at, head.updated_at) == (
        "Herons", "ChatGPT", True, AT, AT + 100)  # fmt: skip
    assert head.choices == {"instructions": "I watch birds.\n\nBe brief."}
    roles = [m.role for m in chat.messages]
    assert roles == [Role.USER, Role.ASSISTANT, Role.ASSISTANT, Role.ASSISTANT, Role.USER]
    _, old, called, new, _ = chat.messages
    assert set(siblings(chat.messages, old.id)) == {old.id, called.id}, "two answers to one question"
    assert split(called.text).thought.strip() == "**Look**\n\nThink of it."
    assert [(call.tool, call.arguments, call.state, call.result) for call in called.calls] == [
        ("python", {"input": "6*7"}, CallState.DONE, "42")
    ]
    assert new.parent == called.id
    assert new.state is MessageState.LENGTH
    assert [text for _, text in shown(chat)][-2:] == ["It is 42.\n\n[Picture left out]",
                                                      "second\n\n[File left out: a.pdf]"]  # fmt: skip
    assert [(m.stats or {}).get("model") for m in chat.messages] == [None, "gpt-4o", "o3", "o3", None]
    assert [m.created_at for m in chat.messages] == [AT + 1, AT + 2, AT + 3, AT + 7, AT + 8]
    assert read.left_out == {"pictures": 1, "files": 1}


def test_an_export_of_chatgpt_in_parts_and_in_a_zip_file(tmp_path: Path) -> None:
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for n in range(3):
            value = [simple_gpt_chat(f"c{n}{k}", is_archived=n == 2) for k in range(2)]
            archive.writestr(f"conversations-00{n}.json", json.dumps(value))
        archive.writestr("user.json", json.dumps({"id": "me"}))
        archive.writestr("../../escaped.chat.html", "no")
    read = Read(path)
    assert len(read.chats) == 6
    assert not read.skipped
    assert sorted(chat.conversation.folder for chat in read.chats) == ["ChatGPT"] * 4 + ["ChatGPT, archived"] * 2
    assert list(tmp_path.iterdir()) == [path], "nothing is unpacked"


# --- Claude


def claude_chat(**more: Any) -> dict[str, Any]:
    def message(key: str, sender: str, at: int, **values: Any) -> dict[str, Any]:
        return {"uuid": key, "sender": sender, "text": "", "created_at": f"2026-03-29T07:06:{at:02}.5Z",
                "attachments": [], "files": [], **values}  # fmt: skip

    return {
        "uuid": "u-1", "name": "Herons", "created_at": "2026-03-29T07:06:00Z", "updated_at": "2026-03-30T00:00:00Z",
        "chat_messages": [
            message("q", "human", 1, content=[{"type": "text", "text": "look"}],
                    attachments=[{"file_name": "n.txt", "extracted_content": "a note"},
                                 {"file_name": "", "extracted_content": "pasted"}, {"file_name": "x.bin"}],
                    files=[{"file_name": "cat.png"}]),
            message("a", "assistant", 2, content=[
                {"type": "thinking", "thinking": "Search first."},
                {"type": "tool_use", "id": "t1", "name": "web_search", "input": {"query": "heron"}},
                {"type": "tool_result", "tool_use_id": "t1", "name": "web_search", "is_error": False,
                 "content": [{"type": "text", "text": "found"}]},
                {"type": "token_budget"},
                {"type": "text", "text": "It is a bird."},
                {"type": "tool_use", "id": "t2", "name": "artifacts",
                 "input": {"title": "Bird", "language": "python", "content": "print('```')"}}]),
            message("b", "assistant", 3, text="another", content=[]),
        ], **more,
    }  # fmt: skip


def test_a_chat_of_claude_keeps_thoughts_tools_documents_and_files(tmp_path: Path) -> None:
    value = claude_chat()
    root = "00000000-0000-4000-8000-000000000000"
    for message, parent in zip(value["chat_messages"], (root, "q", "q"), strict=True):
        message["parent_message_uuid"] = parent
    value["current_leaf_message_uuid"] = "a"
    read = Read(write(tmp_path / "conversations.json", [value]))
    question, called, answer, other = read.chat.messages
    assert [(a.name, a.text, a.kind) for a in question.attachments] == [
        ("n.txt", "a note", "text"), ("Pasted text", "pasted", "pasted")]  # fmt: skip
    assert question.text == "look\n\n[Picture left out: cat.png]\n\n[File left out: x.bin]"
    assert split(called.text).thought.strip() == "Search first."
    assert [(c.tool, c.arguments, c.result) for c in called.calls] == [("web_search", {"query": "heron"}, "found")]
    assert answer.text == "It is a bird.\n\n**Bird**\n\n````python\nprint('```')\n````"
    assert (other.parent, other.text) == (question.id, "another")
    assert read.chat.conversation.leaf == answer.id
    assert question.created_at == pytest.approx(1774767961.5)


def test_a_chat_of_claude_without_parents_is_a_row(tmp_path: Path) -> None:
    chat = Read(write(tmp_path / "conversations.json", [claude_chat()])).chat
    assert len(shown(chat)) == len(chat.messages)
    assert shown(chat)[-1][1].endswith("another")


# --- Open WebUI


def test_a_chat_of_open_webui_keeps_its_tree_thoughts_and_files(tmp_path: Path) -> None:
    text = (
        '<details type="reasoning" done="true" duration="3">\n<summary>Thought for 3 seconds</summary>\n'
        "&gt; a &lt; b\n> c\n</details>\nBefore"
        '<details type="tool_calls" done="true" id="k" name="add" arguments="&quot;{\\&quot;a\\&quot;: 1}&quot;" '
        'result="&quot;2&quot;">\n<summary>Tool Executed</summary>\n</details>\nAfter <details>kept</details>'
    )
    value = [{
        "id": "w", "title": "Herons", "created_at": int(AT), "updated_at": int(AT + 9), "archived": True,
        "chat": {"params": {"system": "Be kind."}, "history": {"currentId": "a", "messages": {
            "q": {"id": "q", "parentId": None, "role": "user", "content": "sum", "timestamp": int(AT), "files": [
                {"type": "file", "name": "n.pdf", "file": {"data": {"content": "a page"}}},
                {"type": "image", "url": "data:image/png;base64,AAAA"}]},
            "a": {"id": "a", "parentId": "q", "role": "assistant", "content": text, "modelName": "Qwen"},
            "b": {"id": "b", "parentId": "q", "role": "assistant", "content": "no", "error": {"content": "x"}}}}},
    }]  # fmt: skip
    read = Read(write(tmp_path / "chat-export-1.json", value))
    chat = read.chat
    question, first, *_ = chat.messages
    assert chat.conversation.folder == "Open WebUI, archived"
    assert chat.conversation.choices == {"instructions": "Be kind."}
    assert question.attachments[0].kind == "pdf"
    assert read.left_out == {"pictures": 1}
    called = next(m for m in chat.messages if m.calls)
    assert split(called.text).thought.strip() == "a < b\nc"
    assert [(c.tool, c.arguments, c.result) for c in called.calls] == [("add", {"a": 1}, "2")]
    assert shown(chat)[-1] == ("assistant", "After <details>kept</details>")
    assert any(m.state is MessageState.FAILED and m.text == "no" for m in chat.messages)
    assert first.role is Role.ASSISTANT


def test_an_old_chat_of_open_webui_is_a_row(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    value = [{"id": "w", "title": "Old", "chat": {"messages": messages}}]
    assert shown(Read(write(tmp_path / "x.json", value)).chat) == [("user", "a"), ("assistant", "b")]


# --- LM Studio


def lm_studio_chat() -> dict[str, Any]:
    def block(text: str, **more: Any) -> dict[str, Any]:
        return {"type": "contentBlock", "content": [{"type": "text", "text": text}], **more}

    figures = {
        "identifier": "qwen3-8b",
        "stats": {
            "stopReason": "userStopped",
            "tokensPerSecond": 31.5,
            "predictedTokensCount": 120,
            "totalTimeSec": 4.5,
        },
    }
    call = {
        "type": "contentBlock",
        "content": [
            {"type": "toolCallRequest", "callId": 7, "name": "add", "parameters": {"a": 1}},
            {"type": "toolCallResult", "callId": 7, "content": "2"},
        ],
    }
    return {
        "name": "Herons", "pinned": True, "createdAt": int(AT * 1000), "userLastMessagedAt": int(AT * 1000) + 5000,
        "perChatPredictionConfig": {"fields": [{"key": "llm.prediction.systemPrompt", "value": "Be kind."}]},
        "messages": [
            {"currentlySelected": 0, "versions": [
                {"type": "singleStep", "role": "user", "content": [
                    {"type": "text", "text": "look"}, {"type": "file", "fileType": "image", "name": "cat.png"}]}]},
            {"currentlySelected": 1, "versions": [
                {"type": "multiStep", "role": "assistant", "steps": [block("old")]},
                {"type": "multiStep", "role": "assistant", "steps": [
                    block("hmm", style={"type": "thinking"}), call, block("It is 2.", genInfo=figures),
                    {"type": "debugInfoBlock"}]}]},
            {"currentlySelected": 0, "versions": [
                {"type": "singleStep", "role": "user", "content": [{"type": "text", "text": "more"}]}]},
        ],
    }  # fmt: skip


def test_a_folder_of_lm_studio_keeps_versions_and_figures(tmp_path: Path) -> None:
    write(tmp_path / "work" / "1.conversation.json", lm_studio_chat())
    write(tmp_path / "other.json", {"no": "chat"})
    read = Read(tmp_path)
    chat = read.chat
    question, old, called, answer, more = chat.messages
    assert chat.conversation.choices == {"instructions": "Be kind."}
    assert (chat.conversation.created_at, chat.conversation.updated_at, chat.conversation.pinned) == (AT, AT + 5, True)
    assert question.text == "look\n\n[Picture left out: cat.png]"
    assert set(siblings(chat.messages, old.id)) == {old.id, called.id}
    assert split(called.text).thought.strip() == "hmm"
    assert [(c.tool, c.arguments, c.result) for c in called.calls] == [("add", {"a": 1}, "2")]
    assert answer.stats == {"tokens": 120, "total_s": 4.5, "decode_tok_s": 31.5, "model": "qwen3-8b"}
    assert answer.state is MessageState.CANCELLED
    assert more.parent == answer.id


# --- Jan


def test_threads_of_jan_keep_thoughts_tools_and_models(tmp_path: Path) -> None:
    folder = tmp_path / "threads" / "jan_1"
    write(folder / "thread.json", {
        "id": "jan_1", "title": "Herons", "created": AT, "updated": AT + 9,
        "assistants": [{"model": {"id": "llama"}, "instructions": "Be kind."}]})  # fmt: skip
    lines = [
        {"id": "2", "role": "assistant", "created_at": (AT + 2) * 1000, "status": "stopped", "content": [
            {"type": "reasoning", "text": {"value": "hmm"}},
            {"type": "tool_call", "tool_call_id": "k", "tool_name": "add", "input": {"a": 1}, "output": "2"},
            {"type": "text", "text": {"value": "It is 2."}}]},
        {"id": "1", "role": "user", "created_at": (AT + 1) * 1000, "content": [
            {"type": "text", "text": {"value": "sum", "annotations": []}}, {"type": "image_url"}]},
    ]  # fmt: skip
    (folder / "messages.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    for path in (tmp_path, folder / "thread.json", folder / "messages.jsonl"):
        chat = Read(path).chat
        question, called, answer = chat.messages
        assert chat.conversation.choices == {"instructions": "Be kind."}
        assert question.text == "sum\n\n[Picture left out]"
        assert question.created_at == AT + 1
        assert split(called.text).thought.strip() == "hmm"
        assert [(c.tool, c.arguments, c.result) for c in called.calls] == [("add", {"a": 1}, "2")]
        assert (answer.text, answer.state, answer.stats) == ("It is 2.", MessageState.CANCELLED, {"model": "llama"})


# --- GPT4All


@pytest.mark.parametrize("version", range(2, 13))
def test_every_version_of_the_files_of_gpt4all_is_read(tmp_path: Path, version: int) -> None:
    path = tmp_path / "gpt4all-1.chat"
    path.write_bytes(gpt4all_chat(version))
    chat = Read(path).chat
    assert (chat.conversation.title, chat.conversation.created_at) == ("Herons", AT)
    assert shown(chat)[0] == ("user", "What is a heron? 🪶")
    assert shown(chat)[-1] == ("assistant", "A bird.")
    assert (chat.messages[-1].stats or {}) == {"model": "llama-3.gguf"}
    names = [one.name for one in chat.messages[0].attachments]
    assert names == (["birds.txt"] if version >= 8 else []) + (["notes a.txt"] if version >= 10 else [])


def test_thoughts_and_code_of_gpt4all_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "gpt4all-1.chat"
    path.write_bytes(gpt4all_chat())
    called = answer_of(Read(path).chat)
    assert split(called.text).thought.strip() == "It wades."
    assert split(called.text).answer.strip() == "I compute:"
    assert [(c.tool, c.arguments, c.result) for c in called.calls] == [
        ("javascript_interpret", {"code": "console.log(6*7)"}, "42")
    ]


# --- ids


def test_the_same_export_gives_the_same_ids_and_a_continued_chat_others(tmp_path: Path) -> None:
    first = Read(write(tmp_path / "a.json", [simple_gpt_chat(title="One")])).chat
    renamed = Read(write(tmp_path / "b.json", [simple_gpt_chat(title="Two", is_archived=True)])).chat
    longer = Read(write(tmp_path / "c.json", [simple_gpt_chat(text="hello again")])).chat
    assert first.conversation.id == renamed.conversation.id != longer.conversation.id
    assert [m.id for m in first.messages] == [m.id for m in renamed.messages]
    assert not {m.id for m in first.messages} & {m.id for m in longer.messages}


def test_a_chat_without_any_time_gets_that_of_its_file(tmp_path: Path) -> None:
    path = write(tmp_path / "x.json", [{"chat": {"messages": [{"role": "user", "content": "a"}]}}])
    os.utime(path, (AT, AT))
    chat = Read(path).chat
    assert {chat.conversation.created_at, chat.conversation.updated_at, chat.messages[0].created_at} == {AT}


def test_what_is_no_export_says_so(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ImportFailedError) as told:
        Read(tmp_path / "empty")
    assert told.value.why == "unknown"
    (tmp_path / "x.json").write_text("no json")
    with pytest.raises(ImportFailedError) as told:
        Read(tmp_path / "x.json")
    assert told.value.why == "json"
    assert Read(write(tmp_path / "y.json", {"else": 1})).skipped == {"unknown": 1}
