"""kill -9 at random moments of pack, pull (from a hub and from registries) and gc: the store is valid each time, no
model is lost, what was pulled is not pulled again, and after gc nothing is left over.

Every job is begun again after a kill until it finishes by itself. Pulls are only ever given a part of the time
that they take, so that they finish because what arrived is kept. FORGE_KILLS says how many kills there are."""
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "transport"))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import oci_test  # noqa: E402  (it takes make_model from the arguments)
from hub_server import Hub, etag_of  # noqa: E402
from oci_server import Registry  # noqa: E402
from support import main, random_bytes  # noqa: E402

MIB = 1 << 20
DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "models")
KILLS = int(os.environ.get("FORGE_KILLS", "200" if os.environ.get("FORGE_LONG") else "18"))
HUB_FILES = {"config.json": b"{}", "model.safetensors.index.json": b'{"weight_map": {"a": "a.safetensors", "b": "b.safetensors"}}',
             "a.safetensors": random_bytes(1, 17 * MIB + 5), "b.safetensors": random_bytes(2, 6 * MIB)}


def larger_model(folder):
    """A Llama of 24 MB, so that packing it takes a moment."""
    os.makedirs(folder)
    with open(os.path.join(DATA, "llama-gqa-tied", "config.json")) as file:
        config = json.load(file)
    hidden, width, heads, kv, vocab, count = 512, 1024, 8, 4, 2048, 5
    config.update(hidden_size=hidden, intermediate_size=width, num_attention_heads=heads, num_key_value_heads=kv, vocab_size=vocab, num_hidden_layers=count,
                  head_dim=hidden // heads, tie_word_embeddings=True)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file)
    shapes = {"model.embed_tokens.weight": [vocab, hidden], "model.norm.weight": [hidden]}
    for i in range(count):
        for name, shape in (("input_layernorm", [hidden]), ("post_attention_layernorm", [hidden]), ("self_attn.q_proj", [hidden, hidden]),
                            ("self_attn.k_proj", [hidden // 2, hidden]), ("self_attn.v_proj", [hidden // 2, hidden]), ("self_attn.o_proj", [hidden, hidden]),
                            ("mlp.gate_proj", [width, hidden]), ("mlp.up_proj", [width, hidden]), ("mlp.down_proj", [hidden, width])):
            shapes["model.layers.%d.%s.weight" % (i, name)] = shape
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 2
        for n in shape:
            size *= n
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    data = bytearray(random_bytes(3, at))
    data[1::2] = bytes(at // 2).replace(b"\0", b"\x3c")  # small positive numbers
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


class Crashes(oci_test.StoreCase):
    def setUp(self):
        super().setUp()
        self.random = random.Random(11)
        self.kills = {}
        self.jobs = {}
        self.most = {}
        self.store = os.path.join(self.environment["FORGE_HOME"], "data", "store")

    def run_to_the_end(self, kind, arguments, least, most, limit=400):
        """Begins the command again after each kill, at a moment between the two (seconds), until it finishes."""
        kills = 0
        while True:
            process = self.start(*arguments)
            try:
                process.wait(self.random.uniform(least, most) * 1.01 ** kills)  # longer where a busy machine does little in that time
            except subprocess.TimeoutExpired:
                process.kill()
            _, err = process.communicate()
            if process.returncode == 0:
                break
            self.assertEqual(process.returncode, -signal.SIGKILL, err)
            kills += 1
            self.check(kind)
            self.assertLess(kills, limit, "%s does not get on" % kind)
        self.kills[kind] = self.kills.get(kind, 0) + kills
        self.jobs[kind] = self.jobs.get(kind, 0) + 1
        self.most[kind] = max(self.most.get(kind, 0), kills)
        self.check(kind)

    def check(self, kind):
        """All models of the store have the right bytes, and the kept one is among them; no blob of the hub's is wrong."""
        done = self.forge("verify")
        self.assertIn("kept:1: ", done.stdout, kind)
        self.check_hub_blobs()

    def check_hub_blobs(self):
        folder = os.path.join(self.hf, "hub", "models--org--model", "blobs")
        wanted = {etag_of(content): content for content in HUB_FILES.values()}
        for name in os.listdir(folder) if os.path.isdir(folder) else []:
            path, content = os.path.join(folder, name), wanted[name.split(".")[0]]
            if name.endswith(".ranges"):
                continue  # looked at in hub_test.py
            with open(path, "rb") as file:
                data = file.read()
            self.assertTrue(content.startswith(data) if name.endswith(".incomplete") else content == data, name)

    def check_nothing_left_over(self):
        named = set()
        for text in self.manifests(self.environment["FORGE_HOME"]).values():
            named |= {blob["digest"].split(":")[1] for blob in json.loads(text)["blobs"]}
        there = {name for _, _, names in os.walk(os.path.join(self.store, "blobs")) for name in names}
        self.assertEqual(there, named)
        self.assertEqual(os.listdir(os.path.join(self.store, "partial")), [])
        self.assertEqual(os.listdir(os.path.join(self.store, "manifests")), ["kept@1.json"])

    def models(self):
        return {name.split("@")[0] for name in os.listdir(os.path.join(self.store, "manifests")) if name.endswith(".json")}

    def timed(self, *arguments):
        begin = time.time()
        self.forge(*arguments)
        return time.time() - begin

    def kill_loop(self, host, kills, delay):
        """`host`: of a registry; delay(seconds) slows it down."""
        source = os.path.join(self.root, "larger")
        larger_model(source)
        reference = "oci:%s/ada/model:v1" % host
        self.forge("pack", source, "-o", "m:1", "--no-proof", "--layout", "rows", FORGE_HOME=self.other)
        self.forge("push", "m:1", reference, FORGE_HOME=self.other)
        small = os.path.join(DATA, "llama-gqa-tied")
        self.forge("pack", small, "-o", "kept:1")
        hub = Hub({"org/model": {"main": HUB_FILES}}).__enter__()
        self.addCleanup(hub.__exit__)
        self.environment["HF_ENDPOINT"] = hub.url
        hub.faults.delay = 0.002
        delay(0.002)
        pack = ("pack", source, "-o", "packed:1", "--no-proof", "--force", "--layout", "tiled16")
        proved = ("pack", small, "-o", "proved:1", "--force")
        pull, pull_hub = ("pull", reference, "--as", "pulled:1", "--connections", "3"), ("pull", "hf:org/model", "--connections", "3")
        times = {command: self.timed(*command) for command in (pull_hub, pull, pack, proved)}
        self.forget()
        self.forge("gc")
        while sum(self.kills.values()) < kills:
            self.run_to_the_end("pull hf:", pull_hub, 0.1 * times[pull_hub], 0.7 * times[pull_hub])
            self.run_to_the_end("pull oci:", pull, 0.1 * times[pull], 0.7 * times[pull])
            self.run_to_the_end("pack", pack, 0, 1.1 * times[pack])
            self.run_to_the_end("pack", proved, 0, 1.1 * times[proved])
            self.assertEqual(self.models(), {"kept", "packed", "proved", "pulled"})
            self.check_hub_blobs()
            self.forget()
            self.run_to_the_end("gc", ("gc",), 0, 0.1)
            self.check_nothing_left_over()
        self.assertIn("kept:1: ", self.forge("verify", "--run").stdout)
        print("%d kills (%s), jobs finished: %s, most kills before one did: %s" % (sum(self.kills.values()), self.kills, self.jobs, self.most))

    def forget(self):
        for name in ("packed:1", "proved:1", "pulled:1"):
            self.forge("rm", name)
        shutil.rmtree(self.hf, ignore_errors=True)

    def test_with_a_registry_of_our_own(self):
        registry = Registry(redirect=True).__enter__()
        self.addCleanup(registry.__exit__)

        def delay(seconds):
            registry.faults.delay = seconds

        self.kill_loop(registry.host, KILLS, delay)

    serve = oci_test.DockerRegistry.serve

    @unittest.skipUnless(os.environ.get("FORGE_LONG"), "one of the long tests")
    @unittest.skipUnless(shutil.which("docker-registry"), "docker-registry is not installed (Debian's package of this name)")
    def test_with_debians_registry(self):
        self.kill_loop("localhost:%d" % self.serve(), KILLS, lambda seconds: None)


if __name__ == "__main__":
    main()
