"""Removes a run: its record, and those of its results that no other run needs."""

from gprune.pipeline.cache import usage
from gprune.pipeline import runs
from gprune.system.errors import StoreError
from gprune.system.files import discard
from gprune.jobs.queue import using
from gprune.store import Store, explain

BUSY = "the run {run!r} is being computed: stop it first, then delete it"
_STANDS = {
    "queued": "waits to compute it",
    "interrupted": "was interrupted and is to be gone on with",
}


def hindrance(store: Store, run: str) -> str:
    """Why a run cannot be removed now, in one sentence; empty where nothing stands against it."""
    record = runs.read(store, run) or {}
    standing = runs.standing(record)
    job = using(store.root, run, done=standing == "done")
    if job is not None:
        does = _STANDS.get(job.state, "is at work on it")
        return (
            f"the run {run!r} cannot be deleted, the job {job.id} ({job.label}) {does}: cancel that job "
            f"first (`gprune jobs cancel {job.id}`, or on the page Runs & export)"
        )
    # of a process on another machine the lock may not tell
    return BUSY.format(run=run) if standing == "running" else ""


def remove(store: Store, run: str) -> int:
    """Removes a run that nobody is at work on, and no job is to go on with; what other runs need stays.

    Its record need not be readable. Killed on its way it leaves results that no run needs, which `python -m
    gprune cache prune` removes; where the record of another run cannot be read, all results stay. Gives the bytes removed. Raises StoreError where a process is at work on the
    run, a job has a use for it, there is no such run, or the cache cannot be written.
    """
    folder, right = store.folder("runs", run), runs.Ownership(store, run)
    if not folder.exists():
        raise StoreError(
            f"there is no run {run!r} in {store.root} any more: it may have been deleted already"
        )
    free = right.take() or not right.writable
    try:
        reason = hindrance(store, run) or ("" if free else BUSY.format(run=run))
        if reason:
            raise StoreError(reason)
        if not right.held:
            raise StoreError(f"the cache {store.root} cannot be written, so nothing can be deleted from it")
        return _removed(store, run)
    except OSError as error:
        raise explain(error, store.root) from error
    finally:
        right.give_up()


def _removed(store: Store, run: str) -> int:
    found = usage.present(store)
    needed = usage.needed_by(store, found)
    own = [one for one in found if needed[one.stage, one.key] == {run}]
    freed = 0
    for part in (usage.RUNS, usage.EXPORTS):
        folder = store.folder(part, run)
        if folder.is_symlink():
            # what it leads to is not ours
            folder.unlink()
        elif folder.exists():
            freed += usage.size_of(folder)
            discard(folder)
    return freed + sum(one.size for one in usage.remove_unneeded(store, own))
