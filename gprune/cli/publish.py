"""`push`: a model's folder on the hub."""

from __future__ import annotations

import argparse
from typing import Any

from gprune.cli import place, registered, say
from gprune.system.units import amount

_ABOUT_PUSH = (
    "Lists what of a model's folder would go to the hub, and what is doubtful about it. With --yes it goes "
    "there, in one commit, as whoever is logged in by `hf auth login` or HF_TOKEN."
)


def add(commands: Any) -> None:
    """Registers the command."""
    push = registered(commands, "push", _push, _ABOUT_PUSH)
    push.add_argument("folder", metavar="FOLDER", type=place, help="a model's folder with its model card")
    push.add_argument("repository", metavar="OWNER/NAME", help="repository of the hub; made where it is not")
    push.add_argument("--yes", action="store_true", help="send it: without this, nothing leaves this machine")
    push.add_argument("--private", action="store_true", help="make a new repository private")
    push.add_argument("--message", default="A pruned model", help="of the commit")


def _push(options: argparse.Namespace) -> int:
    from gprune.models.export import publishing

    upload = publishing.of(options.folder, options.repository)
    for name, size in upload.files:
        say(f"{name:<40} {amount(size):>12}")
    say(f"{len(upload.files)} files, {amount(upload.size)}, for {options.repository}")
    for field in ("base_model", "license", "tags"):
        say(f"{field}: {upload.card.get(field) or 'not named'}")
    for doubt in upload.doubts:
        say(f"look at this first: {doubt}")
    if not options.yes:
        say("nothing was sent: --yes sends it")
        return 0
    address = publishing.send(upload, options.repository, private=options.private, message=options.message)
    say(f"sent: {address}")
    return 0
