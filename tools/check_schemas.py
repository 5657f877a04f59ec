#!/usr/bin/env python3
"""Holds Forge's JSON Schema compiler against the JSON-Schema-Test-Suite and against random schemas.

    pip download --no-binary :all: --no-deps jsonschema && tar xzf jsonschema-*.tar.gz
    tools/check_schemas.py suite  BUILD/tests/grammar/grammar_lines jsonschema-*/json
    tools/check_schemas.py random BUILD/tests/grammar/grammar_lines MODEL.gguf --count 1000
    tools/check_schemas.py time   BUILD/tests/grammar/grammar_lines MODEL.gguf

The suite stands in the source distribution of the jsonschema package; `random` needs that package installed.
Each exits with 1 when something that should hold does not.
"""
import argparse
import collections
import itertools
import json
import math
import pathlib
import random
import statistics
import subprocess
import sys

# Files of the suite about what a validator reports or loads, not about what is valid.
LEFT_OUT = {"format.json": "there `format` is a remark; optional/format has the checks"}
MOST_ORDERS = 2000


class Lines:
    def __init__(self, *command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")

    def __call__(self, request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if "failure" in answer:
            raise RuntimeError(answer["failure"])
        return answer


def number(value):
    """Numbers as Forge writes them: whole ones without a point, no exponent where digits do."""
    if isinstance(value, float) and math.isfinite(value):
        if value == int(value):
            return str(int(value))
        text = repr(value)
        if "e" in text:
            text = f"{value:.400f}".rstrip("0")
        return text
    return json.dumps(value)


def orders(value):
    """The compact texts of a value, its members in every order (as many as there is patience for)."""
    if isinstance(value, dict):
        keys = list(itertools.islice(itertools.permutations(value), MOST_ORDERS))
        parts = {k: list(orders(v)) for k, v in value.items()}
        for order in keys:
            for combination in itertools.product(*(parts[k] for k in order)):
                yield "{" + ",".join(json.dumps(k, ensure_ascii=False) + ":" + c for k, c in zip(order, combination)) + "}"
    elif isinstance(value, list):
        for combination in itertools.product(*(list(orders(v)) for v in value)):
            yield "[" + ",".join(combination) + "]"
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield number(value)
    else:
        yield json.dumps(value, ensure_ascii=False)


def texts(value):
    return list(itertools.islice(orders(value), MOST_ORDERS))


def suite(options):
    ask = Lines(options.lines)
    base = pathlib.Path(options.suite) / "tests" / "draft2020-12"
    files = sorted(base.glob("*.json")) + sorted((base / "optional" / "format").glob("*.json")) + sorted((base / "optional").glob("*.json"))
    total = collections.Counter()
    refused = collections.Counter()
    rows = []
    wrong = []
    for file in files:
        name = str(file.relative_to(base))
        if name in LEFT_OUT:
            continue
        row = collections.Counter()
        for case in json.loads(file.read_text(encoding="utf-8")):
            flat = [(test, texts(test["data"])) for test in case["tests"]]
            request = {"schema": case["schema"], "open": not options.closed, "texts": [t for _, ts in flat for t in ts]}
            try:
                answer = ask(request)
            except UnicodeEncodeError:
                row["unreadable"] += 1
                continue
            if "error" in answer:
                row["refused"] += 1
                words = answer["error"]
                keyword = words.split("keyword ", 1)[1].split()[0].rstrip(":") if "keyword " in words else words
                if words != "no value fits the schema":
                    refused[keyword] += 1
                if "keyword " not in words and words != "no value fits the schema":
                    wrong.append((name, case["description"], "refused without a keyword", words))
                if words == "no value fits the schema":
                    row["refused"] -= 1
                    row["accepted"] += 1
                    for test, _ in flat:
                        row["valid refused" if test["valid"] else "invalid refused"] += 1
                        if test["valid"]:
                            wrong.append((name, case["description"], test["description"], "valid, but " + words))
                continue
            row["accepted"] += 1
            verdicts = iter(answer["accepted"])
            for test, ts in flat:
                passed = any([next(verdicts) for _ in ts])
                kind = ("valid " if test["valid"] else "invalid ") + ("passed" if passed else "refused")
                row[kind] += 1
                if passed != test["valid"]:
                    wrong.append((name, case["description"], test["description"], kind + ": " + ts[0][:150]))
        rows.append((name, row))
        total.update(row)
    columns = ["accepted", "refused", "valid passed", "valid refused", "invalid refused", "invalid passed"]
    print("| file | schemas accepted | schemas refused | valid passed | valid refused | invalid refused | invalid passed |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name, row in rows + [("all", total)]:
        print("| " + " | ".join([name] + [str(row[c]) for c in columns]) + " |")
    print("\nrefused by keyword:", ", ".join(f"{k} {n}" for k, n in refused.most_common()))
    for w in wrong:
        print("DIFFERS", *w, sep=" | ")
    return 1 if total["invalid passed"] else 0


def random_schema(r, depth=0, definitions=()):
    def sub():
        return random_schema(r, depth + 1, definitions)

    kinds = ["string", "string", "pattern", "format", "integer", "number", "boolean", "null", "enum", "const", "multiple"]
    if depth < 4:
        kinds += ["object"] * 5 + ["array"] * 3 + ["tuple", "any_of", "one_of", "all_of", "types", "map", "map"]
    if definitions:
        kinds += ["ref"]
    kind = "object" if depth == 0 and r.random() < 0.7 else r.choice(kinds)
    if kind == "string":
        low = r.randrange(0, 5)
        return {"type": "string", **({"minLength": low} if r.random() < 0.5 else {}), **({"maxLength": low + r.randrange(0, 30)} if r.random() < 0.6 else {})}
    if kind == "pattern":
        return {"type": "string", "pattern": r.choice(["^[a-z]+$", "^\\d{3}-\\d{4}$", "^(foo|bar)+$", "x", "^[^a-c]{2,5}$", "^\\w+@\\w+\\.com$", "^[\\u00e0-\\u00ff]{1,3}$"])}
    if kind == "format":
        return {"type": "string", "format": r.choice(["date", "date-time", "uuid", "ipv4", "ipv6", "email", "time", "hostname", "duration", "uri"])}
    if kind in ("integer", "number"):
        low = r.randrange(-1000, 1000) if kind == "integer" else round(r.uniform(-100, 100), r.randrange(0, 3))
        out = {"type": kind}
        if r.random() < 0.6:
            out[r.choice(["minimum", "exclusiveMinimum"])] = low
        if r.random() < 0.6:
            out[r.choice(["maximum", "exclusiveMaximum"])] = low + r.randrange(2, 3000)
        return out
    if kind == "multiple":
        return {"type": r.choice(["integer", "number"]), "multipleOf": r.choice([1, 2, 5, 7, 12])}
    if kind in ("boolean", "null"):
        return {"type": kind}
    if kind == "enum":
        return {"enum": r.sample(["a", "bc", "bcd", 1, 2.5, None, True, {"k": [1, "x"]}, ["y"], "ü\n\"q\""], r.randrange(1, 5))}
    if kind == "const":
        return {"const": r.choice(["tag", 3, -1.5, False, {"a": {}}])}
    if kind == "types":
        return {"type": r.sample(["string", "integer", "boolean", "null", "array", "object"], 2), "maxLength": 9, "maximum": 50, "maxItems": 2}
    if kind == "array":
        low = r.randrange(0, 3)
        return {"type": "array", "items": sub(), "minItems": low, "maxItems": low + r.randrange(0, 4)}
    if kind == "tuple":
        return {"type": "array", "prefixItems": [sub() for _ in range(r.randrange(1, 4))], "items": r.choice([False, {"type": "null"}])}
    if kind == "object":
        names = r.sample(["id", "name", "tags", "näme", "a b", "x\"y", "value", "left", "right", "items"], r.randrange(0, 6))
        out = {"type": "object", "properties": {n: sub() for n in names}, "required": [n for n in names if r.random() < 0.6]}
        if r.random() < 0.6:
            out["additionalProperties"] = r.choice([False, False, {"type": "integer"}])
        return out
    if kind == "map":
        return {"type": "object", "patternProperties": {"^[a-z]{1,4}$": sub()}, "additionalProperties": False} if r.random() < 0.5 else {"type": "object", "additionalProperties": sub(), "propertyNames": {"pattern": "^k"}, "maxProperties": 3}
    if kind == "any_of":
        return {"anyOf": [sub() for _ in range(r.randrange(1, 4))]}
    if kind == "one_of":
        return {"oneOf": [{"type": "object", "properties": {"kind": {"const": k}, "v": sub()}, "required": ["kind"], "additionalProperties": False} for k in r.sample("abcd", 2)]}
    if kind == "all_of":
        return {"allOf": [{"type": "object", "properties": {"p": sub()}, "required": ["p"]}, {"properties": {"q": sub()}}]}
    return {"$ref": "#/$defs/" + r.choice(definitions)}


def random_document(r):
    if r.random() < 0.3:
        tree = {"type": "object", "properties": {"value": {"type": "integer"}, "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2}}, "required": ["value"]}
        out = random_schema(r, 0, ("tree",))
        return {**out, "$defs": {"tree": tree}}
    return random_schema(r)


def random_check(options):
    import jsonschema

    ask = Lines(options.lines, options.model)
    r = random.Random(options.seed)
    done = bad = refused = tries = 0
    refusals = collections.Counter()
    while done < options.count:
        tries += 1
        schema = random_document(r)
        jsonschema.Draft202012Validator.check_schema(schema)
        validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
        answer = ask({"schema": schema, "random": 1, "seed": tries})
        if "error" in answer:
            refused += 1
            refusals[answer["error"][:80]] += 1
            continue
        done += 1
        for text in answer["texts"]:
            try:
                error = next(validator.iter_errors(json.loads(text)), None)
            except ValueError as e:
                error = e
            if error is not None:
                bad += 1
                print("INVALID", json.dumps(schema), text[:500], str(error)[:300], sep="\n  ")
    print(f"{done} random answers under {tries} random schemas ({refused} refused): {bad} are not valid")
    for why, n in refusals.most_common(8):
        print(f"  refused {n}: {why}")
    return 1 if bad else 0


def array_of_strings(**text):
    return {"type": "array", "items": {"type": "string"} | text, "minItems": 5, "maxItems": 30}


def hundred_properties():
    kinds = [{"type": "string"}, {"type": "string", "maxLength": 40}, {"type": "integer", "minimum": 0, "maximum": 100000}, {"type": "number"}, {"type": "boolean"},
             {"enum": ["red", "green", "blue"]}, {"type": "array", "items": {"type": "string"}}, {"type": ["string", "null"], "format": "date"},
             {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": "number"}}, "required": ["x", "y"], "additionalProperties": False}, {"type": "string", "pattern": "^[A-Z]{2}\\d{4}$"}]
    return {"type": "object", "properties": {f"property_{i:03}": kinds[i % 10] for i in range(100)}, "required": [f"property_{i:03}" for i in range(0, 100, 2)], "additionalProperties": False}


TIMED = {
    "any object": {"type": "object"},
    "a person": {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "email": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}}, "required": ["name", "age"]},
    "bounded texts": {"type": "array", "items": {"type": "string", "minLength": 5, "maxLength": 60}, "minItems": 5, "maxItems": 30},
    "patterns": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]+(-[a-z0-9]+)*$"}, "minItems": 5, "maxItems": 30},
    "a tree": {"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {"v": {"type": "string"}, "c": {"type": "array", "items": {"$ref": "#/$defs/n"}}}, "required": ["v", "c"], "additionalProperties": False}}},
    "100 properties": hundred_properties(),
    "lines": array_of_strings(pattern="^[^\\n]*$"),
    "lines of at most 200": array_of_strings(pattern="^[^\\n]*$", maxLength=200),
    "lines of 100 to 200": array_of_strings(pattern="^[^\\n]*$", minLength=100, maxLength=200),
    "lines of at most 20": array_of_strings(pattern="^[^\\n]*$", maxLength=20),
    "^.{0,200}$": array_of_strings(pattern="^.{0,200}$"),
    "a digit in at most 200": array_of_strings(pattern="[0-9]", maxLength=200),
}
GRAMMARS = {
    "GBNF, [^\"\\n]{0,200}": 'root ::= ("\\"" [^"\\n]{0,200} "\\"" ","?){5,30}',
    "GBNF, char{0,200}": 'root ::= "[" ("\\"" char{0,200} "\\"" ","?){5,30} "]"\nchar ::= [^"\\\\\\x00-\\x1f] | "\\\\" ["\\\\/bfnrt]',
}


# In the notation of calls in which strings are between two special tokens, where the vocabulary has this one.
QUOTE = "<|im_start|>"
QUOTED = {"bounded texts between special tokens": TIMED["bounded texts"], "lines of at most 200 between special tokens": TIMED["lines of at most 200"]}


def time(options):
    ask = Lines(options.lines, options.model)
    print("| schema | compile ms | states | masks | median us | mean us | 99 % us | largest us |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    failed = 0
    requests = {name: {"schema": schema} for name, schema in TIMED.items()}
    requests |= {name: {"schema": schema, "quote": QUOTE} for name, schema in QUOTED.items()}
    requests |= {name: {"grammar": grammar} for name, grammar in GRAMMARS.items()}
    for name, request in requests.items():
        compile_ms = statistics.median(ask(request | {"texts": []})["compile_ms"] for _ in range(9))
        answer = ask(request | {"time": 20})
        us = sorted(answer["mask_us"])
        median = statistics.median(us)
        failed += median > 200 or compile_ms > 50
        print(f"| {name} | {compile_ms:.2f} | {answer['nodes']} | {len(us)} | {median:.1f} | {statistics.mean(us):.1f} | {us[int(len(us) * 0.99)]:.0f} | {us[-1]:.0f} |")
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("suite", "random", "time"):
        c = commands.add_parser(name)
        c.add_argument("lines", help="the program grammar_lines of the tests")
        c.add_argument("suite" if name == "suite" else "model")
        if name == "suite":
            c.add_argument("--closed", action="store_true", help="as served: an object with properties has no others unless additionalProperties says so")
        if name == "random":
            c.add_argument("--count", type=int, default=1000)
            c.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    sys.exit({"suite": suite, "random": random_check, "time": time}[options.command](options))


if __name__ == "__main__":
    main()
