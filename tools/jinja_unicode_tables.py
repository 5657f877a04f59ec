#!/usr/bin/env python3
"""Writes src/chat/jinja/unicode_tables.inc: what Python's str methods know about characters.

Chat templates are written against Python's strings, so the tables are asked of
Python itself (any 3.8 or later; the Unicode version is that interpreter's).

    python3 tools/jinja_unicode_tables.py > src/chat/jinja/unicode_tables.inc
"""
import sys
import unicodedata

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def ranges(predicate):
    """Inclusive ranges of the code points for which predicate holds."""
    out = []
    for c in CODE_POINTS:
        if predicate(chr(c)):
            if out and out[-1][1] == c - 1:
                out[-1][1] = c
            else:
                out.append([c, c])
    return out


def mapping(convert):
    """(first, last, step, delta) runs of one-to-one mappings, and the one-to-many rest."""
    single, many = [], []
    for c in CODE_POINTS:
        t = convert(chr(c))
        if t == chr(c):
            continue
        if len(t) == 1:
            single.append((c, ord(t) - c))
        else:
            many.append((c, [ord(x) for x in t]))
    runs = []
    for c, delta in single:
        if runs:
            first, last, step, d = runs[-1]
            if d == delta and (c - last == step or (first == last and c - last in (1, 2))):
                runs[-1] = (first, c, c - last, d)
                continue
        runs.append((c, c, 1, delta))
    return runs, many


def print_ranges(name, table):
    print(f"constexpr CodeRange {name}[] = {{")
    line = ""
    for first, last in table:
        item = f"{{0x{first:x},0x{last:x}}},"
        if len(line) + len(item) > 104:
            print("    " + line)
            line = ""
        line += item
    print("    " + line + "};")


def print_mapping(name, convert):
    runs, many = mapping(convert)
    print(f"constexpr CaseRun {name}_runs[] = {{")
    line = ""
    for first, last, step, delta in runs:
        item = f"{{0x{first:x},0x{last:x},{step},{delta}}},"
        if len(line) + len(item) > 104:
            print("    " + line)
            line = ""
        line += item
    print("    " + line + "};")
    print(f"constexpr CaseMany {name}_many[] = {{")
    line = ""
    for c, t in many:
        t = t + [0] * (3 - len(t))
        item = f"{{0x{c:x},{{0x{t[0]:x},0x{t[1]:x},0x{t[2]:x}}}}},"
        if len(line) + len(item) > 104:
            print("    " + line)
            line = ""
        line += item
    print("    " + line + "};")


def cased(ch):
    return ch.isupper() or ch.islower() or unicodedata.category(ch) == "Lt"


def case_ignorable(ch):
    # What lower() skips when it looks for a final sigma: found by asking it.
    return ("A" + ch + "\u03a3").lower()[-1] == "\u03c2" and not cased(ch)


print(f"// Written by tools/jinja_unicode_tables.py, Unicode {unicodedata.unidata_version}. Do not edit.")
print_mapping("upper", str.upper)
print_mapping("lower", str.lower)
print_mapping("title", str.title)
print_ranges("alpha", ranges(str.isalpha))
print_ranges("decimal", ranges(str.isdecimal))
print_ranges("digit", ranges(str.isdigit))
print_ranges("numeric", ranges(str.isnumeric))
print_ranges("identifier", ranges(lambda ch: ("a" + ch).isidentifier()))
print_ranges("is_upper", ranges(str.isupper))
print_ranges("is_lower", ranges(str.islower))
print_ranges("is_title", ranges(lambda ch: unicodedata.category(ch) == "Lt"))
print_ranges("ignorable", ranges(case_ignorable))
print_ranges("unprintable", ranges(lambda ch: not ch.isprintable()))
