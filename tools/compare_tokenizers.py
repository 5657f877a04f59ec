#!/usr/bin/env python3
"""Compares `forge tokenize` with a reference tokenizer on random text.

    compare_tokenizers.py --command "build/dev/src/cli/forge" --model m.gguf \\
        --reference hf:tokenizer.json --count 20000

References:  hf:FILE        the `tokenizers` package on a tokenizer.json
             spm:FILE       the `sentencepiece` package on a tokenizer.model
             tekken:FILE    `tiktoken` on a tekken.json
             tiktoken:FILE,PATTERN_FILE[,nfc]   `tiktoken` on a rank file

The command is run as `COMMAND tokenize MODEL --jsonl FILE [--no-special]`: one
object {"text": ...} a line in, one line out with the ids as a list or as {"ids": ...}.
When the output also has "text" and "stream", they are compared with the
reference's decoding. Exit status 1 when anything differs.
"""
import argparse
import base64
import json
import random
import shlex
import subprocess
import sys
import tempfile
import unicodedata

# Blocks that texts are drawn from: (weight, first, last).
SCRIPTS = [(30, 0x20, 0x7E), (4, 0xA0, 0x24F), (2, 0x300, 0x36F), (3, 0x370, 0x3FF), (3, 0x400, 0x4FF),
           (2, 0x590, 0x5FF), (2, 0x600, 0x6FF), (2, 0x900, 0x97F), (1, 0x980, 0x9FF), (1, 0xB80, 0xBFF),
           (2, 0xE00, 0xE7F), (1, 0xF00, 0xFFF), (1, 0x1100, 0x11FF), (1, 0x1E00, 0x1FFF), (2, 0x2000, 0x206F),
           (1, 0x2070, 0x218F), (1, 0x2190, 0x23FF), (1, 0x2460, 0x24FF), (2, 0x3000, 0x30FF), (4, 0x4E00, 0x9FFF),
           (3, 0xAC00, 0xD7A3), (1, 0xE000, 0xE0FF), (1, 0xF900, 0xFAFF), (1, 0xFE00, 0xFEFF), (1, 0xFF00, 0xFFEF),
           (1, 0x10400, 0x1044F), (1, 0x1D400, 0x1D7FF), (3, 0x1F300, 0x1F6FF), (1, 0x1F900, 0x1F9FF),
           (1, 0x20000, 0x2007F), (1, 0x2F800, 0x2FA1D),
           # added by Unicode 10 to 16, and unassigned
           (1, 0x0860, 0x08FF), (1, 0x07FD, 0x07FF), (1, 0x0C3C, 0x0C3C), (1, 0x1ABF, 0x1ACE), (1, 0x1DF6, 0x1DFA),
           (1, 0x10570, 0x105BF), (1, 0x105C0, 0x105FF), (1, 0x10D40, 0x10D8F), (1, 0x11930, 0x11938),
           (1, 0x11F00, 0x11F59), (1, 0x16D40, 0x16D79), (1, 0x1E290, 0x1E2FF), (1, 0x1CC00, 0x1CCFF),
           (1, 0x1E4D0, 0x1E4FF), (1, 0xA7C0, 0xA7DF), (1, 0x11DE0, 0x11DE9), (1, 0x16FF4, 0x16FF6), (1, 0x0378, 0x0379)]
SPACES = [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n", "\n ", "\u00a0", "\u3000", "\u2003", "\u2028", "\x85",
          "\x0b", "\x0c", "\x1c", "\u200b", "\u180e", "\ufeff", "\u1680", "\u202f"]
BITS = ["'s", "'S", "'t", "'RE", "'ve", "'m", "'LL", "'d", "'\u017f", "'\u017fs", "don't", "I'M", "\u2581", "\u2581\u2581", "123",
        "1", "12345678", "\u0661\u0662\u0663", "\u00bd", "\u2167", "a/b", "!!!\n", "...", "://", "\u00e9", "e\u0301",
        "\u212b", "\u212a", "\u1100\u1161\u11a8", "\u0301", "\u0323\u0307", "\u200d", "\U0001f468\u200d\U0001f469\u200d\U0001f467",
        "\u2764\ufe0f", "<0x0A>", "<0xE2>", "\x00", "\x7f", "Hello", "world", "the", " the", "HTTPServer", "camelCase", "_x_",
        "\ufffd", "\u0130", "\u00df", "\ufb01", "\u01c5", "\u02b0", "<div>", "</div>", "\u0295"]


def random_text(rng, specials):
    out = []
    for _ in range(rng.choice((1, 2, 4, 8, 12, 20))):
        kind = rng.random()
        if kind < 0.25:
            out.append(rng.choice(SPACES) * rng.choice((1, 1, 1, 2, 3, 17)))
        elif kind < 0.45:
            out.append(rng.choice(BITS))
        elif kind < 0.53 and specials:
            s = rng.choice(specials)
            out.append(s if rng.random() < 0.8 else s[:rng.randrange(len(s) + 1)])
        elif kind < 0.57:
            cp = rng.randrange(0x110000)
            out.append(chr(cp) if not 0xD800 <= cp < 0xE000 else "?")
        else:
            _, a, b = rng.choices(SCRIPTS, [w for w, _, _ in SCRIPTS])[0]
            out.append("".join(chr(rng.randint(a, b)) for _ in range(rng.choice((1, 2, 3, 6)))))
    return "".join(out)


class HuggingFace:
    def __init__(self, path):
        from tokenizers import Tokenizer
        self.t = Tokenizer.from_file(path)
        self.specials = [t.content for t in self.t.get_added_tokens_decoder().values() if t.content]

    def encode(self, text, special):
        self.t.encode_special_tokens = not special
        return self.t.encode(text, add_special_tokens=False).ids

    def decode(self, ids):
        return self.t.decode(ids, skip_special_tokens=False)


class SentencePiece:
    """Control pieces never match in text, so run with --no-special."""

    def __init__(self, path):
        import sentencepiece
        self.t = sentencepiece.SentencePieceProcessor(model_file=path)
        self.specials = [self.t.id_to_piece(i) for i in range(self.t.get_piece_size()) if self.t.is_control(i)]

    def encode(self, text, special):
        assert not special
        return self.t.encode(text)

    def decode(self, ids):
        return self.t.decode(ids)


class Tekken:
    def __init__(self, path):
        import tiktoken
        data = json.load(open(path, encoding="utf-8"))
        config = data["config"]
        self.offset = config["default_num_special_tokens"]
        n = config["default_vocab_size"] - self.offset
        ranks = {base64.b64decode(e["token_bytes"]): e["rank"] for e in data["vocab"][:n]}
        self.t = tiktoken.Encoding("tekken", pat_str=config["pattern"], mergeable_ranks=ranks, special_tokens={})
        self.specials = ["<s>", "[INST]", "[/INST]"]

    def encode(self, text, special):
        assert not special
        return [i + self.offset for i in self.t.encode(text, disallowed_special=())]

    def decode(self, ids):
        return self.t.decode([i - self.offset for i in ids])


class Tiktoken:
    def __init__(self, spec):
        import tiktoken
        path, pattern, *rest = spec.split(",")
        ranks = {base64.b64decode(t): int(r) for t, r in (line.split() for line in open(path, "rb") if line.strip())}
        self.nfc = "nfc" in rest
        self.t = tiktoken.Encoding("x", pat_str=open(pattern).read().strip(), mergeable_ranks=ranks, special_tokens={})
        self.specials = ["<|im_start|>"]

    def encode(self, text, special):
        assert not special
        if self.nfc:
            text = unicodedata.normalize("NFC", text)
        return self.t.encode(text, disallowed_special=())

    def decode(self, ids):
        return self.t.decode(ids)


REFERENCES = {"hf": HuggingFace, "spm": SentencePiece, "tekken": Tekken, "tiktoken": Tiktoken}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--command", required=True)
    p.add_argument("--model", required=True)
    p.add_argument("--reference", required=True)
    p.add_argument("--count", type=int, default=20000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--no-special", action="store_true", help="special text is not parsed")
    p.add_argument("--ids-only", action="store_true", help="do not compare the decoded text")
    p.add_argument("--show", type=int, default=10)
    a = p.parse_args()

    kind, _, spec = a.reference.partition(":")
    reference = REFERENCES[kind](spec)
    rng = random.Random(a.seed)
    texts = [random_text(rng, reference.specials) for _ in range(a.count)]
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as f:
        for text in texts:
            f.write(json.dumps({"text": text}) + "\n")
        f.flush()
        command = shlex.split(a.command) + ["tokenize", a.model, "--jsonl", f.name]
        if a.no_special:
            command.append("--no-special")
        run = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    lines = run.stdout.decode("utf-8").split("\n")
    if lines[-1] == "":
        lines.pop()
    if len(lines) != len(texts):
        sys.exit(f"{len(texts)} texts, but {len(lines)} lines came back")

    wrong = {"ids": 0, "text": 0, "stream": 0}
    round_trips = shown = tokens = 0
    for text, line in zip(texts, lines):
        got = json.loads(line)
        got = got if isinstance(got, dict) else {"ids": got}
        ids = reference.encode(text, not a.no_special)
        tokens += len(ids)
        bad = []
        if got["ids"] != ids:
            bad.append(("ids", got["ids"], ids))
        elif not a.ids_only:
            want = reference.decode(ids)
            round_trips += want == text
            bad += [(k, got[k], want) for k in ("text", "stream") if k in got and got[k] != want]
        for key, have, want in bad:
            wrong[key] += 1
            if shown < a.show:
                shown += 1
                print(f"{key} of {json.dumps(text)}\n  forge     {have!r}\n  reference {want!r}")
    print(f"{a.model}: {len(texts)} texts, {tokens} ids, {round_trips} round trips; "
          f"differing: {wrong['ids']} ids, {wrong['text']} decoded, {wrong['stream']} streamed")
    sys.exit(any(wrong.values()))


if __name__ == "__main__":
    main()
