"""`cache`: what takes how much room and for which runs, what is not needed or damaged."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from gprune.cli import COMMANDS, add_cache, say
from gprune.pipeline.runs import REMEDY
from gprune.store import DAMAGED, Store
from gprune.system.units import amount

if TYPE_CHECKING:
    from gprune.pipeline.cache.usage import Stored

EXIT_DAMAGED = 1


def add(commands: Any) -> None:
    """Registers the command with its own three."""
    cache = commands.add_parser("cache", help=COMMANDS["cache"].about)
    ways = cache.add_subparsers(title="commands", required=True, metavar="COMMAND")
    shown = ways.add_parser("list", help="what takes how much room, and for which runs")
    shown.set_defaults(command=_list)
    prune = ways.add_parser("prune", help="show what no run needs; --yes removes it")
    prune.add_argument("--yes", action="store_true", help="remove it, results that were set aside included")
    prune.set_defaults(command=_prune)
    prune.add_argument("--unreadable-runs", action="store_true", help="also while the record of a run cannot be read")
    verify = ways.add_parser("verify", help="read every result and compare it with its checksums")
    verify.set_defaults(command=_verify)
    for parser in (shown, prune, verify):
        add_cache(parser)


def _list(options: argparse.Namespace) -> int:
    from gprune.pipeline.cache import usage

    store = Store(options.cache)
    found = usage.overview(store)
    say(f"{store.root}: {amount(found.total)}")
    _print("results", [(kind, f"{count}", amount(size)) for kind, (count, size) in found.kinds.items()])
    runs = [(run, amount(one.total), f"{amount(one.own)} its own") for run, one in found.runs.items()]
    _print("runs, with all that they need", runs)
    _print("beside the results", [(name, "", amount(size)) for name, size in found.others.items()])
    if found.unneeded:
        size = sum(one.size for one in found.unneeded)
        say(f"{len(found.unneeded)} results that no run needs: {amount(size)}; `cache prune` shows them")
    _tell_unreadable(usage.unreadable(store))
    return 0


def _print(title: str, rows: list[tuple[str, str, str]]) -> None:
    if not rows:
        return
    say(f"\n{title}")
    first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
    for name, middle, last in rows:
        say(f"  {name:<{first}}  {middle:>{second}}  {last:>12}")


def _prune(options: argparse.Namespace) -> int:
    from gprune.pipeline.cache import usage

    store = Store(options.cache)
    unread = {} if options.unreadable_runs else usage.unreadable(store)
    if unread:
        _tell_unreadable(unread)
        say(
            f"nothing is removed: {len(unread)} runs cannot be read and may need any result; with "
            "--unreadable-runs go those that no record names",
            file=sys.stderr,
        )
        return EXIT_DAMAGED
    chosen = usage.unneeded(store)
    aside = usage.set_aside(store)
    if not options.yes:
        _show([(one.name, one.size) for one in chosen])
        _show([(f"{DAMAGED}/{path.name}", usage.size_of(path)) for path in aside])
        found = len(chosen) + len(aside)
        say(f"{found} to be removed: add --yes" if found else "nothing that no run needs", file=sys.stderr)
        return 0
    removed = usage.remove_unneeded(store, chosen, unreadable_runs=options.unreadable_runs)
    gone = [(one.name, one.size) for one in removed]
    gone += [(f"{DAMAGED}/{name}", size) for name, size in usage.remove_damaged(store)]
    _show(gone)
    say(f"{len(gone)} removed, {amount(sum(size for _, size in gone))} free", file=sys.stderr)
    return 0


def _tell_unreadable(found: dict[str, str]) -> None:
    """Names the runs whose records cannot be read, and what makes them readable."""
    for fault in found.values():
        say(fault)
    if found:
        say(f"a run that cannot be read: {REMEDY}", file=sys.stderr)


def _show(found: list[tuple[str, int]]) -> None:
    for name, size in found:
        say(f"{name:<56} {amount(size):>12}")


def _verify(options: argparse.Namespace) -> int:
    from gprune.pipeline.cache import verify as cache_check

    store = Store(options.cache)
    found = cache_check.verified(store, _progress)
    for name, fault in found.faults.items():
        say(f"{name}: {fault}")
    read = f"{found.files} files of {found.results} results, {amount(found.size)}"
    say(f"{read}: {len(found.faults)} damaged")
    if found.faults:
        say("run the studies again: what is damaged is made anew, the rest is kept", file=sys.stderr)
    _tell_unreadable(found.runs)
    return EXIT_DAMAGED if found.faults or found.runs else 0


def _progress(one: Stored, done: int, total: int) -> None:
    if sys.stderr.isatty():
        end = "\r" if done < total else "\n"
        say(f"{done} of {total} results, {one.stage:<20}", end=end, file=sys.stderr, flush=True)
