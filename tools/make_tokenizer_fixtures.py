#!/usr/bin/env python3
"""Writes tests/data/tokenizer/*.json: small tokenizers that together use every
component Forge implements, with the ids and texts that the `tokenizers`
package (0.23.3) gives.

    python3 tools/make_tokenizer_fixtures.py

A fixture is {"tokenizer": a whole tokenizer.json, "cases": [...]}; a case has
the text, the ids with and without special text parsed, the ids with the
post-processor, and the decoded text with and without special tokens.
"""
import copy
import json
import os
import random

import tokenizers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from compare_tokenizers import random_text

OUT = os.path.join(os.path.dirname(__file__), "..", "tests", "data", "tokenizer")
CORPUS = ["The quick brown fox jumps over the lazy dog. It doesn't mind, and we'll see it again in 2024.",
          "int main(int argc, char** argv) { return argc > 1 ? 0 : 1; }  // 12345",
          "Hello world, hello there. The theory of the thing: they think this is the thinnest.",
          "Gr\u00fc\u00dfe aus M\u00fcnchen; caf\u00e9 na\u00efve \u0434\u043e\u0431\u0440\u044b\u0439 \u0434\u0435\u043d\u044c \u4f60\u597d\u4e16\u754c",
          "a    b\n\n\nc\td  e \n f     g          h"]
CASES = 24
MAX_TEXT = 60  # characters; long texts are for compare_tokenizers.py
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")
SPACE = "\u2581"


def byte_level_model(size=340):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.train_from_iterator(CORPUS * 3, trainers.BpeTrainer(
        vocab_size=size, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return json.loads(t.to_str())["model"]


def spaced_model(size=150, bytes_from=None, **options):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    t.train_from_iterator([line.replace("\u4f60\u597d\u4e16\u754c", "") for line in CORPUS * 3],
                          trainers.BpeTrainer(vocab_size=size, show_progress=False))
    m = json.loads(t.to_str())["model"]
    words = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in bytes_from or ()]
    m["vocab"] = {w: i for i, w in enumerate(words + list(m["vocab"]))}
    m.update(options)
    return m


def added(id, content, **flags):
    token = {"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": False}
    token.update(flags)
    return token


def byte_level(**options):
    out = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    out.update(options)
    return out


def split(pattern, behavior="Isolated", invert=False, literal=False):
    return {"type": "Split", "pattern": {"String" if literal else "Regex": pattern}, "behavior": behavior,
            "invert": invert}


def sequence(key, *members):
    return {"type": "Sequence", key: list(members)}


def replace(pattern, content, regex=False):
    return {"type": "Replace", "pattern": {"Regex" if regex else "String": pattern}, "content": content}


def template(before=(), after=()):
    parts = [{"SpecialToken": {"id": t, "type_id": 0}} for t, _ in before] + [{"Sequence": {"id": "A", "type_id": 0}}]
    parts += [{"SpecialToken": {"id": t, "type_id": 0}} for t, _ in after]
    pair = [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}]
    return {"type": "TemplateProcessing", "single": parts, "pair": pair,
            "special_tokens": {t: {"id": t, "ids": [i], "tokens": [t]} for t, i in (*before, *after)}}


def metaspace(scheme, split):
    return {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": split}


def chain(strip):
    members = [replace(SPACE, " "), {"type": "ByteFallback"}, {"type": "Fuse"}]
    if strip:
        members.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return sequence("decoders", *members)


def tokenizer(model, pre=None, norm=None, post=None, decoder=None, tokens=()):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": list(tokens), "normalizer": norm,
            "pre_tokenizer": pre, "post_processor": post, "decoder": decoder or byte_level(), "model": model}


def fixtures():
    plain = byte_level_model()
    n = len(plain["vocab"])
    specials = [added(n, "<|im_start|>", special=True), added(n + 1, "<|im_end|>", special=True),
                added(n + 2, "<think>"), added(n + 3, "</think>")]
    yield "byte_level_nfc", tokenizer(plain, sequence("pretokenizers", split(SPLIT), byte_level(use_regex=False)),
                                      {"type": "NFC"}, byte_level(), tokens=specials), []
    yield "digits_isolated", tokenizer(plain, sequence("pretokenizers", {"type": "Digits", "individual_digits": True},
                                                       byte_level()), tokens=specials), []
    yield "digits_together", tokenizer(plain, sequence("pretokenizers", {"type": "Digits", "individual_digits": False},
                                                       byte_level(add_prefix_space=True)), tokens=specials), []
    legacy = copy.deepcopy(plain)
    legacy["merges"] = [" ".join(m) for m in legacy["merges"]]
    whole = "\u0120thingamajig"
    legacy["vocab"][whole] = n
    legacy["ignore_merges"] = True
    yield "ignore_merges", tokenizer(legacy, byte_level(), None,
                                     sequence("processors", byte_level(), template([("<s>", n + 1)], [("</s>", n + 2)])),
                                     tokens=[added(n + 1, "<s>", special=True), added(n + 2, "</s>", special=True)]), \
        [" thingamajig thingamajig"]

    flags = [added(n, "<l>", lstrip=True, special=True), added(n + 1, "<r>", rstrip=True),
             added(n + 2, "<lr>", lstrip=True, rstrip=True), added(n + 3, "word", single_word=True),
             added(n + 4, "wor", normalized=True), added(n + 5, "<n> x", normalized=True, special=True),
             added(n + 6, "  ", rstrip=True), added(n + 7, "<l", special=True), added(n + 8, "\u00e9\u00e8"),
             added(n + 9, "the", single_word=True, lstrip=True, rstrip=True, normalized=True),
             added(n + 10, "\n<r>", lstrip=True), added(n + 11, "\t\t")]
    flag_texts = ["a <l> b", "a \n<l><r> \t b", "<r> <l> <lr> ", "word words sword word.word _word word\u0301 1word",
                  "wor <n> x", "<n>_x <n> x", "the the thethe the_ ", "  word  ", "<r>   word", "<r>  \t\t\t\t\tx", "\u00e9\u00e8 e\u0301",
                  "a<r> \n<r> b", "<l>  <l", "\u2003<lr>\u3000", "word\u200dword word"]
    yield "added_flags", tokenizer(plain, byte_level(), sequence("normalizers", replace("_", " "), {"type": "NFC"}),
                                   tokens=flags), flag_texts

    all_bytes = spaced_model(420, range(256), unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    base = [added(0, "<unk>", special=True), added(1, "<s>", special=True), added(2, "</s>", special=True),
            added(len(all_bytes["vocab"]), "<tool>")]
    bos = template([("<s>", 1)])
    prepend = sequence("normalizers", {"type": "Prepend", "prepend": SPACE}, replace(" ", SPACE))
    yield "prepend_fallback", tokenizer(all_bytes, None, prepend, bos, chain(True), base), []
    yield "metaspace_first", tokenizer(all_bytes, metaspace("first", False), None, bos, chain(True), base), []
    yield "metaspace_always_split", tokenizer(all_bytes, metaspace("always", True), None, bos,
                                              metaspace("always", True), base), []
    yield "metaspace_never_split", tokenizer(all_bytes, metaspace("never", True), None, bos,
                                             metaspace("never", True), base), []
    yield "gemma_like", tokenizer(all_bytes, split(" ", "MergedWithPrevious", literal=True), replace(" ", SPACE), bos,
                                  chain(False), base), []

    some_bytes = spaced_model(250, list(range(0x80)) + list(range(0xE0, 0xF0)) + list(range(0x80, 0xA0)),
                              unk_token="<unk>", fuse_unk=False, byte_fallback=True)
    yield "some_bytes", tokenizer(some_bytes, None, replace(" ", SPACE), None, chain(False), base[:3]), \
        ["\u20ac\u00bf\u20ac", "\u00bf\u00bf\u4e00", "\U0001f600\u4e00\u4e01"]
    for name, options in (("unknown_fused", {"unk_token": "<unk>", "fuse_unk": True}),
                          ("unknown_single", {"unk_token": "<unk>", "fuse_unk": False}), ("unknown_dropped", {})):
        yield name, tokenizer(spaced_model(140, **options), None, replace(" ", SPACE), None, chain(False), base[:3]), \
            ["t\u4e00he", "\u4e00\u4e01t\u4e02"]

    behaviors = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
    for i, behavior in enumerate(behaviors):
        yield f"split_{behavior}", tokenizer(
            plain, sequence("pretokenizers", split(r"[\p{P}\s]", behavior), split("th", behavior, literal=True),
                            byte_level(use_regex=False)), tokens=specials[:2]), ["..the, the;;thth  a"]
        yield f"split_{behavior}_inverted", tokenizer(
            plain, sequence("pretokenizers", split(r"\w+|\s{2,}", behavior, invert=True), byte_level(use_regex=False)),
            tokens=specials[:2]), ["..the, the;;thth  a"]

    patterns = {"anchors": r"^\s*\w+|\w+$|(?<=,)\s|(?<!x)y|z(?=a)", "counts": r"\d{2}|\D{3,5}?|\w{,2}|x{2,}|a{b}",
                "classes": r"[a-fx-z0-9_\-\]\\]+|[^\W\d]|\P{L}{2}|[\p{Lu}\p{M}]+|\p{^N}|\S", "lazy": r".+?[ao]|\s*?x|(?>ab|a)b|a++|.",
                "folded": r"(?i:hello|k|[a-c]+|'s)|(?-i:X)|(wor)(ld)?", "empty": r"x*|\s*", "escapes": r"\t|\n|\x20\x{4f60}|\u597d|\.|\/"}
    for name, pattern in patterns.items():
        yield f"regex_{name}", tokenizer(plain, sequence("pretokenizers", split(pattern), byte_level(use_regex=False))), \
            ["Hello HELLO hello\u212a kK world WORLD abab aaab xxy zay y,y ,\n a{b}\nlast word", "12345 abcdef 你好 a\tb/c.d"]
    yield "replace_regex", tokenizer(plain, byte_level(), sequence("normalizers", replace(r"\s+", " ", True),
                                                                   replace("ll", "LL"))), []


def main():
    assert tokenizers.__version__ == "0.23.3", tokenizers.__version__
    os.makedirs(OUT, exist_ok=True)
    for seed, (name, definition, texts) in enumerate(fixtures()):
        t = Tokenizer.from_str(json.dumps(definition))
        rng = random.Random(seed)
        words = [a["content"] for a in definition["added_tokens"]] or ["the", "x"]
        texts = ["", " ", "Hello world"] + texts
        while len(texts) < CASES:
            text = random_text(rng, words)
            if len(text) <= MAX_TEXT:
                texts.append(text)
        cases = []
        for text in texts:
            t.encode_special_tokens = True
            untrusted = t.encode(text, add_special_tokens=False).ids
            t.encode_special_tokens = False
            ids = t.encode(text, add_special_tokens=False).ids
            cases.append({"text": text, "ids": ids, "untrusted": untrusted,
                          "added": t.encode(text, add_special_tokens=True).ids,
                          "decoded": t.decode(ids, skip_special_tokens=False),
                          "decoded_skip": t.decode(ids, skip_special_tokens=True)})
        with open(os.path.join(OUT, name + ".json"), "w", encoding="ascii", newline="\n") as f:
            head = json.dumps(definition, separators=(",", ":"))
            f.write('{"tokenizer":' + head + ',\n"cases":[\n')
            f.write(",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]}\n")
        print(f"{name}: {len(definition['model']['vocab'])} tokens, {len(cases)} cases")


if __name__ == "__main__":
    main()
