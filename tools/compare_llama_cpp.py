#!/usr/bin/env python3
"""Compare the speed of Forge and llama.cpp on the same GGUF files (standard library only).

Both programs run in turns, the order reversed every round, so that a machine that warms up or is shared treats
them alike. Figures are medians over the rounds; `spread` is the distance between the quickest and slowest round as a
share of the median, of the less steady program. Prints one Markdown table; progress goes to stderr.

  compare_llama_cpp.py --forge build/release/forge --llama-bench ~/llama.cpp/build/bin/llama-bench \\
      -t 8 -p 512 -n 128 --depths 0,4096 --rounds 5 model-q4_0.gguf model-q8_0.gguf

--ik-llama-bench PATH adds ik_llama.cpp's llama-bench, with and without its run-time repacking; its program has no depths.

`forge bench -o json` must print {"results": [...]} or a bare list of objects with
  test       "pp512", "tg128", or with a depth "tg128@d4096"
  tps        tokens per second
  gbps       weight and cache bytes read per second, in 1e9 bytes (decode only)
  limit_pct  gbps as a share of the machine's measured read bandwidth (decode only)
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time


def test_name(prompt, generate, depth):
    """The name both programs' results are filed under."""
    kind = f"pp{prompt}" if prompt else f"tg{generate}"
    return f"{kind}@d{depth}" if depth else kind


def run(command, timeout):
    """Standard output of a command; its standard error is shown when it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        raise SystemExit(f"no result after {timeout} s from: {' '.join(command)}")
    except OSError as error:
        raise SystemExit(f"cannot start {command[0]}: {error.strerror}")
    if done.returncode != 0:
        raise SystemExit(f"exit status {done.returncode} from: {' '.join(command)}\n{done.stderr[-2000:]}")
    return done.stdout


def parse_json(text, command):
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise SystemExit(f"no JSON ({error}) from: {' '.join(command)}\n{text[:500]}")


def run_forge(options, model, depth):
    """{test: {tps, gbps, limit_pct}} of one round."""
    command = [options.forge, "bench", model, "-t", str(options.threads), "-p", str(options.prompt), "-n",
               str(options.generate), "-d", str(depth), "-r", str(options.repetitions), "-o", "json", *options.forge_args]
    output = parse_json(run(command, options.timeout), command)
    rows = output["results"] if isinstance(output, dict) else output
    return {row["test"]: row for row in rows}


def run_llama(options, program, model, settings):
    """{test: {tps}} of one round of a llama-bench."""
    command = [program, "-m", model, "-t", str(options.threads), "-p", str(options.prompt), "-n", str(options.generate),
               "-r", str(options.repetitions), "-o", "json", *settings, *options.llama_args]
    rows = parse_json(run(command, options.timeout), command)
    return {test_name(r["n_prompt"], r["n_gen"], r.get("n_depth", 0)): {"tps": r["avg_ts"]} for r in rows}


def peers(options, depth):
    """{(program's name, settings shown): (path, arguments)} of what Forge is compared with."""
    found = {("llama.cpp", f"fa {flash}"): (options.llama_bench, ["-fa", flash, "-d", str(depth)]) for flash in options.flash}
    if options.ik_llama_bench and depth == 0:
        for repack in "01":
            found["ik_llama.cpp", f"rtr {repack}"] = (options.ik_llama_bench, ["-fa", "1", "-rtr", repack])
    return found


def collect(rounds, test, key):
    """The values of one figure over the rounds, those that are given."""
    return [r[test][key] for r in rounds if test in r and r[test].get(key) is not None]


def median(values):
    return statistics.median(values) if values else None


def spread(values):
    return (max(values) - min(values)) / statistics.median(values) if values else 0.0


def measure(options, model, depth):
    """Rounds of all programs in turns: (forge rounds, {(program, settings): rounds})."""
    forge, others = [], {peer: [] for peer in peers(options, depth)}
    for number in range(options.rounds):
        jobs = [("forge", lambda: forge.append(run_forge(options, model, depth)))]
        for peer, (program, settings) in peers(options, depth).items():
            jobs.append((" ".join(peer), lambda peer=peer, program=program, settings=settings: others[peer].append(
                run_llama(options, program, model, settings))))
        for name, job in jobs if number % 2 == 0 else reversed(jobs):
            start = time.monotonic()
            job()
            where = f"{os.path.basename(model)} depth {depth} round {number + 1}/{options.rounds}"
            print(f"{where}: {name} {time.monotonic() - start:.1f} s", file=sys.stderr)
    return forge, others


def best(others, program, test):
    """(tokens per second of each round, settings) of a program's better settings, by median."""
    return max(((collect(rounds, test, "tps"), settings) for (name, settings), rounds in others.items() if name == program),
               key=lambda pair: median(pair[0]) or 0.0, default=([], ""))


def table_rows(options, model, depth):
    """One row a test. Each program competes with its better settings, chosen by median per test."""
    forge, others = measure(options, model, depth)
    wanted = [test_name(options.prompt, 0, depth)] if options.prompt else []
    wanted += [test_name(0, options.generate, depth)] if options.generate else []
    for test in wanted:
        ours = collect(forge, test, "tps")
        row = {"model": os.path.basename(model), "test": test, "forge_tps": median(ours), "spread": spread(ours),
               "gbps": median(collect(forge, test, "gbps")), "limit_pct": median(collect(forge, test, "limit_pct"))}
        for program in dict.fromkeys(name for name, _ in others):
            theirs, settings = best(others, program, test)
            for name, values in (("forge", ours), (program, theirs)):
                if not values:
                    raise SystemExit(f"{name} reported no result for {test} on {model}")
            row[program] = {"tps": median(theirs), "settings": settings, "ratio": median(ours) / median(theirs)}
            row["spread"] = max(row["spread"], spread(theirs))
        yield row


def number(value, digits, suffix=""):
    return "" if value is None else f"{value:.{digits}f}{suffix}"


def cells(row, programs):
    line = [row["model"], row["test"], number(row["forge_tps"], 2)]
    for program in programs:
        peer = row.get(program)
        line += [f"{peer['tps']:.2f} ({peer['settings']})", number(peer["ratio"], 3)] if peer else ["", ""]
    return line + [number(100 * row["spread"], 0, " %"), number(row["gbps"], 1), number(row["limit_pct"], 0, " %")]


def markdown(rows):
    programs = [name for name in ("llama.cpp", "ik_llama.cpp") if any(name in row for row in rows)]
    head = ["model", "test", "forge t/s"]
    for name in programs:
        head += [f"{name} t/s", "ratio"]
    head += ["spread", "forge GB/s", "of read bandwidth"]
    lines = [head, ["---", "---"] + ["---:"] * (len(head) - 2)] + [cells(row, programs) for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL.gguf")
    parser.add_argument("--forge", required=True, help="the forge program")
    parser.add_argument("--llama-bench", required=True, help="llama.cpp's llama-bench")
    parser.add_argument("--ik-llama-bench", metavar="PATH", help="ik_llama.cpp's llama-bench, for columns of its own")
    parser.add_argument("-t", "--threads", type=int, default=os.cpu_count())
    parser.add_argument("-p", "--prompt", type=int, default=512, help="prompt tokens; 0 leaves the test out")
    parser.add_argument("-n", "--generate", type=int, default=128, help="generated tokens; 0 leaves the test out")
    parser.add_argument("--depths", default="0", help="context already filled, comma separated")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each program")
    parser.add_argument("-r", "--repetitions", type=int, default=1, help="repetitions within one turn")
    parser.add_argument("--flash", default="1,0", help="llama.cpp -fa settings to try; the better one counts")
    parser.add_argument("--forge-args", default="", help="more options for forge bench")
    parser.add_argument("--llama-args", default="", help="more options for every llama-bench")
    parser.add_argument("--timeout", type=int, default=1800, help="seconds one run may take")
    parser.add_argument("--json", metavar="FILE", help="also write the rows as JSON")
    options = parser.parse_args()
    options.forge_args, options.llama_args = options.forge_args.split(), options.llama_args.split()
    options.flash = options.flash.split(",")
    if not options.prompt and not options.generate:
        parser.error("-p 0 and -n 0 together leave nothing to measure")
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    return options


def main():
    options = parse_arguments()
    rows = []
    for model in options.models:
        for depth in map(int, options.depths.split(",")):
            rows += table_rows(options, model, depth)
    print(markdown(rows))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump(rows, out, indent=1)


if __name__ == "__main__":
    main()
