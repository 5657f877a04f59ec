"""A small OCI registry on this machine, for tests: bearer tokens from a second server, blobs on a third
("storage"), uploads in pieces; and faults on demand. What it holds outlives nothing."""
import base64
import hashlib
import json
import os
import re
import sys
import threading
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "transport"))
from hub_server import Handler, Server, send_file, Faults as DownloadFaults  # noqa: E402


class Faults(DownloadFaults):
    def __init__(self):
        super().__init__()
        self.upload_drop_after = 0    # the connection breaks after so many bytes of a piece ...
        self.upload_drops = 0         # ... this many times
        self.keep_partial = True      # what arrived before the break counts
        self.forget = 0               # so many questions after an upload's progress are answered with 404
        self.upload_statuses = []     # statuses of the next pieces, nothing kept
        self.lose_answers = 0         # so many finished uploads are kept without an answer
        self.manifest = None          # body in place of the manifest
        self.stuck = False            # pieces are accepted and not kept
        self.token_uses = 0           # requests that a token is good for
        self.token_answer = None      # body of the token server
        self.upload_delay = 0.0       # seconds before a piece is answered


class Registry:
    def __init__(self, user="", password="", redirect=False):
        self.user, self.password, self.redirect = user, password, redirect
        self.blobs = {}       # (repository, digest) -> bytes
        self.manifests = {}   # (repository, tag) -> bytes
        self.uploads = {}
        self.sessions = 0
        self.uploading = self.most_uploading = 0  # pieces that arrive at this moment, and the most there were
        self.uses = {}        # token -> requests that came with it
        self.tokens = {}      # token -> set of (repository, action)
        self.log = []
        self.lock = threading.Lock()
        self.faults = Faults()
        self.front = Server(("127.0.0.1", 0), lambda *a: RegistryHandler(self, *a))
        self.auth = Server(("127.0.0.1", 0), lambda *a: TokenHandler(self, *a))
        self.storage = Server(("127.0.0.1", 0), lambda *a: StorageHandler(self, *a))
        self.host = "127.0.0.1:%d" % self.front.server_port

    def __enter__(self):
        for server in (self.front, self.auth, self.storage):
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_):
        for server in (self.front, self.auth, self.storage):
            server.shutdown()
            server.server_close()

    def requests(self, where, method=None):
        with self.lock:
            return [entry for entry in self.log if entry[0] == where and method in (None, entry[1])]


class TokenHandler(Handler):
    where = "auth"

    def do_GET(self):
        self.note()
        owner = self.owner
        if owner.faults.token_answer is not None:
            return self.answer(200, [], owner.faults.token_answer)
        wanted = "Basic " + base64.b64encode(("%s:%s" % (owner.user, owner.password)).encode()).decode()
        if self.headers.get("Authorization") != wanted:
            return self.answer(401, [], b'{"errors":[{"code":"UNAUTHORIZED","message":"who are you"}]}')
        rights = set()
        for scope in urllib.parse.parse_qs(self.path.partition("?")[2]).get("scope", []):
            kind, name, actions = scope.split(":")
            if kind == "repository":
                rights |= {(name, action) for action in actions.split(",")}
        with owner.lock:
            token = "bearer-secret-%d" % len(owner.tokens)
            owner.tokens[token] = rights
        self.answer(200, [("Content-Type", "application/json")], json.dumps({"token": token, "expires_in": 60}).encode())


class StorageHandler(Handler):
    where = "storage"

    def do_GET(self):
        self.note()
        if self.headers.get("Authorization"):
            return self.answer(400, [], b"a token that is not for this host")
        digest = self.path.partition("?")[0][1:]
        data = next((d for (_, name), d in self.owner.blobs.items() if name == digest), None)
        if data is None:
            return self.answer(404)
        send_file(self, data, [], self.owner.faults, self.owner.lock)


class RegistryHandler(Handler):
    where = "registry"

    def allowed(self, *rights):
        owner = self.owner
        if not owner.user:
            return True
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        with owner.lock:
            uses = owner.uses[token] = owner.uses.get(token, 0) + 1
        if all(right in owner.tokens.get(token, ()) for right in rights) and not 0 < owner.faults.token_uses < uses:
            return True
        scopes = {}
        for name, action in rights:
            scopes.setdefault(name, []).append(action)
        scope = " ".join("repository:%s:%s" % (name, ",".join(actions)) for name, actions in scopes.items())
        self.drain()
        self.answer(401, [("WWW-Authenticate", 'Bearer realm="http://127.0.0.1:%d/token",service="test registry",scope="%s"' % (owner.auth.server_port, scope))],
                    b'{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}')
        return False

    def drain(self):
        left = int(self.headers.get("Content-Length", 0))
        while left > 0:
            piece = self.rfile.read(min(left, 65536))
            if not piece:
                return
            left -= len(piece)

    def refuse(self, status, code):
        self.answer(status, [("Content-Type", "application/json")], json.dumps({"errors": [{"code": code, "message": code.lower()}]}).encode())

    def route(self):
        self.note()
        path, _, query = self.path.partition("?")
        path = urllib.parse.unquote(path)
        query = {k: v[0] for k, v in urllib.parse.parse_qs(query).items()}
        for pattern, method in ((r"/v2/(.+)/blobs/uploads/", self.begin), (r"/v2/(.+)/blobs/uploads/([0-9a-f]+)", self.upload),
                                (r"/v2/(.+)/blobs/(sha256:[0-9a-f]{64})", self.blob), (r"/v2/(.+)/manifests/([^/]+)", self.manifest)):
            match = re.fullmatch(pattern, path)
            if match:
                return method(query, *match.groups())
        self.refuse(404, "UNSUPPORTED")

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = route

    def begin(self, query, name):
        owner = self.owner
        rights = [(name, "pull"), (name, "push")]
        source = query.get("from")
        if source:
            rights.append((source, "pull"))
        if not self.allowed(*rights):
            return
        if source and (source, query["mount"]) in owner.blobs:
            owner.blobs[name, query["mount"]] = owner.blobs[source, query["mount"]]
            return self.answer(201, [("Location", "/v2/%s/blobs/%s" % (name, query["mount"]))])
        with owner.lock:
            owner.sessions += 1
            session = "%032x" % owner.sessions
            owner.uploads[session] = bytearray()
        self.answer(202, [("Location", "/v2/%s/blobs/uploads/%s?state=0" % (name, session)), ("Range", "0-0")])

    def upload(self, query, name, session):
        owner, faults = self.owner, self.owner.faults
        if not self.allowed((name, "push")):
            return
        data = owner.uploads.get(session)
        if self.command == "GET":
            with owner.lock:
                if faults.forget:
                    faults.forget -= 1
                    owner.uploads.pop(session, None)
                    data = None
            if data is None:
                return self.refuse(404, "BLOB_UPLOAD_UNKNOWN")
            return self.answer(204, [("Location", self.path), ("Range", "0-%d" % max(0, len(data) - 1))])
        size = int(self.headers.get("Content-Length", 0))
        if data is None:
            self.drain()
            return self.refuse(404, "BLOB_UPLOAD_UNKNOWN")
        if self.command == "PATCH":
            start = int(self.headers["Content-Range"].split("-")[0])
            if start != len(data):
                self.drain()
                return self.refuse(416, "RANGE_INVALID")
            with owner.lock:
                status = faults.upload_statuses.pop(0) if faults.upload_statuses else 0
                drop = 0
                if faults.upload_drops and faults.upload_drop_after < size:
                    faults.upload_drops -= 1
                    drop = faults.upload_drop_after
            if status:
                self.drain()
                return self.refuse(status, "UNKNOWN")
            with owner.lock:
                owner.uploading += 1
                owner.most_uploading = max(owner.most_uploading, owner.uploading)
            try:
                piece = self.rfile.read(drop or size)
                if faults.upload_delay:
                    time.sleep(faults.upload_delay)
            finally:
                with owner.lock:
                    owner.uploading -= 1
            if drop:
                if faults.keep_partial:
                    data += piece
                return self.reset()
            if not faults.stuck:
                data += piece
            return self.answer(202, [("Location", "/v2/%s/blobs/uploads/%s?state=%d" % (name, session, len(data))), ("Range", "0-%d" % max(0, len(data) - 1))])
        data += self.rfile.read(size)
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        if digest != query.get("digest"):
            return self.refuse(400, "DIGEST_INVALID")
        owner.blobs[name, digest] = bytes(data)
        del owner.uploads[session]
        with owner.lock:
            if faults.lose_answers:
                faults.lose_answers -= 1
                return self.reset()
        self.answer(201, [("Location", "/v2/%s/blobs/%s" % (name, digest))])

    def blob(self, query, name, digest):
        owner = self.owner
        if not self.allowed((name, "pull")):
            return
        data = owner.blobs.get((name, digest))
        if data is None:
            return self.refuse(404, "BLOB_UNKNOWN")
        if owner.redirect:
            return self.answer(307, [("Location", "http://127.0.0.1:%d/%s?X-Signature=secret-signature" % (owner.storage.server_port, digest))])
        send_file(self, data, [("Docker-Content-Digest", digest)], owner.faults if self.command == "GET" else None, owner.lock)

    def manifest(self, query, name, tag):
        owner = self.owner
        if self.command == "PUT":
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if not self.allowed((name, "push")):
                return
            described = json.loads(body)
            for blob in [described["config"], *described["layers"]]:
                if len(owner.blobs.get((name, blob["digest"]), b"?")) != blob["size"]:
                    return self.refuse(400, "MANIFEST_BLOB_UNKNOWN")
            owner.manifests[name, tag] = body
            return self.answer(201, [("Docker-Content-Digest", "sha256:" + hashlib.sha256(body).hexdigest())])
        if not self.allowed((name, "pull")):
            return
        body = owner.manifests.get((name, tag))
        if body is None:
            return self.refuse(404, "MANIFEST_UNKNOWN")
        digest = "sha256:" + hashlib.sha256(body).hexdigest()
        self.answer(200, [("Content-Type", "application/vnd.oci.image.manifest.v1+json"), ("Docker-Content-Digest", digest)],
                    body if owner.faults.manifest is None else owner.faults.manifest)
