#!/usr/bin/env python3
"""Small templates and what Python's Jinja, set up as transformers does, makes of them.

usage: template_expressions.py FILE [--count N] [--seed N]    writes fuzzed templates with their texts
       template_expressions.py --make                         makes tests/data/templates/expressions.json anew
       template_expressions.py --check                        fails if that file is not what Jinja gives
The test ChatTemplate.EvaluatesAsPython compares with the file. A template that Jinja refuses has the text null.
"""

import argparse
import copy
import json
import random
import warnings
from pathlib import Path

from transformers.utils.chat_template_utils import _compile_jinja_template

FIXTURE = Path(__file__).resolve().parent.parent / "data" / "templates" / "expressions.json"
VARIABLES = {
    "messages": [{"role": "user", "content": "Hello  there", "n": 3}, {"role": "assistant", "content": "né \"x\"\n b", "n": 1},
                 {"role": "user", "content": "", "n": 2, "tags": ["b", "A", "a"]}],
    "d": {"b": 1, "A": [1, 2.5, None], "c": {"x": "y", "z": True}}, "s": " Some text-here, (and) there ", "n": 7, "f": 2.5, "e": [],
    "w": ["pear", "Apple", "fig", "apple"], "none_": None, "t": True,
}
WRITTEN = [
    "{% raw %} {{ x }} {% y %}{% endraw %}.", "a\n  {% raw -%}  \n x {{ y }}\n  {%- endraw %}\nb", "{%- raw %}\n{% endraw %}",
    "{% macro box(a, b='d', c=b) %}<{{ a }}|{{ b }}|{{ c }}>{% endmacro %}{{ box(1) }}{{ box(1, c=3) }}{{ box(a=2, b=5) }}{{ box() }}",
    "{% macro wrap(k) %}[{{ caller(k) }}]{% endmacro %}{% call(x) wrap(3) %}{{ x }}{{ n }}{% endcall %}",
    "{% macro wrap() %}[{{ caller() }}]{% endmacro %}{% for i in w %}{% call wrap() %}{{ i }}{{ loop.index }}{% endcall %}{% endfor %}",
    "{% macro o() %}{{ caller is defined }}{% endmacro %}{% macro p() %}{{ o() }}{{ caller() }}{% endmacro %}{% call p() %}x{% endcall %}",
    "{% filter upper %}a{{ 'b' }}{% endfilter %}{% filter replace('a', 'c') | trim %} aa {% endfilter %}",
    "{% set x | upper | trim %} q {{ n }} {% endset %}[{{ x }}]", "{% with a=1, b=n %}{{ a + b }}{% set n = 3 %}{{ n }}{% endwith %}{{ n }}{{ a }}",
    "{{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 2 ** -1 }} {{ 2.0 ** 3 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % -3 }} {{ 7.5 % 2 }} {{ 1e3 }} {{ 1.5e-3 }}",
    "{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1 != 2 }} {{ 'a' in 'ab' in ['ab'] }} {{ not 1 > 2 }} {{ 3 not in [1] }}",
    "{% for m in messages %}{{ loop.cycle('x', 'y') }}{{ loop.changed(m.role) }}{{ loop.previtem.n if loop.previtem is defined }}{{ loop.nextitem is defined }}{{ loop.depth }}{% endfor %}",
    "{% for m in messages %}{% for k in m %}{{ loop.changed(k) }}{{ loop.revindex0 }}{% endfor %}{% endfor %}",
    r"{{ '\x41\u00e9\U0001F600\101\n\t\d\'' }}{{ 'a\
b' }}", "{{ (1, 2) }} {{ (1,) }} {{ () }} {{ (1, 2) + (3,) }} {{ (1, 2)[::-1] }} {{ [1] * 3 }} {{ 2 * 'ab' }} {{ (1, 2) == [1, 2] }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c = 1, %}{{ c }}{% for a, b in d.items() %}{{ a }}{{ b }}{% endfor %}{% for x in 1, 2 %}{{ x }}{% endfor %}",
    "{{ w | sort }} {{ w | sort(reverse=true) }} {{ w | sort(case_sensitive=true) }} {{ messages | sort(attribute='n') | map(attribute='n') | list }}",
    "{{ w | unique | list }} {{ w | unique(true) | list }} {{ d | dictsort }} {{ {'b': 2, 'a': 3} | dictsort(by='value', reverse=true) }}",
    "{{ s | title }}|{{ s | capitalize }}|{{ s | trim | indent(2) }}|{{ 'a\n\nb\n' | indent(2, true) }}|{{ 'a\n\nb' | indent(width='> ', first=true, blank=true) }}",
    "{{ messages | map(attribute='tags', default='-') | list }} {{ messages | map(attribute='content') | map('length') | list }} {{ [[1, 2], [3]] | map(attribute=0) | list }}",
    "{{ [3, 1, 2] | min }}{{ [3, 1, 2] | max }}{{ messages | sum(attribute='n') }}{{ w | max }}{{ [1, 2.5] | sum }}{{ [1] | sum(start=3) }}",
    "{{ '12' | int }} {{ 'x' | int }} {{ 'x' | int(5) }} {{ '2.7' | int }} {{ 2.7 | int }} {{ '2.5' | float }} {{ 2.5 | round }} {{ 2.567 | round(2) }} {{ 2.1 | round(0, 'ceil') }} {{ 3 | round }} {{ -3 | abs }}",
    "{{ d | tojson }} {{ d | tojson(indent=2) }} {{ d | tojson(separators=(',', ':')) }} {{ {'b': 1, 'a': [[], {}]} | tojson(sort_keys=true) }} {{ [1] | tojson(true, 1) }}",
    "{{ s.split() }} {{ s.split(' ', 2) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ 'a\nb\r\nc\n'.splitlines() }} {{ 'aXbX'.replace('X', '-', 1) }} {{ 'aab'.count('a') }} {{ 'née b'.find('b') }}",
    "{{ '-'.join(w) }} {{ 'abc'.removeprefix('a') }} {{ 'abc'.startswith(('x', 'a')) }} {{ 'ab1'.isalnum() }}{{ '12'.isdigit() }}{{ 'ab'.isalpha() }} {{ d.values() | list }} {{ w.count('fig') }}",
    "{{ 3 is odd }}{{ 4 is even }}{{ 6 is divisibleby 3 }}{{ 6 is divisibleby(4) }}{{ 1 is eq 1 }}{{ 2.5 is float }}{{ 'A' is upper }}{{ range is callable }}{{ x is defined }}{{ 3 is gt 2 }}{{ 1 is in [1] }}",
    "{{ range(5) | list }} {{ range(1, 9, 3) | list }} {{ range(3, 0, -1) | list }} {{ dict(a=1, b='x') }} {{ [1, 2, 3, 4, 5] | batch(2) | list }} {{ [1] | batch(2, 0) | list }}",
    "{{ '<a href=\"x\">' | e }} {{ w | join('/') }} {{ messages | join(',', attribute='n') }} {{ s | replace('there', 'x', 1) }} {{ 'xxaxx' | trim('x') }}",
    "{% set ns = namespace(a=1, b=[]) %}{% for i in range(4) %}{% set ns.a = ns.a * 2 %}{% set ns.b = ns.b + [i] %}{% endfor %}{{ ns.a }}{{ ns.b }}",
    "{% for i in [1, 2, 3] if i != 2 %}{{ i }}{{ loop.length }}{% else %}none{% endfor %}{% for i in e %}{% else %}none{% endfor %}",
    "{{ none_ }} {{ none_ is none }} {{ true and 0 or 'x' }} {{ 'q' if x is defined else 'no' }} {{ not t }} {{ 'a' ~ 1 ~ none ~ 1.0 }} {{ 1 if 0 }}|",
    "{{ e | first }}|{{ w | last }} {{ w[1:] }} {{ w[-2:][0] }} {{ 'abc'[1] }} {{ 'héllo'[::-1] }} {{ d['c']['x'] }} {{ d.c.z }} {{ d['no'] }}|",
    "{{- 'a' -}}  {{ 'b' }}\n{%- if t -%}  c  {%- endif %}\n  {%+ if t %}d{% endif +%}\n{# x #}\n  {#- y -#}  e", "  {% if t %}\n  x\n  {% endif %}\ny\n",
    "{{ messages | selectattr('role', '==', 'user') | list | length }}{{ [1, 2, 3] | select('odd') | list }}{{ [0, 1] | select | list }}{{ messages | rejectattr('tags') | list | length }}{{ [1, 5] | reject('gt', 3) | list }}",
    "{{ w | reverse | list }}{{ d.items() | list }}{{ d | items | list }}{{ d | length }}{{ 'é' | length }}{{ d.get('q', 5) }}{{ d.keys() | list }}{{ 'b' in d }}",
    "{{ 1.0 }} {{ 1e16 }} {{ 1e-5 }} {{ 0.1 + 0.2 }} {{ 10 / 4 }} {{ 4 / 2 }} {{ 1_000 }} {{ 123456789.123 }} {{ -0.0 }} {{ 1e22 }} {{ [1.0, none, true, 'it\\'s', \"q\"] }}",
    "{% set x = 'stra\u00dfe \u01c6 \u0391\u03a3 \u038c\u03a3\u039f\u03a3-\ufb01n (\u01f3x \u0130i' %}{{ x | upper }} {{ x | lower }} {{ x | title }} {{ x | capitalize }} {{ x.title() }} {{ x.swapcase() }} {{ x.lower().title() }}",
    "{{ 'it\\'s the end-of it'.title() }} {{ 'it\\'s (the) end-of it' | title }} {{ '\u00dfa'.capitalize() }} {{ '\u01c4\u01c6'.title() }} {{ ['\u00e9', 'z', '\u00c4', '\u00c9', '\u00e4'] | sort }} {{ ['\u00e9', '\u00c9', '\u00df'] | unique | list }}",
    "{{ '\u00c9\u00c8'.isupper() }}{{ '\u00e91'.islower() }}{{ '\u01c5'.isupper() }}{{ '\u65e5'.isalpha() }}{{ '\u00b2'.isdigit() }}{{ '\u00bd'.isdigit() }}{{ '\u00bd'.isalnum() }}{{ ''.isalpha() }}{{ '\u00c9' is upper }}{{ '\u00c9' is lower }}",
    "{% for i in w %}{% for j in w %}{{ n }}{% endfor %}{% set n = j %}{{ n }}{% endfor %}{{ n }}", "{% for j in e %}{% else %}{{ n }}{% endfor %}{{ n }}{% set n = 1 %}{{ n }}",
    "{% for i in w %}{{ n }}{% set n = i %}{{ n }}{% endfor %}", "{% for i in w %}{% filter upper %}{{ n }}{% endfilter %}{% set n = 0 %}{% endfor %}{{ n }}", "{% for i in e %}{% else %}{% set n = 1 %}{% endfor %}{{ n }}",
    "{% for i in w %}{{ n }}{% endfor %}{% set n = 3 %}{% for i in w %}{{ n }}{% endfor %}", "{% for i in w %}{{ n }}{% endfor %}{% if t %}{% set n = 3 %}{% endif %}{% for i in w %}{{ n }}{% endfor %}",
    "{% macro m() %}{{ n }}{% endmacro %}{{ m() }}{% set n = 2 %}{{ m() }}", "{% macro m() %}{{ n is defined }}{% filter trim %}{{ n }}{% endfilter %}{% set n = 2 %}{{ n }}{% endmacro %}{{ m() }}{{ m() }}",
    "{% with x = n %}{% set q %}{{ s }}{% endset %}{% for j in w %}{{ f }}{% endfor %}{% set s, f = 1, 2 %}{{ s }}{{ q }}{{ f }}{% endwith %}{{ s }}", "{% if n > 3 %}{% for i in w %}{{ f }}{% endfor %}{% set f = n %}{% endif %}{{ f }}",
    "{{ ((0 | lower) | e).split() }} {{ ['<' | e, '<' | safe] }} {{ ('<' | e) + '<' + 1 | string }} {{ '<' + ('<' | e) }} {{ '<' ~ ('<' | safe) }} {{ '<' | e | e }} {{ {'<' | e: 1} }} {{ ('<&' | safe | e)[0] }}",
    "{% set m = '<a> b' | safe %}{{ [m | upper, m | title, m.title(), m | trim, m | replace('a', '<'), m.replace('a', '<'), m | reverse, m[1:], m | indent, m | string, m * 2] }}{{ m + '<' }}{{ ('<' + (d | tojson | safe)) }}",
    "{% set m = 'a<' | safe %}{{ m | list }}{{ [m | first, m | last, m ~ '', m | join, m | tojson, m.join(['<', m]), '-'.join([m]), m | default('x'), m is string, m == 'a<', m.removesuffix('<'), m.splitlines(), m.rsplit('<', 1)] }}",
    "{% for i in w %}{% macro m() %}{{ i }}{{ loop.index }}{{ n }}{% endmacro %}{{ m() }}{% for i in 'ab' %}{{ m() }}{% endfor %}{% set i = 5 %}{{ m() }}{% set n = i %}{{ m() }}{% endfor %}{{ m is defined }}",
    "{% macro a(x) %}{% macro b(y=x) %}{{ x }}{{ y }}{{ n }}{% endmacro %}{{ b() }}{{ b(1) }}{% endmacro %}{{ a(2) }}{% set n = 3 %}{{ a(4) }}",
    "{% macro wrap(k) %}{{ k() }}{{ caller() }}{% endmacro %}{% for i in w %}{% macro m() %}{{ i }}{% endmacro %}{% call wrap(m) %}{{ m() }}{% endcall %}{% endfor %}",
    "{% for i in [3, 2] %}{% macro down(k) %}{{ i }}{{ k }}{% if k > 0 %}{{ down(k - 1) }}{% endif %}{% endmacro %}{{ down(i) }};{% endfor %}",
    "{{ '\\x01\\x7f\u00e9\\r' | tojson }} {{ ['\\x01\\r\\\\'] }} {{ s | upper | lower }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ (1,) >= (1,) }}",
]


class Grammar:
    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.depth = 0

    def pick(self, *choices):
        return self.chance.choice(choices)

    def expression(self):
        self.depth += 1
        kind = self.chance.random() * (1 if self.depth < 4 else 0.45)
        if kind < 0.45:
            text = self.pick("n", "f", "s", "w", "d", "e", "t", "none_", "x", "messages", "messages[0]", "messages[-1].content", "d.A", "d.c.x", "1", "0",
                             "-3", "2.5", "'a'", "'The end'", "'<b>'", "\"it's\"", "[1, 2, 3]", "['b', 'a']", "(1, 'x')", "true", "none", "{'k': 1, 'a': 'v'}", "i", "'\\n x\\t'")
        elif kind < 0.65:
            arguments = self.pick("upper", "lower", "trim", "title", "capitalize", "length", "string", "list", "first", "last", "sort", "unique | list", "reverse | list",
                                  "tojson", "int", "float", "default('q')", "default('q', true)", "join('+')", "join", "indent(1)", "replace('e', 'EE')", "min", "max", "sum",
                                  "abs", "round(1)", "items | list", "dictsort", "map('string') | list", "select | list", "batch(2) | list", "tojson(indent=1)", "e", "e", "safe", "replace('e', '<')")
            text = f"{self.operand()} | {arguments}"
        elif kind < 0.85:
            text = f"{self.operand()} {self.pick('+', '-', '*', '/', '//', '%', '~', '==', '!=', '<', '>=', 'and', 'or', 'in', 'not in', '< 3 <', '**')} {self.operand()}"
        elif kind < 0.9:
            text = f"{self.operand()} if {self.expression()} else {self.operand()}"
        elif kind < 0.95:
            text = f"{self.operand()} is {self.pick('defined', 'none', 'string', 'mapping', 'number', 'not iterable', 'sequence', 'odd', 'true', 'boolean', 'integer', 'not undefined', 'in w')}"
        else:
            text = self.operand() + self.pick("[0]", "[-1]", "[1:]", "[::-1]", ".strip()", ".split()", ".split('e')", ".items() | list", ".get('k')", ".upper()", ".replace('e', '<')", ".join(w)", ".rsplit('e', 1)", ".startswith('a')", ".role", "['n']")
        self.depth -= 1
        return text

    def operand(self):
        text = self.expression()
        return text if text.replace("_", "").isalnum() else f"({text})"

    def block(self, depth=0):
        parts = []
        for _ in range(self.chance.randrange(1, 4)):
            kind = self.chance.random() * (1 if depth < 3 else 0.6)
            o, c = self.pick("{%", "{%-", "{%"), self.pick("%}", "-%}", "%}")
            if kind < 0.25:
                parts.append(self.pick(" ", "\n", "text", "  \n  ", " <|x|> ", "\n\n"))
            elif kind < 0.6:
                parts.append(self.pick("{{ ", "{{- ") + self.expression() + self.pick(" }}", " -}}"))
            elif kind < 0.7:
                parts.append(f"{o} if {self.expression()} {c}{self.block(depth + 1)}{o} else {c}{self.block(depth + 1)}{o} endif {c}")
            elif kind < 0.85:
                inner = self.pick("", "{{ loop.index }}", "{{ i }}", "{% if loop.last %}{% break %}{% endif %}", "{% if loop.first %}{% continue %}{% endif %}", "{{ loop.cycle('p', 'q') }}", "{{ loop.changed(i) }}")
                parts.append(f"{o} for i in {self.operand()} {c}{inner}{self.block(depth + 1)}{o} else {c}no{o} endfor {c}")
            elif kind < 0.93:
                parts.append(f"{o} set {self.pick('x', 'n', 'i')} = {self.expression()} {c}")
            else:
                parts.append(f"{o} filter {self.pick('upper', 'trim', 'indent', 'title')} {c}{self.block(depth + 1)}{o} endfilter {c}")
        return "".join(parts)


class Scopes:
    """Templates that read and set few names in many bodies."""

    def __init__(self, seed):
        self.chance = random.Random(seed)

    def name(self):
        return self.chance.choice(("n", "s", "x", "i", "t"))

    def block(self, depth=0):
        parts = []
        for _ in range(self.chance.randrange(1, 5)):
            kind = self.chance.randrange(15 if depth < 4 else 5)
            inner = self.block(depth + 1) if kind >= 5 else ""
            name = self.name()
            parts.append((
                f"{{{{ {name} }}}};", f"{{{{ {name} }}}};", f"{{% set {name} = '{self.chance.randrange(9)}' %}}", f"{{% set {name} = {self.name()} %}}", f"{{{{ {name} is defined }}}};",
                f"{{% for {self.name()} in 'ab' %}}{inner}{{% endfor %}}", f"{{% for {self.name()} in e %}}{{% else %}}{inner}{{% endfor %}}", f"{{% if {name} %}}{inner}{{% else %}}{self.block(depth + 1) if kind == 7 else ''}{{% endif %}}",
                f"{{% filter trim %}}{inner}{{% endfilter %}}", f"{{% with {name} = {self.name()} %}}{inner}{{% endwith %}}", f"{{% set {name} %}}{inner}{{% endset %}}", f"{{% if {name} %}}x{{% elif t %}}{inner}{{% endif %}}",
                f"{{% macro m() %}}{inner}{{% endmacro %}}{{{{ m() }}}}{{% set {name} = 'm' %}}{{{{ m() }}}}", f"{{% macro m({name}, y={self.name()}) %}}{inner}{{{{ y }}}}{{% endmacro %}}{{{{ m({self.name()}) }}}}",
                f"{{% macro m() %}}{{{{ caller() }}}}{{% endmacro %}}{{% call m() %}}{inner}{{% endcall %}}{{% set {name} = 'c' %}}",
            )[kind])
        return "".join(parts)


def text_of(template):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _compile_jinja_template(template).render(**copy.deepcopy(VARIABLES))  # `indent` of a list changes it
    except Exception:  # whatever Python raises, the template has no text
        return None


def fixture(templates):
    return {"variables": VARIABLES, "cases": [[template, text_of(template)] for template in templates]}


def fuzzed(count, seed):
    grammar, scopes = Grammar(seed), Scopes(seed)
    return [grammar.block() for _ in range(count)] + [scopes.block() for _ in range(count // 2)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--make", action="store_true")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    committed = json.dumps(fixture(WRITTEN + fuzzed(150, 7)), ensure_ascii=False, indent=0) + "\n"
    if arguments.make:
        FIXTURE.write_text(committed)
    elif arguments.check:
        assert FIXTURE.read_text() == committed, "tests/data/templates/expressions.json is out of date: template_expressions.py --make"
    else:
        arguments.file.write_text(json.dumps(fixture(fuzzed(arguments.count, arguments.seed)), ensure_ascii=False))


if __name__ == "__main__":
    main()
