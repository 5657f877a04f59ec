#!/usr/bin/env python3
"""The page at / in headless Chromium (standard library only).

    page_test.py FORGE

The page comes from a real server, through a proxy that answers chats itself where a test wants a certain answer: markup
that would run if anything took it for HTML, thinking, an answer without an end. Exit status: 0, 1, or 77 without Chromium.
"""
import base64
import http.client
import http.server
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

from tiny_server import Forge, tiny_chat

HOSTILE = ('<script>window.pwned = 1</script><img src=x onerror="window.pwned = 2"><svg onload="window.pwned = 3"></svg>'
           '<iframe srcdoc="<script>parent.pwned = 4</script>"></iframe><a href="javascript:window.pwned = 5">x</a>\n'
           '```html\n<script>window.pwned = 6</script></pre><img src=y onerror="window.pwned = 7">\n```\n'
           '</div><style>body { display: none }</style><base href="http://evil.example/"> end')
state = {"aborted": threading.Event(), "requests": []}


def chunks(text, size=7):
    return [text[i:i + size] for i in range(0, len(text), size)]


class Proxy(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    upstream = None

    def log_message(self, *arguments):
        pass

    def forward(self, body=None):
        c = http.client.HTTPConnection("127.0.0.1", self.upstream, timeout=60)
        c.request(self.command, self.path, body, {"Content-Type": "application/json"})
        r = c.getresponse()
        data = r.read()
        self.send_response(r.status)
        for name, value in r.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.forward()

    def event(self, delta, reason=None):
        self.wfile.write(b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}).encode() + b"\n\n")
        self.wfile.flush()

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        request = json.loads(body)
        state["requests"].append(request)
        said = request["messages"][-1]["content"]
        if said == "real":
            request["max_tokens"] = 20
            return self.forward(json.dumps(request))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            if said == "think":
                for piece in chunks("I ponder " + HOSTILE):
                    self.event({"reasoning_content": piece})
            if said == "endless":
                while True:
                    self.event({"content": "word "})
                    time.sleep(0.02)
            for piece in chunks(HOSTILE if said == "hostile" else "Said at the end."):
                self.event({"content": piece})
                time.sleep(0.005)
            self.event({}, "stop")
            self.wfile.write(b"data: [DONE]\n\n")
        except OSError:
            state["aborted"].set()


class Browser:
    """Chromium over its debugging protocol: a WebSocket with text frames."""

    def __init__(self, program, folder):
        self.process = subprocess.Popen([program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                                         "--remote-debugging-port=0", "--remote-allow-origins=*", f"--user-data-dir={folder}", "about:blank"],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        timer = threading.Timer(120, self.process.kill)
        timer.start()
        for line in self.process.stderr:
            if "DevTools listening on" in line:
                address = urllib.parse.urlsplit(line.split(" on ")[1].strip())
                break
        else:
            raise SystemExit("Chromium did not start")
        timer.cancel()
        threading.Thread(target=self.process.stderr.read, daemon=True).start()
        c = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
        c.request("PUT", "/json/new?about:blank")
        page = urllib.parse.urlsplit(json.loads(c.getresponse().read())["webSocketDebuggerUrl"])
        self.socket = socket.create_connection((page.hostname, page.port), timeout=60)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall((f"GET {page.path} HTTP/1.1\r\nHost: {page.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                             f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n").encode())
        self.rest = b""
        while b"\r\n\r\n" not in self.rest:
            self.rest += self.socket.recv(4096)
        self.rest = self.rest.split(b"\r\n\r\n", 1)[1]
        self.number = 0

    def take(self, n):
        while len(self.rest) < n:
            data = self.socket.recv(65536)
            if not data:
                raise ConnectionError("the browser went away")
            self.rest += data
        out, self.rest = self.rest[:n], self.rest[n:]
        return out

    def message(self):
        text = b""
        while True:
            first, length = self.take(2)
            length &= 127
            if length == 126:
                length = struct.unpack(">H", self.take(2))[0]
            elif length == 127:
                length = struct.unpack(">Q", self.take(8))[0]
            text += self.take(length)
            if first & 128:
                return json.loads(text)

    def call(self, method, **parameters):
        self.number += 1
        data = json.dumps({"id": self.number, "method": method, "params": parameters}).encode()
        header = struct.pack(">BBH", 0x81, 128 | 126, len(data)) if len(data) < 65536 else struct.pack(">BBQ", 0x81, 128 | 127, len(data))
        mask = os.urandom(4)
        self.socket.sendall(header + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))
        while True:
            answer = self.message()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def value(self, expression):
        r = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in r:
            raise RuntimeError(f"{expression}: {r['exceptionDetails']}")
        return r["result"].get("value")

    def wait(self, expression, seconds=30):
        end = time.time() + seconds
        while time.time() < end:
            if self.value(expression):
                return
            time.sleep(0.05)
        raise AssertionError(f"did not come true: {expression}; the page says {self.value('document.body.innerText')[:500]!r}")

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()


def say(browser, text):
    browser.value(f"document.getElementById('input').value = {json.dumps(text)}; document.getElementById('send').click()")


IDLE = "!document.getElementById('send').disabled"
LAST = "[...document.querySelectorAll('#log > .assistant')].pop()"
INNOCENT = ("window.pwned === undefined && document.querySelectorAll('#log script, #log img, #log svg, #log iframe, #log a, #log style, #log base').length === 0"
            " && document.scripts.length === 1 && getComputedStyle(document.body).display !== 'none'")


def check(browser, url):
    browser.call("Page.enable")
    browser.call("Page.navigate", url=url)
    browser.wait("document.readyState === 'complete' && document.getElementById('model') && document.getElementById('model').options.length === 1")
    print("passed: the page loads and lists the model")

    say(browser, "real")
    browser.wait(IDLE)
    assert browser.value(LAST + ".querySelector('.text').textContent.length") > 0
    assert not browser.value(LAST + ".querySelector('.error')"), browser.value("document.body.innerText")
    print("passed: a chat with the model")

    say(browser, "hostile")
    browser.wait(LAST + ".querySelector('.text').textContent.length > 20")
    partial = browser.value(LAST + ".querySelector('.text').textContent.length")
    browser.wait(IDLE)
    time.sleep(0.5)   # an image's error would come later
    assert browser.value(INNOCENT), browser.value("document.getElementById('log').innerHTML")
    text = browser.value(LAST + ".querySelector('.text').textContent")
    assert text == HOSTILE.replace("```html\n", "").replace("```\n", ""), text
    assert browser.value(LAST + ".querySelectorAll('pre').length") == 1
    assert partial < len(text), "the answer did not come in pieces"
    print("passed: markup in an answer stays text, and comes in pieces")

    # Even markup that gets into the document runs nothing, because the policy knows the page's own script only.
    browser.value("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.pwned = 8\">');"
                  "{ const s = document.createElement('script'); s.textContent = 'window.pwned = 9'; document.body.append(s); s.remove(); } 0")
    time.sleep(0.3)
    assert browser.value("window.pwned === undefined")
    browser.value("document.body.querySelector(':scope > img').remove()")
    print("passed: the policy runs no other script")

    say(browser, "think")
    browser.wait(IDLE)
    assert browser.value(LAST + ".querySelectorAll('details').length") == 1
    assert browser.value(LAST + ".querySelector('details').open") is False, "the thinking is not folded"
    assert browser.value(LAST + ".querySelector('.thinking').textContent").startswith("I ponder <script>")
    assert browser.value(LAST + ".querySelector('.text').textContent") == "Said at the end."
    assert browser.value(INNOCENT)
    browser.value(LAST + ".querySelector('summary').click()")
    assert browser.value(LAST + ".querySelector('details').open") is True
    print("passed: thinking is folded, opens, and is text")

    say(browser, "endless")
    browser.wait(LAST + ".querySelector('.text').textContent.includes('word word word')")
    assert browser.value("document.getElementById('send').disabled && !document.getElementById('stop').disabled")
    browser.value("document.getElementById('stop').click()")
    browser.wait(IDLE)
    assert state["aborted"].wait(10), "the request went on"
    assert "stopped" in browser.value(LAST + ".innerText")
    print("passed: stop ends the answer and the request")

    count = browser.value("document.querySelectorAll('#log > div').length")
    browser.value("[...document.querySelectorAll('#log > .user')].pop().querySelector('button').click()")   # edit
    assert browser.value("document.getElementById('input').value") == "endless"
    assert browser.value("document.querySelectorAll('#log > div').length") == count - 2
    say(browser, "short")
    browser.wait(IDLE)
    before = len(state["requests"])
    browser.value(LAST + ".querySelector('button').click()")   # retry
    browser.wait(IDLE + f" && document.querySelectorAll('#log > div').length === {count}")
    assert len(state["requests"]) == before + 1 and state["requests"][-1]["messages"] == state["requests"][-2]["messages"]
    print("passed: edit and retry")


def main():
    program = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)
    if not program:
        print("SKIPPED: Chromium is not installed (Debian's package chromium)")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        forge = Forge(sys.argv[1], tiny_chat(os.path.join(folder, "tiny")))
        Proxy.upstream = forge.port
        proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        browser = Browser(program, os.path.join(folder, "browser"))
        try:
            check(browser, f"http://127.0.0.1:{proxy.server_port}/")
        finally:
            browser.close()
            proxy.shutdown()
            status = forge.stop()
    if status:
        print(f"the server ended with {status} after SIGTERM")
    return 1 if status else 0


if __name__ == "__main__":
    sys.exit(main())
