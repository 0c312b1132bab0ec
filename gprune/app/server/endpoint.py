"""Address and port of the server, and the message that is printed when it starts."""

import errno
import getpass
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from gprune.app.server.allowed_hosts import LOOPBACK, Names, bracketed, names
from gprune.app.server.auth import Keys
from gprune.app.server.request import TOKEN
from gprune.system.errors import SettingsError

_MOST = 65535
UNSAFE = (
    "warning: this server listens to a network without TLS, so that whoever reads its traffic has the token: "
    "an SSH tunnel or a proxy with TLS is safer"
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address, port, names and secrets of a server."""

    address: str
    """what it listens on"""
    port: int
    """its port, never 0"""
    names: Names
    """what it is called"""
    keys: Keys
    """its secrets"""

    @property
    def entry(self) -> str:
        """The address that opens the app on this machine, with the token."""
        return f"{self.names.opened}/?{TOKEN}={self.keys.token}"

    @property
    def private(self) -> bool:
        """True if it listens on this machine only."""
        return self.address in (*LOOPBACK, "::1")

    def told(self) -> str:
        """Return the message that is printed once the server listens."""
        others = [f"{origin}/?{TOKEN}={self.keys.token}" for origin in self.names.public]
        addresses = "\n".join(f"    {one}" for one in (self.entry, *others))
        tunnel = "\n".join(f"    {one}" for one in self._tunnels())
        return (
            f"GPrune Studio is open at\n\n{addresses}\n\n"
            "The token is new at every start, and whoever has it can use the app: share it as you would a "
            "password.\nFrom another machine, with the address above opened there:\n\n"
            f"{tunnel}\n\nCtrl-C ends it; runs that were started go on.\n"
        )

    def _tunnels(self) -> list[str]:
        """The commands that bring the app to another machine, one for each name that a tunnel can have."""
        public = [urlsplit(origin) for origin in self.names.public]
        ports = [one.port or 80 for one in public if one.hostname in LOOPBACK and one.scheme == "http"]
        reached = urlsplit(self.names.opened).hostname in (*LOOPBACK, "::1")
        there = "localhost" if reached else bracketed(self.address)
        who = f"{getpass.getuser()}@{socket.gethostname()}"
        return [f"ssh -L {port}:{there}:{self.port} {who}" for port in ports or [self.port]]


def found(address: str, port: int, public: Sequence[str] = ()) -> Endpoint:
    """A place where a server can listen, with new secrets; port 0 takes a free one.

    Raises SettingsError where it cannot listen there, or an address is none.
    """
    if not 0 <= port <= _MOST:
        raise SettingsError(f"port must be from 0 to {_MOST}, where 0 takes a free one (got {port})")
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address, port))
            probe.listen(1)
            taken = int(probe.getsockname()[1])
    except (OSError, UnicodeError) as error:
        raise SettingsError(_why(address, port, error)) from error
    return Endpoint(address, taken, names(address, taken, public), Keys())


def _why(address: str, port: int, error: Exception) -> str:
    """Why one cannot listen there, with the remedy."""
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EADDRINUSE:
        return f"port {port} is in use: end what uses it, or choose another with --port (0 takes a free one)"
    if number == errno.EACCES:
        return f"port {port} is not for this account: choose one above 1023 with --port"
    return f"{address[:80]!r} is no address of this machine: give one of its own with --address, or none"
