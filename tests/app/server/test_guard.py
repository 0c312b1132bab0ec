"""The door: who is let in, who is told to stay outside, and what each response forbids."""

import asyncio
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from server.asking import COOKIE, HOST, KEYS, ORIGIN, OWN, PAGE, Behind, ask

from gprune.app.server.auth import HEADERS, NO_FRAMES, Guard, Request, cookie_name
from gprune.app.server.endpoint import Keys, names

TOKEN = KEYS.token


def headers(*parts):
    return {name.replace("-", "_"): value for part in parts for name, value in part.items()}


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:8502", "127.0.0.1:85010", "localhost", "evil.example:8501",
     "127.0.0.1:8501.evil", "localhost.:8501", "user@localhost:8501", "[::1]:8501",
     "gpu.example:8501", "localhost:9001", ""],
)  # fmt: skip
def test_another_host_is_refused_in_a_sentence_even_with_the_cookie(host):
    for kind in ("http", "websocket"):
        said = ask("/", kind=kind, host=host, origin=f"http://{host}", **COOKIE)
        assert said.status == 403 and not said.reached
        assert said.body.count(".") == 1 and "--public-address" in said.body


def test_a_doubled_header_is_none_and_only_reading_needs_no_origin():
    assert ask("/", ("host", "localhost:8501"), **COOKIE).status == 403
    assert ask("/", ("origin", ORIGIN), ("origin", ORIGIN), **COOKIE).status == 403
    assert ask("/_stcore/stream", kind="websocket", **COOKIE).status == 403
    assert ask("/_stcore/upload_file/a/b", method="PUT", **COOKIE).status == 403
    assert ask("/_stcore/stream", kind="websocket", origin=ORIGIN, **COOKIE).status == 101
    assert ask("/_stcore/upload_file/a/b", method="PUT", origin=ORIGIN, **COOKIE).status == 200
    assert ask("/media/a.csv", **COOKIE).status == 200


@pytest.mark.parametrize("host", [HOST, "localhost:8501", "LOCALHOST:8501", "localhost:9000"])
def test_each_name_of_the_server_is_let_in_with_the_cookie_of_its_port(host):
    cookie = f"{cookie_name(host)}={KEYS.session}"
    said = ask("/", host=host, cookie=cookie, origin=f"http://{host.lower()}")
    assert (said.status, said.body, said.reached) == (200, "inside", True)


@pytest.mark.parametrize(
    "origin",
    ["null", "http://127.0.0.1:8502", "https://127.0.0.1:8501", "http://localhost:8501", "http://127.0.0.1",
     "http://evil.example", "http://127.0.0.1:8501.evil.example", "http://127.0.0.1:8501/"],
)  # fmt: skip
def test_another_origin_is_refused_with_the_cookie_and_the_token(origin):
    for kind, method in (("http", "GET"), ("http", "PUT"), ("http", "OPTIONS"), ("websocket", "GET")):
        said = ask(f"/_stcore/stream?token={TOKEN}", kind=kind, method=method, origin=origin, **COOKIE)
        assert said.status == 403 and not said.reached, (kind, method)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_page_elsewhere_may_lead_here_but_embed_nothing(site):
    """Another port of this machine is the same site: its page's requests carry the cookie."""
    foreign = headers(COOKIE) | {"sec_fetch_site": site}
    embeds = (("no-cors", "script"), ("no-cors", "image"), ("navigate", "iframe"), ("cors", "empty"))
    for mode, location in embeds:
        said = ask("/", sec_fetch_mode=mode, sec_fetch_dest=location, **foreign)
        assert said.status == 403 and not said.reached, (mode, location)
    assert ask("/", sec_fetch_mode="navigate", sec_fetch_dest="document", **foreign).status == 200
    posted = ask("/", method="POST", sec_fetch_mode="navigate", sec_fetch_dest="document", **foreign)
    assert posted.status == 403


PATHS = ["/_stcore/health", "/_stcore/host-config", "/static/js/index.js", "/media/a.csv", "/favicon.png",
         "/_stcore/script-health-check", "/component/a/index.html", "/_stcore/bidi-components/a",
         "/index.html", "/_stcore/metrics", "/_stcore/agent"]  # fmt: skip


@pytest.mark.parametrize("cookie", ["", f"gprune-8502={KEYS.session}", "gprune-8501=", "gprune-8501=é",
                                    f"xgprune-8501={KEYS.session}", f"gprune-8501={TOKEN}"])  # fmt: skip
def test_without_the_cookie_nothing_of_the_app_is_reached(cookie):
    for path in PATHS:
        said = ask(path, cookie=cookie, **headers(OWN))
        assert said.status == 401 and not said.reached and said.header("content-type") == "application/json"
    for method in ("POST", "PUT", "DELETE"):
        said = ask("/_stcore/upload_file/a/b", method=method, origin=ORIGIN, cookie=cookie)
        assert said.status == 401 and not said.reached
    said = ask("/_stcore/stream", kind="websocket", origin=ORIGIN, cookie=cookie)
    assert said.status == 401 and not said.reached


def test_what_is_no_request_passes_and_secrets_are_long_and_new():
    behind = Behind()
    asyncio.run(Guard(behind, names("127.0.0.1", 1), KEYS)({"type": "lifespan"}, None, None))
    assert behind.seen == ["lifespan"]
    first, second = Keys(), Keys()
    assert len({first.token, first.session, second.token, second.session}) == 4
    # six bits a character
    assert all(len(secret) * 6 >= 256 for secret in (first.token, first.session))


def test_the_token_becomes_a_cookie_that_is_secure_behind_tls():
    said = ask(f"/drift?run=a%20b&token={TOKEN}&layer=1&x=%E2%82%AC+1", **headers(PAGE))
    assert said.status == 303 and not said.reached
    assert said.header("location") == f"{ORIGIN}/drift?run=a%20b&layer=1&x=%E2%82%AC+1"
    cookie = said.header("set-cookie").split("; ")
    assert cookie[0] == f"gprune-8501={KEYS.session}"
    assert set(cookie[1:]) == {"Path=/", "HttpOnly", "SameSite=strict"}
    assert said.header("cache-control") == "no-store" and TOKEN not in str(said)
    assert ask("/drift?run=a", cookie=cookie[0]).body == "inside"
    said = ask(f"/?token={TOKEN}", host="gpu.example")
    assert said.header("location") == "https://gpu.example/"
    assert "; Secure" in said.header("set-cookie")
    cookie = said.header("set-cookie").partition(";")[0]
    for origin, status in (("https://gpu.example", 101), ("http://gpu.example", 403)):
        said = ask("/", kind="websocket", host="gpu.example", origin=origin, cookie=cookie)
        assert said.status == status


@pytest.mark.parametrize("path", ["//evil.example", "//evil.example/a", "/\\evil.example", "///evil.example",
                                  "@evil.example/", ".evil.example", "/%0d%0aset-cookie:a=b"])  # fmt: skip
def test_the_redirect_and_the_form_never_leave_the_server(path):
    for said in (ask(f"{path}?token={TOKEN}&a=b"), ask(f"{path}?token={TOKEN}&a=b", **COOKIE)):
        location = urlsplit(said.header("location"))
        assert (location.scheme, location.netloc, location.query) == ("http", HOST, "a=b")
    form = ask(f"{path}?a=b", **headers(PAGE)).body
    action = form.partition('action="')[2].partition('"')[0]
    assert urlsplit(action).netloc == HOST


def test_a_wrong_token_is_told_and_takes_nobodys_cookie_away():
    for wrong in ("wrong", "", "%F0%9F%92%A3", TOKEN + "x", TOKEN[:-1]):
        said = ask(f"/drift?run=a&token={wrong}", **headers(PAGE))
        assert said.status == 303 and said.header("location") == f"{ORIGIN}/drift?run=a"
        assert KEYS.session not in str(said)
        cookie = said.header("set-cookie").partition(";")[0]
        form = ask("/drift?run=a", cookie=cookie, **headers(PAGE))
        assert form.status == 401 and "not valid" in form.body
    said = ask("/?token=wrong", **headers(PAGE) | {"sec_fetch_site": "cross-site"})
    assert said.status == 303 and "set-cookie" not in dict(said.headers)
    retained = ask("/?token=wrong", **headers(PAGE, COOKIE))
    assert retained.header("set-cookie").startswith(f"gprune-8501={KEYS.session};")
    pasted = f"http%3A%2F%2F127.0.0.1%3A8501%2F%3Ftoken%3D{TOKEN}%20"
    assert KEYS.session in ask(f"/?token={pasted}").header("set-cookie")


def test_the_form_keeps_every_field_and_runs_nothing():
    query = "run=a&x=%3Cscript%3E%22%27&y=&run=b"
    said = ask(f"/drift?{query}", **headers(PAGE))
    assert said.status == 401 and "<script" not in said.body
    assert 'action="http://127.0.0.1:8501/drift"' in said.body and 'method="get"' in said.body
    policy = " ".join(value for name, value in said.headers if name == "content-security-policy")
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
    hidden = said.body.split('type="hidden"')[1:]
    assert len(hidden) == len(parse_qsl(query, keep_blank_values=True))
    assert "&lt;script&gt;&quot;&#x27;" in hidden[1]


def test_who_comes_by_a_link_or_says_little_gets_the_form_for_pages_alone():
    """The cookie is left out where another site leads here, though the person may have it."""
    linked = headers(PAGE) | {"sec_fetch_site": "cross-site"}
    said = ask("/drift?run=a&layer=1", **linked)
    assert said.status == 200 and not said.reached and "<form" not in said.body
    assert 'content="0; url=http://127.0.0.1:8501/drift?run=a&amp;layer=1"' in said.body
    again = headers(PAGE) | {"sec_fetch_site": "same-origin"}
    assert ask("/drift?run=a&layer=1", **again, **COOKIE).reached
    assert "<form" in ask("/drift?run=a&layer=1", **again).body
    assert "<form" in ask("/", accept="text/html,*/*;q=0.8").body
    assert ask("/", accept="*/*").status == 401 and "<form" not in ask("/", accept="*/*").body


def test_every_response_has_every_header_once():
    responses = [
        ask("/", host="evil"), ask("/", origin="null"), ask("/", **headers(PAGE)), ask("/_stcore/health"),
        ask(f"/?token={TOKEN}"), ask("/", **COOKIE), ask("/", kind="websocket", origin="null"),
        ask("/", kind="websocket", origin=ORIGIN, **COOKIE), ask("/", kind="websocket", origin=ORIGIN),
    ]  # fmt: skip
    assert sorted({response.status for response in responses}) == [101, 200, 303, 401, 403]
    for said in responses:
        for name, value in HEADERS.items():
            assert [content for key, content in said.headers if key == name] == [value], said
        assert [content for key, content in said.headers if key == "content-security-policy"][-1] == NO_FRAMES
    inside = [value for name, value in ask("/", **COOKIE).headers if name == "content-security-policy"]
    assert inside == ["object-src 'none'", "frame-ancestors 'none'"]


@settings(max_examples=300, deadline=None)
@given(
    path=st.binary(max_size=40), query=st.binary(max_size=60), value=st.binary(max_size=40),
    name=st.sampled_from(["host", "origin", "cookie", "accept", "sec-fetch-site", "sec-fetch-mode", "x"]),
    kind=st.sampled_from(["http", "websocket"]), right=st.booleans(),
)  # fmt: skip
def test_whatever_is_sent_is_answered_here_and_leads_nowhere_else(path, query, value, name, kind, right):
    query += b"&token=" + (TOKEN if right else "wrong").encode()
    sent = [(b"host", HOST.encode()), (name.encode(), value)]
    scope = {"type": kind, "path": path.decode("utf-8", "replace"), "raw_path": path}
    scope |= {"method": "GET"} if kind == "http" else {}
    scope |= {"query_string": query, "headers": sent}
    guard = Guard(Behind(), names("127.0.0.1", 8501), KEYS)
    answer = guard.refusal(Request(scope))
    assert answer is not None and answer.status_code in (303, 401, 403)
    if answer.status_code == 303:
        assert urlsplit(answer.headers["location"]).netloc == HOST
        assert not any(character in answer.headers["location"] for character in "\r\n\0")
        assert (KEYS.session in str(answer.headers)) == right and TOKEN not in str(answer.headers)
