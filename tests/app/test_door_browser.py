"""The door in a browser: who has the token comes in, and pages of other origins get nothing."""

import os
import socket
import subprocess
import sys

import pytest
from browser import PATIENCE, PLOT, expect, known, served
from elsewhere import Tunnel, another_origin
from synthetic_run import write_run
from waiting import wait_for

from gprune.app.server import browser as door_browser
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


@pytest.fixture
def app(visit):
    """A server over a run, and the name of the run."""
    return visit.server, visit.first.name


def page_of(context):
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    return page


def test_a_deep_link_survives_the_token_and_the_address_is_clean(chromium, app):
    server, name = app
    context = chromium.new_context()
    page = page_of(context)
    loaded = []
    page.on("response", lambda one: loaded.append(one.url) if one.status == 200 else None)
    wanted = f"{server.address}/rasa?run={name}&rasa_qd=0.8"
    page.goto(wanted)
    expect(page.get_by_label("Token")).to_be_focused()
    assert page.url == wanted and loaded == []
    page.keyboard.type("an old one")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("not that of this server")
    assert page.url == wanted and loaded == []
    page.keyboard.type(server.token)
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="RASA thresholds", level=1).wait_for()
    page.locator(PLOT).first.wait_for()
    expect(page.get_by_role("spinbutton").first).to_have_value("0.800")
    assert "rasa_qd=0.8" in page.url and server.token not in page.url
    # nor can a script of the page read what opens the door
    assert page.evaluate("[document.referrer, document.cookie.includes('gprune')]") == ["", False]
    context.close()


@pytest.mark.long
def test_without_the_token_nothing_of_the_app_is_served(chromium, app):
    server, name = app
    inside = known(chromium, server)
    page = page_of(inside)
    asked = set()
    page.on("response", lambda one: asked.add(one.url) if one.url.startswith(server.address) else None)
    page.goto(f"{server.address}/?run={name}")
    page.locator(PLOT).first.wait_for()
    assert len(asked) > 20 and inside.request.get(f"{server.address}/_stcore/health").text() == "ok"
    outside = chromium.new_context()
    for address in sorted(asked):
        assert outside.request.get(address).status == 401, address
    inside.close()
    outside.close()


@pytest.mark.long
def test_another_origin_can_neither_frame_nor_open_nor_upload(chromium, app):
    """The hardest case: a person whom the server knows, and another port of the same host."""
    server, _ = app
    context = known(chromium, server)
    stream = server.address.replace("http", "ws") + "/_stcore/stream"
    upload = f"{server.address}/_stcore/upload_file/session/file"
    own = page_of(context)
    own.goto(server.address)
    own.get_by_role("heading", level=1).first.wait_for()
    assert own.evaluate(_OPENS, stream) == "open" and isinstance(
        own.evaluate(_UPLOADS, [upload, "cors"]), int
    )
    with another_origin() as port:
        for host in ("127.0.0.1", "localhost"):
            page = page_of(context)
            answers = []
            page.on("response", lambda one, to=answers: to.append((one.url, one.status)))
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
    context.close()


@pytest.mark.long
def test_a_link_on_another_site_opens_the_page_of_whoever_is_known(chromium, app):
    server, name = app
    context = known(chromium, server)
    link = f'<a href="{server.address}/drift?run={name}">this run</a>'
    with another_origin(link) as port:
        page = page_of(context)
        # to a browser, localhost and 127.0.0.1 are two sites
        page.goto(f"http://localhost:{port}/")
        page.get_by_role("link").click()
        page.get_by_role("heading", name="Rank drift", level=1).wait_for()
        assert page.evaluate("[window.opener, document.referrer]") == [None, ""]
    context.close()


@pytest.mark.long
def test_the_file_that_a_browser_is_opened_with_leads_in(chromium, app, tmp_path):
    """To a browser a file is another site, from which it sends no strict cookie at first."""
    server, _ = app
    given = []
    context = chromium.new_context()
    page = page_of(context)
    with door_browser.opened(server.entry, tmp_path, given.append):
        wait_for(lambda: given)
        page.goto(given[0])
        page.locator(PLOT).first.wait_for()
    assert page.url.startswith(f"{server.address}/?") and server.token not in page.url
    context.close()


@pytest.mark.long
def test_streamlit_alone_shows_how_to_start_the_app_and_nothing_of_it(chromium, tmp_path):
    name = write_run(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port)]
    environment = os.environ | {"GPRUNE_CACHE": str(tmp_path), "GPRUNE_AUTOSTART": "0"}
    log = (tmp_path / "log").open("wb")
    server = subprocess.Popen(command, cwd=served_app.ROOT, env=environment, stdout=log, stderr=log)
    page = page_of(chromium.new_context())
    try:
        wait_for(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0)
        # `jobs` is a file of the folder of pages, which Streamlit would run without the frame
        for where in ("jobs", "", "launch", f"drift?run={name}"):
            page.goto(f"http://127.0.0.1:{port}/{where}")
            page.get_by_text("then make app or python -m gprune app").wait_for()
            page.wait_for_timeout(1000)
            assert name not in page.content() and page.locator("button:has-text('Start')").count() == 0
            assert page.locator(PLOT).count() == 0, where
    finally:
        server.kill()
        server.wait()
        log.close()
        page.context.close()


@pytest.mark.long
def test_two_servers_know_their_visitors_apart_and_a_new_start_says_so(chromium, app, tmp_path):
    first, name = app
    write_run(tmp_path)
    context = known(chromium, first)
    with served(tmp_path) as second:
        second.let_in(context)
        page, other = page_of(context), page_of(context)
        page.goto(f"{first.address}/drift?run={name}")
        other.goto(second.address)
        for one in (page, other):
            one.locator(PLOT).first.wait_for()
        port = second.address.rpartition(":")[2]
    with served(tmp_path, "--port", port):
        expect(other.get_by_text("The server was started anew")).to_be_visible(timeout=PATIENCE)
        other.reload()
        expect(other.get_by_role("alert")).to_contain_text("not that of this server")
        page.reload()
        page.locator(PLOT).first.wait_for()
    context.close()


@pytest.mark.long
def test_the_far_end_of_a_tunnel_opens_where_it_was_named(chromium, app, tmp_path):
    write_run(tmp_path)
    tunnel = Tunnel()
    context = chromium.new_context()
    page = page_of(context)
    with served(tmp_path, "--public-address", f"localhost:{tunnel.port}") as server:
        tunnel.to(int(server.address.rpartition(":")[2]))
        page.goto(f"http://localhost:{tunnel.port}/drift?token={server.token}")
        page.locator(PLOT).first.wait_for()
        assert page.url.startswith(f"http://localhost:{tunnel.port}/drift") and "token" not in page.url
        assert [one["name"] for one in context.cookies()].count(f"gprune-{tunnel.port}") == 1
        assert context.request.get(f"http://127.0.0.1:{tunnel.port}/").status == 403
    tunnel.close()
    context.close()
