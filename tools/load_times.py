#!/usr/bin/env python3
"""Times from the start of a process to its first token, with the model's pages in memory and not.

For each model: a plain sequential read of its files after their pages were dropped, the program after they
were dropped, and the program with the pages in memory, in turns; the largest anonymous memory of the process;
medians. Every other file of the machine stays cached. Linux only (posix_fadvise, /proc).

Example:
  tools/load_times.py --forge build/release/bin/forge -t 2 model.gguf folder/ name:tag
"""
import argparse
import os
import pathlib
import select
import statistics
import subprocess
import sys
import time

BLOCK = 1 << 22


def files_of(forge: str, model: str) -> list[pathlib.Path]:
    """The files that hold the weights of a path, or of a model in the store."""
    path = pathlib.Path(model)
    if path.is_file():
        return [path]
    if path.is_dir():
        return sorted(path.glob("*.safetensors"))
    digests = [words[-1] for line in subprocess.run([forge, "show", model, "--blobs"], check=True, capture_output=True,
                                                    text=True).stdout.splitlines()
               if (words := line.split()) and words[0] == "shard"]
    store = pathlib.Path(os.environ["FORGE_HOME"])  # the platform's folder is the program's own business
    found = {file.name: file for file in store.rglob("*") if file.name in digests}
    return [found[digest] for digest in digests]


def drop(files: list[pathlib.Path]) -> None:
    for file in files:
        with open(file, "rb") as f:
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_all(files: list[pathlib.Path]) -> float:
    buffer = bytearray(BLOCK)
    start = time.perf_counter()
    for file in files:
        with open(file, "rb", buffering=0) as f:
            while f.readinto(buffer):
                pass
    return time.perf_counter() - start


def first_token(command: list[str]) -> tuple[float, int]:
    """Seconds from the start of the process to the first byte of its answer; the most anonymous memory, in bytes."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    most, seconds = 0, 0.0
    while not seconds:
        if select.select([process.stdout], [], [], 0.002)[0]:
            seconds = time.perf_counter() - start
        most = max(most, anonymous_memory(process.pid))
    errors = process.communicate()[1]
    if process.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{errors.decode()}")
    return seconds, most


def anonymous_memory(pid: int) -> int:
    try:
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forge", default="forge")
    parser.add_argument("-t", "--threads", default="2")
    parser.add_argument("--ctx", default="256", help="tokens of context to reserve memory for")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("models", nargs="+", help="files, folders or names in the store (of FORGE_HOME)")
    args = parser.parse_args()

    print("| model | GB | warm s | private MB | cold s | plain read, cold s | cold / plain |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for model in args.models:
        files = files_of(args.forge, model)
        command = [args.forge, "run", model, "--raw", "-n", "1", "-t", args.threads, "--ctx", args.ctx, "-q",
                   "one two three four"]
        plain, cold, warm, memory = [], [], [], []
        for turn in range(args.rounds):
            for what in ("plain", "cold") if turn % 2 == 0 else ("cold", "plain"):
                drop(files)
                if what == "plain":
                    plain.append(read_all(files))
                else:
                    cold.append(first_token(command)[0])
            read_all(files)
            seconds, most = first_token(command)
            warm.append(seconds)
            memory.append(most)
        size = sum(file.stat().st_size for file in files)
        mid = statistics.median
        ratio = mid(c / p for c, p in zip(cold, plain))
        print(f"| {pathlib.Path(model).name} | {size / 1e9:.2f} | {mid(warm):.3f} | {max(memory) / 1e6:.0f} "
              f"| {mid(cold):.2f} | {mid(plain):.2f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
