#!/usr/bin/env python3
"""Compares the template engine with Jinja2 on random templates.

    python3 tools/compare_jinja.py build/dev/tests/chat/jinja_lines [--count N] [--seed S]

Needs jinja2 (and transformers, for the exact environment of chat templates when it is
installed). Prints every template on which the two differ: in the text, or in whether it
fails. Messages of errors are not compared.
"""
import argparse
import json
import random
import signal
import subprocess
import sys


def environment():
    from transformers.utils.chat_template_utils import _compile_jinja_template

    return _compile_jinja_template("x").environment


CONTEXT = {
    "s": "Hello, wörld <b>",
    "t": "  a,b,,c\n",
    "e": "",
    "n": 7,
    "m": -3,
    "z": 0,
    "f": 2.5,
    "g": -0.0,
    "yes": True,
    "no": False,
    "nil": None,
    "l": [3, 1, 2],
    "w": ["b", "A", "a", "C"],
    "mixed": [1, "x", None, 2.5, True, [1], {"k": 1}],
    "el": [],
    "d": {"b": 1, "a": "x", "items": 3, "C": None},
    "ed": {},
    "ms": [
        {"role": "user", "content": "hi", "n": 2},
        {"role": "assistant", "content": None, "n": 1},
        {"role": "tool", "n": 3, "deep": {"k": [1, {"z": "q"}]}},
    ],
}
NAMES = list(CONTEXT) + ["missing", "loop"]
STRINGS = ["", "a", "b,c", " x ", "é😀", "l", "role", "user", "%s-%d", "it's", '"', "A\\nb", "\\u200b", "1.5", "12", "0x1f", "a-b c"]
INTS = [0, 1, 2, 3, -1, 7, 10, 100, 9223372036854775807, 12345678901234567890]
FLOATS = ["0.5", "1.0", "2.5", "1e16", "1e-7", "3.14159", "1e22", "100.0"]
ATTRS = ["role", "content", "n", "deep", "items", "keys", "get", "b", "nope", "index", "first", "k"]
FILTERS = [
    "trim", "upper", "lower", "title", "capitalize", "length", "list", "string", "tojson", "first", "last", "join",
    "join(',')", "sort", "unique|list", "reverse|list", "items|list", "dictsort", "int", "float", "abs", "round",
    "default('D')", "default('D',true)", "safe", "e", "replace('a','b')", "replace('l','LL',1)", "indent", "indent(2,true)",
    "map('upper')|list", "map(attribute='role')|list", "map(attribute='deep.k')|list", "select|list", "reject|list",
    "select('string')|list", "reject('none')|list", "selectattr('content')|list", "selectattr('role','equalto','user')|list",
    "rejectattr('n','gt',1)|list", "sort(attribute='n')|map(attribute='n')|list", "tojson(indent=2)", "sum", "min", "max",
    "batch(2)|list", "slice(2)|list", "groupby('role')|list", "round(1)", "round(2,'floor')", "count", "wordcount",
    "center(20)", "truncate(5)", "urlencode", "format(1,2)", "d(1)", "sort(reverse=true)", "int(5)", "float(1.5)", "trim('a')",
    "dictsort(by='value')", "dictsort(reverse=true)", "sort(case_sensitive=true)", "attr('role')", "forceescape", "map('length')|list",
    "map('tojson')|join(', ')", "tojson(sort_keys=true)", "tojson(ensure_ascii=true)", "sum(attribute='n')", "unique(attribute='role')|list",
]
TESTS = [
    "defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "iterable", "sequence",
    "callable", "true", "false", "odd", "even", "divisibleby 2", "divisibleby(3)", "equalto 1", "eq('a')", "ne 2", "gt 1",
    "lt 3", "in [1,2,'a']", "lower", "upper", "sameas none", "escaped", "ge 0", "le 5",
]
METHODS = [
    "upper()", "lower()", "strip()", "lstrip()", "rstrip('lo')", "split()", "split(',')", "split(',', 1)", "rsplit(',', 1)",
    "startswith('H')", "endswith(('b','>'))", "replace('l','')", "find('o')", "count('l')", "title()", "capitalize()",
    "splitlines()", "partition(',')", "rpartition(',')", "join(['x','y'])", "isdigit()", "isalpha()", "isupper()", "islower()",
    "zfill(5)", "center(9,'*')", "ljust(9)", "rjust(9,'-')", "removeprefix('a')", "swapcase()", "format(1, 'x')", "get('a')",
    "get('zz', 3)", "keys()|list", "values()|list", "items()|list", "index(1)", "count(1)", "isspace()", "rfind('l')", "isalnum()",
    "keys()", "items()", "values()", "copy()", "append(1)", "pop()", "update({})", "index('l', 3)", "casefold()", "isnumeric()",
    "format(x=1)", "splitlines(true)", "isascii()", "isdecimal()", "nope()",
]


class Generator:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def pick(self, items):
        return self.r.choice(items)

    def literal(self):
        k = self.r.randrange(6)
        if k == 0:
            return str(self.pick(INTS)) if self.r.random() < 0.9 else "(-5)"
        if k == 1:
            return self.pick(FLOATS)
        if k == 2:
            return self.pick(["true", "false", "none", "True", "None"])
        text = self.pick(STRINGS)
        return '"' + text + '"' if "'" in text else "'" + text + "'"

    def expr(self, depth):
        if depth <= 0:
            return self.pick(NAMES) if self.r.random() < 0.6 else self.literal()
        d = depth - 1
        k = self.r.randrange(18)
        if k < 3:
            return f"{self.expr(d)} {self.pick(['+', '-', '*', '/', '//', '%', '~', '~', '+'])} {self.expr(d)}"
        if k == 3:
            return f"{self.expr(d)} {self.pick(['==', '!=', '<', '<=', '>', '>=', 'in', 'not in'])} {self.expr(d)}"
        if k == 4:
            return f"{self.expr(d)} {self.pick(['and', 'or'])} {self.expr(d)}"
        if k == 5:
            return f"{self.pick(['not ', '-', '+', ''])}{self.expr(d)}"
        if k < 9:
            return f"{self.atom(d)}|{self.pick(FILTERS)}"
        if k == 9:
            return f"{self.atom(d)} is {self.pick(['', 'not '])}{self.pick(TESTS)}"
        if k == 10:
            return f"{self.atom(d)}.{self.pick(ATTRS)}"
        if k == 11:
            return f"{self.atom(d)}[{self.expr(d)}]"
        if k == 12:
            a, b, c = (self.pick(["", "1", "-1", "2", "-2", "0", "9"]) for _ in range(3))
            step = self.pick(["", "", ":2", ":-1", ":" + (c if c != "0" else "1")])
            return f"{self.atom(d)}[{a}:{b}{step}]"
        if k < 15:
            return f"{self.atom(d)}.{self.pick(METHODS)}"
        if k == 15:
            return f"{self.expr(d)} if {self.expr(d)}" + (f" else {self.expr(d)}" if self.r.random() < 0.8 else "")
        if k == 16:
            items = ", ".join(self.expr(d) for _ in range(self.r.randrange(3)))
            return f"[{items}]" if self.r.random() < 0.6 else f"({items},)" if items else "()"
        pairs = ", ".join(f"{self.literal()}: {self.expr(d)}" for _ in range(self.r.randrange(3)))
        return "{" + pairs + "}"

    def atom(self, depth):
        if depth > 0 and self.r.random() < 0.3:
            return "(" + self.expr(depth) + ")"
        return self.pick(NAMES) if self.r.random() < 0.7 else self.literal()

    def space(self):
        return self.pick(["", "", "", " ", "\n", "\n\n", "  \n", "\t", " x ", "\n  "])

    def tag(self, body):
        return f"{{%{self.pick(['', '', '-', '+'])} {body} {self.pick(['', '', '-', '+'])}%}}"

    def statements(self, depth):
        return "".join(self.statement(depth) for _ in range(self.r.randrange(1, 4)))

    def statement(self, depth):
        k = self.r.randrange(12 if depth > 0 else 4)
        s = self.space()
        d = depth - 1
        if k < 3:
            return f"{s}{{{{{self.pick(['', '', '-'])} {self.expr(2)} {self.pick(['', '', '-'])}}}}}{self.space()}"
        if k == 3:
            return s + self.tag(f"set {self.pick(['v', 'n', 'q', 'ns.a'])} = {self.expr(2)}") + self.space()
        if k < 6:
            out = s + self.tag(f"if {self.expr(1)}") + self.statements(d)
            if self.r.random() < 0.4:
                out += self.tag(f"elif {self.expr(1)}") + self.statements(d)
            if self.r.random() < 0.5:
                out += self.tag("else") + self.statements(d)
            return out + self.tag("endif") + self.space()
        if k < 9:
            target = self.pick(["i", "i", "a, b", "n"])
            condition = f" if {self.expr(1)}" if self.r.random() < 0.2 else ""
            out = s + self.tag(f"for {target} in {self.atom(1)}{self.pick(['', '', '|items', '|list', '.items()'])}{condition}")
            out += self.pick(["", "{{ loop.index }}", "{{ loop.last }}", "{{ loop.previtem }}", "{{ loop.length }}", "{{ i }}", "{{ a }}"])
            out += self.statements(d)
            if self.r.random() < 0.15:
                out += self.tag(self.pick(["break", "continue"]))
            if self.r.random() < 0.3:
                out += self.tag("else") + self.statements(d)
            return out + self.tag("endfor") + self.space()
        if k == 9:
            parameters = self.pick(["", "i", "i, a=1", "i=s, a=i"])
            arguments = self.pick(["", self.expr(1), f"{self.expr(1)}, {self.expr(1)}", f"i={self.expr(1)}", f"{self.expr(0)}, a={self.expr(1)}"])
            return s + self.tag(f"macro mac({parameters})") + "{{ i }}" + self.statements(d) + self.tag("endmacro") + f"{{{{ mac({arguments}) }}}}"
        if k == 10:
            return s + self.tag(f"set v{self.pick(['', '|upper', '|trim'])}") + self.statements(d) + self.tag("endset") + "{{ v }}"
        return s + self.pick(["{# c #}", "{#- c -#}", self.tag("raw") + "{{ x }}" + self.tag("endraw"),
                              self.tag("generation") + self.statements(d) + self.tag("endgeneration"),
                              self.tag(f"with q = {self.expr(1)}") + "{{ q }}" + self.tag("endwith"),
                              self.tag("set ns = namespace(a=1)") + "{{ ns.a }}",
                              self.tag("filter upper") + self.statements(d) + self.tag("endfilter")]) + self.space()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=40)
    options = parser.parse_args()
    env = environment()
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError()))
    program = subprocess.Popen([options.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    generator = Generator(options.seed)
    differences = rendered = 0
    for _ in range(options.count):
        if generator.r.random() < 0.5:
            source = "{{ " + generator.expr(generator.r.randrange(1, 4)) + " }}"
        else:
            source = generator.statements(3)
        signal.alarm(5)  # some templates keep Python busy for ever
        try:
            wanted = env.from_string(source).render(**json.loads(json.dumps(CONTEXT)))
            wanted.encode()
            rendered += 1
        except Exception as error:  # any failure of the reference
            wanted = error
        signal.alarm(0)
        program.stdin.write(json.dumps({"template": source, "context": CONTEXT}) + "\n")
        program.stdin.flush()
        answer = json.loads(program.stdout.readline())
        if isinstance(wanted, str) and ("object at 0x" in wanted or "<built-in" in wanted or "<bound" in wanted or "<function" in wanted or "<Macro" in wanted or "TemplateNamespace" in wanted):
            continue  # addresses and names of Python
        if isinstance(wanted, Exception) != isinstance(answer, dict) or (isinstance(wanted, str) and wanted != answer):
            differences += 1
            if differences <= options.show:
                print("template: ", json.dumps(source, ensure_ascii=False))
                print("  jinja2:", repr(wanted))
                print("  forge: ", repr(answer))
    print(f"{options.count} templates, {rendered} of them render, {differences} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
