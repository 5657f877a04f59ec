#!/usr/bin/env python3
"""Write a reference file: what Hugging Face transformers computes for a model.

The output is JSON lines as docs/references.md describes; `forge eval MODEL --reference FILE` replays it.
Needs: pip install torch transformers accelerate gguf safetensors.

  make_reference.py MODEL_DIR_OR_GGUF -o ref.jsonl --dtype float32 --new 48 \\
      --prompt "The capital of France is" --ids 1,5,9 --chat "Hi!" --text passage.txt

Records appear in the order of the options on the command line within each kind.
"""
import argparse
import json
import os
import sys

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

FORMAT = "forge-reference-1"
TOP = 8  # candidates listed per position, at most


def split_gguf(path):
    """transformers wants the folder and the file name apart."""
    folder, name = os.path.split(os.path.abspath(path))
    return folder, {"gguf_file": name}


def load_model(path, dtype):
    """The model with eager attention, whose rounding points are the contract; a GGUF is dequantised to dtype."""
    folder, extra = split_gguf(path) if path.endswith(".gguf") else (path, {})
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=getattr(torch, dtype), attn_implementation="eager", experts_implementation="eager", **extra
    )
    return model.eval()


def load_tokenizer(path):
    """The tokenizer, or None for a checkpoint folder without one."""
    if path.endswith(".gguf"):
        folder, extra = split_gguf(path)
        return AutoTokenizer.from_pretrained(folder, **extra)
    if any(os.path.exists(os.path.join(path, n)) for n in ("tokenizer.json", "tokenizer.model", "vocab.json")):
        return AutoTokenizer.from_pretrained(path)
    return None


def top_of(row, count):
    """The largest logits of one position as [id, logit], falling."""
    values, ids = row.float().topk(min(count, row.numel()))
    return [[i, round(v, 6)] for i, v in zip(ids.tolist(), values.tolist())]


@torch.no_grad()
def greedy(model, prompt_ids, new, top=TOP):
    """(tokens, tops) of the arg-max continuation: one pass over the prompt, then one token at a time."""
    out = model(torch.tensor([prompt_ids]), use_cache=True)
    tokens, tops = [], []
    for step in range(new):
        row = out.logits[0, -1]
        tops.append(top_of(row, top))
        tokens.append(int(row.argmax()))
        if step + 1 < new:
            out = model(torch.tensor([[tokens[-1]]]), past_key_values=out.past_key_values, use_cache=True)
    return tokens, tops


@torch.no_grad()
def forced_logits(model, ids):
    """Logits [len(ids), vocab] in float32 of one pass over a given text."""
    return model(torch.tensor([ids]), use_cache=False).logits[0].float()


def forced_record(logits, ids, prompt=None, top=TOP):
    """The record of a given text from its logits; the last position predicts nothing that is known."""
    nll = torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(ids[1:]), reduction="none")
    return dict(kind="forced", prompt=prompt, ids=ids, top=[top_of(row, top) for row in logits[:-1]],
                nll=[round(v, 6) for v in nll.tolist()])


def greedy_record(model, ids, new, prompt=None, top=TOP):
    tokens, tops = greedy(model, ids, new, top)
    return dict(kind="greedy", prompt=prompt, ids=ids, tokens=tokens, top=tops)


def header(model_name, dtype):
    return dict(format=FORMAT, engine=f"transformers {transformers.__version__}", dtype=dtype, model=model_name)


def write_lines(path, lines):
    """Write under a temporary name first, so that a reader never sees half a file."""
    with open(path + ".tmp", "w", encoding="utf-8") as out:
        for line in lines:
            out.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
    os.replace(path + ".tmp", path)


def id_list(text):
    return [int(i) for i in text.replace(",", " ").split()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="checkpoint folder or .gguf file")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--new", type=int, default=48, help="greedy tokens per prompt")
    parser.add_argument("--positions", type=int, default=192, help="positions of a --text that are scored")
    parser.add_argument("--prompt", action="append", default=[], help="greedy: raw text")
    parser.add_argument("--chat", action="append", default=[], help="greedy: one user message, through the template")
    parser.add_argument("--ids", action="append", default=[], type=id_list, help="greedy: token ids")
    parser.add_argument("--text", action="append", default=[], help="forced: a UTF-8 file")
    parser.add_argument("--forced-ids", action="append", default=[], type=id_list, help="forced: token ids")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads (0: what torch chooses)")
    args = parser.parse_args()

    if args.threads:
        torch.set_num_threads(args.threads)
    model = load_model(args.model, args.dtype)
    tokenizer = load_tokenizer(args.model)
    if tokenizer is None and (args.prompt or args.chat or args.text):
        sys.exit(f"{args.model} has no tokenizer: give token ids with --ids and --forced-ids instead of text")

    def encode(text):
        return list(tokenizer(text)["input_ids"])

    def encode_chat(text):
        message = [{"role": "user", "content": text}]
        made = tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=True, return_dict=True)
        return list(made["input_ids"])

    records = []
    for text in args.prompt:
        records.append(greedy_record(model, encode(text), args.new, text))
    for text in args.chat:
        records.append(greedy_record(model, encode_chat(text), args.new, {"user": text}))
    for ids in args.ids:
        records.append(greedy_record(model, ids, args.new))
    texts = [encode(open(path, encoding="utf-8").read())[: args.positions + 1] for path in args.text]
    for ids in texts + args.forced_ids:
        records.append(forced_record(forced_logits(model, ids), ids))
    write_lines(args.output, [header(os.path.basename(args.model.rstrip("/")), args.dtype), *records])


if __name__ == "__main__":
    main()
