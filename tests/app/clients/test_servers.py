"""Chats that are sent to a server elsewhere because a person chose it, over a real connection to a fake; and what
never is."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from desk import Desk, MakeDesk
from fakes.server import FakeServer, Piece

from app.chat.chat_titles import ChatTitles
from app.chat.message_action import MessageAction, can_continue
from app.chat.side_by_side import ModelChoice, SideBySide
from app.chat.store.chat_files import read_json, write_json
from app.chat.store.conversation import Conversation, Message, MessageState, Role, WholeChat
from app.clients.engine_status import Phase
from app.clients.engine_worker import EngineWorker, InThreadHost
from app.clients.library_client import LibraryClient
from app.clients.remote_client import RemoteClient
from app.clients.servers import CHOICE, Place, Server
from app.servers.server_book import ServerBook
from app.servers.servers_controller import ServersController
from app.user_messages import Action, UserMessage
from engine.library.service.host import LibraryHost


class Room:
    """A desk with a library of its own and a server on the other side."""

    def __init__(self, make_desk: MakeDesk, folder: Path, server: FakeServer, **options: Any) -> None:
        def library_host(emit: Any) -> InThreadHost:
            return InThreadHost(emit, lambda emit: LibraryHost(emit, home=folder / "library"))  # type: ignore[arg-type]

        self.server = server
        self.library = LibraryClient(EngineWorker("in-thread", {"in-thread": library_host}, "library"))
        self.book = ServerBook(folder / "servers.json")
        self.remote = RemoteClient(self.library, self.book.key_for)
        self.desk: Desk = make_desk(remote=self.remote, place_for=self.book.place, **options)
        self.saved: list[str] = []
        self.servers = ServersController(self.library, self.desk.controller, self.book, self._save)
        self.toasts: list[str] = []
        self.servers.toast.connect(lambda words, undo: self.toasts.append(words))
        self.looked: list[Any] = []
        self.servers.looked.connect(lambda address, found: self.looked.append(found))

    def _save(self, name: str, save: Callable[[], object]) -> None:
        self.saved.append(name)
        save()

    def enter(self, key: str = "") -> Place:
        entered = self.servers.add("Rack", self.server.address, key, ["big"])
        return Place(entered, "big")

    def choose(self) -> Place:
        place = self.enter()
        self.servers.choose(place)
        return place

    def close(self) -> None:
        self.desk.close()
        assert self.library.close(30)


MakeRoom = Callable[..., Room]


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as found:
        yield found


@pytest.fixture
def make_room(make_desk: MakeDesk, tmp_path: Path, server: FakeServer) -> Iterator[MakeRoom]:
    rooms: list[Room] = []

    def make(**options: Any) -> Room:
        rooms.append(Room(make_desk, tmp_path, server, **options))
        rooms[-1].desk.wait_ready()
        return rooms[-1]

    yield make
    for room in rooms:
        if server.hold is not None:
            server.hold.set()
        room.close()


def test_a_chat_that_chose_a_server_is_answered_there(make_room: MakeRoom) -> None:
    room = make_room()
    room.choose()
    answer = room.desk.say("What is heat?")
    assert (answer.text, answer.state) == ("Hello there.", MessageState.COMPLETE)
    assert answer.stats is not None
    assert {"model": "big", "server": "Rack", "tokens": 12, "prompt_tokens": 7}.items() <= answer.stats.items()
    assert "gpu_neuron_load" not in answer.stats
    (sent,) = room.server.chats
    assert sent.body["messages"] == [{"role": "user", "content": "What is heat?"}]
    room.desk.say("And cold?")
    assert [m["role"] for m in room.server.chats[1].body["messages"]] == ["user", "assistant", "user"]


def test_a_server_takes_part_in_a_comparison_of_a_chat_of_this_pc(make_room: MakeRoom) -> None:
    room = make_room()
    desk, place = room.desk, room.enter()
    run = SideBySide(desk.controller, desk.engine, desk.memory)
    run.start([ModelChoice("Rack", place=place), ModelChoice("Fake", "fake")], "What is heat?")
    desk.wait(lambda: not run.is_running)
    there, here = [m for m in desk.memory.messages(run.chat) or [] if m.role is Role.ASSISTANT]
    assert ((there.stats or {})["server"], there.text) == ("Rack", "Hello there.")
    assert (here.stats or {})["model"] == "Fake"
    assert "server" not in (here.stats or {})
    assert len(room.server.chats) == 1
    assert desk.controller.place is None, "the chat itself stays on this PC"


def test_every_other_chat_stays_on_this_pc(make_room: MakeRoom) -> None:
    room = make_room()
    room.desk.say("before")
    first = room.desk.controller.open_conversation
    room.desk.controller.new_chat()
    room.choose()
    room.desk.say("elsewhere")
    room.desk.controller.new_chat()
    assert room.desk.controller.place is None, "a new chat begins on this PC"
    room.desk.say("after")
    assert first is not None
    room.desk.controller.open(first)
    room.desk.say("again")
    assert [one.body["messages"][-1]["content"] for one in room.server.chats] == ["elsewhere"]


def test_a_chat_of_this_pc_goes_elsewhere_only_from_the_choice_on(make_room: MakeRoom) -> None:
    room = make_room()
    room.desk.say("here")
    place = room.enter()
    room.desk.say("still here")
    assert room.server.asked == []
    room.servers.choose(place)
    room.desk.say("there")
    assert len(room.server.chats) == 1
    room.servers.choose(None)
    room.desk.say("here again")
    assert len(room.server.chats) == 1


def test_entering_a_server_asks_it_nothing(make_room: MakeRoom, tmp_path: Path) -> None:
    room = make_room()
    room.enter("sk-secret")
    room.desk.wait(lambda: room.toasts)
    assert "keyring" in room.toasts[0], "there is none in tests: the key is kept for this run"
    assert room.server.asked == []
    room.servers.look(room.server.address)
    room.desk.wait(lambda: room.looked)
    assert room.looked == [["big", "small"]]
    assert [one.path for one in room.server.asked] == ["/v1/models"]
    assert room.server.asked[0].headers["authorization"] == "Bearer sk-secret"
    written = (tmp_path / "servers.json").read_text()
    assert "sk-secret" not in written
    assert json.loads(written)["servers"][0]["has_key"] is True


def test_the_key_of_one_address_never_goes_to_another(make_room: MakeRoom) -> None:
    room = make_room()
    room.servers.add("Other", "https://elsewhere.example/v1", "sk-other", ["x"])
    room.choose()
    room.desk.say("hello")
    assert "authorization" not in room.server.chats[0].headers


def test_a_list_that_cannot_be_had_is_told_in_words(make_room: MakeRoom) -> None:
    room = make_room()
    for address in ("http://example.org", f"{room.server.address}"):
        room.server.status = 401
        room.servers.look(address)
    room.desk.wait(lambda: len(room.looked) == 2)
    assert all(isinstance(one, UserMessage) for one in room.looked)
    assert [one.details.partition(":")[0] for one in room.looked] == ["InvalidRequestError", "RemoteKeyError"]


def test_a_stop_keeps_what_came(make_room: MakeRoom) -> None:
    room = make_room()
    room.server.hold = threading.Event()
    room.choose()
    room.desk.controller.send("Tell me")
    room.desk.wait(lambda: room.desk.last.text == "Hello")
    assert room.desk.chat_statuses[-1].phase is Phase.WRITING
    room.desk.controller.stop()
    room.desk.wait(lambda: room.desk.last.state is not MessageState.WRITING)
    assert (room.desk.last.text, room.desk.last.state) == ("Hello", MessageState.CANCELLED)
    assert room.server.gone.wait(30)
    assert not can_continue(room.desk.last), "only this PC writes an answer on"
    assert (room.desk.last.stats or {})["server"] == "Rack"
    room.server.hold.set()
    assert room.desk.say("Once more").text == "Hello there."


def test_an_answer_cut_short_by_the_end_still_says_who_gave_it_and_offers_no_continue(make_room: MakeRoom) -> None:
    room = make_room()
    room.server.hold = threading.Event()
    room.choose()
    room.desk.controller.send("Tell me")
    room.desk.wait(lambda: room.desk.last.text == "Hello")
    (crashed,) = [m for m in room.desk.stored() if m.role is Role.ASSISTANT]
    assert (crashed.stats or {})["server"] == "Rack", "also where it ends without a word"
    room.desk.close()
    (closed,) = [m for m in room.desk.stored() if m.role is Role.ASSISTANT]
    assert closed.state is MessageState.INTERRUPTED
    assert (closed.stats or {})["server"] == "Rack"
    assert not can_continue(closed)
    room.server.hold.set()


def test_this_pcs_answer_is_written_on_here_although_the_chat_is_sent_elsewhere_now(make_room: MakeRoom) -> None:
    room = make_room()
    desk = room.desk
    desk.wait_ready()
    desk.controller.send("words 100000 pace 0.01")
    desk.wait(lambda: "word3 " in desk.last.text)
    desk.controller.stop()
    desk.wait(lambda: desk.last.state is MessageState.CANCELLED)
    room.choose()
    before = desk.last.text
    desk.controller.act(MessageAction("continue", desk.last.id))
    desk.wait(lambda: len(desk.last.text) > len(before))
    desk.controller.stop()
    desk.wait(lambda: desk.last.state is not MessageState.WRITING)
    assert room.server.chats == []


def test_a_chat_is_not_moved_while_it_is_answered(make_room: MakeRoom) -> None:
    room = make_room()
    room.server.hold = threading.Event()
    place = room.choose()
    room.desk.controller.send("Tell me")
    room.desk.wait(lambda: room.desk.last.text == "Hello")
    room.servers.choose(None)
    assert room.desk.controller.place == place
    room.server.hold.set()
    room.desk.wait(lambda: room.desk.last.state is MessageState.COMPLETE)
    room.servers.choose(None)
    assert room.desk.controller.place is None


def test_a_server_that_is_gone_leaves_the_choice_to_the_person(make_room: MakeRoom) -> None:
    room = make_room()
    room.choose()
    room.server.status = 503
    answer = room.desk.say("words 3 0")
    assert answer.state is MessageState.FAILED
    assert answer.stats is not None
    assert answer.stats["server"] == "Rack", "the engine is not blamed for what a server did"
    problem = room.desk.problem
    assert problem is not None
    assert problem.remedy_action == Action.SEND_AGAIN
    assert problem.second is not None
    assert problem.second == ("Answer with Hearth", Action.ANSWER_HERE), "the server may be on this PC, too"
    assert "Rack failed" in problem.sentence
    asked = len(room.server.chats)
    room.desk.controller.remedy(Action.ANSWER_HERE)
    room.desk.wait(lambda: room.desk.last.state is MessageState.COMPLETE)
    assert room.desk.last.text.startswith("word")
    assert room.desk.controller.place is None
    assert len(room.server.chats) == asked, "nothing was sent again"
    assert room.desk.problem is None


def test_a_server_that_is_taken_away_takes_no_chat_with_it(make_room: MakeRoom, tmp_path: Path) -> None:
    room = make_room()
    place = room.choose()
    room.desk.say("there")
    room.servers.remove(place.server.id)
    assert room.desk.controller.place is None
    room.desk.say("here")
    assert len(room.server.chats) == 1
    assert json.loads((tmp_path / "servers.json").read_text())["servers"] == []


def test_the_status_is_the_servers_where_the_chat_is(make_room: MakeRoom) -> None:
    room = make_room()
    room.choose()
    status = room.desk.chat_statuses[-1]
    assert (status.server, status.model, status.phase) == ("Rack", "big", Phase.READY)
    assert status.host == room.server.address.split("/")[2]
    assert room.desk.statuses[-1].server == "", "the engine's own says nothing of it"
    room.desk.controller.unload()
    room.desk.wait(lambda: room.desk.engine.status.phase is Phase.OFF)
    assert room.desk.chat_statuses[-1].takes_messages
    assert room.desk.say("without a model here").text == "Hello there."


def test_an_answer_of_this_pc_and_one_of_a_server_do_not_wait_for_a_model(make_room: MakeRoom) -> None:
    room = make_room()
    room.desk.controller.unload()
    room.desk.wait(lambda: room.desk.engine.status.phase is Phase.OFF)
    room.desk.controller.send("waits for a model")
    room.desk.controller.new_chat()
    room.choose()
    assert room.desk.say("does not").state is MessageState.COMPLETE


def test_titles_are_never_asked_of_a_server(make_room: MakeRoom) -> None:
    room = make_room()
    titles = ChatTitles(room.desk.engine, room.desk.memory, room.desk.controller)
    titles._parameters = 10**12
    room.choose()
    room.desk.say("Hello. Could you tell me about heat?")
    assert titles._waiting == {}
    titles._waiting = {room.desk.controller.open_conversation or "": "x"}
    titles._ask()
    assert len(room.server.chats) == 1
    assert room.desk.engine._aside[0] == ""


def test_another_version_of_a_question_goes_where_the_chat_goes(make_room: MakeRoom) -> None:
    room = make_room()
    room.choose()
    room.desk.say("one")
    question = room.desk.shown[0]
    room.desk.controller.act(MessageAction("edit", question.id, "two"))
    room.desk.wait(lambda: len(room.server.chats) == 2 and room.desk.last.state is MessageState.COMPLETE)
    assert room.server.chats[1].body["messages"] == [{"role": "user", "content": "two"}]


def test_thoughts_of_a_server_are_no_part_of_what_is_sent_back(make_room: MakeRoom) -> None:
    room = make_room()
    room.server.script = [Piece(thought="Hm."), Piece("Yes.")]
    room.choose()
    answer = room.desk.say("Well?")
    assert answer.text == "<think>Hm.</think>Yes."
    assert answer.stats is not None
    assert "thought_tokens" not in answer.stats
    room.desk.say("Sure?")
    assert room.server.chats[1].body["messages"][1] == {"role": "assistant", "content": "Yes."}


# --- the list, and files


def test_no_file_of_chats_sends_one_elsewhere(tmp_path: Path) -> None:
    choices = {CHOICE: {"id": "s", "model": "big"}, "overflow": "stop"}
    chat = WholeChat(Conversation(title="x", choices=choices), (Message(Role.USER, "hello"),))
    write_json(tmp_path / "chats.json", [chat])
    assert CHOICE not in (tmp_path / "chats.json").read_text()
    (back,) = read_json(tmp_path / "chats.json")
    assert back.conversation.choices == {"overflow": "stop"}
    text = (tmp_path / "chats.json").read_text().replace('"overflow": "stop"', f'"{CHOICE}": {{"id": "s"}}')
    (tmp_path / "sly.json").write_text(text)
    assert read_json(tmp_path / "sly.json")[0].conversation.choices == {}


def test_the_list_is_kept_and_damaged_ones_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "servers.json"
    book = ServerBook(path)
    kept = book.put(Server("a", "Rack", "https://a.org/v1", ("m1", "m2"), True))
    book.put(Server("b", "Rack", "http://localhost:8000/v1"))
    book.save(book.to_json())
    again = ServerBook(path)
    again.read()
    assert again.servers[0] == kept
    assert [server.name for server in again.servers] == ["Rack", "Rack 2"]
    assert [place.model for place in again.places] == ["m1", "m2"]
    values = json.loads(path.read_text())
    values["servers"] += [3, {}, {"id": "c", "name": "x", "address": "http://public.example"}, {"id": 3}]
    path.write_text(json.dumps(values))
    again = ServerBook(path)
    again.read()
    assert len(again.servers) == 2
    path.write_text(json.dumps({**values, "schema_version": 99}))
    newer = ServerBook(path)
    newer.read()
    newer.put(kept)
    newer.save(newer.to_json())
    assert json.loads(path.read_text())["schema_version"] == 99


@pytest.mark.parametrize("chosen", [None, "a", {}, {"id": "a"}, {"id": "a", "model": 3}, {"id": "gone", "model": "m"},
                                    {"id": "a", "model": "x" * 999}])  # fmt: skip
def test_a_choice_that_names_no_server_stays_on_this_pc(chosen: Any) -> None:
    book = ServerBook()
    book.put(replace(Server("a", "Rack", "https://a.org/v1"), models=("m",)))
    assert book.place({CHOICE: chosen}) is None
    assert book.place({}) is None
    assert book.place({CHOICE: {"id": "a", "model": "m"}}) is not None


# --- a real server


@pytest.mark.slow
def test_another_hearth_answers(make_room: MakeRoom, tmp_path: Path) -> None:
    """The local server of another Hearth, with the starter model."""
    command = [sys.executable, "-m", "engine", "serve", "starter-chat", "--port", "0", "--key", "test-key-1", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).resolve().parents[3]) as process:
        try:
            assert process.stdout is not None
            address = json.loads(process.stdout.readline())["address"]
            room = make_room()
            room.servers.look(address, "test-key-1")
            room.desk.wait(lambda: room.looked)
            assert room.looked[0] != []
            assert not isinstance(room.looked[0], UserMessage)
            room.servers.choose(Place(room.servers.add("", address, "test-key-1", room.looked[0]), room.looked[0][0]))
            answer = room.desk.say("What is the capital of Peru?")
            assert (answer.state, answer.text.strip() != "") == (MessageState.COMPLETE, True)
            assert answer.stats is not None
            assert answer.stats["tokens"] > 0
            assert answer.stats["decode_tok_s"] > 0
            room.desk.controller.send("Tell me a long story about a fox.")
            room.desk.wait(lambda: room.desk.last.text)
            room.desk.controller.stop()
            room.desk.wait(lambda: room.desk.last.state is not MessageState.WRITING)
        finally:
            process.terminate()
    room.desk.say("Are you there?")
    assert room.desk.last.state is MessageState.FAILED
    assert room.desk.problem is not None
    assert "cannot be reached" in room.desk.problem.sentence
