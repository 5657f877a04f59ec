"""forge push and forge pull oci:... against a registry on this machine that misbehaves on demand, and
against the docker-registry of Debian."""
import hashlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "transport"))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from oci_server import Registry  # noqa: E402
from support import Case, main, random_bytes, relay  # noqa: E402

MAKE_MODEL = sys.argv.pop(2)
MIB = 1 << 20
SIZES = [9 * MIB + 77, 3 * MIB, 3 * MIB + 1, 2000, 0]  # of the layers


def layers(tune=0):
    """Two layers differ between fine-tunes, the others do not."""
    return [random_bytes(100 + i + (1000 * tune if i in (1, 2) else 0), size) for i, size in enumerate(SIZES)]


def read_text(path):
    with open(path) as file:
        return file.read()


class StoreCase(Case):
    def setUp(self):
        super().setUp()
        self.other = os.path.join(self.root, "other")  # a second machine's FORGE_HOME

    def make(self, name, contents, home=None):
        folder = os.path.join(self.root, "files")
        os.makedirs(folder, exist_ok=True)
        paths = []
        for i, content in enumerate(contents):
            paths.append(os.path.join(folder, "layer-%d" % i))
            with open(paths[-1], "wb") as file:
                file.write(content)
        subprocess.run([MAKE_MODEL, name, *paths], check=True, env={**self.environment, "FORGE_HOME": home or self.environment["FORGE_HOME"]})

    def blobs(self, home):
        """SHA-256 of every blob of a store."""
        found = set()
        for at, _, names in os.walk(os.path.join(home, "data", "store", "blobs")):
            for name in names:
                with open(os.path.join(at, name), "rb") as file:
                    found.add(hashlib.sha256(file.read()).hexdigest())
        return found

    def manifests(self, home):
        folder = os.path.join(home, "data", "store", "manifests")
        return {name: read_text(os.path.join(folder, name)) for name in sorted(os.listdir(folder))} if os.path.isdir(folder) else {}

    def check_pulled(self, contents):
        expected = {hashlib.sha256(content).hexdigest() for content in contents}
        self.assertLessEqual(expected, self.blobs(self.other))
        self.assertEqual(len(self.manifests(self.other)), 1)
        self.assertIn(list(self.manifests(self.other).values())[0], self.manifests(self.environment["FORGE_HOME"]).values())


class Fake(StoreCase):
    user = ""

    def setUp(self):
        super().setUp()
        self.registry = Registry("ada" if self.user else "", "pass-secret", redirect=True).__enter__()
        self.addCleanup(self.registry.__exit__)
        self.faults = self.registry.faults
        self.reference = "oci:%s/ada/model:v1" % self.registry.host

    def held(self, repository="ada/model"):
        return {digest.split(":")[1] for (name, digest) in self.registry.blobs if name == repository}

    def push(self, *arguments, name="m:1", **options):
        return self.forge("push", name, *(arguments or [self.reference]), **options)

    def pull(self, *arguments, **options):
        return self.forge("pull", *(arguments or [self.reference]), FORGE_HOME=self.other, **options)


class Plain(Fake):
    def test_round_trip(self):
        self.make("m:1", layers())
        done = self.push()
        self.assertIn("6 of 6 blobs", done.stdout)
        described = json.loads(self.registry.manifests["ada/model", "v1"])
        self.assertEqual(described["artifactType"], "application/vnd.forge.model.v1")
        self.assertTrue(all(len(layer["annotations"]["dev.forge.blake3"]) == 64 for layer in described["layers"]))
        done = self.pull()
        self.assertIn("6 of 6 blobs", done.stdout)
        self.check_pulled(layers())
        # Again: nothing travels.
        before = len(self.registry.log)
        self.assertIn("was there already", self.pull().stdout)
        self.push()
        self.assertEqual([e[:3] for e in self.registry.log[before:] if e[0] == "storage" or e[1] in ("POST", "PATCH")], [])

    def test_fine_tunes_share_their_layers(self):
        self.make("base:1", layers())
        self.make("tuned:1", layers(1))
        self.push(name="base:1")
        before = len(self.registry.requests("registry", "PATCH"))
        done = self.push("oci:%s/ada/model:tuned" % self.registry.host, name="tuned:1")
        self.assertIn("3 of 6 blobs", done.stdout)  # two layers and the manifest
        self.assertEqual(len(self.registry.requests("registry", "PATCH")) - before, 3)
        # Into another repository of the registry: shared there too, without being sent.
        before = len(self.registry.requests("registry", "PATCH"))
        done = self.push("oci:%s/ada/other:1" % self.registry.host, name="tuned:1")
        self.assertIn("0 of 6 blobs", done.stdout)
        self.assertEqual(len(self.registry.requests("registry", "PATCH")), before)
        # Pulling the second after the first brings two layers and the manifest.
        self.pull()
        self.assertIn("3 of 6 blobs", self.pull("oci:%s/ada/model:tuned" % self.registry.host).stdout)

    def test_dropped_uploads_go_on(self):
        self.make("m:1", layers())
        self.faults.upload_drop_after, self.faults.upload_drops = 2 * MIB, 3
        self.push()
        starts = [int(e[3]["Content-Range"].split("-")[0]) for e in self.registry.requests("registry", "PATCH")]
        self.assertTrue(any(start == 2 * MIB for start in starts), starts)
        self.pull()
        self.check_pulled(layers())

    def test_uploads_that_the_registry_forgets_begin_anew(self):
        self.make("m:1", layers())
        self.faults.upload_drop_after, self.faults.upload_drops, self.faults.forget = MIB, 3, 2
        self.push()
        self.faults.upload_drops, self.faults.keep_partial = 2, False
        self.faults.upload_statuses = [503, 429]
        self.make("m:2", layers(2))
        self.push(name="m:2")
        self.faults.upload_statuses = [416, 404]
        self.make("m:3", layers(3))
        self.push(name="m:3")
        self.pull()
        self.check_pulled(layers(3))

    def test_a_lost_answer(self):
        self.make("m:1", layers())
        self.faults.lose_answers = 2
        self.push()
        self.pull()
        self.check_pulled(layers())

    def test_a_registry_that_keeps_nothing_is_given_up(self):
        self.make("m:1", layers())
        self.faults.stuck = True
        self.assertIn("error: ", self.push("--tries", "2", self.reference, status=1).stderr)

    def test_small_pieces(self):
        self.make("m:1", layers())
        self.push("--piece", "1", self.reference)
        self.assertGreaterEqual(len(self.registry.requests("registry", "PATCH")), 10 + 3 + 4)
        self.pull()
        self.check_pulled(layers())

    def test_blobs_go_up_at_once_and_the_manifest_last(self):
        self.make("m:1", layers())
        self.faults.upload_delay = 0.3
        self.push("--connections", "3", self.reference)
        self.assertEqual(self.registry.most_uploading, 3)
        sent = [e[1] for e in self.registry.requests("registry") if e[1] in ("PUT", "PATCH")]
        puts = [e[2] for e in self.registry.requests("registry", "PUT")]
        self.assertIn("/manifests/", puts[-1])
        self.assertEqual([p for p in puts[:-1] if "/manifests/" in p], [])
        self.assertEqual(sent[-1], "PUT")
        self.pull()
        self.check_pulled(layers())

    def test_one_upload_that_fails_ends_the_push(self):
        self.make("m:1", layers())
        self.faults.upload_statuses = [400] * 100  # a refusal, not a fault that passes
        self.assertIn("error: ", self.push("--tries", "1", self.reference, status=1).stderr)
        self.assertEqual(self.registry.manifests, {})
        self.faults.upload_statuses = []
        self.push()
        self.pull()
        self.check_pulled(layers())

    def path_of(self, home, content):
        for at, _, names in os.walk(os.path.join(home, "data", "store", "blobs")):
            for name in names:
                with open(os.path.join(at, name), "rb") as file:
                    if file.read() == content:
                        return os.path.join(at, name)
        self.fail("the blob is not there")

    def damage(self, path, at=1000):
        os.chmod(path, 0o644)
        with open(path, "r+b") as file:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 4]))

    def test_pulling_again_mends_a_damaged_blob(self):
        self.make("m:1", layers())
        self.push()
        self.pull()
        path = self.path_of(self.other, layers()[1])
        self.damage(path)
        done = self.forge("verify", "-m", list(self.names_of(self.other))[0], status=1, FORGE_HOME=self.other)
        self.assertIn("its bytes are wrong", done.stderr)
        self.assertIn("pull it again", done.stderr)
        done = self.pull()
        self.assertIn("is damaged; it is fetched again", done.stderr)
        self.assertIn("1 of 6 blobs", done.stdout)
        self.check_pulled(layers())
        with open(path, "rb") as file:
            self.assertTrue(file.read() == layers()[1])
        # One that was cut off, and one that is missing.
        os.chmod(path, 0o644)
        os.truncate(path, 1000)
        os.remove(self.path_of(self.other, layers()[3]))
        self.assertIn("2 of 6 blobs", self.pull().stdout)
        self.check_pulled(layers())

    def names_of(self, home):
        return [name[:-len(".json")].replace("+", "/").replace("@", ":") for name in self.manifests(home)]

    def test_a_damaged_blob_is_not_sent(self):
        self.make("m:1", layers())
        path = self.path_of(self.environment["FORGE_HOME"], layers()[2])
        self.damage(path)
        self.assertIn("is damaged, so it is not sent", self.push(status=1).stderr)
        self.assertEqual(self.registry.manifests, {})
        self.damage(path)  # back
        self.push()
        # Its SHA-256 is remembered by now, and the registry refuses other bytes.
        self.damage(path)
        self.registry.blobs.clear()
        self.assertIn("is damaged, so it is not sent", self.push("--tries", "1", self.reference, status=1).stderr)

    def test_faults_while_pulling(self):
        self.make("m:1", layers())
        self.push()
        self.faults.drop_after, self.faults.drops = MIB, 4
        self.faults.corrupt = 1
        self.faults.statuses = [500, 503]
        self.pull()
        self.check_pulled(layers())

    def test_wrong_bytes_do_not_enter_the_store(self):
        self.make("m:1", layers())
        self.push()
        self.faults.corrupt = 1000
        self.assertIn("not those of sha256:", self.pull(status=1).stderr)
        self.assertEqual(self.manifests(self.other), {})
        self.faults.corrupt = 0
        self.pull()
        self.check_pulled(layers())

    def test_another_blake3_does_not_enter_the_store(self):
        self.make("m:1", layers())
        self.push()
        described = json.loads(self.registry.manifests["ada/model", "v1"])
        a, b = described["layers"][0]["annotations"], described["layers"][1]["annotations"]
        a["dev.forge.blake3"], b["dev.forge.blake3"] = b["dev.forge.blake3"], a["dev.forge.blake3"]
        self.registry.manifests["ada/model", "v1"] = json.dumps(described).encode()
        self.pull(status=1)
        self.assertEqual(self.manifests(self.other), {})

    def test_refusals_are_sentences(self):
        self.make("m:1", layers()[3:4])
        self.assertIn("there is no model", self.push(name="none:1", status=1).stderr)
        self.assertIn("no oci:", self.pull(status=1).stderr)
        self.push()
        for body in (b"", b"[]", b"{}", b'{"config": {}, "layers": []}', b"[" * 100000, json.dumps({"schemaVersion": 2, "manifests": []}).encode()):
            self.faults.manifest = body
            self.assertIn("error: ", self.pull(status=1).stderr)
        self.faults.manifest = None
        described = json.loads(self.registry.manifests["ada/model", "v1"])
        described["config"]["mediaType"] = "application/vnd.oci.image.config.v1+json"
        self.registry.manifests["ada/model", "v1"] = json.dumps(described).encode()
        self.assertIn("no model that forge push wrote", self.pull(status=1).stderr)
        for reference in ("oci:", "oci:host", "oci:host/", "oci:host/UPPER:1", "oci:host/a:", "oci:host/../b", "oci:user:pw@host/a"):
            self.forge("pull", reference, status=1)

    def test_kill_at_random_moments(self):
        self.make("m:1", layers())
        self.push()
        self.faults.delay = 0.002
        rounds = int(os.environ.get("FORGE_KILLS", "200" if os.environ.get("FORGE_LONG") else "25"))
        expected = {hashlib.sha256(c).hexdigest() for c in layers()} | {hashlib.sha256(t.encode()).hexdigest() for t in self.manifests(self.environment["FORGE_HOME"]).values()}
        finished = 0
        for i in range(rounds):
            process = self.start("pull", self.reference, "--connections", "3", FORGE_HOME=self.other)
            time.sleep(((7919 * i) % 1000) / 1000 * 1.2)
            process.kill()
            process.communicate()
            self.assertLessEqual(self.blobs(self.other), expected)
            if self.manifests(self.other):
                self.check_pulled(layers())
                finished += 1
                shutil.rmtree(self.other)
        self.faults.delay = 0
        self.pull()
        self.check_pulled(layers())
        print("%d kills, %d pulls finished between them" % (rounds, finished))

    def test_interrupt(self):
        self.make("m:1", layers())
        self.push()
        self.faults.delay = 0.05
        process = self.start("pull", self.reference, FORGE_HOME=self.other)
        end = time.time() + 30
        while not self.registry.requests("storage") and time.time() < end:
            time.sleep(0.02)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 130, err)
        self.faults.delay = 0
        self.pull()
        self.check_pulled(layers())


class Packed(Fake):
    """Models as forge pack makes them."""

    def tuned(self, source, tensor):
        """A copy of the folder in which one tensor differs."""
        folder = os.path.join(self.root, "tuned")
        os.makedirs(folder)
        for name in ("config.json", "model.safetensors"):
            shutil.copy(os.path.join(source, name), folder)
        path = os.path.join(folder, "model.safetensors")
        with open(path, "r+b") as file:
            length = struct.unpack("<Q", file.read(8))[0]
            begin, _ = json.loads(file.read(length))[tensor]["data_offsets"]
            file.seek(8 + length + begin)
            byte = file.read(1)[0]
            file.seek(8 + length + begin)
            file.write(bytes([byte ^ 1]))
        return folder

    def digests(self, name):
        return {blob["digest"] for blob in json.loads(self.manifests(self.environment["FORGE_HOME"])[name + "@1.json"])["blobs"]}

    def test_round_trip_of_two_fine_tunes(self):
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "models", "llama-gqa-tied")
        self.forge("pack", source, "-o", "base:1")
        self.forge("pack", self.tuned(source, "model.layers.1.mlp.down_proj.weight"), "-o", "tuned:1")
        self.forge("push", "base:1", self.reference)
        before = len(self.registry.requests("registry", "PATCH"))
        self.forge("push", "tuned:1", "oci:%s/ada/model:tuned" % self.registry.host)
        sent = len(self.registry.requests("registry", "PATCH")) - before
        different = self.digests("tuned") - self.digests("base")
        self.assertLess(len(different), len(self.digests("tuned")))
        self.assertEqual(sent, len(different) + 1)  # and the manifest
        reference = "oci:%s/ada/model:tuned" % self.registry.host
        self.assertIn("forge pull " + reference, self.forge("verify", reference, status=1, FORGE_HOME=self.other).stderr)
        self.pull(reference)
        self.forge("verify", reference, "--run", FORGE_HOME=self.other)
        self.forge("inspect", reference, FORGE_HOME=self.other)
        self.pull(self.reference, "--as", "base:1")
        self.forge("verify", "base:1", "--run", FORGE_HOME=self.other)
        listed = self.forge("list", FORGE_HOME=self.other).stdout
        self.assertEqual([listed.count(name) for name in ("base:1", "/ada/model:tuned")], [1, 1], listed)
        self.forge("gc", FORGE_HOME=self.other)
        self.forge("verify", reference, "--run", FORGE_HOME=self.other)


class Tokens(Fake):
    user = "ada"

    def test_login_and_nothing_told(self):
        self.make("m:1", layers())
        self.assertIn("forge login", self.push(status=1).stderr)
        self.forge("login", self.registry.host, "--user", "ada", input="wrong-secret")
        self.assertIn("not accepted", self.push(status=1).stderr)
        self.forge("login", self.registry.host, "--user", "ada", input="pass-secret")
        done = self.push("-v", self.reference)
        told = done.stdout + done.stderr
        done = self.pull("-v", self.reference, FORGE_REGISTRY=self.registry.host, FORGE_REGISTRY_USER="ada", FORGE_REGISTRY_TOKEN="pass-secret")
        self.check_pulled(layers())
        told += done.stdout + done.stderr
        for secret in ("pass-secret", "bearer-secret", "secret-signature", "cGFzcy1zZWNyZXQ"):
            self.assertNotIn(secret, told)
        self.assertEqual([e for e in self.registry.requests("storage") if "Authorization" in e[3]], [])
        # The password goes to the token server alone.
        self.assertEqual([e for e in self.registry.requests("registry") if e[3].get("Authorization", "").startswith("Basic")], [])

    def test_tokens_that_expire(self):
        self.make("m:1", layers())
        self.forge("login", self.registry.host, "--user", "ada", input="pass-secret")
        self.faults.token_uses = 3
        self.push("--piece", "2", "--connections", "1", self.reference)
        self.assertGreater(len(self.registry.tokens), 4)
        self.faults.token_uses = 12  # now several connections use one up
        self.make("m:2", layers(2))
        self.push("--piece", "1", self.reference, name="m:2")
        self.pull(FORGE_REGISTRY=self.registry.host, FORGE_REGISTRY_USER="ada", FORGE_REGISTRY_TOKEN="pass-secret")
        self.check_pulled(layers(2))

    def test_broken_token_servers(self):
        self.make("m:1", layers()[3:4])
        for body in (b"", b"[]", b'{"token": 7}', b"[" * 100000, b'{"token": "a\\r\\nX-Evil: 1"}', b'{"token": "no-good"}'):
            self.faults.token_answer = body
            self.assertIn("error: ", self.push(status=1).stderr)


class Dropping:
    """Passes connections on to a port, and breaks every one after so many bytes from the client."""

    def __init__(self, port, after, drops):
        self.port, self.after, self.drops, self.dropped = port, after, drops, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.at = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.port))
            threading.Thread(target=self.copy, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self.copy, args=(server, client, False), daemon=True).start()

    def copy(self, source, target, counted):
        seen = 0

        def passes(data):
            nonlocal seen
            seen += len(data)
            if not counted or seen <= self.after or self.dropped >= self.drops:
                return True
            self.dropped += 1
            source.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False

        relay(source, target, passes)
        for end in (source, target):
            end.close()


@unittest.skipUnless(shutil.which("docker-registry"), "docker-registry is not installed (Debian's package of this name)")
class DockerRegistry(StoreCase):
    """Debian's registry, without and with a password."""

    def serve(self, password=False):
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        config = "version: 0.1\nlog: {level: error}\nstorage: {filesystem: {rootdirectory: %s}}\nhttp: {addr: 127.0.0.1:%d, relativeurls: true}\n" % (
            os.path.join(self.root, "registry"), port)
        if password:
            users = os.path.join(self.root, "htpasswd")
            subprocess.run(["htpasswd", "-Bbc", users, "ada", "sesame"], check=True, capture_output=True)
            config += "auth: {htpasswd: {realm: test, path: %s}}\n" % users
        path = os.path.join(self.root, "config.yml")
        with open(path, "w") as file:
            file.write(config)
        server = subprocess.Popen(["docker-registry", "serve", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        for _ in range(300):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                return port
            except OSError:
                time.sleep(0.1)
        self.fail("docker-registry did not start")

    def bytes_held(self):
        return sum(os.path.getsize(os.path.join(at, n)) for at, _, names in os.walk(os.path.join(self.root, "registry")) for n in names if n == "data")

    def test_round_trip_and_shared_layers(self):
        port = self.serve()
        self.make("base:1", layers())
        self.make("tuned:1", layers(1))
        self.assertIn("6 of 6 blobs", self.forge("push", "base:1", "oci:localhost:%d/ada/model:base" % port, "--piece", "2").stdout)
        self.assertIn("3 of 6 blobs", self.forge("push", "tuned:1", "oci:localhost:%d/ada/model:tuned" % port).stdout)
        held = self.bytes_held()
        self.assertIn("0 of 6 blobs", self.forge("push", "tuned:1", "oci:localhost:%d/other/model:tuned" % port).stdout)
        self.assertLess(self.bytes_held() - held, 10000)
        self.assertLess(held, sum(SIZES) + SIZES[1] + SIZES[2] + 20000)
        self.forge("pull", "oci:localhost:%d/other/model:tuned" % port, FORGE_HOME=self.other)
        self.check_pulled(layers(1))

    def test_drops(self):
        port = self.serve()
        self.make("m:1", layers())
        dropping = Dropping(port, 2 * MIB, 4)
        self.addCleanup(dropping.listener.close)
        done = self.forge("push", "-v", "m:1", "oci:localhost:%d/ada/model:1" % dropping.at, "--piece", "3")
        self.assertEqual(dropping.dropped, 4)
        self.assertIn("6 of 6 blobs", done.stdout)
        self.forge("pull", "oci:localhost:%d/ada/model:1" % port, FORGE_HOME=self.other)
        self.check_pulled(layers())

    @unittest.skipUnless(shutil.which("htpasswd"), "htpasswd is not installed (Debian's package apache2-utils)")
    def test_password(self):
        port = self.serve(password=True)
        self.make("m:1", layers())
        reference = "oci:localhost:%d/ada/model:1" % port
        self.assertIn("wants a user and a password", self.forge("push", "m:1", reference, status=1).stderr)
        self.forge("login", "localhost:%d" % port, "--user", "ada", input="sesame\n")
        self.forge("push", "m:1", reference)
        self.forge("pull", reference, status=1, FORGE_HOME=self.other)
        self.forge("login", "localhost:%d" % port, "--user", "ada", input="sesame\n", FORGE_HOME=self.other)
        self.forge("pull", reference, FORGE_HOME=self.other)
        self.check_pulled(layers())


if __name__ == "__main__":
    main()
