"""`inspect` and `push`: what a model's folder is, and the folder on the hub."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any

from gprune.cli import place, registered, say
from gprune.system.units import amount

_ABOUT_PUSH = (
    "Lists what of a model's folder would go to the hub, and what is doubtful about it. With --yes it goes "
    "there, in one commit, as whoever is logged in by `hf auth login` or HF_TOKEN."
)
_ABOUT_INSPECT = (
    "Says of the folder of any dense or pruned model: family, widths by layer, parameters, what can be "
    "pruned, and whether it loads without code of its own. Reads no weights."
)


def add(commands: Any) -> None:
    """Registers the commands."""
    push = registered(commands, "push", _push, _ABOUT_PUSH)
    push.add_argument("folder", metavar="FOLDER", type=place, help="a model's folder with its model card")
    push.add_argument("repository", metavar="OWNER/NAME", help="repository of the hub; made where it is not")
    push.add_argument("--yes", action="store_true", help="send it: without this, nothing leaves this machine")
    push.add_argument("--private", action="store_true", help="make a new repository private")
    push.add_argument("--message", default="A pruned model", help="of the commit")
    inspect = registered(commands, "inspect", _inspect, _ABOUT_INSPECT)
    inspect.add_argument("model", metavar="FOLDER", help="a folder, a hub name that is on this machine, or `demo`")
    inspect.add_argument("--json", action="store_true", help="write it as one line of JSON to stdout")


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


def _inspect(options: argparse.Namespace) -> int:
    from gprune.models import inspection

    found = inspection.inspect(options.model)
    if options.json:
        say(json.dumps(asdict(found) | {"folder": str(found.folder)}))
        return 0
    family = f"{found.family} ({found.model_type})" if found.family else found.model_type
    rows = {
        "folder": found.folder,
        "family": family,
        "form": found.form,
        "parameters": f"{found.parameters:,} ({amount(found.bytes)})",
        "layers": len(found.neurons) or "not known",
        "FFN neurons": inspection.in_words(found.neurons, found.of_neurons),
        "key/value groups": inspection.in_words(found.groups, found.of_groups),
        "can be pruned": found.prunable,
        "loads": found.loads,
    }
    for name, value in rows.items():
        say(f"{name:<18}{value}")
    return 0
