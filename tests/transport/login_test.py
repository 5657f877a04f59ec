"""forge login on a terminal: the token is not shown."""
import os
import pty
import select
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from support import FORGE, Case, main  # noqa: E402


class Terminal(Case):
    def session(self, typed):
        try:
            child, terminal = pty.fork()
        except OSError as error:
            self.skipTest(f"this machine gives no terminal: {error}")
        if child == 0:
            os.execve(FORGE, [FORGE, "login", "h.example", "--user", "ada"], self.environment)
        shown, sent, end = b"", False, time.time() + 30
        while time.time() < end:
            ready, _, _ = select.select([terminal], [], [], 0.2)
            if ready:
                try:
                    piece = os.read(terminal, 4096)
                except OSError:
                    break
                if not piece:
                    break
                shown += piece
            if b"Password of ada for h.example: " in shown and not sent:
                time.sleep(0.2)
                os.write(terminal, typed)
                sent = True
        _, status = os.waitpid(child, 0)
        os.close(terminal)
        return os.waitstatus_to_exitcode(status), shown.decode()

    def test_the_token_is_not_shown(self):
        status, shown = self.session(b"open-sesame\n")
        self.assertEqual(status, 0, shown)
        self.assertNotIn("sesame", shown)
        with open(os.path.join(self.root, "forge", "config", "credentials.json")) as file:
            self.assertIn("open-sesame", file.read())

    def test_interrupt_keeps_nothing(self):
        status, shown = self.session(b"open-ses\x03")
        self.assertEqual(status, 130, shown)
        self.assertFalse(os.path.exists(os.path.join(self.root, "forge", "config", "credentials.json")))


if __name__ == "__main__":
    main()
