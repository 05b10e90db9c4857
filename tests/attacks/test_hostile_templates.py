"""Templates that want all the time, all the memory or a way out: each ends in a ChatTemplateError, and cheaply.

The attacks run one after another in one child process whose address space is capped, so that an attack which does
allocate gigabytes fails here and does not harm the machine; the child reports what each of them cost.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from engine.errors import ChatTemplateError
from engine.text import chat_template
from engine.text.chat_template import SOURCE_LIMIT_CHARS, ChatTemplate

ROOT = Path(__file__).parents[2]
BUFFER_BYTES = 400 << 20  # beyond what the interpreter holds already
DOUBLE = "{% for i in range(64) %}{% set ns.x = STEP %}{% endfor %}{{ ns.x }}"


def doubling(step: str, start: str = "'ab'") -> str:
    return "{% set ns = namespace(x=" + start + ") %}" + DOUBLE.replace("STEP", step)


def search_often(search: str) -> str:
    return "{% set t = 'a' * 4000000 %}{{ (" + search + ") is none }}"


def hoard(value: str) -> str:
    """A template that keeps thousands of values of a few megabytes each."""
    return ("{% set t = 'ab' * 1000000 %}{% set w = '\U0001f600' * 1000000 %}{% set l = range(99999) | list %}"
            "{% set d = {1: 1} %}{% macro keep(n) %}{% for i in range(100) %}{% set x = VALUE %}{% if n %}"
            "{{ keep(n - 1) }}{% endif %}{% endfor %}{% endmacro %}{{ keep(30) }}").replace("VALUE", value)  # fmt: skip


# Two lists that are small when they are made; then each of their items grows.
GROWN = ("{% set c = [] %}{% set d = [] %}{% set b = [c] * 9999 %}{% set e = [d] * 9999 %}"
         "{% set _ = c.append([1] * 9999) or d.append([1] * 9999) %}")  # fmt: skip
LONG_NUMBER = "{% set n = ('f' * 2000000) | int(0, 16) %}"
ATTACKS = {
    # time
    "nested loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "nested filtered loops": "{% for a in range(99999) %}{% for b in range(99999) if false %}{% endfor %}{% endfor %}",
    "loops that break": "{% for a in range(99999) %}{% for b in range(99999) %}{% continue %}{% endfor %}{% endfor %}",
    "macros that fan out": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(90) }}",
    "recursive loop": "{% for a in [1, 2] recursive %}{{ loop([1, 2]) }}{% endfor %}",
    "filters on long text": "{% for a in range(99999) %}{% set x = ('a' * 4000000) | upper | title %}{% endfor %}",
    "searches in long text": "{% set t = 'a' * 4000000 %}{% for a in range(99999) %}{{ 'ab' in t }}{% endfor %}",
    "maps over maps": "{% for a in range(99999) %}{% set x = range(99999) | map('string') | list %}{% endfor %}",
    "equal deep lists": doubling("[ns.x, ns.x]", "[1]").replace("{{ ns.x }}", "{{ ns.x == ns.x }}"),
    "power tower": "{{ 9 ** (9 ** 9) }}",
    "long products": doubling("ns.x * ns.x", "3"),
    "rounding": "{{ 1.5 | round(100000000, 'ceil') }}",
    # recursion
    "endless macro": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "deep brackets": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "deep lists": "{{ " + "[" * 5000 + "]" * 5000 + " }}",
    "long sums": "{{ " + "+".join(["1"] * 20000) + " }}",
    "deep blocks": "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
    "deep loops": "{% for a in [1] %}" * 200 + "{% endfor %}" * 200,
    # memory
    "text times number": "{{ 'a' * 10 ** 10 }}",
    "number times text": "{{ 10 ** 10 * 'a' }}",
    "list times number": "{{ ([1] * 10 ** 9) | length }}",
    "doubling by plus": doubling("ns.x + ns.x"),
    "doubling by tilde": doubling("ns.x ~ ns.x"),
    "doubling by list": doubling("ns.x + ns.x", "[1]"),
    "doubling by join": doubling("[ns.x, ns.x] | join"),
    "doubling by method": doubling("ns.x.join([ns.x, ns.x])"),
    "doubling by replace": doubling("ns.x | replace('a', 'aa')"),
    "squaring by replace": doubling("ns.x.replace('a', ns.x)"),
    "doubling by format": doubling("'%s%s' % (ns.x, ns.x)"),
    "doubling by name": doubling("'%(a)s%(a)s' % {'a': ns.x}"),
    "nested lists": doubling("[ns.x, ns.x]"),
    "nested tuples": doubling("(ns.x, ns.x)"),
    "nested dicts": doubling("{'a': ns.x, 'b': ns.x}"),
    "nested dict calls": doubling("dict(a=ns.x, b=ns.x)"),
    "nested namespaces": doubling("namespace(a=ns.x, b=ns.x)"),
    "nested lists as json": doubling("[ns.x, ns.x]").replace("{{ ns.x }}", "{{ ns.x | tojson }}"),
    "nested namespaces as text": doubling("namespace(a=ns.x, b=ns.x)").replace("{{ ns.x }}", "{{ ns.x | string }}"),
    "captured text": "{% set ns = namespace(x='ab') %}{% for i in range(64) %}"
                     "{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}{% endfor %}{{ ns.x }}",
    "macro text": "{% macro f(x) %}{{ x }}{{ x }}{% endmacro %}" + doubling("f(ns.x)"),
    "call block": "{% macro f() %}{{ caller() }}{{ caller() }}{% endmacro %}"
                  + "{% call f() %}" * 40 + "aaaa" + "{% endcall %}" * 40,
    "plain output": "{% for i in range(99999) %}" + "a" * 1000 + "{% endfor %}",
    "variable output": "{% set t = 'a' * 1000000 %}{% for i in range(99999) %}{{ t }}{% endfor %}",
    "percent width": "{{ '%1000000000d' % 1 }}",
    "percent width with a key": "{{ '%(a)1000000000d' % {'a': 1} }}",
    "percent width with a bracketed key": "{{ '%((a))1000000000d' % {'(a)': 1} }}",
    "many large numbers": "{{ ([10 ** 1000] * 200000) | join }}",
    "percent star": "{{ '%*d' % (1000000000, 1) }}",
    "percent precision": "{{ '%.1000000000f' % 1.0 }}",
    "format width": "{{ '{:>1000000000}'.format(1) }}",
    "format map": "{{ '{a:>1000000000}'.format_map({'a': 1}) }}",
    "format width from an argument": "{{ '{:>{}}'.format(1, 10 ** 9) }}",
    "format precision": "{{ '{:.1000000000f}'.format(1.0) }}",
    "format of a long text often": "{{ ('{0}' * 100000).format('a' * 100000) }}",
    "doubling by str.format": doubling("'{0}{0}'.format(ns.x)"),
    "format of nested lists": doubling("[ns.x, ns.x]").replace("{{ ns.x }}", "{{ '{!r}'.format(ns.x) }}"),
    "doubling by the format filter": doubling("'%s%s' | format(ns.x, ns.x)"),
    "doubling by the format filter's names": doubling("'%(a)s%(a)s' | format(a=ns.x)"),
    "format filter of a star": "{{ '%*d' | format(1000000000, 1) }}",
    "format filter": "{{ '%1000000000d' | format(1) }}",
    "ljust": "{{ 'a'.ljust(10 ** 9) }}",
    "rjust": "{{ 'a'.rjust(10 ** 9) }}",
    "center": "{{ 'a'.center(10 ** 9) }}",
    "center filter": "{{ 'a' | center(1000000000) }}",
    "zfill": "{{ 'a'.zfill(10 ** 9) }}",
    "expandtabs": "{{ ('\\t' * 1000).expandtabs(10 ** 7) }}",
    "translate": "{{ ('a' * 1000000).translate({97: 'a' * 1000000}) }}",
    "range": "{{ range(10 ** 9) | list | length }}",
    "indent": "{{ 'a\\nb' | indent(10 ** 9) }}",
    "indent of many lines": "{{ ('\\n' * 100000) | indent(100000, blank=true) }}",
    "indent by text": "{{ ('\\n' * 100000) | indent('a' * 100000, blank=true) }}",
    "json indent": "{{ [[1]] | tojson(indent=10 ** 9) }}",
    "json separators": "{{ ([1] * 100000) | tojson(separators=('a' * 100000, ':')) }}",
    "json separators by name": "{{ ([1] * 100000) | tojson(**{'separators': ('a' * 100000, ':')}) }}",
    "join by a long separator": "{{ range(100000) | join('a' * 100000) }}",
    "join method with a long separator": "{{ ('a' * 100000).join('b' * 100000) }}",
    "join by name": "{{ range(100000) | join(d='a' * 100000) }}",
    "join of one text often": "{{ (['a' * 100000] * 100000) | join }}",
    "join of a generator": "{{ range(100000) | map('replace', '0', 'a' * 100000) | join }}",
    "replace nothing": "{{ ('a' * 100000) | replace('', 'b' * 100000) }}",
    "replace by name": "{{ ('a' * 100000) | replace(new='b' * 100000, old='a') }}",
    "sum of lists": "{{ range(100000) | map('list') | sum(start=[1]) | length }}",
    "sum of one list often": "{{ ([[1] * 1000] * 100000) | sum(start=[]) | length }}",
    "batch": "{{ [1] | batch(1000000000, 'x') | list }}",
    "slice": "{{ [1] | slice(1000000000) | list }}",
    "wordwrap": "{{ ('a ' * 100000) | wordwrap(1, wrapstring='b' * 100000) }}",
    "urlize": "{{ 'http://a.bc' | urlize(1000000000) }}",
    "lorem ipsum": "{{ lipsum(1000000000) }}",
    "date width": "{{ strftime_now('%1000000000d') }}",
    "date pattern": "{{ strftime_now('%Y' * 1000000) }}",
    "dates": "{% for i in range(99999) %}{% for j in range(99999) %}{{ strftime_now('%c') }}{% endfor %}{% endfor %}",
    "truncate end": "{% for i in range(9999) %}{{ ('a' * 1000) | truncate(10, end='b' * 1000000) }}{% endfor %}",
    # one call that nothing can interrupt: no loop around it, the sandbox must refuse it beforehand
    **{f"search by {name}": search_often(f"t.{name}('a' * 1000000 ~ 'b' ~ 'a' * 1000000)")
       for name in ("rfind", "rindex", "rsplit", "rpartition", "find", "index", "count", "split", "partition",
                    "strip", "lstrip", "rstrip")},
    "search by replace": search_often("t.replace('a' * 1000000 ~ 'b', 'c')"),
    "search by the replace filter": search_often("t | replace('a' * 1000000 ~ 'b', 'c')"),
    "search by the trim filter": search_often("t | trim(('b' * 1000000) ~ 'a')"),
    "search by a keyword": search_often("t.rsplit(sep='a' * 1000000 ~ 'b' ~ 'a' * 1000000)"),
    **{f"long number {sign}": LONG_NUMBER + "{{ n " + sign + " (n // 65536 // 65536 + 1) }}"
       for sign in ("%", "//", "*", "**", "-", "/")},
    "long number by the int filter": LONG_NUMBER + "{{ n | abs }}",
    "long number by a test": LONG_NUMBER + "{{ n is divisibleby(n) }}",
    # keys with equal hashes: each costs as much as there are
    "equal hashes in a dict": "{% set p = 2 ** 61 - 1 %}{% set ns = namespace(x=[]) %}{% for i in range(150) %}"
                              "{% set ns.x = ns.x + [[p * i, 1]] %}{% endfor %}{% for i in range(99999) %}"
                              "{% set d = dict(ns.x) %}{% endfor %}",
    # many values, each small enough
    "slices that add up": hoard("t[i:]"),
    "lists that add up": hoard("[i] * 200000"),
    "slices of lists that add up": hoard("l[i:]"),
    "sets that add up": hoard("l | unique | list"),
    "set differences that add up": hoard("d.keys() - [i]"),
    "texts that add up": hoard("t ~ i"),
    "wide characters that add up": hoard("w[i:]"),
    "splits that add up": hoard("t.split('b')"),
    "macro arguments that add up": "{% macro f() %}{{ f(*varargs) }}{% endmacro %}{{ f(*range(99999)) }}",
    "what a loop keeps of a generator": "{% set t = 'a' * 100000 %}{% for i in range(99999) | map('replace', '0', t) %}"
                                        "{{ loop.length }}{% endfor %}",
    "characters of a text": "{{ ('\u20ac' * 4000000) | list | length }}",
    "words of a text": "{{ ('\u20ac ' * 2000000).split() | length }}",
    "lines of a text": "{{ ('\u20ac\n' * 2000000).splitlines() | length }}",
    # ways out
    "class": "{{ ''.__class__.__mro__ }}",
    "class by item": "{{ ''['__class__']['__mro__'] }}",
    "class by filter": "{{ '' | attr('__class__') }}",
    "class by map": "{{ [''] | map(attribute='__class__') | list }}",
    "globals of a function": "{{ raise_exception.__globals__ }}",
    "globals of a macro": "{% macro f() %}{% endmacro %}{{ f.__init__.__globals__ }}",
    "globals of a method": "{{ namespace.__init__.__globals__['os'] }}",
    "the loop": "{% for i in [1] %}{{ loop.__class__ }}{% endfor %}",
    "frame of a generator": "{{ ([1] | map('string')).gi_frame }}",
    "format field": "{{ '{0.__class__}'.format('') }}",
    "format item and field": "{{ '{0[a].__class__}'.format({'a': 1}) }}",
    "format map field": "{{ '{a.__class__.__mro__}'.format_map({'a': 1}) }}",
    "format field of a function": "{{ '{0.__globals__}'.format(raise_exception) }}",
    "format of marked text": "{{ ('{0.__class__}' | safe).format(1) }}",
    "self": "{{ self.__init__ }}",
    "import": "{% import 'os' as os %}{{ os }}",
    "extends": "{% extends '/etc/passwd' %}",
    "environment": "{{ self._TemplateReference__context.environment }}",
    "mutation": "{{ messages.append(messages) }}",
    "a list in itself": "{% set a = [1] %}{% set _ = a.append(a) %}{{ a }}",
    "lists that double": "{% set a = [1] %}" + "{% set b = [] %}{% set _ = b.append(a) or b.append(a) %}{% set a = b %}"
    * 40 + "{{ a }}",
    "grown lists as text": GROWN + "{{ b is lower }}",
    "grown lists in a list": GROWN + "{{ c + [1] in b }}",
    "grown lists in a loop": GROWN + "{% for a in 'xy' %}{{ loop.changed(b if loop.first else e) }}{% endfor %}",
    "width in a test": "{{ '%1000000000d' is odd }}",
    "views of dicts": "{{ [{'a': 'b' * 1000000}.values()] * 100000 }}",
    **{f"namespaces in {how}": doubling("namespace(a=ns.x, b=ns.x)").replace("{{ ns.x }}", use)
       for how, use in (("a test", "{{ ns.x is upper }}"), ("a refusal", "{{ raise_exception(ns.x) }}"),
                        ("an index", "{{ {}[ns.x].y }}"))},
    "mutation by map": "{{ [messages] | map('append', 1) | list }}",
    "huge source": "a" * (SOURCE_LIMIT_CHARS + 1),
    "source that compiles long": "{{a}}" * (SOURCE_LIMIT_CHARS // 5 - 10) + "{{ raise_exception('end') }}",
}  # fmt: skip

CHILD = """
import json, resource, sys, time
from engine.text import chat_template
from engine.text.chat_template import ChatTemplate
from engine.errors import ChatTemplateError
chat_template.TIME_LIMIT_S = 0.1
ChatTemplate("{{ 1 }}").render([])
held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
room = held + int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_AS, (room, room))
for name, source in json.load(sys.stdin).items():
    begin = time.thread_time()
    try:
        outcome = "rendered: " + ChatTemplate(source).render([{"role": "user", "content": "Hi"}])[:50]
    except ChatTemplateError as error:
        outcome = "refused: " + error.message
    except BaseException as error:
        outcome = "escaped: " + repr(error)[:200]
    print(json.dumps([name, outcome, time.thread_time() - begin]), flush=True)
"""


@pytest.fixture(scope="module")
def outcomes() -> dict[str, tuple[str, float]]:
    if not sys.platform.startswith("linux"):
        pytest.skip("the address space is capped by Linux means; test_memory_stays_small runs everywhere")
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(BUFFER_BYTES)],
        input=json.dumps(ATTACKS),
        capture_output=True,
        text=True,
        timeout=600,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    rows: list[list[Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    return {name: (outcome, seconds) for name, outcome, seconds in rows}


@pytest.mark.parametrize("name", ATTACKS)
def test_every_attack_ends_in_a_sentence(outcomes: dict[str, tuple[str, float]], name: str) -> None:
    outcome, _ = outcomes[name]
    assert outcome.startswith("refused: The model's chat template"), outcome
    assert "more memory than there is" not in outcome, "the operating system stopped it, not the sandbox"


@pytest.mark.parametrize("source", [doubling("ns.x ~ ns.x"), doubling("[ns.x, ns.x]"), "{{ 'a'.center(10 ** 9) }}",
                                    "{{ 'a' * 10 ** 10 }}", doubling("ns.x.replace('a', ns.x)")])  # fmt: skip
def test_memory_stays_small(source: str) -> None:
    ChatTemplate("{{ 1 }}").render([])
    tracemalloc.start()
    try:
        with pytest.raises(ChatTemplateError):
            ChatTemplate(source).render([])
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


def test_an_endless_template_ends_in_any_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "TIME_LIMIT_S", 0.1)
    said: list[str] = []

    def render() -> None:
        try:
            ChatTemplate(ATTACKS["nested loops"]).render([])
        except ChatTemplateError as error:
            said.append(error.message)

    thread = threading.Thread(target=render)
    thread.start()
    thread.join()
    assert said == ["The model's chat template did not end within 0.1 seconds."]


def test_a_template_works_again_after_one_rendering_ran_out_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    template = ChatTemplate("{% if messages %}ok{% else %}" + ATTACKS["nested loops"] + "{% endif %}")
    monkeypatch.setattr(chat_template, "TIME_LIMIT_S", 0.1)
    with pytest.raises(ChatTemplateError, match="did not end"):
        template.render([])
    assert template.render([{"role": "user", "content": ""}]) == "ok"


def test_deep_recursion_is_survived_in_a_thread_with_a_small_stack() -> None:
    said: list[str] = []

    def render() -> None:
        try:
            ChatTemplate(ATTACKS["endless macro"]).render([])
        except ChatTemplateError as error:
            said.append(error.message)

    before = threading.stack_size(1 << 20)
    try:
        thread = threading.Thread(target=render)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert said == ["The model's chat template is nested or calls itself too deeply."]
