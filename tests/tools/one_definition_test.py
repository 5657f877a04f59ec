"""No two files define different types of one name in one namespace.

Such types break C++'s one-definition rule without a word from compiler or linker: their constructors, destructors and
templates over them are merged, and which one is kept depends on what was inlined.
"""
import collections
import os
import re
import sys
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
# One of these is compiled for an instruction set, or for a kind of device.
ALTERNATIVES = re.compile(r"(_|/|\b)(avx2|avx512|neon|plain)(?=[_.])")
DEFINITION = re.compile(r"(template\s*<.*>\s*)?\b(?:struct|class|union)\s+(?:\[\[.*?\]\]\s*|alignas\(.*?\)\s*)*([A-Za-z_]\w*)\s*(?:final\s*)?(?::[^:].*)?$", re.S)
NAMESPACE = re.compile(r"\bnamespace\b\s*([\w:]*)\s*$")


def bare(text):
    """Without comments, literals and the preprocessor's lines."""
    text = re.sub(r'R"(\w*)\((?:.|\n)*?\)\1"', '""', text)
    text = re.sub(r'//[^\n]*|/\*(?:.|\n)*?\*/|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'', lambda m: " " if m.group(0)[0] == "/" else '""', text)
    return re.sub(r"(?m)^[ \t]*#(?:[^\n]*\\\n)*[^\n]*$", "", text)


def types_in(text):
    """Qualified names of the types that have linkage beyond the file."""
    text = bare(text)
    stack, begin = [], 0   # a namespace's name, or None for what no type outside can be named in
    for i, c in enumerate(text):
        if c == "{":
            head = text[begin:i].strip()
            space, definition = NAMESPACE.search(head), DEFINITION.search(head)
            if space:
                stack.append(space.group(1) or None)
            else:
                if definition and None not in stack and "(" not in definition.group(0).split(definition.group(2))[0]:
                    yield "::".join(stack + [definition.group(2)])
                stack.append(None)
        elif c == "}" and stack:
            stack.pop()
        if c in "{};":
            begin = i + 1


class OneDefinition(unittest.TestCase):
    def test_names_are_found(self):
        text = 'namespace a::b { struct X { struct Y {}; }; namespace { struct Z {}; } template <class T> class W final : X<T> {}; void f() { struct V {}; } } // struct U {'
        self.assertEqual(list(types_in(text)), ["a::b::X", "a::b::W"])

    def test_each_name_has_one_home(self):
        homes = collections.defaultdict(set)
        for folder, _, files in os.walk(os.path.join(ROOT, "src")):
            if os.path.join("gpu", "text") in folder:   # texts for other compilers
                continue
            for name in files:
                if not name.endswith((".h", ".cpp", ".mm")):
                    continue
                path = os.path.relpath(os.path.join(folder, name), ROOT)
                with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                    for found in types_in(file.read()):
                        homes[found].add(ALTERNATIVES.sub("", path))
        self.assertGreater(len(homes), 300)
        twice = {name: sorted(paths) for name, paths in homes.items() if len(paths) > 1}
        self.assertEqual(twice, {})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
