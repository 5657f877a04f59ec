"""A small Hugging Face hub on this machine, for tests: the API's answers, redirects to a second
server ("CDN") for large files, ranges, ETags; and faults on demand.

    hub = Hub({"org/name": {"main": {"config.json": b"...", "model.safetensors": b"..."}}})
    with hub: ... hub.url ...

Faults are attributes that a test sets; `log` holds every request as (server, method, path, headers).
"""
import hashlib
import http.server
import json
import socket
import struct
import threading
import time
import urllib.parse

LARGE = 1024  # bytes from which a file is stored as a large one


def git_digest(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def etag_of(data):
    return hashlib.sha256(data).hexdigest() if len(data) >= LARGE else git_digest(data)


class Faults:
    def __init__(self):
        self.drop_after = 0        # the CDN resets a connection after so many bytes of a body ...
        self.drops = 0             # ... this many times
        self.statuses = []         # the CDN's next answers have these statuses, without a body
        self.corrupt = 0           # the CDN's next so many bodies have one wrong byte
        self.wrong_total = 0       # added to the total in Content-Range
        self.no_ranges = False     # the CDN answers every request with the whole file
        self.expire = False        # each signed URL serves one request, then 403
        self.change_etag = False   # every answer of the CDN has another ETag
        self.stall = 0.0           # seconds of silence after half of the next body
        self.stall_range = None    # (first byte, seconds): silence after half of every body that begins there
        self.delay = 0.0           # seconds before each piece of 64 KiB of the CDN
        self.token = ""            # wanted from every request to the hub
        self.downgrade = None      # redirect target in place of the CDN
        self.etag = None           # what the hub claims as ETag of every file
        self.page = 0              # files on a page of the tree
        self.tree = None           # body of the tree's answer, as it is


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request, client_address):
        pass


class Hub:
    def __init__(self, repos, gated=()):
        self.repos = {repo: dict(revisions) for repo, revisions in repos.items()}
        self.gated = set(gated)
        self.renamed = {}
        self.faults = Faults()
        self.log = []
        self.lock = threading.Lock()
        self.blobs = {}
        self.signatures = 0
        self.used = set()
        self.hub = Server(("127.0.0.1", 0), lambda *a: HubHandler(self, *a))
        self.cdn = Server(("127.0.0.1", 0), lambda *a: CdnHandler(self, *a))
        self.url = "http://127.0.0.1:%d" % self.hub.server_port
        self.cdn_url = "http://127.0.0.1:%d" % self.cdn.server_port

    def __enter__(self):
        for server in (self.hub, self.cdn):
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_):
        for server in (self.hub, self.cdn):
            server.shutdown()
            server.server_close()

    def commit(self, repo, revision):
        """The commit of a branch (or of a commit) is made of what it holds."""
        revisions = self.repos[repo]
        for name, files in revisions.items():
            made = hashlib.sha1(json.dumps([(p, etag_of(d)) for p, d in sorted(files.items())]).encode()).hexdigest()
            if revision in (name, made):
                return made, files
        return None, None

    def served(self, where):
        with self.lock:
            return [entry for entry in self.log if entry[0] == where]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    where = ""

    def __init__(self, owner, *args):
        self.owner = owner
        super().__init__(*args)

    def log_message(self, *_):
        pass

    def note(self):
        with self.owner.lock:
            self.owner.log.append((self.where, self.command, self.path, dict(self.headers)))

    def answer(self, status, headers=(), body=b""):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if not any(name.lower() == "content-length" for name, _ in headers):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def reset(self):
        """A connection that breaks, not one that ends."""
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()


class HubHandler(Handler):
    where = "hub"

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        self.note()
        owner, faults = self.owner, self.owner.faults
        path, _, query = self.path.partition("?")
        path = urllib.parse.unquote(path)
        if faults.token and self.headers.get("Authorization") != "Bearer " + faults.token:
            return self.answer(401, [("X-Error-Message", "Invalid credentials")], b'{"error":"Invalid username or password."}')
        api = path.startswith("/api/models/")
        parts = path[len("/api/models/"):] if api else path[1:]
        for old, new in owner.renamed.items():
            if parts.startswith(old + "/"):
                return self.answer(307, [("Location", self.path.replace(old, new, 1))])
        repo = "/".join(parts.split("/")[:2])
        rest = parts[len(repo) + 1:]
        if repo not in owner.repos:
            return self.answer(404, [("X-Error-Code", "RepoNotFound")], b'{"error":"Repository not found"}')
        if repo in owner.gated and not self.headers.get("Authorization"):
            return self.answer(401, [("X-Error-Code", "GatedRepo")], b'{"error":"Access to this model is restricted."}')
        if not api:
            return self.resolve(repo, rest)
        if rest == "":
            rest = "revision/main"
        kind, _, revision = rest.partition("/")
        commit, files = owner.commit(repo, revision)
        if not commit:
            return self.answer(404, [("X-Error-Code", "RevisionNotFound")], b'{"error":"Invalid rev id"}')
        if kind == "revision":
            body = {"_id": "0", "id": repo, "modelId": repo, "sha": commit, "private": False, "gated": False, "disabled": False,
                    "downloads": 0, "likes": 0, "tags": [], "siblings": [{"rfilename": name} for name in files]}
            return self.answer(200, [("Content-Type", "application/json")], json.dumps(body).encode())
        return self.tree(files, urllib.parse.parse_qs(query))

    def tree(self, files, query):
        faults = self.owner.faults
        if faults.tree is not None:
            return self.answer(200, [("Content-Type", "application/json")], faults.tree)
        entries = []
        for name, data in sorted(files.items()):
            entry = {"type": "file", "oid": git_digest(data), "size": len(data), "path": name}
            if len(data) >= LARGE:
                digest = hashlib.sha256(data).hexdigest()
                entry["oid"] = git_digest(digest.encode())
                entry["lfs"] = {"oid": digest, "size": len(data), "pointerSize": 134}
            entries.append(entry)
        entries += [{"type": "directory", "oid": "0" * 40, "size": 0, "path": p} for p in {n.split("/")[0] for n in files if "/" in n}]
        headers = [("Content-Type", "application/json")]
        if faults.page:
            start = int(query.get("cursor", ["0"])[0])
            if start + faults.page < len(entries):
                path = self.path.partition("?")[0]
                headers.append(("Link", "<%s%s?recursive=true&cursor=%d>; rel=\"next\"" % (self.owner.url, path, start + faults.page)))
            entries = entries[start:start + faults.page]
        self.answer(200, headers, json.dumps(entries).encode())

    def resolve(self, repo, rest):
        owner, faults = self.owner, self.owner.faults
        _, _, rest = rest.partition("/")  # "resolve"
        for revision in sorted([*owner.repos[repo], *[owner.commit(repo, r)[0] for r in owner.repos[repo]]], key=len, reverse=True):
            if rest.startswith(revision + "/"):
                break
        else:
            return self.answer(404, [("X-Error-Code", "RevisionNotFound")])
        commit, files = owner.commit(repo, revision)
        name = rest[len(revision) + 1:]
        if name not in files:
            return self.answer(404, [("X-Error-Code", "EntryNotFound"), ("X-Repo-Commit", commit)], b"Entry not found")
        data = files[name]
        etag = faults.etag or etag_of(data)
        headers = [("X-Repo-Commit", commit), ("Accept-Ranges", "bytes")]
        if len(data) < LARGE:
            return send_file(self, data, headers + [("ETag", '"%s"' % etag)])
        with owner.lock:
            owner.blobs[etag_of(data)] = data
            owner.signatures += 1
            signature = "secret-signature-%d" % owner.signatures
        target = faults.downgrade or "%s/%s?X-Signature=%s" % (owner.cdn_url, etag_of(data), signature)
        self.answer(302, headers + [("X-Linked-Etag", '"%s"' % etag), ("X-Linked-Size", str(len(data))), ("Location", target),
                                    ("ETag", '"%s"' % etag)], b"Found")


class CdnHandler(Handler):
    where = "cdn"

    def do_GET(self):
        self.note()
        owner, faults = self.owner, self.owner.faults
        path, _, query = self.path.partition("?")
        with owner.lock:
            if faults.statuses:
                return self.answer(faults.statuses.pop(0), [("Retry-After", "0")])
            if faults.expire:
                if query in owner.used:
                    return self.answer(403, [], b"expired")
                owner.used.add(query)
        data = owner.blobs.get(path[1:])
        if data is None or self.headers.get("Authorization"):
            return self.answer(400, [], b"no such object, or a token that is not for this host")
        send_file(self, data, [("ETag", '"%032x"' % (len(owner.log) if faults.change_etag else 7))], faults, owner.lock)


def send_file(handler, data, headers, faults=None, lock=None):
    faults = faults or Faults()
    lock = lock or threading.Lock()
    wanted = handler.headers.get("Range")
    first, last, status = 0, len(data) - 1, 200
    if wanted and not faults.no_ranges:
        a, _, b = wanted.split("=")[1].partition("-")
        first, last = int(a), min(int(b) if b else last, last)
        if first > last:
            return handler.answer(416, [("Content-Range", "bytes */%d" % len(data))])
        status = 206
        headers = headers + [("Content-Range", "bytes %d-%d/%d" % (first, last, len(data) + faults.wrong_total))]
    body = bytearray(data[first:last + 1])
    drop = stall = 0
    with lock:
        if faults.corrupt and body:
            faults.corrupt -= 1
            body[len(body) // 2] ^= 0x10
        if faults.drops and faults.drop_after < len(body):
            faults.drops -= 1
            drop = faults.drop_after
        if faults.stall:
            stall, faults.stall = faults.stall, 0.0
        if faults.stall_range and faults.stall_range[0] == first:
            stall = faults.stall_range[1]
    handler.send_response(status)
    for name, value in headers:
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    if handler.command == "HEAD":
        return
    view = memoryview(body)[:drop] if drop else memoryview(body)
    for at in range(0, len(view), 65536):
        if faults.delay:
            time.sleep(faults.delay)
        if stall and at >= len(view) // 2:
            time.sleep(stall)
            stall = 0
        handler.wfile.write(view[at:at + 65536])
    if drop:
        handler.reset()
