"""A visitor with the cookie who means harm: hostile values in every address, and more than a server can take.

Over the socket, as a browser would send it. The server stays, nothing is written outside of its cache, and
its memory does not grow with what it is sent.
"""

import re
import socket
from itertools import cycle
from pathlib import Path

import psutil
import pytest
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from synthetic_run import write_run
from waiting import limit
from websockets.sync.client import connect

from gprune.app.server.auth import cookie_name
from gprune.app.ui.page_names import PAGE_OF, tab
from scripts.served_app import served

pytestmark = [pytest.mark.process, pytest.mark.slow]
PATHS = ["../../../../etc/passwd", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "/etc/passwd", "..", "a%00b"]
NUMBERS = ["-1", "9" * 5000, "nan", "1e400", "%C2%B2", "=1%2B1"]
TEXTS = ["%ff%fe", "<script>alert(1)</script>", "%1b[2J%0d%0a", "%E2%80%AE", "{}", "x" * 30_000]
HOSTILE = [*PATHS, *NUMBERS, *TEXTS]
MOST_MORE = 200 * 2**20
"""bytes by which the server may grow"""


class Visitor:
    """Whom the server knows."""

    def __init__(self, server):
        self.host = server.address.removeprefix("http://")
        self.place = (self.host.split(":")[0], int(self.host.split(":")[1]))
        said = self.asked(b"GET /?token=%b HTTP/1.1\r\nHost: %b\r\n\r\n" % (server.token.encode(), self.host.encode()))
        match = re.search(rf"{cookie_name(self.host)}=[^;]+".encode(), said)
        assert match is not None, said
        self.cookie = match[0].decode()

    def asked(self, head, more=()):
        """What comes back to a request; what of it cannot be sent any more is left out."""
        with socket.create_connection(self.place, timeout=limit(60)) as line:
            try:
                line.sendall(head)
                for piece in more:
                    line.sendall(piece)
            except ConnectionError:
                pass
            try:
                return line.recv(65536)
            except ConnectionError:
                return b""

    def opened(self, place, query):
        """Every message of a page that is drawn for an address."""
        query = "&".join([*(f"{key}={value}" for key, value in tab(place).items()), query])
        headers = {"Cookie": self.cookie, "Origin": f"http://{self.host}"}
        with connect(f"ws://{self.host}/_stcore/stream", additional_headers=headers, max_size=None) as line:
            message = BackMsg()
            message.rerun_script.page_name, message.rerun_script.query_string = PAGE_OF[place].url, query
            line.send(message.SerializeToString())
            results = []
            while not results or results[-1].WhichOneof("type") != "script_finished":
                results.append(ForwardMsg())
                results[-1].ParseFromString(line.recv(timeout=limit(60)))
            return results


def names_in_addresses(project):
    """Names of everything that pages keep in an address, and more that people may try."""
    sources = [path.read_text(encoding="utf-8") for path in (project / "gprune" / "app").rglob("*.py")]
    keys = {key for text in sources for key in re.findall(r'"((?:[a-z]{2,7}_)[a-z_]+)"', text)}
    return sorted({"run", "runs", "set", "layer", "card", "slide", *keys})


def everything_beside(cache):
    return {path for path in cache.parent.rglob("*") if not path.is_relative_to(cache)}


SOME = ["home", "rasa"]
"""pages that are attacked before a change is handed in; the others are among what takes long"""


@pytest.mark.parametrize("places", [SOME, pytest.param([*PAGE_OF], marks=pytest.mark.long)], ids=["some", "all"])
def test_no_address_does_more_than_show_a_page(tmp_path, project, places):
    cache = tmp_path / "home" / "cache"
    cache.mkdir(parents=True)
    name, names = write_run(cache), names_in_addresses(project)
    before = {path.relative_to(cache): path.read_bytes() for path in cache.rglob("*") if path.is_file()}
    keys = [key for key in names if key != "run"]
    assert len(keys) > 60
    with served(cache) as server:
        visitor, process = Visitor(server), psutil.Process(server.pid)
        for place in places:
            title = PAGE_OF[place].places[place].encode()
            assert any(title in message.SerializeToString() for message in visitor.opened(place, f"run={name}"))
        least = process.memory_info().rss
        for number, place in enumerate(places):
            values = [*HOSTILE[number % len(HOSTILE) :], *HOSTILE]
            queries = [
                "&".join(f"{key}={values[0][:400]}" for key in names),
                f"run={values[0]}",
                f"run={name}&layer={values[0]}&card={values[0]}",
                # every key of a page that is drawn, each with another value
                f"run={name}&"
                + "&".join(f"{key}={value[:400]}" for key, value in zip(keys, cycle(values), strict=False)),
            ]
            for query in queries:
                messages = visitor.opened(place, query)
                elements = [message.delta.new_element for message in messages if message.HasField("delta")]
                assert "exception" not in [element.WhichOneof("type") for element in elements], (place, query[:200])
                told = [element.alert.body for element in elements if "Unknown" in element.alert.body]
                assert all(len(sentence) <= 1000 and "\n" not in sentence for sentence in told), (place, told)
                assert not any(b"root:x:0" in message.SerializeToString() for message in messages)
        assert process.is_running() and process.memory_info().rss - least < MOST_MORE
        assert visitor.opened("home", f"run={name}")
    after = {path.relative_to(cache): path.read_bytes() for path in cache.rglob("*") if path.is_file()}
    assert {path: after.get(path) for path in before} == before and not everything_beside(cache)


@pytest.mark.long
def test_a_large_upload_is_refused_without_being_kept(tmp_path):
    cache = tmp_path / "home" / "cache"
    cache.mkdir(parents=True)
    write_run(cache)
    with served(cache) as server:
        visitor, process = Visitor(server), psutil.Process(server.pid)
        size, block = 500 * 2**20, b"a" * 2**20
        for session in ("nobody", "../../../../etc", "%2e%2e%2f"):
            lines = [f"PUT /_stcore/upload_file/{session}/a HTTP/1.1", f"Host: {visitor.host}"]
            lines += [f"Origin: http://{visitor.host}", f"Cookie: {visitor.cookie}", f"Content-Length: {size}"]
            lines += ["Content-Type: multipart/form-data; boundary=b", "", ""]
            begun = b'--b\r\nContent-Disposition: form-data; name="a"; filename="../../../x"\r\n\r\n'
            least, most = process.memory_info().rss, [0]

            def pieces(most=most, begun=begun, block=block):
                yield begun
                for _ in range(500):
                    most[0] = max(most[0], process.memory_info().rss)
                    yield block

            said = visitor.asked("\r\n".join(lines).encode(), pieces())
            assert not said or re.match(rb"HTTP/1.1 4\d\d ", said), said[:200]
            assert most[0] - least < MOST_MORE and process.is_running()
        assert visitor.opened("home", "")
    assert not everything_beside(cache)
    assert not [path for path in Path(cache).rglob("*") if path.is_file() and path.stat().st_size > 50 * 2**20]
