#!/usr/bin/env python3
"""Make the tiny random models under tests/data and what transformers computes for them.

Needs: pip install torch transformers accelerate gguf safetensors numpy.

  make_fixtures.py -o tests/data                   all of them, in the folders models, models-mixed and models-mlx
  make_fixtures.py -o DIR --only 'qwen3-*'         some of them
  make_fixtures.py --list

Each folder holds the checkpoint (config.json and safetensors, or model.gguf), reference.jsonl (float32; docs/references.md),
logits.f32 (every logit of the forced record: little-endian float32, [positions, vocabulary]) and, for some, reference.bf16.jsonl
or reference.f16.jsonl. Seeds are searched so that greedy text is varied and no step is a near-tie. Converted GGUF files need
llama.cpp's source (--llama-cpp), MLX folders a Python that has mlx-lm (--mlx-python); what is absent is left out.
"""
import argparse
import dataclasses
import fnmatch
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import make_reference
from fixturelib import catalogue, catalogue_gguf, catalogue_mixed, catalogue_mlx, checkpoint, gguf_file, weights

GREEDY_PROMPTS = (21, 37)  # ids; longer than every sliding window of the catalogue
FORCED = 80  # ids
NEW = 48
TOP = 4  # candidates per position: logits.f32 has the rest
MIN_DISTINCT = 10  # different tokens in a greedy continuation
MIN_MARGIN = 4e-3  # first minus second logit at every greedy step
MAX_NOISE = 1e-5  # of the largest logit, float32 from float64
MIN_EFFECT = 0.02  # of the largest logit, by every `sensitive` change
SUFFIX = {"float32": "", "bfloat16": ".bf16", "float16": ".f16"}


LLAMA_CPP = []  # the folder given on the command line
MLX_PYTHON = []  # likewise
SOURCES = []  # a folder that keeps the checkpoints of MLX folders
MAX_READING = 2e-3  # of the largest logit, mlx-lm from transformers on the unquantised checkpoint: it read the config rightly
GROUPS = {  # folder: fixtures
    "models": catalogue.all_fixtures() + list(catalogue_gguf.gguf_files()),
    "models-mixed": catalogue_mixed.all_fixtures(),
    "models-mlx": catalogue_mlx.all_fixtures(),
}


class Unsuitable(Exception):
    """This seed makes a model that is a poor test; try the next."""


def saved_shapes(config):
    """{name: shape} that the family's class writes for a config."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoint.write_config(folder, config)
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.float32)
        model.save_pretrained(folder)
        with safe_open(os.path.join(folder, "model.safetensors"), "pt") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}


def load(folder, dtype):
    model, info = AutoModelForCausalLM.from_pretrained(
        folder, dtype=getattr(torch, dtype), attn_implementation="eager",
        experts_implementation="eager", output_loading_info=True)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if info[kind]:
            raise RuntimeError(f"{folder}: transformers reports {kind} {sorted(info[kind])[:4]}")
    return model.eval()


def write_model(folder, fixture, seed, shapes):
    """Write the checkpoint; returns the folder that transformers reads (another one for a GGUF)."""
    state = weights.random_state(shapes, seed, fixture.zero_centred)
    if isinstance(fixture.gguf, catalogue_mixed.Converted):
        return convert(folder, fixture, state)
    if fixture.gguf:
        exact = gguf_file.write(folder, fixture, state, seed)
        plain = os.path.join(folder, "plain")
        checkpoint.write_config(plain, fixture.config)
        checkpoint.write_tensors(plain, checkpoint.to_torch(exact, "f32"), 1)
        return plain
    if fixture.transform:
        state = fixture.transform(state)
    checkpoint.write_config(folder, fixture.config)
    checkpoint.write_tensors(folder, checkpoint.to_torch(state, fixture.storage), fixture.shards)
    return folder


def convert(folder, fixture, state):
    """model.gguf by llama.cpp's converter from a checkpoint whose values its type holds exactly."""
    plain = os.path.join(folder, "plain")
    checkpoint.write_config(plain, fixture.config)
    checkpoint.write_tensors(plain, checkpoint.to_torch(state, fixture.storage), 1)
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fixturelib", "convert.py")
    command = [sys.executable, script, LLAMA_CPP[0], plain, os.path.join(folder, "model.gguf"), fixture.gguf.type]
    done = subprocess.run([*command, *fixture.gguf.options], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{fixture.name}: the converter failed\n{done.stderr[-2000:]}")
    return plain


def prompts(vocab, seed):
    rng = np.random.default_rng([seed, 77])
    greedy = [rng.integers(3, vocab, n).tolist() for n in GREEDY_PROMPTS]
    return greedy, rng.integers(3, vocab, FORCED).tolist()


def judge(model, record):
    """Refuse dull or near-tied continuations; check the cached steps against one uncached pass."""
    if len(set(record["tokens"])) < MIN_DISTINCT:
        raise Unsuitable(f"only {len(set(record['tokens']))} different tokens")
    margin = min(top[0][1] - top[1][1] for top in record["top"])
    if margin < MIN_MARGIN:
        raise Unsuitable(f"margin {margin:.5f}")
    whole = make_reference.forced_logits(model, record["ids"] + record["tokens"])
    again = whole[len(record["ids"]) - 1 : -1].argmax(-1).tolist()
    if again != record["tokens"]:
        raise RuntimeError("greedy tokens with the cache differ from one pass without it")


def records_of(model, vocab, seed):
    greedy, forced = prompts(vocab, seed)
    records = [make_reference.greedy_record(model, ids, NEW, top=TOP) for ids in greedy]
    logits = make_reference.forced_logits(model, forced)
    return records, logits, make_reference.forced_record(logits, forced, top=TOP)


def check_sensitivity(fixture, source, logits, ids):
    """Every change of `sensitive` must show; returns the smallest effect as a share of the largest logit."""
    effects = []
    for change in fixture.sensitive:
        config = {**fixture.config, **change}
        with tempfile.TemporaryDirectory() as folder:
            checkpoint.write_config(folder, {k: v for k, v in config.items() if v is not catalogue.DROP})
            for file in os.listdir(source):
                if file.startswith("model"):
                    os.symlink(os.path.join(os.path.abspath(source), file), os.path.join(folder, file))
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                         experts_implementation="eager")
            other = make_reference.forced_logits(model.eval(), ids)
        effects.append(float((other - logits).abs().max() / logits.abs().max()))
        if effects[-1] < MIN_EFFECT:
            raise Unsuitable(f"changing {change} moves the logits by only {effects[-1]:.4f}")
    return min(effects, default=None)


def noise(source, logits, ids):
    """Rounding noise of the float32 run: its distance from a float64 run, as a share of the largest logit."""
    exact = load(source, "float64")(torch.tensor([ids]), use_cache=False).logits[0]
    return float((exact - logits.double()).abs().max() / exact.abs().max())


def run_mlx(source, out, quantised, vocab, seed):
    """mlx-lm's logits in float32: of the checkpoint itself, or of what it converts it to (written to `out`)."""
    greedy, forced = prompts(vocab, seed)
    settings = dict(quantise=dataclasses.asdict(quantised) if quantised else None, greedy=greedy, new=NEW, forced=forced)
    with open(out + ".json", "w", encoding="utf-8") as file:
        json.dump(settings, file)
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fixturelib", "convert_mlx.py")
    done = subprocess.run([MLX_PYTHON[0], script, source, out, out + ".json"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{source}: mlx-lm failed\n{done.stderr[-3000:]}")
    return np.load(out + ".npz")


def make_mlx(folder, fixture, seed, shapes):
    """The folder that mlx-lm converts the checkpoint to, with its own float32 logits as the reference."""
    state = weights.random_state(shapes, seed, fixture.zero_centred)
    if fixture.transform:
        state = fixture.transform(state)
    vocab = fixture.config.get("vocab_size") or fixture.config["text_config"]["vocab_size"]
    greedy, ids = prompts(vocab, seed)
    with tempfile.TemporaryDirectory() as work:
        plain, exact, out = (os.path.join(work, name) for name in ("plain", "exact", "out"))
        for name, storage in ((plain, fixture.storage), (exact, "f32")):
            checkpoint.write_config(name, fixture.config)
            checkpoint.write_tensors(name, checkpoint.to_torch(state, storage), 1)
        theirs = make_reference.forced_logits(load(exact, "float32"), ids).numpy()
        unquantised = run_mlx(exact, os.path.join(work, "same"), None, vocab, seed)["forced"]
        reading = float(np.abs(theirs - unquantised).max() / np.abs(theirs).max())
        if reading > MAX_READING:
            raise Unsuitable(f"mlx-lm is {reading:.1e} from transformers before anything is quantised")
        made = run_mlx(plain, out, fixture.mlx, vocab, seed)
        records = []
        for number, prompt in enumerate(greedy):
            rows = torch.from_numpy(made[f"rows{number}"])
            record = dict(kind="greedy", prompt=None, ids=prompt, tokens=made[f"tokens{number}"].tolist(),
                          top=[make_reference.top_of(row, TOP) for row in rows])
            if len(set(record["tokens"])) < MIN_DISTINCT:
                raise Unsuitable(f"only {len(set(record['tokens']))} different tokens")
            margin = min(top[0][1] - top[1][1] for top in record["top"])
            if margin < MIN_MARGIN:
                raise Unsuitable(f"margin {margin:.5f}")
            records.append(record)
        logits = torch.from_numpy(made["forced"])
        forced = make_reference.forced_record(logits, ids, top=TOP)
        forced["logits"] = {"file": "logits.f32", "shape": list(logits.shape)}
        for file in ("config.json", "model.safetensors"):
            shutil.copy(os.path.join(out, file), folder)
        logits.numpy().astype("<f4").tofile(os.path.join(folder, "logits.f32"))
        if SOURCES:
            kept = os.path.join(SOURCES[0], fixture.name)
            shutil.copytree(plain, kept, dirs_exist_ok=True)
            with open(os.path.join(SOURCES[0], fixture.name + ".json"), "w", encoding="utf-8") as file:
                json.dump(dataclasses.asdict(fixture.mlx), file)
    write_reference(folder, fixture, "float32", [*records, forced])
    return dict(reading=reading)


def make(folder, fixture, seed, shapes):
    if fixture.mlx:
        return make_mlx(folder, fixture, seed, shapes)
    source = write_model(folder, fixture, seed, shapes)
    text_config = fixture.config.get("text_config", {})
    vocab = fixture.config.get("vocab_size") or text_config["vocab_size"]
    model = load(source, "float32")
    greedy, logits, forced = records_of(model, vocab, seed)
    for record in greedy:
        judge(model, record)
    effect = check_sensitivity(fixture, source, logits, forced["ids"])
    with torch.no_grad():
        rounding = noise(source, logits, forced["ids"])
    forced["logits"] = {"file": "logits.f32", "shape": list(logits.shape)}
    logits.numpy().astype("<f4").tofile(os.path.join(folder, "logits.f32"))
    if rounding > MAX_NOISE:  # an expert chosen by a hair
        raise Unsuitable(f"float32 is {rounding:.1e} from float64")
    write_reference(folder, fixture, "float32", [*greedy, forced])
    agreement = {}
    for dtype in fixture.dtypes[1:]:
        rounded, _, rounded_forced = records_of(load(source, dtype), vocab, seed)
        write_reference(folder, fixture, dtype, [*rounded, rounded_forced])
        pairs = zip(forced["top"], rounded_forced["top"])
        agreement[dtype] = sum(a[0][0] == b[0][0] for a, b in pairs) / len(forced["top"])
    shutil.rmtree(os.path.join(folder, "plain"), ignore_errors=True)
    return dict(noise=rounding, effect=effect, agreement=agreement)


def write_reference(folder, fixture, dtype, records):
    path = os.path.join(folder, f"reference{SUFFIX[dtype]}.jsonl")
    header = make_reference.header(fixture.name, dtype)
    if fixture.mlx:
        header["engine"] = "mlx-lm"
    make_reference.write_lines(path, [header, *records])


def make_with_seed_search(out, fixture, seeds):
    shapes = {**saved_shapes(fixture.config), **fixture.extra}
    reasons = []
    for seed in range(1, seeds + 1):
        with tempfile.TemporaryDirectory() as work:
            try:
                facts = make(work, fixture, seed, shapes)
            except Unsuitable as reason:
                reasons.append(str(reason))
                continue
            folder = os.path.join(out, fixture.name)
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(work, folder)
            os.chmod(folder, 0o755)  # the temporary folder and safetensors' files are private
            for file in os.listdir(folder):
                os.chmod(os.path.join(folder, file), 0o644)
            size = sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder))
            return dict(seed=seed, size=size, **facts)
    sys.exit(f"{fixture.name}: none of {seeds} seeds is suitable: {reasons[-6:]}")


def write_index(out, fixtures):
    """README.md: what each folder proves."""
    lines = ["# Tiny random models", "",
             "Made by tools/make_fixtures.py; nothing here is trained. Each folder holds a checkpoint, `reference.jsonl` "
             "(what transformers, for MLX folders mlx-lm, computes in float32, docs/references.md) and `logits.f32` (all logits of the forced "
             "record, little-endian float32, shape in the record); some also hold references of 16-bit runs.", "",
             "| folder | what it covers |", "|---|---|"]
    lines += [f"| {f.name} | {f.why} |" for f in fixtures if os.path.isdir(os.path.join(out, f.name))]
    with open(os.path.join(out, "README.md"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", default="tests/data")
    parser.add_argument("--only", default="*", help="names to make, a shell pattern")
    parser.add_argument("--seeds", type=int, default=60, help="seeds to try per fixture")
    parser.add_argument("--llama-cpp", help="llama.cpp's source folder; without it the converted GGUF files are left out")
    parser.add_argument("--mlx-python", help="a Python with mlx-lm; without it the MLX folders are left out")
    parser.add_argument("--sources", help="keep the checkpoints of MLX folders here, for compare_quantize.py")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    if args.llama_cpp:
        LLAMA_CPP.append(os.path.abspath(args.llama_cpp))
    if args.mlx_python:
        MLX_PYTHON.append(os.path.abspath(args.mlx_python))
    if args.sources:
        SOURCES.append(os.path.abspath(args.sources))
    torch.set_num_threads(1)
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    logging.disable(logging.WARNING)

    for group, fixtures in GROUPS.items():
        out = os.path.join(args.output, group)
        if args.list:
            print(f"{group}:", *(f"  {f.name:34} {f.why}" for f in fixtures), sep="\n")
            continue
        os.makedirs(out, exist_ok=True)
        for fixture in fixtures:
            if not fnmatch.fnmatch(fixture.name, args.only):
                continue
            if fixture.mlx and not MLX_PYTHON:
                print(fixture.name, "left out: needs --mlx-python", flush=True)
            elif isinstance(fixture.gguf, catalogue_mixed.Converted) and not LLAMA_CPP:
                print(fixture.name, "left out: needs --llama-cpp", flush=True)
            else:
                facts = make_with_seed_search(out, fixture, args.seeds)
                print(fixture.name, json.dumps(facts), flush=True)
        write_index(out, fixtures)


if __name__ == "__main__":
    main()
