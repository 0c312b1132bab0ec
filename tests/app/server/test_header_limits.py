"""Heads of requests: as large as a browser's are read, larger ones are refused while others are answered."""

import socket
import threading
import time

import pytest
from server.asking import COOKIE, ORIGIN, ask
from waiting import limit

from gprune.app.server.header_limits import too_large
from gprune.app.server.request import MOST_BYTES, MOST_LINES, read
from scripts.served_app import served


def scope(lines):
    return {"type": "http", "headers": [(b"x-a", b"b")] * lines, "path": "/", "method": "GET"}


def seconds(lines):
    """CPU seconds of reading a request, the least of some."""
    found = []
    for _ in range(3):
        began = time.process_time()
        read(scope(lines))
        found.append(time.process_time() - began)
    return min(found)


def test_reading_takes_as_much_longer_as_there_are_more_lines():
    # what is made anew for every line takes 256 times as long for 16 times as many
    assert seconds(32_000) < 80 * seconds(2_000)
    assert read(scope(32_000)).headers["x-a"] == ("b",) * 32_000


def test_more_lines_or_bytes_than_a_browser_sends_are_refused_even_with_the_cookie():
    few, many = (tuple(("x-a", "b") for _ in range(MOST_LINES - 2 + more)) for more in (0, 1))
    assert ask("/", *few, **COOKIE).status == 200
    for kind in ("http", "websocket"):
        said = ask("/", *many, kind=kind, origin=ORIGIN, **COOKIE)
        assert said.status == 431 and not said.reached and said.header("connection") == "close"
        assert f"at most {MOST_LINES} header lines and {MOST_BYTES} bytes" in said.body
    assert ask("/", ("x-a", "b" * (MOST_BYTES - 200)), **COOKIE).status == 200
    assert ask("/", ("x-a", "b" * MOST_BYTES), **COOKIE).status == 431
    assert ask("/?" + "b" * MOST_BYTES, **COOKIE).status == 431


def head(lines, size=0):
    return b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * lines + b"c: " + b"d" * size + b"\r\n\r\n"


@pytest.mark.parametrize(
    ("received", "refused"),
    [
        (b"", False),
        (head(MOST_LINES - 1), False),
        (head(MOST_LINES), True),
        (head(MOST_LINES).replace(b"\r", b""), True),
        # not at its end yet
        (head(MOST_LINES + 1)[:-4], True),
        (head(0, MOST_BYTES - 30), False),
        (head(0, MOST_BYTES), True),
        (head(0, MOST_BYTES)[:-2], True),
        # what follows the head is no part of it
        (head(3) + b"a\n" * 10**6, False),
    ],
)
def test_a_head_is_measured_as_far_as_it_has_come(received, refused):
    assert too_large(received) is refused


def said_to(address, sent):
    """All that comes back before the server closes the connection."""
    with socket.create_connection(address, timeout=limit(20)) as line:
        try:
            line.sendall(sent)
        except ConnectionError:
            # refused before the last of it was sent
            pass
        answer = b""
        while more := line.recv(65536):
            answer += more
        return answer


ONE = b"GET /_stcore/health HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n\r\n"


@pytest.mark.process
def test_floods_of_lines_are_refused_and_closed_while_others_are_answered(tmp_path):
    with served(tmp_path / "cache") as server:
        host, port = server.address.removeprefix("http://").split(":")
        address, asked = (host, int(port)), ONE % server.address.removeprefix("http://").encode()
        answers = []
        upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
        floods = [head(30_000), head(101), head(0, 10**6), head(200_000)[:-2]]
        floods += [flood.replace(b"\r\n", b"\r\n" + upgrade, 1) for flood in floods[:2]]
        # behind a request that is answered, which the door refuses
        floods += [asked.replace(b"close", b"keep-alive") + head(30_000)]
        threads = [threading.Thread(target=lambda f=f: answers.append(said_to(address, f))) for f in floods * 2]
        for thread in threads:
            thread.start()
        meanwhile = [said_to(address, asked) for _ in range(5)]
        for thread in threads:
            thread.join(limit(60))
        assert all(one.startswith(b"HTTP/1.1 401 ") for one in meanwhile)
        assert len(answers) == len(threads)
        for answer in answers:
            last = answer[answer.rindex(b"HTTP/1.1 ") :]
            assert last.startswith(b"HTTP/1.1 431 ") and b"at most 100 header lines" in last
            assert b"connection: close" in last.lower() and b"x-frame-options: DENY" in last
        assert said_to(address, asked).startswith(b"HTTP/1.1 401 ")
