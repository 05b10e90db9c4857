"""Connects the chat controller with the widgets: its signals with what they show, the user's actions with its slots."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from app.clients.engine_status import Phase

if TYPE_CHECKING:
    from app.chat.chat_controller import ChatController
    from app.ui.chat.chat_page import ChatPage
    from app.ui.keyboard.commands import Commands
    from app.ui.sidebar.sidebar import Sidebar


def connect_page(controller: ChatController, page: ChatPage) -> None:
    controller.chat_status_changed.connect(page.set_status)
    controller.opened.opening.connect(page.expect)
    controller.opened.stayed.connect(page.stay)
    controller.message_added.connect(page.add_message)
    controller.message_resumed.connect(page.resume_message)
    controller.branch_changed.connect(page.show_branch)
    controller.versions_changed.connect(page.set_versions)
    controller.message_wanted.connect(page.show_message)
    controller.text_appended.connect(page.append_text)
    controller.message_finished.connect(page.finish_message)
    controller.messages_dropped.connect(page.set_dropped)
    controller.problem.connect(page.show_banner)
    controller.problem_solved.connect(page.clear_banner)
    page.banner.closed.connect(controller.problems.close)
    page.remedy.connect(controller.remedy)
    page.acted.connect(controller.act)
    page.submitted.connect(controller.send)
    page.queued.connect(controller.send_next)
    page.prompt_chosen.connect(controller.send)
    page.stop_requested.connect(controller.stop)
    page.composer.load_requested.connect(controller.load_last)
    page.composer.load_stop_requested.connect(controller.cancel_load)
    waiting, row = controller.next, page.composer.next
    waiting.shown.connect(row.show_message)
    waiting.returned.connect(page.give_back)
    row.edit_requested.connect(waiting.take_back)
    row.remove_requested.connect(waiting.remove)


def connect_sidebar(controller: ChatController, sidebar: Sidebar) -> None:
    """Connect the sidebar: its list of chats, the search, and the engine's card."""
    controller.conversations_changed.connect(sidebar.set_conversations)
    controller.search_results.connect(sidebar.set_search_hits)
    controller.running_changed.connect(sidebar.set_running)
    rounds = controller.rounds
    for signal in (rounds.asked, rounds.changed, rounds.ended):
        signal.connect(lambda chat, _: sidebar.set_waiting(chat, rounds.waits(chat)))
    sidebar.new_chat.connect(controller.new_chat)
    sidebar.conversation_selected.connect(controller.open)
    sidebar.hit_selected.connect(controller.open_at)
    sidebar.rename_requested.connect(controller.rename)
    sidebar.delete_requested.connect(controller.delete)
    sidebar.search_changed.connect(controller.search)
    sidebar.panel.engine.load_stop_requested.connect(controller.cancel_load)


def bind_commands(commands: Commands, controller: ChatController, page: ChatPage) -> None:
    """Bind the commands for the loaded model and the last answer."""
    bind, none = commands.bind, (Phase.OFF, Phase.FAILED)
    bind("unload", controller.unload, lambda: controller.status.phase not in (*none, Phase.LOADING))
    bind("load_last", controller.load_last, lambda: controller.status.phase in none)
    bind("stop_loading", controller.cancel_load, lambda: controller.status.phase is Phase.LOADING)
    bind("answer_again", partial(page.act_on_last, "regenerate"), partial(page.can_act_on_last, "regenerate"))
    bind("continue_answer", partial(page.act_on_last, "continue"), partial(page.can_act_on_last, "continue"))
    bind("side_by_side", partial(page.act_on_last, "side_by_side"), partial(page.can_act_on_last, "side_by_side"))
