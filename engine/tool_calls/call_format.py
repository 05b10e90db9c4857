"""The formats in which models write calls of tools, as a table.

call_style.py finds the format of a chat template, call_grammar.py constrains the model to it, and call_reader.py
reads it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.text.harmony import CALL_HEADER, MESSAGE
from engine.tool_calls.arguments import kind_of, spelt
from engine.tool_calls.marked_arguments import write_pairs
from engine.tool_calls.nested_arguments import write_tags

_PLACE = re.compile(r"\$(NAME|ARGUMENTS|ID|NUMBER|INDEX|KEY|VALUE|IS_TEXT|TYPE)")


@dataclass(frozen=True)
class Call:
    """One call. arguments: as JSON values by their names. id: 9 letters and digits."""

    name: str
    arguments: Mapping[str, Any]
    id: str = "000000000"


@dataclass(frozen=True)
class CallFormat:
    """How a model writes calls.

    call: the text of one call, with $NAME, $ARGUMENTS, and maybe $ID, $NUMBER (from 0) or $INDEX (from 1) in it. White
    space in it may vary. begin, between, end: texts around the calls of one answer. parameter: the text of one argument
    with $KEY and $VALUE, and maybe $IS_TEXT (true or false) or $TYPE (of JSON, see kind_of), for formats that write
    each argument by itself and texts without quotes; "": $ARGUMENTS is one JSON object. mark: the text with which a
    call begins. only_first: it counts only at the beginning of an answer. is_named: it counts only with a tool's name
    after it. before: a special token that may precede the mark, or if is_named, a text before the answer. closing,
    final: special texts that may end the text before the calls, and the answer. is_single: an answer has at most one
    call. rendered: what chat templates may write in place of `call`, if it differs. text_mark: the mark around each
    text in $ARGUMENTS, which are then written as in engine/tool_calls/marked_arguments.py, within braces of `call`.
    assign: the text between a key and its value, for formats that write $ARGUMENTS like keyword arguments of Python;
    each value is then JSON. tag_mark: the text before each tag of $ARGUMENTS that are written as in
    engine/tool_calls/nested_arguments.py. given_id: the id that chat templates may expect for a call, in place of one
    of 9 letters and digits. hint: a text in the source of templates that describe tools and render no calls.
    """

    name: str
    call: str
    mark: str
    begin: str = ""
    between: str = ""
    end: str = ""
    parameter: str = ""
    before: str = ""
    closing: str = ""
    final: str = ""
    only_first: bool = False
    is_named: bool = False
    is_single: bool = False
    rendered: tuple[str, ...] = ()
    text_mark: str = ""
    assign: str = ""
    tag_mark: str = ""
    given_id: str = ""
    hint: str = ""

    @property
    def texts(self) -> str:
        """All texts of the format. Special tokens in them must stay in an answer's text."""
        texts = [self.begin, self.call, self.between, self.end, self.parameter, self.before, self.mark, self.text_mark]
        texts += [self.closing, self.final, self.tag_mark]
        return "\n".join(texts)

    @property
    def head(self) -> str:
        """The text of a call before $NAME."""
        return self.call.partition("$NAME")[0]

    @property
    def middle(self) -> str:
        """The text of a call between $NAME and $ARGUMENTS."""
        return self.call.partition("$NAME")[2].partition("$ARGUMENTS")[0]

    @property
    def tail(self) -> str:
        """The text of a call after $ARGUMENTS."""
        return self.call.partition("$ARGUMENTS")[2]

    @property
    def value_marks(self) -> tuple[str, str, str]:
        """Of one argument: the texts before $KEY, between $KEY and $VALUE, and after $VALUE."""
        before, _, rest = self.parameter.partition("$KEY")
        between, _, after = rest.partition("$VALUE")
        return before, between, after

    def write(self, calls: Sequence[Call]) -> str:
        """Return the text of these calls, as the model would write it."""
        written = self.between.join(self._written(self.call, call, i) for i, call in enumerate(calls))
        return f"{self.begin}{written}{self.end}"

    def renderings(self, call: Call) -> list[str]:
        """Return the texts of one call as chat templates write it."""
        if self.assign:
            written = self.write([call])
            return [written, written.replace('"', "'")]
        return [self._written(text, call, 0) for text in self.rendered] or [self.write([call])]

    def id_of(self, call: Call, number: int) -> str:
        """Return the id that chat templates expect for a call, which is this one of a conversation, from 0."""
        return _filled(self.given_id, {"NAME": call.name, "NUMBER": str(number)})

    def _written(self, text: str, call: Call, number: int) -> str:
        if self.parameter:
            each = (
                {
                    "KEY": key,
                    "VALUE": spelt(value),
                    "IS_TEXT": json.dumps(isinstance(value, str)),
                    "TYPE": kind_of(value),
                }
                for key, value in call.arguments.items()
            )
            arguments = "".join(_filled(self.parameter, values) for values in each)
        elif self.assign:
            pairs = (f"{k}{self.assign}{json.dumps(value, ensure_ascii=False)}" for k, value in call.arguments.items())
            arguments = ", ".join(pairs)
        elif self.tag_mark:
            arguments = write_tags(call.arguments, self.tag_mark)
        elif self.text_mark:
            arguments = write_pairs(call.arguments, self.text_mark)
        else:
            arguments = json.dumps(dict(call.arguments), ensure_ascii=False)
        values = {"NAME": call.name, "ARGUMENTS": arguments, "ID": call.id}
        return _filled(text, {**values, "NUMBER": str(number), "INDEX": str(number + 1)})


def _filled(text: str, values: Mapping[str, str]) -> str:
    return _PLACE.sub(lambda found: values[found[1]], text)


_JSON_CALL = '{"name": "$NAME", "arguments": $ARGUMENTS}'
_DSML = "｜DSML｜"
_TAG = "]<]minimax[>["
_HY = ":opensource"
_DEEPSEEK_CALL = "<｜tool▁call▁begin｜>"

# The format of models whose chat template knows no tools; many others use it as well.
HERMES = CallFormat("hermes", f"<tool_call>\n{_JSON_CALL}\n</tool_call>", "<tool_call>", between="\n")
# As engine/text/harmony.py gives the text of a message to a tool. Its grammar differs: the header comes in two orders.
HARMONY = CallFormat(
    "harmony", f"{CALL_HEADER}$NAME{MESSAGE}$ARGUMENTS", CALL_HEADER, is_single=True,
    rendered=(
        "<|start|>assistant to=functions.$NAME<|channel|>commentary json<|message|>$ARGUMENTS",
        "<|channel|>commentary to=functions.$NAME <|constrain|>json<|message|>$ARGUMENTS",
    ),
)  # fmt: skip
FORMATS: tuple[CallFormat, ...] = (
    HERMES,
    CallFormat(
        "qwen-coder", "<tool_call>\n<function=$NAME>\n$ARGUMENTS</function>\n</tool_call>", "<tool_call>",
        between="\n", parameter="<parameter=$KEY>\n$VALUE\n</parameter>\n",
    ),
    CallFormat(
        "seed", "<seed:tool_call>\n<function=$NAME>\n$ARGUMENTS</function>\n</seed:tool_call>", "<seed:tool_call>",
        between="\n", parameter="<parameter=$KEY>$VALUE</parameter>\n",
    ),
    CallFormat(
        "minimax", '<invoke name="$NAME">\n$ARGUMENTS</invoke>', "<minimax:tool_call>",
        begin="<minimax:tool_call>\n", between="\n", end="\n</minimax:tool_call>",
        parameter='<parameter name="$KEY">$VALUE</parameter>\n',
    ),
    CallFormat(
        "glm", "<tool_call>$NAME\n$ARGUMENTS</tool_call>", "<tool_call>", between="\n",
        parameter="<arg_key>$KEY</arg_key>\n<arg_value>$VALUE</arg_value>\n",
    ),
    CallFormat(
        "hunyuan-3", f"<tool_call{_HY}>$NAME<tool_sep{_HY}>\n$ARGUMENTS</tool_call{_HY}>", f"<tool_calls{_HY}>",
        begin=f"<tool_calls{_HY}>\n", between="\n", end=f"\n</tool_calls{_HY}>",
        parameter=f"<arg_key{_HY}>$KEY</arg_key{_HY}>\n<arg_value{_HY}>$VALUE</arg_value{_HY}>\n",
    ),
    CallFormat(
        "minimax-m3", f'{_TAG}<invoke name="$NAME">$ARGUMENTS{_TAG}</invoke>', f"{_TAG}<tool_call>",
        begin=f"{_TAG}<tool_call>\n", between="\n", end=f"\n{_TAG}</tool_call>", tag_mark=_TAG,
    ),
    CallFormat(
        "minicpm", '<function name="$NAME">$ARGUMENTS</function>', "<function name=", between="\n",
        parameter='<param name="$KEY">$VALUE</param>',
    ),
    CallFormat("functionary", "<function=$NAME>$ARGUMENTS</function>", "<function="),
    CallFormat("functionary-3.2", ">>>$NAME\n$ARGUMENTS", ">>>", before=">>>all\n", is_named=True),
    CallFormat("mistral", "[TOOL_CALLS]$NAME[ARGS]$ARGUMENTS", "[TOOL_CALLS]"),
    CallFormat("mistral-id", "[TOOL_CALLS]$NAME[CALL_ID]$ID[ARGS]$ARGUMENTS", "[TOOL_CALLS]"),
    CallFormat("mistral-list", _JSON_CALL, "[TOOL_CALLS]", begin="[TOOL_CALLS][", between=", ", end="]"),
    CallFormat(
        "command", '{"tool_call_id": "$NUMBER", "tool_name": "$NAME", "parameters": $ARGUMENTS}', "<|START_ACTION|>",
        begin="<|START_ACTION|>[\n    ", between=",\n    ", end="\n]<|END_ACTION|>",
    ),
    CallFormat("nemotron", _JSON_CALL, "<TOOLCALL>", begin="<TOOLCALL>[", between=", ", end="]</TOOLCALL>"),
    CallFormat("apriel", _JSON_CALL, "<tool_calls>", begin="<tool_calls>[", between=", ", end="]</tool_calls>"),
    CallFormat("minimax-m1", _JSON_CALL, "<tool_calls>", begin="<tool_calls>\n", between="\n", end="\n</tool_calls>"),
    CallFormat(
        "apertus", '{"$NAME": $ARGUMENTS}', "<|tools_prefix|>",
        begin="<|tools_prefix|>[", between=", ", end="]<|tools_suffix|>",
    ),
    CallFormat(
        "lfm2", "$NAME($ARGUMENTS)", "<|tool_call_start|>",
        begin="<|tool_call_start|>[", between=", ", end="]<|tool_call_end|>", assign="=", hint="of tools: ",
    ),
    CallFormat("granite-3", _JSON_CALL, "<|tool_call|>", begin="<|tool_call|>[", between=", ", end="]",
               hint="<|tool_call|>"),
    CallFormat(
        "gigachat-3", f"<|message_sep|>\n\nfunction call<|role_sep|>\n{_JSON_CALL}",
        "<|message_sep|>\n\nfunction call<|role_sep|>", is_single=True,
    ),
    CallFormat("gigachat", f"<|function_call|>{_JSON_CALL}", "<|function_call|>", is_single=True),
    CallFormat(
        "kimi", "<|tool_call_begin|>functions.$NAME:$NUMBER<|tool_call_argument_begin|>$ARGUMENTS<|tool_call_end|>",
        "<|tool_calls_section_begin|>", begin="<|tool_calls_section_begin|>", end="<|tool_calls_section_end|>",
        given_id="functions.$NAME:$NUMBER",
    ),
    CallFormat(
        "kimi-k3", '<|open|>call tool="$NAME" index="$INDEX"<|sep|>$ARGUMENTS<|close|>call<|sep|>',
        "<|open|>tools<|sep|>", begin="<|open|>tools<|sep|>", end="<|close|>tools<|sep|>",
        parameter='<|open|>argument key="$KEY" type="$TYPE"<|sep|>$VALUE<|close|>argument<|sep|>',
        closing="<|close|>response<|sep|>", final="<|close|>message<|sep|>",
    ),
    CallFormat(
        "deepseek", f"{_DEEPSEEK_CALL}function<｜tool▁sep｜>$NAME\n```json\n$ARGUMENTS\n```<｜tool▁call▁end｜>",
        "<｜tool▁calls▁begin｜>", begin="<｜tool▁calls▁begin｜>", between="\n", end="<｜tool▁calls▁end｜>",
    ),
    CallFormat(
        "deepseek-3.1", f"{_DEEPSEEK_CALL}$NAME<｜tool▁sep｜>$ARGUMENTS<｜tool▁call▁end｜>",
        "<｜tool▁calls▁begin｜>", begin="<｜tool▁calls▁begin｜>", end="<｜tool▁calls▁end｜>",
    ),
    *(
        CallFormat(
            name, f'<{_DSML}invoke name="$NAME">\n$ARGUMENTS</{_DSML}invoke>', f"<{_DSML}{tag}>",
            begin=f"<{_DSML}{tag}>\n", between="\n", end=f"\n</{_DSML}{tag}>",
            parameter=f'<{_DSML}parameter name="$KEY" string="$IS_TEXT">$VALUE</{_DSML}parameter>\n',
        )
        for name, tag in (("deepseek-3.2", "function_calls"), ("deepseek-4", "tool_calls"))
    ),
    CallFormat(
        "solar", "<|tool_call:begin|>$ID<|tool_call:name|>$NAME<|tool_call:args|>$ARGUMENTS<|tool_call:end|>",
        "<|tool_calls|>", begin="<|tool_calls|>", end="<|calls|>",
    ),
    CallFormat(
        "gemma-4", "<|tool_call>call:$NAME{$ARGUMENTS}<tool_call|>", "<|tool_call>", text_mark='<|"|>',
    ),
    HARMONY,
    CallFormat(
        "llama-3", '{"name": "$NAME", "parameters": $ARGUMENTS}', '{"name": "', before="<|python_tag|>",
        only_first=True, is_single=True,
    ),
)  # fmt: skip
