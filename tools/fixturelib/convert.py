"""Run llama.cpp's own converter on a checkpoint without a tokenizer: convert.py LLAMA_CPP CHECKPOINT OUT.gguf TYPE ...

A process of its own, because the converter brings its own gguf package and parses the command line.
"""
import json
import os
import sys


def set_no_vocabulary(model):
    """Tokenizer model "none" and the vocabulary's size, which llama.cpp then needs to be told."""
    model._set_vocab_none()
    model.gguf_writer.add_vocab_size(model.hparams["vocab_size"])


def without_vocabulary(cls):
    """Every model class does this instead of looking for tokenizer files."""
    cls.set_vocab = set_no_vocabulary
    for child in cls.__subclasses__():
        without_vocabulary(child)


def pretend_vocabulary(checkpoint):
    """Gemma's class cuts the embedding to the tokenizer's size: a tokenizer.json of the right length and no use."""
    with open(os.path.join(checkpoint, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    size = config.get("vocab_size") or config["text_config"]["vocab_size"]
    with open(os.path.join(checkpoint, "tokenizer.json"), "w", encoding="utf-8") as out:
        json.dump({"model": {"vocab": {f"t{i}": i for i in range(size)}}, "added_tokens": []}, out)


def main():
    llama_cpp, checkpoint, out, kind, *options = sys.argv[1:]
    checkpoint, out = os.path.abspath(checkpoint), os.path.abspath(out)
    pretend_vocabulary(checkpoint)
    sys.path.insert(0, llama_cpp)
    os.chdir(llama_cpp)
    import convert_hf_to_gguf
    import conversion

    find = conversion.get_model_class

    def find_and_strip(*args, **options):
        found = find(*args, **options)
        without_vocabulary(conversion.base.TextModel)
        return found

    convert_hf_to_gguf.get_model_class = find_and_strip
    sys.argv = ["convert_hf_to_gguf.py", checkpoint, "--outfile", out, "--outtype", kind, *options]
    convert_hf_to_gguf.main()


if __name__ == "__main__":
    main()
