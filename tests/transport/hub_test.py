"""forge pull hf:... against a hub on this machine that misbehaves on demand."""
import hashlib
import http.server
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from hub_server import Hub, Server, etag_of, git_digest  # noqa: E402
from support import Case, main, random_bytes  # noqa: E402

MIB = 1 << 20
BIG = random_bytes(1, 21 * MIB + 12345)  # three ranges, the last one ragged


def model(weights=BIG):
    return {"config.json": b'{"model_type": "llama"}', "tokenizer.json": random_bytes(2, 3000), "tokenizer_config.json": b"{}",
            "generation_config.json": b'{"do_sample": true}', "LICENSE": b"free", "model.safetensors": weights, "README.md": b"# read me",
            "pytorch_model.bin": b"x" * 4000, "onnx/model.onnx": b"y" * 4000, ".gitattributes": b""}


WANTED = {"config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json", "LICENSE", "model.safetensors"}


class HubCase(Case):
    def setUp(self):
        super().setUp()
        self.hub = Hub({"org/model": {"main": model()}}).__enter__()
        self.addCleanup(self.hub.__exit__)
        self.environment["HF_ENDPOINT"] = self.hub.url

    def folder(self, repo="org/model"):
        return os.path.join(self.hf, "hub", "models--" + repo.replace("/", "--"))

    def check(self, repo="org/model", revision="main", wanted=WANTED):
        """The snapshot holds exactly these files, as links to blobs that are named by their digest."""
        commit, files = self.hub.commit(repo, revision)
        snapshot = os.path.join(self.folder(repo), "snapshots", commit)
        found = {os.path.relpath(os.path.join(at, name), snapshot) for at, _, names in os.walk(snapshot) for name in names}
        self.assertEqual(found, set(wanted))
        for name in found:
            path = os.path.join(snapshot, name)
            self.assertTrue(os.path.islink(path))
            self.assertFalse(os.path.isabs(os.readlink(path)))
            self.assertEqual(os.path.realpath(path), os.path.realpath(os.path.join(self.folder(repo), "blobs", etag_of(files[name]))))
            with open(path, "rb") as file:
                self.assertEqual(file.read() == files[name], True, name)
        if revision != commit:
            with open(os.path.join(self.folder(repo), "refs", revision)) as file:
                self.assertEqual(file.read(), commit)
        self.assertEqual([n for n in os.listdir(os.path.join(self.folder(repo), "blobs")) if "incomplete" in n], [])
        return snapshot

    def check_blobs(self):
        """No blob has wrong bytes, whatever happened."""
        folder = os.path.join(self.folder(), "blobs")
        for name in os.listdir(folder) if os.path.isdir(folder) else []:
            if name.endswith(".ranges"):
                self.check_ranges(os.path.join(folder, name))
                continue
            with open(os.path.join(folder, name), "rb") as file:
                data = file.read()
            if name.endswith(".incomplete"):
                self.assertTrue(any(content.startswith(data) for content in self.hub.repos["org/model"]["main"].values()), name)
            else:
                self.assertIn(name, (hashlib.sha256(data).hexdigest(), git_digest(data)))

    def check_ranges(self, folder):
        """Files FIRST-END hold a beginning of these bytes of a file."""
        whole = [content for content in self.hub.repos["org/model"]["main"].values() if os.path.basename(folder).startswith(etag_of(content))]
        for name in os.listdir(folder):
            first, end = map(int, name.split("-"))
            with open(os.path.join(folder, name), "rb") as file:
                data = file.read()
            self.assertLessEqual(len(data), end - first)
            self.assertTrue(any(content[first:first + len(data)] == data for content in whole), name)

    def begun(self):
        """Bytes of BIG that are on disk in ranges of their own."""
        folder = os.path.join(self.folder(), "blobs", etag_of(BIG) + ".incomplete.ranges")
        return {name: os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder)} if os.path.isdir(folder) else {}

    def ranges(self):
        return [entry for entry in self.hub.served("cdn") if etag_of(BIG) in entry[2]]


class Pull(HubCase):
    def test_files_and_layout(self):
        done = self.forge("pull", "hf:org/model")
        snapshot = self.check()
        self.assertEqual(done.stdout.splitlines()[-1], snapshot)
        self.assertIn("pulled hf:org/model: 6 of 6 files", done.stdout)
        self.assertEqual(len({entry[3]["Range"] for entry in self.ranges()}), 3)
        # Again: nothing travels but the list.
        self.hub.log.clear()
        self.assertIn("was there already", self.forge("pull", "hf:org/model").stdout)
        self.assertEqual([entry[1:3] for entry in self.hub.log if entry[0] == "cdn" or "resolve" in entry[2]], [])

    def test_a_new_commit_takes_only_what_changed(self):
        self.forge("pull", "hf:org/model")
        self.hub.repos["org/model"]["main"] = {**model(), "config.json": b'{"model_type": "llama", "new": 1}'}
        self.hub.log.clear()
        self.assertIn("1 of 6 files", self.forge("pull", "hf:org/model").stdout)
        self.check()
        self.assertEqual(self.hub.served("cdn"), [])

    def test_revisions(self):
        self.hub.repos["org/model"]["refs/pr/1"] = {**model(b"z" * 5000), "config.json": b"{}"}
        self.forge("pull", "hf:org/model@refs/pr/1")
        self.check(revision="refs/pr/1")
        commit, _ = self.hub.commit("org/model", "refs/pr/1")
        self.forge("pull", "hf:org/model@" + commit)
        self.check(revision=commit)
        self.assertIn("no revision nope", self.forge("pull", "hf:org/model@nope", status=1).stderr)

    def test_an_index_names_the_files(self):
        files = model()
        del files["model.safetensors"]
        files["model.safetensors.index.json"] = b'{"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}}'
        files.update({"m-1.safetensors": b"1" * 2000, "m-2.safetensors": b"2" * 2000, "other.safetensors": b"3" * 2000})
        self.hub.repos["org/model"]["main"] = files
        self.forge("pull", "hf:org/model")
        self.check(wanted=(WANTED - {"model.safetensors"}) | {"model.safetensors.index.json", "m-1.safetensors", "m-2.safetensors"})
        del files["m-2.safetensors"]
        self.assertIn("lists m-2.safetensors", self.forge("pull", "hf:org/model", status=1).stderr)

    def test_gguf(self):
        self.hub.repos["org/gguf"] = {"main": {"M-Q4_0.gguf": b"0" * 3000, "M-Q4_K_M.gguf": b"k" * 3000, "README.md": b"",
                                               "M-BF16-00001-of-00002.gguf": b"b" * 3000, "M-BF16-00002-of-00002.gguf": b"c" * 3000}}
        self.assertIn("M-Q4_0, M-Q4_K_M", self.forge("pull", "hf:org/gguf", status=1).stderr)
        done = self.forge("pull", "hf:org/gguf:Q4_K_M")
        snapshot = self.check("org/gguf", wanted={"M-Q4_K_M.gguf"})
        self.assertEqual(done.stdout.splitlines()[-1], os.path.join(snapshot, "M-Q4_K_M.gguf"))
        done = self.forge("pull", "hf:org/gguf:bf16")
        self.check("org/gguf", wanted={"M-Q4_K_M.gguf", "M-BF16-00001-of-00002.gguf", "M-BF16-00002-of-00002.gguf"})
        self.assertTrue(done.stdout.splitlines()[-1].endswith("M-BF16-00001-of-00002.gguf"))

    def test_include(self):
        self.forge("pull", "hf:org/model", "--include", "*.json", "--include", "onnx/*")
        self.check(wanted={"config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json", "onnx/model.onnx"})

    def test_pages_of_the_list(self):
        self.hub.faults.page = 3
        self.forge("pull", "hf:org/model")
        self.check()

    def test_a_renamed_repository(self):
        self.hub.renamed["old/name"] = "org/model"
        self.forge("pull", "hf:old/name")
        self.assertTrue(os.path.isdir(self.folder("old/name")))

    def test_refusals_are_sentences(self):
        self.assertIn("does not exist on 127.0.0.1", self.forge("pull", "hf:org/none", status=1).stderr)
        self.hub.gated.add("org/model")
        self.assertIn("accept them on its page", self.forge("pull", "hf:org/model", status=1).stderr)
        self.assertIn("hf: or oci:", self.forge("pull", "org/model", status=2).stderr)
        self.assertIn("no name of a repository", self.forge("pull", "hf:org/../x", status=1).stderr)
        self.assertIn("cannot be reached", self.forge("pull", "hf:org/model", "--tries", "1", status=1, HF_ENDPOINT="http://127.0.0.1:9").stderr)


class Faulty(HubCase):
    def test_dropped_connections_go_on(self):
        self.hub.faults.drop_after, self.hub.faults.drops = 3 * MIB, 5
        self.forge("pull", "hf:org/model")
        self.check()
        self.assertEqual(self.hub.faults.drops, 0)
        starts = [int(entry[3]["Range"].split("=")[1].split("-")[0]) for entry in self.ranges()]
        self.assertTrue(any(start % (8 * MIB) for start in starts), "a dropped range goes on where it stopped")
        # What was received was not asked for again: with 8 ranges and 5 drops at most a socket's buffer each.
        self.assertGreater(len(starts), 3)

    def test_wrong_bytes_are_found_and_fetched_again(self):
        self.hub.faults.corrupt = 1
        done = self.forge("pull", "hf:org/model", "--include", "model.safetensors")
        self.assertIn("once more", done.stderr)
        self.check(wanted={"model.safetensors"})

    def test_wrong_bytes_twice_are_an_error(self):
        self.hub.faults.corrupt = 100
        self.assertIn("not those of sha256:" + etag_of(BIG), self.forge("pull", "hf:org/model", "--include", "model.safetensors", status=1).stderr)
        self.check_blobs()
        self.hub.faults.corrupt = 0
        self.forge("pull", "hf:org/model")
        self.check()

    def test_a_partial_file_of_wrong_bytes_is_found(self):
        blobs = os.path.join(self.folder(), "blobs")
        os.makedirs(blobs)
        with open(os.path.join(blobs, etag_of(BIG) + ".incomplete"), "wb") as file:
            file.write(b"wrong" * 1000)
        self.forge("pull", "hf:org/model")
        self.check()

    def test_a_partial_file_is_not_fetched_again(self):
        blobs = os.path.join(self.folder(), "blobs")
        os.makedirs(blobs)
        with open(os.path.join(blobs, etag_of(BIG) + ".incomplete"), "wb") as file:
            file.write(BIG[:20 * MIB])
        self.forge("pull", "hf:org/model")
        self.check()
        self.assertEqual([entry[3]["Range"] for entry in self.ranges()], ["bytes=%d-%d" % (20 * MIB, len(BIG) - 1)])

    def test_another_size_is_an_error(self):
        self.hub.faults.wrong_total = 1
        self.assertIn("bytes are expected", self.forge("pull", "hf:org/model", status=1).stderr)

    def test_a_server_without_ranges(self):
        self.hub.faults.no_ranges = True
        self.forge("pull", "hf:org/model")
        self.check()

    def test_a_server_without_ranges_that_drops(self):
        self.hub.faults.no_ranges = True
        self.hub.faults.drop_after, self.hub.faults.drops = 9 * MIB, 2
        self.forge("pull", "hf:org/model")
        self.check()

    def test_signatures_that_expire(self):
        self.hub.faults.expire = True
        self.forge("pull", "hf:org/model")
        self.check()
        self.assertGreater(self.hub.signatures, 2)

    def test_a_file_that_changes_meanwhile(self):
        self.hub.faults.change_etag = True
        self.assertIn("changed on the server", self.forge("pull", "hf:org/model", status=1).stderr)
        self.hub.faults.change_etag = False
        self.hub.faults.etag = "0" * 64
        self.assertIn("run the command again", self.forge("pull", "hf:org/model", status=1).stderr)

    def test_busy_servers_are_asked_again(self):
        self.hub.faults.statuses = [503, 429, 500, 502]
        self.forge("pull", "hf:org/model")
        self.check()

    def test_a_server_that_falls_silent(self):
        self.hub.faults.stall = 20
        start = time.time()
        self.forge("pull", "hf:org/model", "--timeout", "1")
        self.assertLess(time.time() - start, 19)
        self.check()

    def test_it_gives_up_in_the_end(self):
        self.hub.faults.statuses = [503] * 1000
        done = self.forge("pull", "hf:org/model", "--tries", "2", status=1)
        self.assertIn("status 503", done.stderr)
        self.assertIn("goes on from there", done.stderr)

    def test_broken_lists(self):
        for body in (b"", b"{}", b"[{]", b"[" * 100000, b'[{"type": "file", "path": "../x", "size": 1, "oid": "' + b"0" * 40 + b'"}]'):
            self.hub.faults.tree = body
            self.assertIn("error: ", self.forge("pull", "hf:org/model", status=1).stderr)
        self.assertFalse(os.path.exists(os.path.join(self.hf, "hub", "x")))


class Secrets(HubCase):
    TOKEN = "hf_veryverysecret"

    def test_the_token_stays_with_the_hub_and_out_of_the_log(self):
        self.hub.faults.token = self.TOKEN
        self.assertIn("give a token", self.forge("pull", "hf:org/model", status=1).stderr)
        done = self.forge("pull", "hf:org/model", "-v", HF_TOKEN=self.TOKEN)
        self.check()  # the CDN refuses requests with a token
        self.assertEqual([e for e in self.hub.served("cdn") if "Authorization" in e[3]], [])
        self.assertTrue(all(e[3].get("Authorization") for e in self.hub.served("hub")[1:]))
        for text in (done.stdout, done.stderr):
            self.assertNotIn(self.TOKEN, text)
            self.assertNotIn("secret-signature", text)
        done = self.forge("pull", "hf:org/model", status=1, HF_TOKEN="wrong-token")
        self.assertIn("not accepted", done.stderr)
        self.assertNotIn("wrong-token", done.stderr)

    def test_login(self):
        self.hub.faults.token = self.TOKEN
        host = self.hub.url.split("//")[1]
        done = self.forge("login", self.hub.url, input=self.TOKEN + "\n")
        self.assertNotIn(self.TOKEN, done.stdout + done.stderr)
        file = os.path.join(self.root, "forge", "config", "credentials.json")
        self.assertEqual(os.stat(file).st_mode & 0o777, 0o600)
        self.forge("pull", "hf:org/model")
        self.check()
        self.forge("logout", host)
        self.forge("logout", host, status=1)
        with open(file) as text:
            self.assertNotIn(self.TOKEN, text.read())
        self.assertIn("nothing was kept", self.forge("login", host, input="\n", status=1).stderr)

    def test_the_token_file_of_other_tools(self):
        self.hub.faults.token = self.TOKEN
        os.makedirs(self.hf)
        with open(os.path.join(self.hf, "token"), "w") as file:
            file.write(self.TOKEN + "\n")
        self.forge("pull", "hf:org/model")

    def test_a_proxy_from_the_environment(self):
        seen = []

        class Proxy(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                seen.append(self.path)
                self.send_response(418)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        proxy = Server(("127.0.0.1", 0), Proxy)
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        self.addCleanup(proxy.shutdown)
        self.forge("pull", "hf:org/model", status=1, HF_ENDPOINT="http://hub.invalid", http_proxy="http://127.0.0.1:%d" % proxy.server_port)
        self.assertEqual(seen, ["http://hub.invalid/api/models/org/model/revision/main"])
        # and no token over plain http to another machine, not even through a proxy
        done = self.forge("pull", "hf:org/model", status=1, HF_ENDPOINT="http://hub.invalid", HF_TOKEN=self.TOKEN,
                          http_proxy="http://127.0.0.1:%d" % proxy.server_port)
        self.assertIn("only sent over https", done.stderr)
        self.assertEqual(len(seen), 1)


class Stopped(HubCase):
    def wait_for(self, condition, seconds=60):
        end = time.time() + seconds
        while not condition() and time.time() < end:
            time.sleep(0.02)
        self.assertTrue(condition())

    def size_of_partial(self):
        try:
            return os.path.getsize(os.path.join(self.folder(), "blobs", etag_of(BIG) + ".incomplete"))
        except OSError:
            return 0

    def test_interrupt_leaves_a_beginning_that_goes_on(self):
        self.hub.faults.delay = 0.02
        process = self.start("pull", "hf:org/model")
        self.wait_for(lambda: len(self.ranges()) >= 3)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, err)
        self.assertIn("goes on from there", err)
        had = self.size_of_partial()
        self.assertGreater(had, 0)
        self.check_blobs()
        self.hub.faults.delay = 0
        self.hub.log.clear()
        self.forge("pull", "hf:org/model")
        self.check()
        self.assertEqual(min(int(entry[3]["Range"].split("=")[1].split("-")[0]) for entry in self.ranges()), had)

    def test_what_arrived_ahead_of_a_slow_range_survives_a_kill(self):
        self.hub.faults.stall_range = (0, 60)  # the first one stops after half of it
        process = self.start("pull", "hf:org/model", "--include", "model.safetensors", "--connections", "3")
        self.wait_for(lambda: self.begun().get("%d-%d" % (8 * MIB, 16 * MIB)) == 8 * MIB and self.begun().get("%d-%d" % (16 * MIB, len(BIG))) == len(BIG) - 16 * MIB
                      and self.size_of_partial() >= 3 * MIB)
        process.kill()
        process.communicate()
        self.check_blobs()
        self.hub.faults.stall_range = None
        self.hub.log.clear()
        self.forge("pull", "hf:org/model", "--include", "model.safetensors")
        self.check(wanted={"model.safetensors"})
        asked = [entry[3]["Range"].split("=")[1].split("-") for entry in self.ranges()]
        self.assertEqual([int(last) for _, last in asked], [8 * MIB - 1])
        self.assertGreaterEqual(int(asked[0][0]), 3 * MIB)

    def test_a_pull_finishes_though_no_process_lives_long_enough(self):
        self.hub.repos["org/model"]["main"] = {**model(), "model.safetensors.index.json": b'{"weight_map": {"a": "model.safetensors", "b": "b.safetensors"}}',
                                               "b.safetensors": random_bytes(9, 11 * MIB)}
        self.hub.faults.delay = 0.004
        kills = 0
        while True:
            process = self.start("pull", "hf:org/model", "--connections", "3")
            try:
                process.wait(0.5 * 1.03 ** kills)  # longer where the machine is so busy that little happens in that time
            except subprocess.TimeoutExpired:
                process.kill()
            process.communicate()
            if process.returncode == 0:
                break
            self.assertEqual(process.returncode, -signal.SIGKILL)
            kills += 1
            self.check_blobs()
            self.assertLess(kills, 100, "nothing of what arrives is kept")
        self.check(wanted=WANTED | {"model.safetensors.index.json", "b.safetensors"})
        print("finished after %d kills" % kills)

    def test_a_file_that_changed_begins_anew(self):
        self.hub.faults.delay = 0.01
        process = self.start("pull", "hf:org/model", "--connections", "3")
        self.wait_for(lambda: len(self.begun()) == 3 and min(self.begun().values()) > 100000)
        process.kill()
        process.communicate()
        self.hub.faults.delay = 0
        changed = random_bytes(77, len(BIG))
        self.hub.repos["org/model"]["main"] = model(changed)
        self.hub.log.clear()
        self.forge("pull", "hf:org/model")
        commit, _ = self.hub.commit("org/model", "main")
        with open(os.path.join(self.folder(), "snapshots", commit, "model.safetensors"), "rb") as file:
            self.assertEqual(file.read() == changed, True)
        served = sum(int(b) - int(a) + 1 for a, b in (entry[3]["Range"].split("=")[1].split("-") for entry in self.hub.served("cdn") if etag_of(changed) in entry[2]))
        self.assertEqual(served, len(changed))

    def test_ranges_of_wrong_bytes_are_found(self):
        blobs = os.path.join(self.folder(), "blobs")
        folder = os.path.join(blobs, etag_of(BIG) + ".incomplete.ranges")
        os.makedirs(folder)
        with open(os.path.join(folder, "%d-%d" % (8 * MIB, 16 * MIB)), "wb") as file:
            file.write(b"wrong" * 1000)
        self.assertIn("once more", self.forge("pull", "hf:org/model").stderr)
        self.check()

    def test_kill_at_random_moments(self):
        rounds = int(os.environ.get("FORGE_KILLS", "200" if os.environ.get("FORGE_LONG") else "25"))
        self.hub.faults.delay = 0.002
        moments = [((7919 * i) % 1000) / 1000 for i in range(rounds)]
        finished = 0
        for moment in moments:
            process = self.start("pull", "hf:org/model", "--connections", "3")
            time.sleep(moment * 1.6)
            process.kill()
            process.communicate()
            self.check_blobs()
            ref = os.path.join(self.folder(), "refs", "main")
            if os.path.exists(ref):  # then all of it is there
                self.check()
                finished += 1
                shutil.rmtree(os.path.join(self.hf, "hub"))
        self.hub.faults.delay = 0
        self.forge("pull", "hf:org/model")
        self.check()
        print("%d kills, %d pulls finished between them" % (rounds, finished))

    def test_two_at_once_share_the_work(self):
        self.hub.faults.delay = 0.01
        processes = [self.start("pull", "hf:org/model") for _ in range(3)]
        for process in processes:
            _, err = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 0, err)
        self.check()
        served = sum(int(b) - int(a) + 1 for a, b in (entry[3]["Range"].split("=")[1].split("-") for entry in self.ranges()))
        self.assertEqual(served, len(BIG))


def other_tool():
    try:
        import huggingface_hub
        return huggingface_hub
    except ImportError:
        return None


@unittest.skipUnless(other_tool(), "the Python package huggingface_hub is not installed")
class OtherTools(HubCase):
    """The same cache as huggingface_hub, both ways. Its process is its own: it reads variables when it is imported."""

    def python(self, code):
        import subprocess
        environment = {**self.environment, "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def test_what_forge_pulled_is_cached_for_others(self):
        self.forge("pull", "hf:org/model")
        snapshot = self.check()
        self.hub.log.clear()
        self.assertEqual(self.python("import huggingface_hub as h; print(h.hf_hub_download('org/model', 'model.safetensors', local_files_only=True))"),
                         os.path.join(snapshot, "model.safetensors"))
        self.assertEqual(self.python("import huggingface_hub as h; print(h.try_to_load_from_cache('org/model', 'config.json'))"), os.path.join(snapshot, "config.json"))
        self.assertEqual(self.hub.log, [])
        # With the network, it asks and downloads nothing.
        self.python("import huggingface_hub as h; print(h.snapshot_download('org/model', allow_patterns=['*.safetensors', '*.json', 'LICENSE']))")
        self.assertEqual([e for e in self.hub.log if e[1] == "GET" and ("resolve" in e[2] or e[0] == "cdn")], [])
        report = self.python("import huggingface_hub as h; i = h.scan_cache_dir(); print(len(i.warnings), [(r.repo_id, r.nb_files) for r in i.repos])")
        self.assertEqual(report, "0 [('org/model', 6)]")

    def test_what_others_pulled_is_cached_for_forge(self):
        path = self.python("import huggingface_hub as h; print(h.snapshot_download('org/model', allow_patterns=['*.safetensors', '*.json', 'LICENSE']))")
        self.hub.log.clear()
        done = self.forge("pull", "hf:org/model")
        self.assertIn("was there already", done.stdout)
        self.assertEqual(done.stdout.splitlines()[-1], path)
        self.assertEqual([e for e in self.hub.log if "resolve" in e[2] or e[0] == "cdn"], [])


if __name__ == "__main__":
    main()
