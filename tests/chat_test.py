"""Chat templates against Jinja, set up as the library transformers does it, and against real templates where there are any."""

import datetime
import itertools
import json
import subprocess

import pytest

jinja2 = pytest.importorskip("jinja2", reason="the package jinja2 is not installed")
import jinja2.ext  # noqa: E402
import jinja2.sandbox  # noqa: E402
from chat_templates import FAMILIES  # noqa: E402
from program import DATA, tool  # noqa: E402

TOOL = tool("text/jinja", "template_tool")
NOW = datetime.datetime(2025, 3, 7, 9, 5, 3)

pytestmark = pytest.mark.skipif(not TOOL.exists(), reason=f"{TOOL} is not built (cmake --build build/release --target tests)")


class Generation(jinja2.ext.Extension):
    """{% generation %}, which marks what the model says and else prints its body."""

    tags = {"generation"}
    spans = []

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("mark"), [], [], body).set_lineno(line)

    def mark(self, caller):
        text = caller()
        self.spans.append(text)
        return text


def refuse(message):
    raise jinja2.exceptions.TemplateError(message)


def environment():
    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    made.filters["tojson"] = lambda x, ensure_ascii=False, indent=None, separators=None, sort_keys=False: json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    made.globals["raise_exception"] = refuse
    made.globals["strftime_now"] = NOW.strftime
    return made


ENVIRONMENT = environment()


def expected(source, variables):
    """The text, or None where Jinja refuses."""
    Generation.spans = []
    try:
        return ENVIRONMENT.from_string(source).render(**variables)
    except (jinja2.exceptions.TemplateError, TypeError, ValueError, KeyError, IndexError, OverflowError, ZeroDivisionError):
        return None


@pytest.fixture(scope="module")
def render():
    with subprocess.Popen([TOOL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8") as process:
        def ask(source, variables):
            now = [NOW.year, NOW.month, NOW.day, NOW.hour, NOW.minute, NOW.second]
            process.stdin.write(json.dumps({"template": source, "variables": variables, "now": now}) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())
        yield ask
        process.stdin.close()


def check(render, source, variables):
    wanted, found = expected(source, variables), render(source, variables)
    if wanted is None:
        assert "error" in found, f"{source!r}: Jinja refuses, we give {found['text']!r}"
    else:
        assert found.get("text") == wanted, f"{source!r}: {found}"
    return found


VARIABLES = {
    "text": "  Hello, wörld! 漢字 😀\n", "word": "abc", "empty": "", "number": 7, "real": 2.5, "yes": True, "no": False,
    "nothing": None, "items": [3, 1, 2], "words": ["b", "A", "c", "a"], "nested": [[1, 2], [3, [4, None]]],
    "dict": {"b": 1, "a": {"x": [1.0, "q\"'\n"]}, "items": "key", "C": None},
    "people": [{"name": "Ann", "age": 30, "tags": ["x"]}, {"name": "bob", "age": 25}, {"name": "Cyd", "age": 30, "tags": []}],
    "floats": [0.1, 1e16, 1e-5, 123456789.125, 1e22, -0.0, 5e-324, 1e15, 0.0001, 100.0],
    "quotes": ["it's", 'say "x"', "both '\"", "tab\tnl\nback\\", "\u00a0\u200b\x7f\x01é"],
}

EXPRESSIONS = [
    # literals and printing
    "1", "-1", "1.5", "1e3", "1_000", "'a' 'b'", "\"x\\n\\t\\u00e9\\x41\\101\"", "true", "True", "none", "None", "[1, 'a', none, 2.0]",
    "(1,)", "()", "(1, 2)", "1, 2", "{'a': 1, 2: [3]}", "{}", "[]", "{'a': {'b': 1}}", "nothing", "missing", "floats", "quotes", "dict",
    "nested", "[missing]", "1 == 1.0", "[1, [2]] == [1, [2]]", "(1,) == [1]", "{'a': 1} == {'a': 1.0}", "true == 1", "missing == other",
    "nothing == missing", "'a' == 'a'", "[yes, no]", "range(3) | list", "range(5, 0, -2) | list", "range(100001) | list",
    # arithmetic
    "1 + 2 * 3", "(1 + 2) * 3", "7 / 2", "7 // 2", "-7 // 2", "7 % 3", "-7 % 3", "7 % -3", "7.5 // 2", "-7.5 % 2", "2 ** 10", "2 ** -1",
    "2 ** 3 ** 2", "-2 ** 2", "1 / 0", "1 % 0", "'a' + 'b'", "'a' + 1", "'ab' * 3", "[1] * 2", "3 * 'x'", "[1] + [2]", "[1] + (2,)", "'a' ~ 1 ~ none",
    "1 + true", "1.0 + 2", "10 / 5", "+5", "-real", "-'a'", "missing + 1", "nothing + 1", "missing ~ 'x'", "0.1 + 0.2", "1e16 + 1",
    # comparison
    "1 < 2 < 3", "1 < 3 < 2", "1 < 2 > 1", "'a' < 'b'", "'Z' < 'a'", "[1, 2] < [1, 3]", "1 < 'a'", "2 in items", "9 not in items", "'b' in dict",
    "'bc' in word", "'' in word", "1 in word", "1 in number", "missing in items", "2 in missing", "not 1", "not missing", "1 and 0", "0 or 'x'", "'' or none",
    "1 if yes", "1 if no", "1 if no else 2", "1 if no else 2 if no else 3", "not yes and no", "not 1 == 2", "nothing is none and 1 == 1",
    # access
    "dict.b", "dict['b']", "dict['items']", "dict.a.x[0]", "dict.missing", "dict.missing.more", "dict['missing']", "dict[missing]",
    "items[0]", "items[-1]", "items[9]", "items['x']", "items.0", "items[1:]", "items[:-1]", "items[::-1]", "items[::2]", "items[5:]", "items[-2:9:1]",
    "items[::0]", "text[2:7]", "text[-3]", "text[::-1]", "text[99]", "word['upper']()", "number.x", "nothing.x", "missing.x", "missing[0]", "missing[1:]", "dict[1:]", "nothing[1:]",
    "items.append(1)", "dict.pop('b')", "dict.update({})", "items.append is defined", "word.nosuch", "dict.keys()", "dict.values() | list", "dict.items() | list",
    "dict.get('b')", "dict.get('z')", "dict.get('z', 5)", "dict.get()", "people[0].name.upper()", "number[0]", "dict[[1]]", "word[1.0]",
    # methods
    "text.strip()", "text.lstrip()", "text.rstrip('\\n')", "'xxaxx'.strip('x')", "'äaä'.strip('ä')", "'a,b,,c'.split(',')", "'a b  c '.split()", "' a b '.split(None, 1)",
    "'a,b,c'.split(',', 1)", "'a,b,c'.rsplit(',', 1)", "' a b c '.rsplit(None, 1)", "''.split()", "''.split(',')", "'a'.split('')", "word.startswith('ab')",
    "word.startswith(('x', 'a'))", "word.endswith('c')", "word.endswith(1)", "'a-b c'.title()", "\"it's\".title()", "'hELLO wORLD'.capitalize()", "'aXbX'.replace('X', 'yy')",
    "'aXbX'.replace('X', 'y', 1)", "'ab'.replace('', '-')", "'äb'.replace('', '-', 1)", "', '.join(words)", "','.join(items)", "word.find('c')", "text.find('漢')", "word.find('z')", "'abcabc'.rfind('b')",
    "'aaa'.count('a')", "'aaa'.count('')", "'a\\nb\\r\\nc'.splitlines()", "'a\\nb'.splitlines(true)", "'{} {}'.format(1, none)", "'{0}{1}{0}'.format('a', 'b')", "'{x}{{}}'.format(x=2)",
    "'{}'.format()", "'abc'.removeprefix('a')", "'abc'.removesuffix('c')", "items.index(1)", "items.index(9)", "items.count(3)", "word.upper(1)",
    # filters
    "text | trim", "'xax' | trim('x')", "missing | trim", "5 | trim", "items | length", "text | length", "dict | length", "missing | length", "5 | length", "nothing | length", "word | count",
    "missing | default('d')", "nothing | default('d')", "nothing | default('d', true)", "'' | d('x', boolean=true)", "missing | d", "items | join(', ')", "words | join", "missing | join", "people | join(', ', attribute='name')",
    "[1, none, 'a'] | join('-')", "word | join('.')", "word | upper", "'ABC' | lower", "'ÄÉЖ漢' | lower", "'hello WORLD' | capitalize", "\"hello-world (foo) it's\" | title", "5 | upper", "items | first", "[] | first", "items | last", "word | last",
    "dict | first", "items | list", "word | list", "dict | list", "missing | list", "5 | list", "people | map(attribute='name') | list", "people | map(attribute='tags', default='-') | list", "words | map('upper') | list",
    "words | map('replace', 'a', 'X') | join", "people | map(attribute='tags.0') | list", "nothing | map('upper') | list", "people | selectattr('tags') | list", "people | selectattr('age', 'equalto', 30) | map(attribute='name') | list",
    "people | rejectattr('age', '==', 30) | list", "people | selectattr('tags', 'defined') | list | length", "people | selectattr('age', '>', 26) | list | length", "items | select('odd') | list", "items | reject('eq', 1) | list",
    "[0, 1, '', 'a'] | select | list", "items | select('nosuch') | list", "word | replace('b', 'X')", "5 | replace('5', 'x')", "'aaa' | replace('a', 'b', 2)", "5 | string", "'5' | int", "'5.7' | int", "'x' | int", "'x' | int(9)", "2.9 | int", "-2.9 | int",
    "nothing | int", "missing | int", "true | int", "' 12 ' | int", "'1e3' | int", "'1.5' | float", "'x' | float", "5 | float", "-5 | abs", "2.5 | round", "3.5 | round", "7 | round", "dict | items | list", "missing | items | list", "5 | items | list",
    "{'b': 1, 'A': 2, 'c': 0} | dictsort", "{'b': 1, 'A': 2} | dictsort(true)", "{'b': 1, 'A': 2} | dictsort(by='value')", "{'b': 1, 'A': 2} | dictsort(reverse=true)", "items | sort", "words | sort", "words | sort(case_sensitive=true)",
    "words | sort(reverse=true)", "people | sort(attribute='age') | map(attribute='name') | list", "[1, 'a'] | sort", "items | reverse | list", "word | reverse", "items | sum", "people | sum(attribute='age')", "items | min", "words | max",
    "['a', 'A', 'b'] | unique | list", "[1, 1.0, 2] | unique | list", "'a\\nb\\n\\nc' | indent", "'a\\nb' | indent(2, true)", "'a\\n\\nb' | indent(2, blank=true)", "'a\\nb' | indent('> ')", "'<a>' | safe", "'<a>' | e", "'<a>' | safe + '<b>'", "'<b>' + ('<a>' | safe)",
    "('<a>' | safe) ~ '<b>'", "['<a>' | safe]", "'<a>' | safe | upper", "['<a> ' | safe | upper | trim]", "['<a>' | safe | title]", "missing is callable", "dict | tojson", "dict | tojson(indent=2)", "dict | tojson(indent=0)", "dict | tojson(sort_keys=true)", "dict | tojson(separators=(',', ':'))", "text | tojson", "text | tojson(ensure_ascii=true)",
    "quotes | tojson", "quotes | tojson(true)", "floats | tojson", "missing | tojson", "[] | tojson(indent=2)", "{} | tojson(indent=2)", "[[], {}] | tojson(indent=2)", "{1: 2, none: 3, true: 4, 1.5: 5} | tojson", "(1, 2) | tojson", "items | tojson(indent='\\t')",
    "items | nosuch", "dict.items() | tojson", "items | map('string') | tojson", "nothing | string | upper", "items | first | string", "-1 | abs", "word | length + 1", "word ~ 1 | string", "(word ~ 1) | length", "people | selectattr('name', 'in', ['Ann']) | list | length",
    # tests
    "missing is defined", "missing is undefined", "nothing is defined", "dict.z is defined", "nothing is none", "nothing is not none", "word is string", "5 is string", "dict is mapping", "items is mapping", "items is iterable", "5 is iterable",
    "word is iterable", "dict is sequence", "missing is iterable", "missing is sequence", "items is sequence", "dict.items() is sequence", "5 is number", "true is number", "2.5 is float", "5 is integer", "true is integer", "true is boolean", "1 is boolean",
    "yes is true", "1 is true", "no is false", "4 is even", "4 is odd", "9 is divisibleby 3", "9 is divisibleby(2)", "5 is eq 5", "5 is equalto(5)", "none is sameas none", "2 is in items", "2 is in(items)", "'a' is lower", "'A' is upper", "'1' is upper",
    "3 is gt 2", "3 is lt(2)", "range is callable", "word is nosuch", "not missing is defined", "missing is not defined or 1", "word is string and number is number", "missing is defined is true", "strftime_now is defined", "raise_exception is defined",
    # functions
    "raise_exception('no')", "strftime_now('%Y-%m-%d %H:%M %b %B %A %j')", "namespace(a=1).a", "namespace({'a': 1}, b=2).b", "namespace(a=1)", "dict(a=1)", "range(2)[1]", "range()", "range(1, 2, 0) | list", "word()", "missing()", "nothing()",
    "namespace(a=1).b", "dict.b()", "{'a': 1}.a", "{'items': 1}.items() | list", "{'x': 1, 'x': 2}", "[1, 2][0]", "'abc'[1]", "(1, 2)[1]", "items[0] if items else 'none'", "(items | length) > 2 and 'many' or 'few'",
]

TEMPLATES = [
    "", "\n", "a\n", "a\n\n", "\r\na\rb\r\n", "  {% if yes %}\n  x\n  {% endif %}\n  y", "a {%- if yes -%} b {%- endif -%} c", "a\n  {%+ if yes %}\nb\n  {%+ endif +%}\nc",
    "  {{ word }}  \n {{- word -}} \n x", "a\n  {# note #}\nb", "a\n  {#- note -#}\n  b", "{# a #}{# b #}x{#\nlong\n#}\ny", "{% raw %}{{ x }}{% if %}{% endraw %}", "a\n  {%- raw -%}\n {{ x }} \n{%- endraw -%}\n b", "  {% raw %}\n x\n  {% endraw %}\n y",
    "{{ '{{' }} {{ '%}' }} {{ {'a': {'b': 1}}['a'] }}", "{{ {'a': {'b': 1}}}}", "{{ \"a\nb\" }}", "{", "{ {", "}}", "%}", "{{ word }", "{{ }}", "{% %}", "{{ (1 }}", "{{ 1) }}", "{# x", "{% if %}{% endif %}", "{% if yes %}", "{% endif %}", "{% else %}",
    "{% if no %}a{% elif nothing %}b{% elif 1 %}c{% else %}d{% endif %}", "{% if no %}a{% else %}d{% endif %}", "{% if missing %}a{% endif %}b",
    "{% for x in items %}{{ x }}{% if not loop.last %},{% endif %}{% endfor %}", "{% for x in [] %}a{% else %}none{% endfor %}", "{% for x in items if x > 1 %}{{ loop.index }}{{ x }}{{ loop.length }} {% endfor %}", "{% for x in items if x > 9 %}a{% else %}b{% endfor %}",
    "{% for k, v in dict.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in dict %}{{ k }}{% endfor %}", "{% for c in 'äb' %}{{ c }}.{% endfor %}", "{% for x in missing %}a{% endfor %}", "{% for x in nothing %}a{% endfor %}", "{% for x in 5 %}a{% endfor %}",
    "{% for a, b in [[1, 2], [3, 4]] %}{{ a + b }} {% endfor %}", "{% for a, b in [[1, 2, 3]] %}{% endfor %}", "{% for (a, b), c in [[[1, 2], 3]] %}{{ a }}{{ b }}{{ c }}{% endfor %}", 
    "{% for x in items %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.depth }} {% endfor %}",
    "{% for x in items %}{% for y in items %}{{ loop.index }}{{ loop.depth }}{% endfor %}{{ loop.index }} {% endfor %}", "{% for x in items %}{% set last = x %}{% endfor %}{{ last }}", "{% set n = 0 %}{% for x in items %}{% set n = n + x %}{{ n }} {% endfor %}{{ n }}",
    "{% set ns = namespace(n=0) %}{% for x in items %}{% set ns.n = ns.n + x %}{% endfor %}{{ ns.n }}", "{% for x in items %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "{% for x in items %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in items %}{% for y in items %}{% break %}{% endfor %}{{ x }}{% endfor %}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a = 1, 2 %}{{ a }}", "{% set x %}a{{ word }}b{% endset %}{{ x }}", "{% set x | upper | trim %} a {% endset %}[{{ x }}]",
    "{% set word.x = 1 %}", "{% set missing.x = 1 %}", "{% set ns = namespace() %}{% set ns.a = 1 %}{{ ns.a }}{{ ns.b }}", "{% if yes %}{% set x = 1 %}{% endif %}{{ x }}", "{% set number = number + 1 %}{{ number }}",
    "{% macro f(a, b=2, c='x' ~ a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }} {{ f(1, 3) }} {{ f(1, c=5) }} {{ f() }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(b=2) }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, a=2) }}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "{% macro f() %}{{ word }}{{ late }}{% endmacro %}{% set late = 5 %}{{ f() }}", "{% for x in items %}{% macro f() %}{{ x }}{% endmacro %}{{ f() }}{% endfor %}", "{% macro f() %}{{ x }}{% endmacro %}{% for x in items %}{{ f() }}{% endfor %}",
    "{% macro f() %} a {% endmacro %}[{{ f() | trim }}]{{ f().strip() }}", "{% macro f(x) -%}\n  {{- x }}\n{%- endmacro %}{{ f('q') }}", "{% filter upper %}a{{ word }}{% endfilter %}", "{% filter replace('a', 'b') | upper %}a{{ word }}{% endfilter %}",
    "{% generation %}a{{ word }}{% endgeneration %}b", "{% nosuch %}", "{{ x | nosuch }}", "{% if no %}{{ x | nosuch }}{% endif %}y", "{% if no %}{{ x is nosuch }}{% endif %}y", "{% for x in items %}{% endfor %}{{ loop is defined }}", "{% for loop in items %}{{ loop }}{% endfor %}" if False else "",
    "{% set x = people | selectattr('age', 'eq', 30) %}{{ x | list | length }}{{ x | list | length }}", "{% set ns = namespace(skip=false) %}{% for x in items if not ns.skip %}{{ x }}{% set ns.skip = true %}{% endfor %}", "{% set ns = namespace(skip=false) %}{% for x in items if not ns.skip %}{{ x }}{{ loop.last }}{% set ns.skip = true %}{% endfor %}",
    "{{ word -}}   \n  x", "a   {{- word }}", "{%- set x = 1 -%}\n\n a", "{% set x = 1 %}\n\n a", "{% set x = 1 -%}\n\n a", "\n  {% set x = 1 %}\n  {{ x }}\n", "{{ 1 }}\n{{ 2 }}\n", "{{ 'a' if missing is defined else 'b' }}", "{{ [1, 2,] }}{{ {'a': 1,} }}{{ (1,) }}",
    "{% for x in items -%}\n  {{ x }}\n{%- endfor %}", "{% for x in items %}\n  {{ x }}\n{% endfor %}", "\t{% if yes %}\t\n x{% endif %}\t\n", "x{% if yes %} y {% endif %}z\n", "{{ items[0:2] | length }}{{ items[1:] == items[1:3] }}", "{{ 'x' * 3 ~ 'y' }}", "{{ words[0] ~ words[-1] }}",
    "{% set m = {'a': [1, {'b': 2}]} %}{{ m.a[1].b }}{{ m['a'][0] }}", "{% set content = text %}{{ content.strip() + '\n' if content else '' }}", "{% if 'a' in dict and dict.a is mapping %}ok{% endif %}", "{{ (items + [9])[-1] }}", "{{ dict.a.x | join('|') }}",
]


# What Jinja takes, or stumbles over, and we refuse: by name, with the line.
REFUSED = {
    "{{ dict.items }}": "cannot be printed", "\n{{ range(3) }}": "line 2", "{{ 5 is sameas 5 }}": "sameas", "{% for x in items recursive %}{% endfor %}": "recursive",
    "{% break %}": "outside of a loop", "{% set ns = namespace() %}{% set ns._x = 1 %}": "underscore", "{% call f() %}{% endcall %}": "'call'", "{% include 'x' %}": "'include'",
    "{% block x %}{% endblock %}": "'block'", "{{ f(*items) }}": "'*'", "{{ word | center(9) }}": "'center'", "{{ word.zfill(5) }}": "'zfill'", "{{ '%s' % word }}": "'%'",
    "{{ 'é' | upper }}": "ASCII", "{{ 'ΑΣ' | lower }}": "sigma", "{{ 9223372036854775807 + 1 }}": "64 bits", "{{ cycler(1) }}": "'cycler'", "{{ text.__class__ }}": "'__class__'",
    "{% set ns = namespace() %}{% set ns.a = ns %}": "namespace", "{{ word | trimm }}": "did you mean 'trim'?", "{% iff yes %}": "did you mean 'if'?",
}


@pytest.mark.parametrize("source", REFUSED)
def test_refused(render, source):
    assert REFUSED[source] in render(source, VARIABLES)["error"]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expression(render, expression):
    check(render, "[{{ " + expression + " }}]", VARIABLES)


@pytest.mark.parametrize("source", list(dict.fromkeys(TEMPLATES)))
def test_template(render, source):
    check(render, source, VARIABLES)


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def system(content):
    return {"role": "system", "content": content}


def call(name, arguments):
    return {"id": "abcdefghi", "type": "function", "function": {"name": name, "arguments": arguments}}


TOOLS = [{"type": "function", "function": {
    "name": "weather", "description": "The weather — today,\nin a <city> & \"more\"", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 3}},
        "required": ["city"]}, "return": {"type": "string"}}}]

CHATS = [
    [user("Hello!")],
    [system("  Be brief.\n"), user(" 2 < 3 & \"x\"? äß 漢字 😀 ")],
    [system("Sys"), user("a"), assistant("b"), user("c"), assistant(" d \n"), user("e")],
    [user("a"), assistant("<think>\nhm\n</think>\n\nb"), user("c"), assistant("d")],
    [user("a"), assistant("b", reasoning_content="because"), user("c"), assistant("d", reasoning_content="why")],
    [user("w?"), assistant("", tool_calls=[call("weather", {"city": "Zürich", "f": 1.5, "n": None, "b": True, "l": [1, 2]})]),
     {"role": "tool", "tool_call_id": "abcdefghi", "content": "{\"t\": 3}"}, assistant("3"), user("thanks")],
    [user("w?"), assistant(None, tool_calls=[call("weather", {"city": "X"}), call("weather", {})]),
     {"role": "tool", "tool_call_id": "abcdefghi", "content": "cold"}, {"role": "tool", "tool_call_id": "abcdefghi", "content": "hot"}],
    [assistant("x"), assistant("y")],
    [{"role": "strange", "content": "x"}],
    [],
]

EXTRAS = [{}, {"enable_thinking": False, "date_string": "1 Jan", "tools_first": False, "controls": {"length": "long"},
               "builtin_tools": ["weather", "code_interpreter"]}]


def chats():
    for chat, tools, prompt, extra in itertools.product(CHATS, [None, TOOLS], [False, True], EXTRAS):
        yield {"messages": chat, "tools": tools, "documents": None, "add_generation_prompt": prompt, "bos_token": "<s>",
               "eos_token": "</s>", **extra}


@pytest.mark.parametrize("family", FAMILIES)
def test_family(render, family):
    rendered = [check(render, FAMILIES[family], variables) for variables in chats()]
    assert sum("text" in one for one in rendered) >= len(rendered) // 10


def test_generation_spans(render):
    source = FAMILIES["smollm3"]
    messages = [user("é"), assistant("ü1"), user("b"), assistant("2")]
    found = check(render, source, {"messages": messages, "add_generation_prompt": True})
    text = found["text"].encode()
    assert [text[begin:end].decode() for begin, end in found["spans"]] == Generation.spans == ["ü1<|im_end|>", "2<|im_end|>"]


def real_templates():
    for path in sorted(DATA.glob("**/tokenizer_config.json")):
        source = json.loads(path.read_text(encoding="utf-8")).get("chat_template")
        if isinstance(source, str):
            yield path.parent.name, source
    for path in sorted(DATA.glob("**/*.jinja")):
        yield path.stem, path.read_text(encoding="utf-8")


def test_real_templates(render):
    templates = list(real_templates())
    if not templates:
        pytest.skip(f"there is no chat template under {DATA}")
    for _, source in templates:
        for variables in chats():
            check(render, source, variables)
