"""Where a server stands, which names it answers under, how a browser gets to it, and the command for it."""

import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from server.asking import KEYS
from waiting import limit, wait_for

from gprune.app.server import browser
from gprune.app.server.endpoint import Endpoint, find_endpoint, names
from gprune.system.errors import SettingsError
from scripts.served_app import ENTRY, served


def start(project, log, cache, *options):
    command = [sys.executable, "-m", "gprune", "app", "--no-browser", "--cache", str(cache), *options]
    with open(log, "wb") as saved:
        return subprocess.Popen(command, cwd=project, stdout=saved, stderr=subprocess.STDOUT)


def socket_refused(origin):
    """What one is told who asks for the app's socket without the cookie."""
    host, port = origin.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=limit(5)) as line:
        requested = f"GET /_stcore/stream HTTP/1.1\r\nHost: {host}:{port}\r\nOrigin: {origin}\r\n"
        key = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        line.sendall((requested + "Connection: Upgrade\r\nUpgrade: websocket\r\n" + key).encode())
        return line.recv(4096)


@pytest.mark.process
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
    assert "warning: this server listens on a network without TLS" in said
    # a page that was open before the server was started anew asks for its socket every second
    assert not any(word in said.lower() for word in ("traceback", "asgi", "info:", "streamlit"))
    # an address without the token would lead to the form
    assert said.count("http://") == 1


@pytest.mark.process
def test_a_port_in_use_is_one_sentence(project, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        server = start(project, tmp_path / "log", tmp_path, "--port", str(other.getsockname()[1]))
        assert server.wait(limit(30)) == 2
    lines = (tmp_path / "log").read_text().splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: port ") and "--port" in lines[0]


@pytest.mark.process
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux tells what a process has loaded")
def test_the_process_of_the_app_loads_no_torch(tmp_path):
    with served(tmp_path) as server:
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        answer = opener.open(server.entry, timeout=limit(5))
        assert 'id="root"' in answer.read().decode()
        assert "libtorch" not in Path(f"/proc/{server.pid}/maps").read_text()
        # what it was started with is no secret on this machine, so the token is not in it
        assert server.token not in Path(f"/proc/{server.pid}/cmdline").read_text()


def endpoint(address, *public):
    return Endpoint(address, 8501, names(address, 8501, public), KEYS)


def test_addresses_tunnels_and_ports_are_told_and_the_session_never():
    message = endpoint("127.0.0.1").start_message()
    assert "\n    http://127.0.0.1:8501/?token=the-right-token\n" in message
    assert "\n    ssh -L 8501:localhost:8501 " in message and KEYS.session not in message
    assert endpoint("127.0.0.1").private and endpoint("::1").private and not endpoint("0.0.0.0").private
    message = endpoint("127.0.0.1", "localhost:9000", "https://gpu.example").start_message()
    for origin in ("http://localhost:9000", "https://gpu.example"):
        assert f"{origin}/?token=the-right-token" in message
    assert re.findall(r"ssh -L \S+", message) == ["ssh -L 9000:localhost:8501"]
    assert "ssh -L 8501:10.1.2.3:8501 " in endpoint("10.1.2.3").start_message()
    assert "ssh -L 8501:localhost:8501 " in endpoint("0.0.0.0").start_message()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(SettingsError, match=rf"port {port} is in use: .*--port \(0 takes a free one\)"):
            find_endpoint("127.0.0.1", port)
        free = find_endpoint("127.0.0.1", 0)
    assert 0 < free.port != port and free.entry.startswith(f"http://127.0.0.1:{free.port}/?token=")


@pytest.mark.parametrize(
    ("address", "port", "message"),
    [
        ("203.0.113.7", 0, "'203.0.113.7' is not an address of this machine"),
        ("no such name", 0, "is not an address of this machine"),
        ("x" * 300, 0, "is not an address of this machine"),
        ("unix://socket", 0, "is not an address of this machine"),
        ("127.0.0.1", 65536, "port must be from 0 to 65535"),
        ("127.0.0.1", -1, "port must be from 0 to 65535"),
    ],
)
def test_where_nobody_can_listen_is_a_sentence(address, port, message):
    with pytest.raises(SettingsError, match=message) as refused:
        find_endpoint(address, port)
    assert len(str(refused.value)) < 300


def test_a_browser_gets_a_file_of_its_user_alone_and_no_trace_stays(tmp_path):
    supplied = []
    address = f"http://127.0.0.1:8501/?token={KEYS.token}"
    with browser.open_in_browser(address, tmp_path, supplied.append):
        wait_for(lambda: supplied)
        (file,) = tmp_path.iterdir()
        assert supplied == [file.as_uri()] and KEYS.token not in supplied[0]
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert f'content="0; url={address}"' in file.read_text()
    assert list(tmp_path.iterdir()) == []


def test_a_browser_that_stays_does_not_keep_the_server(tmp_path):
    closed = threading.Event()
    with browser.open_in_browser("http://127.0.0.1/", tmp_path / "absent", lambda _: closed.wait()):
        pass
    closed.set()


@pytest.mark.skipif(os.name == "nt", reason="where a screen is there is told by variables elsewhere")
def test_no_browser_is_opened_without_a_screen_or_over_ssh(monkeypatch):
    for name in ("SSH_CONNECTION", "SSH_TTY", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    assert not browser.can_open_browser()
    monkeypatch.setenv("DISPLAY", ":0")
    assert browser.can_open_browser()
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 1 10.0.0.2 22")
    assert not browser.can_open_browser()


def test_a_server_answers_under_its_own_names_alone():
    result = names("127.0.0.1", 8501)
    assert result.origins == {host: f"http://{host}" for host in ("127.0.0.1:8501", "localhost:8501")}
    assert result.opened == "http://127.0.0.1:8501" and result.hosts == ["127.0.0.1", "localhost"]
    assert names("10.1.2.3", 80).origins == dict.fromkeys(("10.1.2.3:80", "10.1.2.3"), "http://10.1.2.3")
    assert list(names("fe80::1", 8501).origins) == ["[fe80::1]:8501"]
    for address in ("0.0.0.0", "::"):
        result = names(address, 7000).origins
        assert {"127.0.0.1:7000", "localhost:7000", f"{socket.gethostname().lower()}:7000"} <= set(result)
        assert ("[::1]:7000" in result) == (address == "::") and not any("0.0.0.0" in host for host in result)
    assert names("::1", 7000).opened == "http://[::1]:7000"


@pytest.mark.parametrize(
    ("public", "hosts", "origin"),
    [
        ("localhost:9000", ["localhost:9000"], "http://localhost:9000"),
        (" GPU-Box ", ["gpu-box:8501"], "http://gpu-box:8501"),
        ("http://gpu-box/", ["gpu-box:8501"], "http://gpu-box:8501"),
        ("https://gpu.example", ["gpu.example:443", "gpu.example"], "https://gpu.example"),
        ("https://gpu.example:8443", ["gpu.example:8443"], "https://gpu.example:8443"),
        ("gpu-box:80", ["gpu-box:80", "gpu-box"], "http://gpu-box"),
        ("[2001:db8::1]:99", ["[2001:db8::1]:99"], "http://[2001:db8::1]:99"),
    ],
)
def test_a_public_address_is_answered_as_browsers_write_it(public, hosts, origin):
    result = names("127.0.0.1", 8501, [public])
    assert {host: result.origins[host] for host in hosts} == dict.fromkeys(hosts, origin)
    assert result.public == (origin,) and len(result.origins) == 2 + len(hosts)


@pytest.mark.parametrize(
    "public", ["", "ftp://a", "a/b", "a?b", "u@a", "a:b", "a:99999", "*", "*.example", "a b", "[::1", "http://", "a,b"]
)
def test_what_is_no_address_is_refused_in_a_sentence(public):
    with pytest.raises(SettingsError, match="is no address: give NAME, NAME:PORT or https://NAME"):
        names("127.0.0.1", 8501, [public])


@pytest.mark.process
def test_every_page_is_imported_and_no_torch(project):
    code = (
        "import sys; from gprune.app.server.serving import import_pages; import_pages(); "
        "print('gprune.app.pages.launch' in sys.modules, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True)
    # outside of a server Streamlit says that it finds none
    assert done.returncode == 0 and "cannot be imported" not in done.stderr and done.stdout == "True False\n"
