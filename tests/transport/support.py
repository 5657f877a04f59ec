"""What the tests of pulling and pushing share: running forge in folders of its own."""
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

FORGE = sys.argv[1] if len(sys.argv) > 1 else "forge"


def random_bytes(seed, size):
    return random.Random(seed).randbytes(size)


def relay(source, target, passes=lambda data: True):
    """Sends what comes from one socket to another, until an end or until `passes` says no; then both are shut."""
    try:
        while (data := source.recv(65536)) and passes(data):
            target.sendall(data)
    except OSError:
        pass
    for end in (source, target):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


class Case(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="forge-transport-")
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        self.hf = os.path.join(self.root, "hf")
        self.environment = {k: v for k, v in os.environ.items()
                            if not k.startswith(("HF_", "HUGGING", "FORGE_", "XDG_")) and not k.lower().endswith("_proxy")}
        self.environment.update(FORGE_HOME=os.path.join(self.root, "forge"), HF_HOME=self.hf)

    def start(self, *arguments, **environment):
        return subprocess.Popen([FORGE, *arguments], env={**self.environment, **environment}, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def forge(self, *arguments, status=0, input="", **environment):
        done = subprocess.run([FORGE, *arguments], env={**self.environment, **environment}, input=input, capture_output=True,
                              text=True, timeout=300)
        self.assertEqual(done.returncode, status, "forge %s\nstdout: %s\nstderr: %s" % (" ".join(arguments), done.stdout, done.stderr))
        return done


def main():
    unittest.main(argv=[sys.argv[0]] + sys.argv[2:], verbosity=1)
