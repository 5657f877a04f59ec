"""forge pull and push over https with certificates of an authority of our own: accepted where the environment
names that authority, refused with a sentence otherwise. The servers are on this machine, behind a proxy that
leads the names of the test to them."""
import http.server
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "transport"))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from hub_server import Hub, Server  # noqa: E402
from oci_server import Registry  # noqa: E402
from support import Case, main, random_bytes, relay  # noqa: E402

MAKE_MODEL = sys.argv.pop(2)
OPENSSL = shutil.which("openssl")


class Tunnel(http.server.BaseHTTPRequestHandler):
    """A proxy: CONNECT to any name goes to a port of this machine."""
    ports = {}

    def do_CONNECT(self):
        port = self.ports.get(self.path)
        if port is None:
            return self.send_error(502)
        with socket.create_connection(("127.0.0.1", port)) as server:
            self.send_response(200)
            self.end_headers()
            self.close_connection = True
            back = threading.Thread(target=relay, args=(server, self.connection), daemon=True)
            back.start()
            relay(self.connection, server)
            back.join()

    def log_message(self, *_):
        pass


@unittest.skipUnless(OPENSSL, "the program openssl is not installed")
class Tls(Case):
    def setUp(self):
        super().setUp()
        self.authority("ours")
        self.authority("theirs")
        self.proxy = Server(("127.0.0.1", 0), Tunnel)
        threading.Thread(target=self.proxy.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        self.addCleanup(self.proxy.server_close)
        self.addCleanup(self.proxy.shutdown)
        Tunnel.ports = {}
        self.environment = {k: v for k, v in self.environment.items() if not k.startswith(("SSL_CERT", "CURL_CA"))}
        self.environment["https_proxy"] = "http://127.0.0.1:%d" % self.proxy.server_port
        self.trusted = {"SSL_CERT_FILE": self.path("ours.pem")}

    def path(self, name):
        return os.path.join(self.root, name)

    def openssl(self, *arguments):
        subprocess.run([OPENSSL, *arguments], check=True, capture_output=True, cwd=self.root)

    def authority(self, name):
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", name + ".key", "-out", name + ".pem",
                     "-days", "2", "-subj", "/CN=" + name, "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign")

    def certificate(self, host, authority="ours", days="2"):
        """The context of a server for `host`."""
        with open(self.path("extensions"), "w") as file:
            file.write("subjectAltName=DNS:%s\nbasicConstraints=CA:FALSE\n" % host)
        self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=" + host)
        self.openssl("x509", "-req", "-in", "server.csr", "-CA", authority + ".pem", "-CAkey", authority + ".key", "-CAcreateserial", "-out", "server.pem",
                     "-days", days, "-extfile", "extensions")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path("server.pem"), self.path("server.key"))
        return context

    def hub(self, host="hub.test", **certificate):
        hub = Hub({"org/model": {"main": {"config.json": b"{}", "model.safetensors": random_bytes(1, 9 << 20)}}})
        context = self.certificate(host, **certificate)
        for server, name in ((hub.hub, "hub.test"), (hub.cdn, "cdn.test")):
            secure = context if server is hub.hub else self.certificate("cdn.test")
            server.socket = secure.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
            Tunnel.ports["%s:443" % name] = server.server_port
        hub.cdn_url = "https://cdn.test"
        hub.__enter__()
        self.addCleanup(hub.__exit__)
        self.environment["HF_ENDPOINT"] = "https://hub.test"
        return hub

    def test_the_hub_with_an_authority_of_our_own(self):
        self.hub()
        self.forge("pull", "hf:org/model", HF_TOKEN="hf_secret", **self.trusted)
        snapshots = os.path.join(self.hf, "hub", "models--org--model", "snapshots")
        path = os.path.join(snapshots, os.listdir(snapshots)[0], "model.safetensors")
        with open(path, "rb") as file:
            self.assertTrue(file.read() == random_bytes(1, 9 << 20))
        # The other two names for it.
        shutil.rmtree(self.hf)
        self.forge("pull", "hf:org/model", CURL_CA_BUNDLE=self.path("ours.pem"))
        shutil.rmtree(self.hf)
        os.mkdir(self.path("authorities"))
        done = subprocess.run([OPENSSL, "x509", "-hash", "-noout", "-in", self.path("ours.pem")], check=True, capture_output=True, text=True)
        shutil.copy(self.path("ours.pem"), os.path.join(self.path("authorities"), done.stdout.strip() + ".0"))
        self.forge("pull", "hf:org/model", SSL_CERT_DIR=self.path("authorities"))

    def refused(self, **environment):
        done = self.forge("pull", "hf:org/model", status=1, **environment)
        self.assertIn("https://hub.test", done.stderr)
        return done.stderr

    def test_wrong_certificates_are_refused(self):
        hub = self.hub()
        self.assertIn("certificate is not accepted", self.refused(HF_TOKEN="hf_secret"))  # the system does not know the authority
        self.assertIn("certificate is not accepted", self.refused(SSL_CERT_FILE=self.path("theirs.pem")))
        self.assertIn("SSL_CERT_FILE", self.refused(SSL_CERT_FILE=self.path("theirs.pem")))
        self.assertIn(self.path("none.pem"), self.refused(SSL_CERT_FILE=self.path("none.pem")))
        self.assertEqual(hub.log, [])  # nothing was asked, and no token was sent
        self.hub(authority="theirs")
        self.assertIn("certificate is not accepted", self.refused(**self.trusted))
        self.hub(host="another.test")
        self.assertIn("certificate is not accepted", self.refused(**self.trusted))

    def test_a_registry_with_an_authority_of_our_own(self):
        with open(self.path("layer"), "wb") as file:
            file.write(random_bytes(5, 3 << 20))
        subprocess.run([MAKE_MODEL, "m:1", self.path("layer")], check=True, env=self.environment)
        registry = Registry()
        registry.front.socket = self.certificate("registry.test").wrap_socket(registry.front.socket, server_side=True, do_handshake_on_connect=False)
        Tunnel.ports["registry.test:443"] = registry.front.server_port
        registry.__enter__()
        self.addCleanup(registry.__exit__)
        reference = "oci:registry.test/ada/model:v1"
        self.assertIn("certificate is not accepted", self.forge("push", "m:1", reference, status=1).stderr)
        self.assertEqual(registry.log, [])
        self.forge("push", "m:1", reference, **self.trusted)
        other = self.path("other")
        self.assertIn("certificate is not accepted", self.forge("pull", reference, status=1, FORGE_HOME=other).stderr)
        self.forge("pull", reference, FORGE_HOME=other, **self.trusted)


if __name__ == "__main__":
    main()
