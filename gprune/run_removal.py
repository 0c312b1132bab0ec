"""Removes a run: its record, and those of its results that no other run needs."""

from __future__ import annotations

from gprune import cache_usage, run_records
from gprune.errors import StoreError
from gprune.files import discard
from gprune.store import Store, explain


def remove(store: Store, run: str) -> int:
    """Removes a run that nobody is at work on; what other runs need stays.

    Killed on its way it leaves results that no run needs, which `python -m gprune cache prune` removes.

    Args:
        store: the cache.
        run: name of the run; its record need not be readable.

    Returns:
        Bytes of what was removed.

    Raises:
        StoreError: a process is at work on the run, there is no such run, or the cache cannot be written.
    """
    folder, right = store.folder("runs", run), run_records.Ownership(store, run)
    if not folder.exists():
        raise StoreError(
            f"there is no run {run!r} in {store.root} any more: it may have been deleted already"
        )
    # of a process on another machine the lock may not tell
    record = run_records.read(store, run) or {}
    if not right.take() and right.writable or run_records.standing(record) == "running":
        right.give_up()
        raise StoreError(f"the run {run!r} is being computed: stop it first, then delete it")
    if not right.held:
        raise StoreError(f"the cache {store.root} cannot be written, so nothing can be deleted from it")
    try:
        return _removed(store, run)
    except OSError as error:
        raise explain(error, store.root) from error
    finally:
        right.give_up()


def _removed(store: Store, run: str) -> int:
    found = cache_usage.present(store)
    needed = cache_usage.needed_by(store, found)
    own = [one for one in found if needed[one.stage, one.key] == {run}]
    freed = 0
    for part in (cache_usage.RUNS, cache_usage.EXPORTS):
        folder = store.folder(part, run)
        if folder.is_symlink():
            # what it leads to is not ours
            folder.unlink()
        elif folder.exists():
            freed += cache_usage.size_of(folder)
            discard(folder)
    return freed + sum(one.size for one in cache_usage.remove_unneeded(store, own))
