"""Sixty questions: what the starter model may be asked, and what is beyond it."""

from __future__ import annotations

import pytest

from app.chat.answers.beyond_starter import is_beyond_starter
from app.chat.store.conversation import Attachment, Message, Role

WITHIN = (
    "What is the capital of Peru?", "Tell me a story about a small fox",
    "Tom has 5 apples and gives away 2. How many are left?", "Hello!", "Hi, how are you?", "Who are you?",
    "What is your name?", "What colour is the sky?", "How many legs does a spider have?", "What is 3 plus 4?",
    "What do cows eat?", "Tell me a story about a dragon who is afraid of mice.", "What is the opposite of hot?",
    "Is the sun a star?", "Name three animals.", "What is the capital of France?", "How many days are in a week?",
    "What is ten minus six?", "Good night!", "Thank you", "What sound does a dog make?", "Count to ten.",
    "Tell me something about the moon.", "What comes after Tuesday?", "Can birds fly?", "Where do fish live?",
    "What is the largest ocean?", "Anna has 3 balls and gets 4 more. How many has she now?", "What is ice made of?",
    "Tell me a short story.",
)  # fmt: skip
BEYOND = (
    "Rewrite politely: Give me the report now.", "Write a Python function that sorts a list.",
    "What is the difference between a llama and an alpaca?", "Should I learn piano or guitar?",
    "Translate 'good morning' into French.", "Summarize the plot of Hamlet.", "How do I fix a flat tyre?",
    "Compare electric cars and petrol cars.", "Help me write an email to my landlord.",
    "Which is better, tea or coffee?", "Explain quantum entanglement.", "What are the pros and cons of nuclear power?",
    "Write an essay about freedom.", "Improve this sentence: he go to school.", "Proofread my letter.",
    "Suggest a name for my bakery.", "Plan a weekend in Rome.", "Give me tips for a job interview.",
    "How can I sleep better?", "Write a SQL query for all customers.", "Paraphrase this paragraph for me.",
    "What would you recommend for dinner?", "```\nfor i in range(3):\n```\nWhat does it print?",
    "Was ist der Unterschied zwischen Mut und Übermut?", "什么是光合作用？", "Почему небо голубое?",
    "Prove that the square root of two is irrational.", "Brainstorm ideas for a birthday party.",
    "Review my business idea: a shop for left-handed tools.",
    "My neighbour plays loud music every night until two o'clock although I have asked him many times to stop, and now "
    "I do not know what to do about it any more, because he only laughs.",
)  # fmt: skip


def asked(text: str, attachments: tuple[Attachment, ...] = ()) -> Message:
    return Message(Role.USER, text, attachments=attachments)


def test_there_are_sixty() -> None:
    assert len(set(WITHIN)) == len(set(BEYOND)) == 30


@pytest.mark.parametrize("text", WITHIN)
def test_what_the_starter_may_be_asked(text: str) -> None:
    assert not is_beyond_starter(asked(text))


@pytest.mark.parametrize("text", BEYOND)
def test_what_is_beyond_it(text: str) -> None:
    assert is_beyond_starter(asked(text))


def test_a_text_to_read_is_beyond_it() -> None:
    assert is_beyond_starter(asked("What is this?", (Attachment("a.txt", "words", "text"),)))
