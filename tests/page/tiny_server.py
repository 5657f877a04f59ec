"""`forge serve` on a tiny model with a tokenizer, for tests that speak HTTP from outside (standard library only)."""
import json
import os
import shutil
import signal
import subprocess
import threading

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def tiny_chat(folder):
    """A model of random weights whose tokens are letters and the three marks of a chat."""
    source = os.path.join(REPOSITORY, "tests/data/models/qwen3-tied")
    os.makedirs(folder, exist_ok=True)
    for name in ("config.json", "model.safetensors"):
        shutil.copy(os.path.join(source, name), folder)
    letters = " \n" + "".join(chr(c) for c in range(33, 127) if chr(c) not in "$@[]\\^{|}~")
    symbols = {" ": "\u0120", "\n": "\u010a"}
    marks = ["<pad>", "<|im_start|>", "<|im_end|>"]
    vocabulary = {m: i for i, m in enumerate(marks)} | {symbols.get(c, c): 3 + i for i, c in enumerate(letters)}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    added = [{"id": i, "content": m, "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False} for i, m in enumerate(marks)]
    files = {
        "tokenizer.json": json.dumps({"version": "1.0", "added_tokens": added, "normalizer": None, "pre_tokenizer": byte_level, "post_processor": byte_level,
                                      "decoder": byte_level, "model": {"type": "BPE", "vocab": vocabulary, "merges": []}}),
        "tokenizer_config.json": json.dumps({"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}),
        "chat_template.jinja": "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
                               "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    }
    for name, text in files.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            f.write(text)
    return folder


class Forge:
    """A running server. `port` 0: any free one."""

    def __init__(self, forge, model, *arguments, port=0):
        self.process = subprocess.Popen([forge, "serve", model, "--port", str(port), "--ctx", "4096", "-t", "1", *arguments],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        timer = threading.Timer(120, self.process.kill)
        timer.start()
        line = self.process.stdout.readline()
        timer.cancel()
        if " on http" not in line:
            raise SystemExit(f"the server did not get ready: {line!r}")
        self.url = line.split(" on ")[1].split(",")[0]
        self.port = int(self.url.rsplit(":", 1)[1])

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)
