"""Host names and origins of the server, and the address that a person opens."""

import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from gprune.system.errors import SettingsError

LOOPBACK = ("127.0.0.1", "localhost")
EVERYWHERE = ("0.0.0.0", "::")
"""addresses that mean every network of the machine"""
_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\]")


@dataclass(frozen=True, slots=True)
class Names:
    """Every name of one server."""

    origins: dict[str, str]
    """origin, as http://localhost:8501, of each value of the header Host that is answered"""
    opened: str
    """origin that a browser on this machine opens"""
    public: tuple[str, ...]
    """origins that were named besides, as that of a tunnel's other end"""

    @property
    def hosts(self) -> list[str]:
        """The names alone, without ports, as Streamlit compares them."""
        return sorted({str(urlsplit(origin).hostname) for origin in self.origins.values()})


def names(address: str, port: int, public: Iterable[str] = ()) -> Names:
    """The names of a server that listens on `address`, an IP address or a name, and a port.

    `public` are further addresses that people use: NAME (at the same port), NAME:PORT, or https://NAME where
    a proxy in front of the server speaks TLS. Raises SettingsError where one of them is no address.
    """
    local = address in (*EVERYWHERE, *LOOPBACK, "::1")
    hosts = [*LOOPBACK] if local else [bracketed(address)]
    if local and ":" in address:
        hosts.append("[::1]")
    if address in EVERYWHERE:
        hosts.append(socket.gethostname().lower())
    named = tuple(_origin(one, port) for one in public)
    own = [f"http://{host}:{port}" for host in hosts]
    origins = {host: _written(origin) for origin in (*own, *named) for host in _hosts(origin)}
    opened = f"http://[::1]:{port}" if address == "::1" else own[0]
    return Names(origins, _written(opened), tuple(map(_written, named)))


def bracketed(address: str) -> str:
    """An address as it stands before a port."""
    return f"[{address}]" if ":" in address else address.lower()


def _origin(public: str, port: int) -> str:
    """An origin, with its port, of what a person has typed."""
    scheme, sign, rest = public.strip().lower().rpartition("://")
    scheme = scheme if sign else "http"
    problem = SettingsError(
        f"{public!r} is no address: give NAME, NAME:PORT or https://NAME, as --public-address localhost:9000"
    )
    try:
        parts = urlsplit(f"//{rest.removesuffix('/')}")
        own = parts.port
    except ValueError as error:
        raise problem from error
    host = bracketed(parts.hostname or "")
    alone = not (parts.path or parts.query or parts.fragment or parts.username)
    if scheme not in _PORTS or not alone or not _HOST.fullmatch(host):
        raise problem
    return f"{scheme}://{host}:{own or (_PORTS[scheme] if scheme == 'https' else port)}"


def _hosts(origin: str) -> Iterable[str]:
    """How browsers and others name an origin in the header Host."""
    scheme, _, host = origin.partition("://")
    default = f":{_PORTS[scheme]}"
    return (host, host.removesuffix(default)) if host.endswith(default) else (host,)


def _written(origin: str) -> str:
    """An origin as browsers write it: without the port that its scheme has anyway."""
    scheme = origin.partition("://")[0]
    return origin.removesuffix(f":{_PORTS[scheme]}")
