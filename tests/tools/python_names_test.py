#!/usr/bin/env python3
"""No function or class of a Python tool or test is defined twice in one place: the second one would replace the first."""

import ast
import collections
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def twice(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.Module, ast.ClassDef)):
            # A decorator may keep each of several: @check("a") def _(), properties.
            names = [n.name for n in node.body if isinstance(n, (ast.FunctionDef, ast.ClassDef)) and not n.decorator_list]
            yield from (name for name, count in collections.Counter(names).items() if count > 1)


paths = [p for folder in ("tools", "tests") for p in sorted((ROOT / folder).rglob("*.py"))]
paths += [p for p in sorted((ROOT / "tools").iterdir()) if p.is_file() and not p.suffix and p.read_bytes().startswith(b"#!/usr/bin/env python3")]
assert len(paths) > 20, paths
found = [f"{path.relative_to(ROOT)} defines {name} twice" for path in paths for name in twice(path)]
print("\n".join(found))
sys.exit(bool(found))
