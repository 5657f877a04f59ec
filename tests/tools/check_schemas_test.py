#!/usr/bin/env python3
"""tools/check_schemas.py against a suite of two schemas. Usage: check_schemas_test.py GRAMMAR_LINES"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "check_schemas.py"
LINES = sys.argv.pop(1)


def suite(valid):
    """(exit status, output) where 3 is said to be `valid` for a number from 2 on."""
    cases = [
        {"description": "a number", "schema": {"type": "integer", "minimum": 2},
         "tests": [{"description": "3", "data": 3, "valid": valid}, {"description": "1", "data": 1, "valid": False}]},
        {"description": "not compiled", "schema": {"contains": {"type": "integer"}},
         "tests": [{"description": "any", "data": [1], "valid": True}]},
    ]
    with tempfile.TemporaryDirectory() as folder:
        base = pathlib.Path(folder) / "tests" / "draft2020-12"
        base.mkdir(parents=True)
        (base / "mini.json").write_text(json.dumps(cases))
        done = subprocess.run([sys.executable, TOOL, "suite", LINES, folder], capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout + done.stderr


class Suite(unittest.TestCase):
    def test_counts(self):
        status, text = suite(True)
        self.assertEqual(status, 0, text)
        self.assertIn("| all | 1 | 1 | 1 | 0 | 1 | 0 |", text)
        self.assertIn("refused by keyword: contains 1", text)

    def test_an_invalid_instance_that_passes_fails(self):
        status, text = suite(False)
        self.assertNotEqual(status, 0, text)


if __name__ == "__main__":
    unittest.main()
