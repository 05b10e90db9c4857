"""Chat templates that write calls in a format, as short as can be."""

from __future__ import annotations

from engine.tool_calls.call_format import CallFormat

PLACES = {
    "$NAME": "{{ f.name }}", "$ID": "{{ c.id }}", "$NUMBER": "0", "$INDEX": "1", "$KEY": "{{ k }}",
    "$VALUE": "{{ v if v is string else v | tojson }}", "$IS_TEXT": "{{ 'true' if v is string else 'false' }}",
    "$TYPE": "{{ 'string' if v is string else 'number' }}",
}  # fmt: skip
LFM2 = (
    "{% for k, v in f.arguments.items() %}{{ ', ' if not loop.first }}{{ k }}="
    """{{ "'" + v + "'" if v is string else v }}{% endfor %}"""
)


def wrapped(one: str) -> str:
    """Return a template that writes one call by these expressions."""
    return (
        "{{ tools | tojson }}{% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls or [] %}"
        f"{{% set f = c.function %}}{one}{{% endfor %}}\n{{% endfor %}}"
    )


def template_of(one: CallFormat, arguments: str = "f.arguments | tojson") -> str:
    """Return a template that writes one call in this format, with an expression for JSON arguments."""
    each = f"{{% for k, v in f.arguments.items() %}}{one.parameter}{{% endfor %}}"
    text = f"{one.begin}{one.rendered[-1] if one.rendered else one.call}{one.end}"
    text = text.replace("$ARGUMENTS", each if one.parameter else LFM2 if one.assign else f"{{{{ {arguments} }}}}")
    for place, expression in PLACES.items():
        text = text.replace(place, expression)
    return wrapped(text)
