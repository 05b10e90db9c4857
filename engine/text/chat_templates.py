"""Chat templates for models without one, and the choice among them with its reason.

Each follows the family's model card or tokenizer_config. engine/text/chat_template.py renders them;
engine/text/tokenizer.py takes special tokens only from these templates, never from a message.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from engine.errors import InvalidRequestError
from engine.text.chat_template import ChatTemplate
from engine.text.vocabulary import Vocabulary, turn_ends

OWN = "own"  # the model's own template, as an override
ModelKind = Literal["base", "chat"]
BASE_NOTE = "This is a base model: it continues text rather than answering."

# In a family without system messages, the system message precedes the first question.
_SYSTEM_FIRST = (
    "{% set found = namespace(system='') %}{% for m in messages %}{% if m['role'] == 'system' %}"
    "{% set found.system = m['content'] | trim %}"
)


@dataclass(frozen=True)
class BuiltIn:
    """A built-in template: its text, the families that use it, and the texts that end an answer."""

    title: str
    source: str
    stops: tuple[str, ...]


BUILT_IN = {
    "chatml": BuiltIn(
        "ChatML",
        "{{ bos_token }}{% for m in messages %}"
        "{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
        ("<|im_end|>", "<|im_start|>"),
    ),
    "llama-3": BuiltIn(
        "Llama 3",
        "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' }}"
        "{{ m['content'] | trim }}{{ '<|eot_id|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}",
        ("<|eot_id|>",),
    ),
    "llama-2": BuiltIn(
        "Llama 2",
        _SYSTEM_FIRST + "{% elif m['role'] == 'assistant' %}"
        "{{ ' ' }}{{ m['content'] | trim }}{{ ' ' + eos_token }}"
        "{% else %}{{ bos_token + '[INST] ' }}"
        "{% if found.system %}{{ '<<SYS>>\\n' + found.system + '\\n<</SYS>>\\n\\n' }}{% set found.system = '' %}"
        "{% endif %}{{ m['content'] | trim }}{{ ' [/INST]' }}{% endif %}{% endfor %}",
        ("[INST]", "</s>"),
    ),
    "mistral-instruct": BuiltIn(
        "Mistral Instruct",
        "{{ bos_token }}" + _SYSTEM_FIRST + "{% elif m['role'] == 'assistant' %}"
        "{{ ' ' }}{{ m['content'] | trim }}{{ eos_token }}"
        "{% else %}{{ '[INST] ' }}{% if found.system %}{{ found.system + '\\n\\n' }}{% set found.system = '' %}"
        "{% endif %}{{ m['content'] | trim }}{{ ' [/INST]' }}{% endif %}{% endfor %}",
        ("[INST]", "</s>"),
    ),
    "gemma": BuiltIn(
        "Gemma",
        "{{ bos_token }}" + _SYSTEM_FIRST + "{% else %}"
        "{{ '<start_of_turn>' + ('model' if m['role'] == 'assistant' else m['role']) + '\\n' }}"
        "{% if found.system %}{{ found.system + '\\n\\n' }}{% set found.system = '' %}{% endif %}"
        "{{ m['content'] | trim }}{{ '<end_of_turn>\\n' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}",
        ("<end_of_turn>", "<start_of_turn>"),
    ),
    "phi-3": BuiltIn(
        "Phi-3",
        "{{ bos_token }}{% for m in messages %}{{ '<|' + m['role'] + '|>\\n' + m['content'] + '<|end|>\\n' }}"
        "{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}",
        ("<|end|>", "<|endoftext|>"),
    ),
    "vicuna": BuiltIn(
        "Vicuna",
        "{{ bos_token }}{% if not messages or messages[0]['role'] != 'system' %}"
        '{{ "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, "'
        ' "detailed, and polite answers to the user\'s questions. " }}{% endif %}'
        "{% for m in messages %}{% if m['role'] == 'system' %}{{ m['content'] | trim }}{{ ' ' }}"
        "{% elif m['role'] == 'assistant' %}{{ 'ASSISTANT: ' }}{{ m['content'] | trim }}{{ eos_token or '\\n' }}"
        "{% else %}{{ 'USER: ' }}{{ m['content'] | trim }}{{ ' ' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}",
        ("USER:", "</s>"),
    ),
    "alpaca": BuiltIn(
        "Alpaca",
        "{{ bos_token }}{% if not messages or messages[0]['role'] != 'system' %}"
        "{{ 'Below is an instruction that describes a task. "
        "Write a response that appropriately completes the request.\\n\\n' }}{% endif %}"
        "{% for m in messages %}{% if m['role'] == 'system' %}{{ m['content'] | trim }}{{ '\\n\\n' }}"
        "{% elif m['role'] == 'assistant' %}{{ '### Response:\\n' }}{{ m['content'] | trim }}{{ eos_token + '\\n\\n' }}"
        "{% else %}{{ '### Instruction:\\n' }}{{ m['content'] | trim }}{{ '\\n\\n' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '### Response:\\n' }}{% endif %}",
        ("### Instruction:", "</s>"),
    ),
    "plain": BuiltIn(
        "plain User:/Assistant:",
        "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'system' %}{{ m['content'] | trim }}{{ '\\n\\n' }}"
        "{% else %}{{ 'Assistant: ' if m['role'] == 'assistant' else 'User: ' }}{{ m['content'] | trim }}{{ '\\n' }}"
        "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}",
        ("\nUser:", "\nAssistant:"),
    ),
}
TEMPLATE_NAMES = (OWN, *BUILT_IN)

# Markers that exist as whole tokens only in models of this kind.
_BY_MARKS = (
    ("chatml", ("<|im_start|>", "<|im_end|>")),
    ("llama-3", ("<|start_header_id|>", "<|eot_id|>")),
    ("gemma", ("<start_of_turn>", "<end_of_turn>")),
    ("phi-3", ("<|user|>", "<|assistant|>", "<|end|>")),
    ("mistral-instruct", ("[INST]", "[/INST]")),
)
# The base models of these families have the markers too, but were not trained on them.
_MARKS_OF_BASE_MODELS = ("llama-3", "gemma", "mistral-instruct")
_TRAINED_TO_CHAT = re.compile(r"instruct|chat|assistant|dpo|rlhf|sft|[-_ ]it\b", re.IGNORECASE)
_BY_NAME = (
    ("vicuna", r"vicuna|wizardlm|bamboo.*dpo"),
    ("chatml", r"turbo-?sparse|small-?thinker|chatml|openhermes|dolphin"),
    ("alpaca", r"alpaca"),
    ("llama-2", r"llama[-_ ]?2.*chat|codellama.*instruct|prosparse.*chat"),
    ("mistral-instruct", r"mi[sx]tral.*instruct"),
    ("gemma", r"gemma.*[-_ ]it\b"),
    ("phi-3", r"phi[-_ ]?3.*instruct"),
)


def choose_template(opened_name: str, vocabulary: Vocabulary, override: str | None = None) -> tuple[ChatTemplate, str]:
    """Return the template for a model's chats, and the reason: the override, the model's own, its markers, or its name.

    Raises: InvalidRequestError if the override is not a template's name, or is `own` for a model without one.
    """
    if override not in (None, *TEMPLATE_NAMES):
        raise InvalidRequestError(
            f"There is no chat template called {override!r}.", f"Choose one of {', '.join(TEMPLATE_NAMES)}."
        )
    if override == OWN and vocabulary.chat_template is None:
        raise InvalidRequestError(
            "The model brings no chat template of its own.", f"Choose one of {', '.join(BUILT_IN)}."
        )
    if vocabulary.chat_template is not None and override in (None, OWN):
        return _own(vocabulary, vocabulary.chat_template), "The model brings its own chat template"
    if override is not None:
        return _built_in(override, vocabulary), f"{BUILT_IN[override].title}, as requested"
    name, reason = _fitting(opened_name, vocabulary)
    return _built_in(name, vocabulary), reason


def kind_of(opened_name: str, vocabulary: Vocabulary, override: str | None = None) -> ModelKind:
    """Return whether the model was trained to answer: "base" if it has no chat template, none was requested, and
    neither its tokens nor its name indicate it.
    """
    if vocabulary.chat_template is not None or override is not None or _TRAINED_TO_CHAT.search(opened_name):
        return "chat"
    return "base" if _fitting(opened_name, vocabulary)[0] == "plain" else "chat"


def _fitting(opened_name: str, vocabulary: Vocabulary) -> tuple[str, str]:
    lacking = "The model brings no chat template; "
    special = _special_texts(vocabulary)
    for name, marks in _BY_MARKS:
        if not special.issuperset(marks):
            continue
        if name in _MARKS_OF_BASE_MODELS and not _TRAINED_TO_CHAT.search(opened_name):
            return "plain", f"{lacking}it has {marks[0]}, but its name does not say that it learned to chat"
        return name, f"{lacking}it has the marks of {BUILT_IN[name].title}, such as {marks[0]}"
    for name, pattern in _BY_NAME:
        if found := re.search(pattern, opened_name, re.IGNORECASE):
            return name, f"{lacking}{found.group()!r} in its name means {BUILT_IN[name].title}"
    return "plain", f"{lacking}neither its tokens nor its name tell another than {BUILT_IN['plain'].title}"


def _built_in(name: str, vocabulary: Vocabulary) -> ChatTemplate:
    """A built-in template begins with BOS only if the model's texts do."""
    chosen = BUILT_IN[name]
    bos = _text(vocabulary, vocabulary.bos_token_id) if vocabulary.adds_bos else None
    return ChatTemplate(chosen.source, bos, _eos(vocabulary), name=name, stops=chosen.stops)


def _own(vocabulary: Vocabulary, source: str) -> ChatTemplate:
    """Return a model's own template. The end-of-turn markers that it writes also end an answer."""
    special = _special_texts(vocabulary)
    stops = tuple(end for end in turn_ends(special) if end in source and end in special)
    return ChatTemplate(source, _text(vocabulary, vocabulary.bos_token_id), _eos(vocabulary), name=OWN, stops=stops)


def _special_texts(vocabulary: Vocabulary) -> set[str]:
    return {token.content for token in vocabulary.backend.get_added_tokens_decoder().values() if token.special}


def _eos(vocabulary: Vocabulary) -> str | None:
    return _text(vocabulary, next(iter(vocabulary.eos_token_ids), None))


def _text(vocabulary: Vocabulary, token_id: int | None) -> str | None:
    text: str | None = None if token_id is None else vocabulary.backend.id_to_token(token_id)
    return text
