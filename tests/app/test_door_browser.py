"""The door in a browser: who has the token comes in, and pages of other origins get nothing."""

import http.server
import os
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from functools import partial

import pytest
from browser import PATIENCE, PLOT, expect, served
from synthetic_run import write_run
from waiting import wait_for

from scripts import served_app

pytestmark = pytest.mark.browser
_OPENS = """address => new Promise(done => {
    const socket = new WebSocket(address, ["streamlit"]);
    socket.onopen = () => { socket.close(); done("open"); };
    socket.onerror = () => done("refused");
})"""
_UPLOADS = """([address, mode]) => fetch(address, {
    method: mode === "cors" ? "PUT" : "POST", mode, credentials: "include", body: "a,b",
}).then(answer => answer.type === "opaque" ? "sent" : answer.status, () => "refused")"""


@contextmanager
def another_origin(folder):
    """A server of a folder: another port of this machine."""
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_port
        finally:
            server.shutdown()


def carry_connections(listener, port):
    """Carry bytes between what connects to a listener and a port of this machine, as `ssh -L` does."""
    with suppress(OSError):
        while True:
            near, _ = listener.accept()
            far = socket.create_connection(("127.0.0.1", port))
            for ends in ((near, far), (far, near)):
                threading.Thread(target=_carry, args=ends, daemon=True).start()


def _carry(source, sink):
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@pytest.mark.long
def test_a_deep_link_survives_the_token_and_the_address_is_clean(visit):
    server, name = visit.server, visit.first.name
    context = visit.person(inside=False)
    page = context.new_page()
    loaded = []
    page.on("response", lambda response: loaded.append(response.url) if response.status == 200 else None)
    expected = f"{server.address}/tune?run={name}&rasa_qd=0.8"
    page.goto(expected)
    expect(page.get_by_label("Token")).to_be_focused()
    assert page.url == expected and loaded == []
    page.keyboard.type("an old one")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("not valid")
    assert page.url == expected and loaded == []
    page.keyboard.type(server.token)
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="RASA thresholds", level=1).wait_for()
    page.locator(PLOT).first.wait_for()
    expect(page.get_by_role("spinbutton").first).to_have_value("0.800")
    assert "rasa_qd=0.8" in page.url and server.token not in page.url
    # nor can a script of the page read what opens the door
    assert page.evaluate("[document.referrer, document.cookie.includes('gprune')]") == ["", False]


@pytest.mark.long
def test_another_origin_can_neither_frame_nor_open_nor_upload(visit, tmp_path):
    """The hardest case: a person whom the server knows, and another port of the same host."""
    server = visit.server
    context = visit.person()
    stream = server.address.replace("http", "ws") + "/_stcore/stream"
    upload = f"{server.address}/_stcore/upload_file/session/file"
    app_page = context.new_page()
    app_page.goto(server.address)
    app_page.get_by_role("heading", level=1).first.wait_for()
    assert app_page.evaluate(_OPENS, stream) == "open"
    assert isinstance(app_page.evaluate(_UPLOADS, [upload, "cors"]), int)
    with another_origin(tmp_path) as port:
        for host in ("127.0.0.1", "localhost"):
            page = context.new_page()
            answers = []
            page.on("response", lambda response, to=answers: to.append((response.url, response.status)))
            page.goto(f"http://{host}:{port}/")
            assert page.evaluate(_OPENS, stream) == "refused"
            assert page.evaluate(_UPLOADS, [upload, "cors"]) == "refused"
            assert page.evaluate(_UPLOADS, [upload, "no-cors"]) in ("sent", "refused")
            page.evaluate("""address => new Promise(done => {
                const frame = document.createElement("iframe");
                frame.onload = done;
                frame.src = address;
                document.body.append(frame);
            })""", server.address)  # fmt: skip
            framed = page.frames[1]
            assert "GPrune" not in framed.content() and framed.locator("#root").count() == 0
            of_app = [status for url, status in answers if url.startswith(server.address)]
            assert of_app and set(of_app) == {403}, answers
            page.close()


@pytest.mark.long
def test_streamlit_alone_shows_how_to_start_the_app_and_nothing_of_it(visit, tmp_path):
    name = write_run(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port)]
    environment = os.environ | {"GPRUNE_CACHE": str(tmp_path), "GPRUNE_AUTOSTART": "0"}
    log = (tmp_path / "log").open("wb")
    server = subprocess.Popen(command, cwd=served_app.ROOT, env=environment, stdout=log, stderr=log)
    page = visit.person(inside=False).new_page()
    try:
        wait_for(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0)
        # `jobs` is a file of the folder of pages, which Streamlit would run without the frame
        for where in ("jobs", "", "launch", f"drift?run={name}"):
            page.goto(f"http://127.0.0.1:{port}/{where}")
            page.get_by_text("start the app with make app or python -m gprune app").wait_for()
            page.wait_for_timeout(1000)
            assert name not in page.content() and page.locator("button:has-text('Start')").count() == 0
            assert page.locator(PLOT).count() == 0, where
    finally:
        server.kill()
        server.wait()
        log.close()


@pytest.mark.long
def test_two_servers_know_their_visitors_apart_and_a_new_start_says_so(visit, tmp_path):
    first, name = visit.server, visit.first.name
    write_run(tmp_path)
    context = visit.person()
    with served(tmp_path) as second:
        second.let_in(context)
        page, other = context.new_page(), context.new_page()
        page.goto(f"{first.address}/drift?run={name}")
        other.goto(second.address)
        for item in (page, other):
            item.locator(PLOT).first.wait_for()
        port = second.address.rpartition(":")[2]
    with served(tmp_path, "--port", port):
        expect(other.get_by_text("The server has restarted")).to_be_visible(timeout=PATIENCE)
        other.reload()
        expect(other.get_by_role("alert")).to_contain_text("not valid")
        page.reload()
        page.locator(PLOT).first.wait_for()


@pytest.mark.long
def test_the_far_end_of_a_tunnel_opens_where_it_was_named(visit, tmp_path):
    write_run(tmp_path)
    context = visit.person(inside=False)
    page = context.new_page()
    with socket.create_server(("127.0.0.1", 0)) as tunnel:
        near = tunnel.getsockname()[1]
        with served(tmp_path, "--public-address", f"localhost:{near}") as server:
            far = int(server.address.rpartition(":")[2])
            threading.Thread(target=carry_connections, args=(tunnel, far), daemon=True).start()
            page.goto(f"http://localhost:{near}/drift?token={server.token}")
            page.locator(PLOT).first.wait_for()
            assert page.url.startswith(f"http://localhost:{near}/drift") and "token" not in page.url
            assert [cookie["name"] for cookie in context.cookies()].count(f"gprune-{near}") == 1
            assert context.request.get(f"http://127.0.0.1:{near}/").status == 403
