"""`cache`: list results and the runs that need them, prune those that no run needs, verify checksums."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from gprune.cli import COMMANDS, add_cache, say
from gprune.cli.progress import show_progress
from gprune.pipeline.runs import REMEDY
from gprune.store import Store
from gprune.store.results import size_of
from gprune.system.units import amount

EXIT_DAMAGED = 1


def add(commands: Any) -> None:
    """Register the command and its subcommands."""
    parser = commands.add_parser("cache", help=COMMANDS["cache"].about)
    inner = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    overview = inner.add_parser("list", help="disk use by kind of result and by run")
    overview.set_defaults(command=_list)
    prune = inner.add_parser("prune", help="remove results that no run needs, or runs and the results only they need")
    prune.add_argument("runs", metavar="RUN", nargs="*", help="runs to remove (default: results that no run needs)")
    prune.add_argument("--yes", action="store_true", help="remove the results; without this option, only list them")
    prune.set_defaults(command=_prune)
    verify = inner.add_parser("verify", help="compare every result with its SHA-256, and move corrupt ones aside")
    verify.set_defaults(command=_verify)
    for command in (overview, prune, verify):
        add_cache(command)


def _list(options: argparse.Namespace) -> int:
    from gprune.pipeline import cache

    store = Store(options.cache)
    overview = cache.overview(store)
    say(f"{store.root}: {amount(overview.total)}")
    _print("results", [(kind, f"{count}", amount(size)) for kind, (count, size) in overview.kinds.items()])
    usage = [(run, amount(disk.total), f"{amount(disk.unshared)} unshared") for run, disk in overview.runs.items()]
    _print("runs, with the results that they need", usage)
    _print("other files", [(name, "", amount(size)) for name, size in overview.other_sizes.items()])
    if overview.unneeded:
        size = sum(entry.size for entry in overview.unneeded)
        say(f"{len(overview.unneeded)} results that no run needs: {amount(size)}; `cache prune` lists them")
    _report_unreadable(store)
    return 0


def _print(title: str, rows: list[tuple[str, str, str]]) -> None:
    # without rows, the title is not printed either
    if rows:
        say(f"\n{title}")
        for name, middle, last in rows:
            say(f"  {name:<52}  {middle:>12}  {last:>20}")


def _prune(options: argparse.Namespace) -> int:
    """List or remove the results that no run needs, or with RUN the runs; return the exit code."""
    from gprune.pipeline import cache
    from gprune.system.files import remove

    store = Store(options.cache)
    if options.runs:
        return _prune_runs(options, store)
    if _report_unreadable(store):
        say("nothing is removed: these runs may need any result; `cache prune RUN` removes a run", file=sys.stderr)
        return EXIT_DAMAGED
    entries, corrupt = cache.overview(store).unneeded, cache.quarantined_results(store)
    sizes = {str(path.relative_to(store.root)): size_of(path) for path in corrupt}
    if options.yes:
        entries = cache.remove_unneeded(store, entries)
        for path in corrupt:
            remove(path)
    sizes |= {entry.name: entry.size for entry in entries}
    for name, size in sizes.items():
        say(f"{name:<56} {amount(size):>12}")
    total = f"{len(sizes)} results, {amount(sum(sizes.values()))}"
    outcome = f"{total} removed" if options.yes else f"{total} to be removed: add --yes"
    say(outcome if sizes else "every result is needed by a run", file=sys.stderr)
    return 0


def _prune_runs(options: argparse.Namespace, store: Store) -> int:
    """List or remove runs, with the results that no other run needs; return the exit code."""
    from gprune.pipeline import cache, runs

    usage = cache.overview(store).runs
    for run in options.runs:
        if run not in usage:
            runs.require_record(store, run)
        if options.yes:
            say(f"{run}: removed, {amount(cache.remove_run(store, run))} free")
        else:
            say(cache.reason_to_keep(store, run) or f"{run}: {amount(usage[run].unshared)} to be freed: add --yes")
    return 0


def _verify(options: argparse.Namespace) -> int:
    from gprune.pipeline import cache

    store = Store(options.cache)
    entries = [entry for entry in cache.cache_entries(store) if not entry.suffix]
    with show_progress("verify") as progress:
        faults = cache.verify(store, entries, progress)
    for name, fault in faults.items():
        say(f"{name}: {fault}")
    say(f"{len(entries)} results, {amount(sum(entry.size for entry in entries))}: {len(faults)} damaged")
    if faults:
        say("run the studies again: damaged results are computed again, the others are reused", file=sys.stderr)
    return EXIT_DAMAGED if _report_unreadable(store) or faults else 0


def _report_unreadable(store: Store) -> bool:
    """Print the runs whose records cannot be read, with the remedy; return True if there are any."""
    from gprune.pipeline import cache

    faults = cache.unreadable_runs(store)
    for fault in faults.values():
        say(fault)
    if faults:
        say(f"a run that cannot be read: {REMEDY}", file=sys.stderr)
    return bool(faults)
