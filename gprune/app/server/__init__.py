"""Access control of the app, and the options with which its server was started.

`auth` checks each request before Streamlit sees it, and `serving` starts the server. The command that serves the app
stores its options here, in the memory of its process: neither a page nor an environment variable can change them.
"""

from dataclasses import dataclass

from gprune.system.errors import SettingsError

COMMAND = "python -m gprune app"
"""command that starts the app"""
TRUST_OPTION = "--trust-remote-code"
"""option that allows the code of models"""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Options of the server."""

    trust_remote_code: bool = False
    """whether the app may run the Python code that comes with a study's model"""


_options: list[ServerOptions] = []
"""the stored options, or empty"""


def store_options(options: ServerOptions) -> None:
    """Store the options of the server, which also marks this process as serving the app with access control."""
    _options[:] = [options]


def current_options() -> ServerOptions | None:
    """Return the options of this process, or None if `gprune app` did not start it."""
    return _options[0] if _options else None


def trusts_code() -> bool:
    """Return True if this server may run code of models."""
    options = current_options()
    return options is not None and options.trust_remote_code


def require_trust(needs_code: bool) -> None:
    """Raise SettingsError if a study runs code of its model and the server does not allow it."""
    if needs_code and not trusts_code():
        raise SettingsError(
            "trust_remote_code is on, but this server runs no code that comes with a model: start it as "
            f"{COMMAND} {TRUST_OPTION}, or run the study with python -m gprune run"
        )
