#!/usr/bin/env python3
"""deploy/nginx.conf in front of two servers on loopback, one of which is killed under load (standard library only).

    nginx_test.py FORGE

Answers are computed before by one server alone. While clients ask through nginx, one server gets SIGKILL. Requests that it
had accepted are lost with it, and only those; every other one, before and after, is answered in full and as expected, and
streams come in pieces. Then the server comes back and is used again. Exit status: 0, 1, or 77 without nginx.
"""
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "page"))
from tiny_server import REPOSITORY, Forge, tiny_chat  # noqa: E402

CLIENTS, SECONDS = 6, 12


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start_nginx(program, folder, port, servers):
    with open(os.path.join(REPOSITORY, "deploy/nginx.conf"), encoding="utf-8") as f:
        text = f.read()
    lines = iter(f"127.0.0.1:{s}" for s in servers)
    text = re.sub(r"10\.0\.0\.\d:8080", lambda _: next(lines), text)
    text = text.replace("listen 8000;", f"listen 127.0.0.1:{port};").replace("fail_timeout=5s", "fail_timeout=1s")
    temporary = "".join(f"    {kind}_temp_path {folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    # The address of the server that answered, so that the test knows whose answers were lost.
    text = text.replace("http {\n", "http {\n" + temporary + f"    access_log {folder}/access.log;\n", 1)
    text = text.replace("proxy_buffering off;", "proxy_buffering off; add_header X-Server $upstream_addr always;", 1)
    path = os.path.join(folder, "nginx.conf")
    with open(path, "w", encoding="utf-8") as f:
        f.write(f"pid {folder}/nginx.pid;\nerror_log {folder}/error.log;\ndaemon off;\n" + text)
    subprocess.run([program, "-t", "-c", path, "-p", folder], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    process = subprocess.Popen([program, "-c", path, "-p", folder], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return process
        except OSError:
            time.sleep(0.05)
    raise SystemExit("nginx did not start")


def body(number, stream):
    return {"prompt": f"Question {number}", "max_tokens": 20 + 15 * (number % 5), "temperature": 0, "ignore_eos": True, "stream": stream}


def ask(port, number, stream):
    """(text or None when it was cut, the address that answered, pieces)"""
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    server, text, pieces, over = "", "", 0, False
    try:
        c.request("POST", "/v1/completions", json.dumps(body(number, stream)), {"Content-Type": "application/json", "Host": "localhost"})
        r = c.getresponse()
        server = (r.getheader("X-Server") or "").split(", ")[-1]
        if r.status != 200:
            r.read()
            return None, server, r.status
        if not stream:
            return json.loads(r.read())["choices"][0]["text"], server, 1
        for line in r:
            if line.startswith(b"data: {"):
                text += json.loads(line[6:])["choices"][0]["text"]
                pieces += 1
            over = over or line.startswith(b"data: [DONE]")
    except (OSError, http.client.HTTPException, ValueError):
        return None, server, pieces
    finally:
        c.close()
    return (text if over else None), server, pieces


def main():
    program = shutil.which("nginx") or ("/usr/sbin/nginx" if os.path.exists("/usr/sbin/nginx") else None)
    if not program:
        print("SKIPPED: nginx is not installed (Debian's package nginx-light)")
        return 77
    forge, failures = sys.argv[1], []
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        model = tiny_chat(os.path.join(folder, "tiny"))
        servers = [Forge(forge, model), Forge(forge, model)]
        port = free_port()
        nginx = start_nginx(program, folder, port, [s.port for s in servers])
        try:
            expected = [ask(servers[0].port, n, False)[0] for n in range(10)]
            assert all(expected)
            address = [f"127.0.0.1:{s.port}" for s in servers]
            killed, results, lock = threading.Event(), [], threading.Lock()
            end = time.time() + SECONDS

            def client(seed):
                n = seed
                while time.time() < end:
                    n += 1
                    began_after = killed.is_set()
                    text, server, pieces = ask(port, n % 10, n % 2 == 0)
                    with lock:
                        results.append((n % 10, n % 2 == 0, text, server, pieces, began_after))
            threads = [threading.Thread(target=client, args=(i,)) for i in range(CLIENTS)]
            for t in threads:
                t.start()
            time.sleep(SECONDS / 3)
            servers[1].kill()
            killed.set()
            time.sleep(SECONDS / 3)
            servers[1] = Forge(forge, model, port=servers[1].port)
            back = len(results)
            for t in threads:
                t.join()
            good = lost = 0
            for n, stream, text, server, pieces, began_after in results:
                if text is None:
                    # With the killed server go the requests that it had accepted before.
                    lost += 1
                    if began_after or server == address[0]:
                        failures.append(f"question {n}, {'streamed' if stream else 'whole'}, was lost: {server or 'no server'} ({pieces})")
                    continue
                good += 1
                if text != expected[n]:
                    failures.append(f"question {n} was answered {text!r} instead of {expected[n]!r} by {server}")
                if stream and pieces < 5:
                    failures.append(f"a stream of {len(text)} characters came in {pieces} pieces")
            used = {a: sum(1 for r in results[:back] if r[3] == a and r[2] is not None) for a in address}
            again = sum(1 for r in results[back:] if r[3] == address[1] and r[2] is not None)
            if not used[address[0]] or not used[address[1]]:
                failures.append(f"the requests were not spread: {used}")
            if lost > CLIENTS:
                failures.append(f"{lost} requests were lost, though at most {CLIENTS} were in progress")
            if not again:
                failures.append("the server that came back was not used again")
            c = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            c.request("GET", "/health", headers={"Host": "localhost"})
            if c.getresponse().status != 200:
                failures.append("/health through nginx is not 200")
            print(f"{good} answers as expected, {lost} lost with the killed server; {used}, {again} by the one that came back")
        finally:
            nginx.terminate()
            nginx.wait()
            for s in servers:
                s.stop()
    for f in failures[:10]:
        print("FAILED: " + f)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
