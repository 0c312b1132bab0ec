"""Where a server stands: what is printed about it, why it cannot stand there, how a browser gets to it."""

from __future__ import annotations

import os
import re
import socket
import stat
import threading
from pathlib import Path

import pytest
from waiting import wait_for

from gprune.app.server import browser
from gprune.app.server.allowed_hosts import names
from gprune.app.server.auth import Keys
from gprune.app.server.endpoint import Endpoint, found
from gprune.system.errors import SettingsError

KEYS = Keys("the-token", "the-session")


def place(address: str, *public: str) -> Endpoint:
    return Endpoint(address, 8501, names(address, 8501, public), KEYS)


def test_the_address_and_the_tunnel_are_told_and_the_session_never() -> None:
    told = place("127.0.0.1").told()
    assert "\n    http://127.0.0.1:8501/?token=the-token\n" in told
    assert "\n    ssh -L 8501:localhost:8501 " in told and "the-session" not in told
    assert place("127.0.0.1").private and place("::1").private and not place("0.0.0.0").private


def test_every_public_address_is_told_with_the_tunnel_that_makes_it() -> None:
    told = place("127.0.0.1", "localhost:9000", "https://gpu.example").told()
    assert "http://localhost:9000/?token=the-token" in told and "https://gpu.example/?token=the-token" in told
    assert re.findall(r"ssh -L \S+", told) == ["ssh -L 9000:localhost:8501"]
    assert "ssh -L 8501:10.1.2.3:8501 " in place("10.1.2.3").told()
    assert "ssh -L 8501:localhost:8501 " in place("0.0.0.0").told()


def test_a_free_port_is_taken_and_one_in_use_is_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(SettingsError, match=rf"port {port} is in use: .*--port \(0 takes a free one\)"):
            found("127.0.0.1", port)
        free = found("127.0.0.1", 0)
    assert 0 < free.port != port and free.entry.startswith(f"http://127.0.0.1:{free.port}/?token=")


@pytest.mark.parametrize(
    ("address", "port", "message"),
    [
        ("203.0.113.7", 0, "'203.0.113.7' is no address of this machine"),
        ("no such name", 0, "is no address of this machine"),
        ("x" * 300, 0, "is no address of this machine"),
        ("unix://socket", 0, "is no address of this machine"),
        ("127.0.0.1", 65536, "port must be from 0 to 65535"),
        ("127.0.0.1", -1, "port must be from 0 to 65535"),
    ],
)
def test_where_nobody_can_listen_is_a_sentence(address: str, port: int, message: str) -> None:
    with pytest.raises(SettingsError, match=message) as refused:
        found(address, port)
    assert len(str(refused.value)) < 300


def test_a_browser_gets_a_file_of_its_user_alone_and_no_trace_stays(tmp_path: Path) -> None:
    given: list[str] = []
    address = f"http://127.0.0.1:8501/?token={KEYS.token}"
    with browser.opened(address, tmp_path, given.append):
        wait_for(lambda: given)
        (file,) = tmp_path.iterdir()
        assert given == [file.as_uri()] and KEYS.token not in given[0]
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert f'content="0; url={address}"' in file.read_text()
    assert list(tmp_path.iterdir()) == []


def test_a_browser_that_stays_does_not_keep_the_server(tmp_path: Path) -> None:
    closed = threading.Event()
    with browser.opened("http://127.0.0.1/", tmp_path / "absent", lambda _: closed.wait()):
        pass
    closed.set()


@pytest.mark.skipif(os.name == "nt", reason="where a screen is there is told by variables elsewhere")
def test_no_browser_is_opened_without_a_screen_or_over_ssh(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SSH_CONNECTION", "SSH_TTY", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    assert not browser.has_screen()
    monkeypatch.setenv("DISPLAY", ":0")
    assert browser.has_screen()
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 1 10.0.0.2 22")
    assert not browser.has_screen()
