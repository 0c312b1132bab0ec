"""The names of a server: which it answers under, and which are none."""

from __future__ import annotations

import socket

import pytest

from gprune.app.server.allowed_hosts import names
from gprune.system.errors import SettingsError


def test_loopback_answers_under_both_of_its_names_and_no_other() -> None:
    found = names("127.0.0.1", 8501)
    assert found.origins == {
        "127.0.0.1:8501": "http://127.0.0.1:8501",
        "localhost:8501": "http://localhost:8501",
    }
    assert found.opened == "http://127.0.0.1:8501" and found.hosts == ["127.0.0.1", "localhost"]


def test_an_address_of_the_network_answers_under_itself() -> None:
    assert list(names("10.1.2.3", 80).origins.items()) == [
        ("10.1.2.3:80", "http://10.1.2.3"),
        ("10.1.2.3", "http://10.1.2.3"),
    ]
    assert list(names("fe80::1", 8501).origins) == ["[fe80::1]:8501"]


def test_every_network_means_this_machine_by_its_names() -> None:
    for address in ("0.0.0.0", "::"):
        found = names(address, 7000).origins
        assert {"127.0.0.1:7000", "localhost:7000", f"{socket.gethostname().lower()}:7000"} <= set(found)
        assert ("[::1]:7000" in found) == (address == "::") and not any("0.0.0.0" in host for host in found)
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
def test_a_public_address_is_answered_as_browsers_write_it(
    public: str, hosts: list[str], origin: str
) -> None:
    found = names("127.0.0.1", 8501, [public])
    assert {host: found.origins[host] for host in hosts} == dict.fromkeys(hosts, origin)
    assert found.public == (origin,) and len(found.origins) == 2 + len(hosts)


@pytest.mark.parametrize(
    "public",
    ["", "ftp://a", "a/b", "a?b", "u@a", "a:b", "a:99999", "*", "*.example", "a b", "[::1", "http://", "a,b"],
)
def test_what_is_no_address_is_refused_in_a_sentence(public: str) -> None:
    with pytest.raises(SettingsError, match="is no address: give NAME, NAME:PORT or https://NAME"):
        names("127.0.0.1", 8501, [public])
