"""`python -m gprune app` as a process: what it prints, that it needs no torch, and how it ends."""

import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from waiting import limit, wait_for

from scripts.served_app import ENTRY, served

pytestmark = pytest.mark.process


def start(project, log, cache, *options):
    command = [sys.executable, "-m", "gprune", "app", "--no-browser", "--cache", str(cache), *options]
    with open(log, "wb") as written:
        return subprocess.Popen(command, cwd=project, stdout=written, stderr=subprocess.STDOUT)


def socket_refused(origin):
    """What one is told who asks for the app's socket without the cookie."""
    host, port = origin.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=limit(5)) as line:
        asked = f"GET /_stcore/stream HTTP/1.1\r\nHost: {host}:{port}\r\nOrigin: {origin}\r\n"
        key = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        line.sendall((asked + "Connection: Upgrade\r\nUpgrade: websocket\r\n" + key).encode())
        return line.recv(4096)


def test_it_says_where_it_is_warns_of_the_network_and_ends_cleanly(project, tmp_path):
    log = tmp_path / "log"
    server = start(project, log, tmp_path / "cache", "--port", "0", "--address", "0.0.0.0")
    try:
        wait_for(lambda: ENTRY.search(log.read_text()) or server.poll() is not None)
        entry = ENTRY.search(log.read_text())
        assert entry is not None, log.read_text()
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(entry["origin"] + "/_stcore/health", timeout=limit(5))
        assert b" 401 " in socket_refused(entry["origin"])
        server.send_signal(signal.SIGINT)
        assert server.wait(limit(20)) == 0
    finally:
        server.kill()
        server.wait()
    said = log.read_text()
    assert "warning: this server listens to a network without TLS" in said
    # a page that was open before the server was started anew asks for its socket every second
    assert not any(word in said.lower() for word in ("traceback", "asgi", "info:", "streamlit"))
    # an address without the token would lead to the form
    assert said.count("http://") == 1


def test_a_port_in_use_is_one_sentence(project, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        server = start(project, tmp_path / "log", tmp_path, "--port", str(other.getsockname()[1]))
        assert server.wait(limit(30)) == 2
    lines = (tmp_path / "log").read_text().splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: port ") and "--port" in lines[0]


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux tells what a process has loaded")
def test_the_process_of_the_app_loads_no_torch(tmp_path):
    with served(tmp_path) as server:
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        answer = opener.open(server.entry, timeout=limit(5))
        assert 'id="root"' in answer.read().decode()
        # a browser reads the largest script at once, and not only with the first chart
        hint = answer.headers["link"]
        name = hint.removeprefix("<").removesuffix(">; rel=modulepreload")
        assert len(opener.open(server.address + name, timeout=limit(5)).read()) > 1_000_000, hint
        assert "libtorch" not in Path(f"/proc/{server.pid}/maps").read_text()
        # what it was started with is no secret on this machine, so the token is not in it
        assert server.token not in Path(f"/proc/{server.pid}/cmdline").read_text()
