"""Address, port, names and secrets of the server, and the message that is printed when it starts."""

import errno
import getpass
import re
import secrets
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from gprune.system.errors import SettingsError

TOKEN = "token"
"""name of the token in an address"""
_BYTES = 32
"""number of random bytes of each secret: 2**256 values are too many to try"""
LOOPBACK = ("127.0.0.1", "localhost")
"""names of this machine that other machines cannot reach"""
EVERYWHERE = ("0.0.0.0", "::")
"""addresses that stand for every network of the machine"""
_PORTS = {"http": 80, "https": 443}
"""default ports by scheme"""
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\]")
_HIGHEST_PORT = 65535
UNSAFE = (
    "warning: this server listens on a network without TLS, so anyone who can read the traffic gets the token: "
    "an SSH tunnel or a proxy with TLS is safer"
)


@dataclass(frozen=True, slots=True)
class Keys:
    """The secrets of one start of the server."""

    token: str = field(default_factory=lambda: secrets.token_urlsafe(_BYTES))
    """value in the address, which the server exchanges for the cookie"""
    session: str = field(default_factory=lambda: secrets.token_urlsafe(_BYTES))
    """value of the cookie"""


@dataclass(frozen=True, slots=True)
class Names:
    """Every name of one server."""

    origins: dict[str, str]
    """origin, such as http://localhost:8501, by accepted value of the header Host"""
    opened: str
    """origin that a browser on this machine opens"""
    public: tuple[str, ...]
    """origins of --public-address, such as the other end of a tunnel"""

    @property
    def hosts(self) -> list[str]:
        """The host names without ports, in the form that Streamlit compares."""
        return sorted({str(urlsplit(origin).hostname) for origin in self.origins.values()})


def names(address: str, port: int, public: Iterable[str] = ()) -> Names:
    """Return the names of a server that listens on `address`, an IP address or a name, and a port.

    `public` are further addresses that people use: NAME (at the same port), NAME:PORT, or https://NAME if
    a proxy in front of the server speaks TLS. Raises SettingsError if one of them is not valid.
    """
    local = address in (*EVERYWHERE, *LOOPBACK, "::1")
    hosts = [*LOOPBACK] if local else [bracket_address(address)]
    if local and ":" in address:
        hosts.append("[::1]")
    if address in EVERYWHERE:
        hosts.append(socket.gethostname().lower())
    own_origins = [_join_origin("http", host, port) for host in hosts]
    public_origins = tuple(_read_origin(text, port) for text in public)
    origins = {host: origin for origin in (*own_origins, *public_origins) for host in _hosts(origin)}
    opened = _join_origin("http", "[::1]", port) if address == "::1" else own_origins[0]
    return Names(origins, opened, public_origins)


def bracket_address(address: str) -> str:
    """Return an IPv6 address in brackets, so that `:PORT` can follow, and any other address in lower case."""
    return f"[{address}]" if ":" in address else address.lower()


def _join_origin(scheme: str, host: str, port: int) -> str:
    """Return an origin as browsers write it, without the default port of its scheme."""
    return f"{scheme}://{host}" + ("" if port == _PORTS[scheme] else f":{port}")


def _read_origin(public: str, port: int) -> str:
    """Return the origin of a typed address; the default port is 443 for https, else the server's port."""
    problem = SettingsError(
        f"{public!r} is no address: give NAME, NAME:PORT or https://NAME, for example --public-address localhost:9000"
    )
    text = public.strip().lower().removesuffix("/")
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        typed_port = parts.port
    except ValueError as error:
        raise problem from error
    host = bracket_address(parts.hostname or "")
    is_host_only = not (parts.path or parts.query or parts.fragment or parts.username)
    if parts.scheme not in _PORTS or not is_host_only or not _HOST.fullmatch(host):
        raise problem
    return _join_origin(parts.scheme, host, typed_port or (443 if parts.scheme == "https" else port))


def _hosts(origin: str) -> list[str]:
    """Return the values of the header Host for an origin: with and without the default port of its scheme."""
    scheme, _, host = origin.partition("://")
    return [host] if urlsplit(origin).port else [host, f"{host}:{_PORTS[scheme]}"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address, port, names and secrets of a server."""

    address: str
    """address that the server listens on"""
    port: int
    """port of the server, never 0"""
    names: Names
    """host names and origins of the server"""
    keys: Keys
    """secrets of the server"""

    @property
    def entry(self) -> str:
        """The address that opens the app on this machine, with the token."""
        return f"{self.names.opened}/?{TOKEN}={self.keys.token}"

    @property
    def private(self) -> bool:
        """True if it listens on this machine only."""
        return self.address in (*LOOPBACK, "::1")

    def start_message(self) -> str:
        """Return the message that is printed once the server listens."""
        public_addresses = [f"{origin}/?{TOKEN}={self.keys.token}" for origin in self.names.public]
        addresses = "\n".join(f"    {address}" for address in (self.entry, *public_addresses))
        tunnel = "\n".join(f"    {address}" for address in self._tunnels())
        return (
            f"GPrune Studio is open at\n\n{addresses}\n\n"
            "The token is new at every start, and whoever has it can use the app: share it as you would a "
            "password.\nOn another machine, run this command and open the address above there:\n\n"
            f"{tunnel}\n\nCtrl-C stops the server; started runs continue.\n"
        )

    def _tunnels(self) -> list[str]:
        """Return the SSH commands that forward the app's port to another machine."""
        public = [urlsplit(origin) for origin in self.names.public]
        ports = [origin.port or 80 for origin in public if origin.hostname in LOOPBACK and origin.scheme == "http"]
        is_local = urlsplit(self.names.opened).hostname in (*LOOPBACK, "::1")
        host = "localhost" if is_local else bracket_address(self.address)
        login = f"{getpass.getuser()}@{socket.gethostname()}"
        return [f"ssh -L {port}:{host}:{self.port} {login}" for port in ports or [self.port]]


def find_endpoint(address: str, port: int, public: Sequence[str] = ()) -> Endpoint:
    """Return an endpoint where a server can listen, with new secrets; port 0 stands for any free port.

    Raises SettingsError if the server cannot listen there, or an address is not valid.
    """
    if not 0 <= port <= _HIGHEST_PORT:
        raise SettingsError(f"port must be from 0 to {_HIGHEST_PORT}, where 0 takes a free one (got {port})")
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address, port))
            probe.listen(1)
            free_port = int(probe.getsockname()[1])
    except (OSError, UnicodeError) as error:
        raise SettingsError(_explain_failure(address, port, error)) from error
    return Endpoint(address, free_port, names(address, free_port, public), Keys())


def _explain_failure(address: str, port: int, error: Exception) -> str:
    """Return the reason why the server cannot listen there, with the remedy."""
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EADDRINUSE:
        return f"port {port} is in use: stop its process, or choose another with --port (0 takes a free one)"
    if number == errno.EACCES:
        return f"port {port} needs administrator rights: choose one above 1023 with --port"
    return f"{address[:80]!r} is not an address of this machine: give another --address, or none"
