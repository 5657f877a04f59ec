"""compare_llama_cpp.py against two stand-in programs that print known figures."""
import os
import stat
import subprocess
import sys
import tempfile
import unittest

TOOL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/compare_llama_cpp.py")

# Each stand-in appends its name and arguments to a log, and prints figures that change with every call.
FORGE = """
import json, os, sys
log = os.environ["LOG"]
open(log, "a").write("forge " + " ".join(sys.argv[1:]) + "\\n")
turn = sum(line.startswith("forge") for line in open(log))
depth = sys.argv[sys.argv.index("-d") + 1]
mark = "" if depth == "0" else "@d" + depth
rows = [{"test": "pp512" + mark, "tps": 1000.0 * turn},
        {"test": "tg128" + mark, "tps": 100.0 * turn, "gbps": 40.0 + turn, "limit_pct": 90.0}]
print(json.dumps({"results": rows}))
"""
LLAMA = """
import json, os, sys
open(os.environ["LOG"], "a").write("llama " + " ".join(sys.argv[1:]) + "\\n")
value = lambda name: sys.argv[sys.argv.index(name) + 1]
depth, tps = int(value("-d")), 80.0 if value("-fa") == "1" else 50.0
print(json.dumps([{"n_prompt": 512, "n_gen": 0, "n_depth": depth, "avg_ts": tps * 20},
                  {"n_prompt": 0, "n_gen": 128, "n_depth": depth, "avg_ts": tps}]))
"""

# Its run-time repacking is good for prompts and bad for the rest; it knows no depths.
IK = """
import json, os, sys
open(os.environ["LOG"], "a").write("ik " + " ".join(sys.argv[1:]) + "\\n")
repacks = sys.argv[sys.argv.index("-rtr") + 1] == "1"
assert "-d" not in sys.argv
print(json.dumps([{"n_prompt": 512, "n_gen": 0, "avg_ts": 4000.0 if repacks else 3000.0},
                  {"n_prompt": 0, "n_gen": 128, "avg_ts": 100.0 if repacks else 200.0}]))
"""


class CompareTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.log = os.path.join(self.folder.name, "log")
        self.forge = self.program("forge", FORGE)
        self.llama = self.program("llama-bench", LLAMA)

    def program(self, name, body):
        path = os.path.join(self.folder.name, name)
        with open(path, "w", encoding="utf-8") as out:
            out.write(f"#!{sys.executable}\n{body}")
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
        return path

    def compare(self, *options):
        command = [sys.executable, TOOL, "--forge", self.forge, "--llama-bench", self.llama, "-t", "2", *options]
        return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LOG": self.log})

    def calls(self):
        with open(self.log, encoding="utf-8") as log:
            return [line.split()[0] for line in log]

    def test_a_second_program_has_columns_of_its_own(self):
        done = self.compare("--ik-llama-bench", self.program("ik-llama-bench", IK), "--rounds", "1", "--depths", "0,4096", "m.gguf")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines()]
        self.assertEqual(rows[0][3:7], ["llama.cpp t/s", "ratio", "ik_llama.cpp t/s", "ratio"])
        self.assertEqual(rows[2][5:7], ["4000.00 (rtr 1)", "0.250"])
        self.assertEqual(rows[3][5:7], ["200.00 (rtr 0)", "0.500"])
        self.assertEqual([row[5:7] for row in rows[4:]], [["", ""], ["", ""]])   # with a depth
        self.assertEqual(self.calls().count("ik"), 2)

    def test_medians_ratio_and_better_flash_setting(self):
        done = self.compare("--rounds", "3", "dir/m.gguf")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines()]
        self.assertEqual(rows[2][:5], ["m.gguf", "pp512", "2000.00", "1600.00 (fa 1)", "1.250"])
        self.assertEqual(rows[3], ["m.gguf", "tg128", "200.00", "80.00 (fa 1)", "2.500", "100 %", "42.0", "90 %"])

    def test_turns_alternate(self):
        self.compare("--rounds", "2", "--flash", "1", "m.gguf")
        self.assertEqual(self.calls(), ["forge", "llama", "llama", "forge"])

    def test_depths_are_separate_rows(self):
        done = self.compare("--rounds", "1", "--depths", "0,4096", "-p", "0", "m.gguf")
        self.assertEqual([line.split("|")[2].strip() for line in done.stdout.splitlines()[2:]],
                         ["tg128", "tg128@d4096"])

    def test_failure_of_a_program_is_told(self):
        self.forge = self.program("forge", "import sys; sys.exit('no such model')")
        done = self.compare("--rounds", "1", "m.gguf")
        self.assertEqual(done.returncode, 1)
        self.assertIn("exit status 1", done.stderr)
        self.assertIn("no such model", done.stderr)

    def test_missing_result_is_told(self):
        self.forge = self.program("forge", "print('[]')")
        done = self.compare("--rounds", "1", "m.gguf")
        self.assertEqual(done.returncode, 1)
        self.assertIn("forge reported no result for pp512 on m.gguf", done.stderr)


if __name__ == "__main__":
    unittest.main()
