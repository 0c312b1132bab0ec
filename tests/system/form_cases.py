"""Odd files for every reader of settings, jobs, runs and packs, made from one sound file each."""

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gprune.experiments.sweep import plan as sweep
from gprune.jobs import job, state, timeline
from gprune.pipeline import runs
from gprune.pipeline.runs import notes
from gprune.study import Study, from_file

STUDY = Study(model="demo", primary="python-reference", auxiliary="science-docs").to_dict()
# every field of these is like one of the others
del STUDY["gates"], STUDY["scales"], STUDY["recovery"], STUDY["contexts"], STUDY["modularization"]
STUDY["evaluation"] |= {"texts": ["a", "b"], "windows": 4, "tasks": ["demo_odd"], "limit": 3}
STATE = {
    "state": "failed", "pid": 7, "process_started": 1.5, "host": "h", "started": 4, "ended": 6,
    "cancel_requested": None, "error": "e", "run_id": "r", "summary": {"a": 1}, "device": "", "killed": True,
}  # fmt: skip
JOB = {
    "label": "a job", "created": 12.5, "command": ["python", "-m"], "arguments": ["--until", "all"],
    "fingerprint": "f", "number": 3, "device": "cpu", "run": "r", "timed": False, "cwd": "",
}  # fmt: skip
RUN = {
    "run": "demo-1", "study": {"model": "demo", "list": [1, None]}, "state": "done", "until": "all",
    "error": None, "started": "2026", "updated": "2026", "seconds": 1.5, "expected": {"tokens": 1.0},
    "stages": {"tokens": {"key": "k", "seconds": 1, "reused": False, "passes": {"all": 2},
                          "notices": ["n"], "with": "w"}},
    "missing_tasks": {"t": "r"}, "texts": {"A": "words"},
    "unavailable": {"x": {"key": "k", "reason": "r"}}, "result": {"retention": 0.5},
    "provenance": {"inputs": {"model": "m", "calibration": {"A": "b"}, "plugins": {"p": {"a": "b"}}},
                   "commit": "c"},
    "packed": {"left_out": {"a": "b"}}, "owner": {"pid": 4, "started": 1.5, "host": "h", "boot": "b"},
}  # fmt: skip
SHORT = {"model": "demo", "primary": "p", "auxiliary": "a", "evaluation": {"texts": ["t"]}}
SWEEP = {
    "title": "a sweep", "study": SHORT, "space": {"seed": [0, 1]}, "until": "all",
    "cases": [{"primary": "x", "auxiliary": "y"}],
}  # fmt: skip

Reader = Callable[[Path, bytes], object]


def _files(name: str, read: Callable[[Path], object]) -> Reader:
    def reader(folder: Path, data: bytes) -> object:
        (folder / name).write_bytes(data)
        return read(folder)

    return reader


READERS: dict[str, tuple[Any, Reader]] = {
    "study": (STUDY, _files("s.json", lambda folder: from_file(folder / "s.json"))),
    "state": (STATE, _files("state.json", state.read_state)),
    "job": (JOB, _files("job.json", job.read_job)),
    "event": (
        {"ts": 1, "stage": "s", "done": 1, "total": 2, "message": "m", "waits": True},
        lambda folder, data: timeline.parse_event(data),
    ),
    "run": (RUN, _files("run.json", lambda folder: runs.load(folder / "run.json"))),
    "notes": ({"name": "n", "note": "a\nb", "hidden": True}, _files("about.json", notes.read)),
    "sweep": (SWEEP, _files("w.json", lambda folder: sweep.from_file(folder / "w.json"))),
}  # fmt: skip
ODD = (
    None, True, 0, 1, -1, 1.0, 1.5, -0.5, 16, 2**31, 2**40, 1e300, float("nan"), float("inf"), "", "a", "2",
    "128", "²", "none", "a\nb", " a  b ", "../a", "-a", "\0", "\ud800", "x" * 210, "x" * 5000, "y" * 20001,
    [], [1], ["a", "a"], [[0, 1]], {}, {"a": 1}, {"b": {"a": None}},
)  # fmt: skip
RAW = (
    b"", b"{", b"[]", b"3", b"null", b"\xff", b'{"a": 1' + b"0" * 30 + b"}", b'{"a":' * 70 + b"1" + b"}" * 70,
    b'{"a": 1e999}',
)  # fmt: skip


def cases(sound: Any) -> Iterator[tuple[str, object, bytes]]:
    """The place that is odd, what stands there, and the file: each part of a sound file made odd in turn."""
    for number, data in enumerate(RAW):
        yield f"file {number}", "", data
    text = json.dumps(sound).encode()
    yield "sound", "", text
    yield "with a mark", "", b"\xef\xbb\xbf" + text
    yield "a key twice", "", text[:-1] + b"," + text[1:]
    for path in _places(sound):
        for odd in ODD:
            yield ".".join(map(str, path)), odd, _written(_with(sound, path, odd))
        yield ".".join(map(str, path)) + " is missing", "", _written(_with(sound, path))
        if isinstance(_at(sound, path), dict):
            for name in ("unknown", "ünknown\n", ""):
                yield ".".join(map(str, path)), name, _written(_with(sound, (*path, name), 1))


def _places(value: Any, before: tuple = ()) -> Iterator[tuple]:
    inner = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for name, one in inner:
        yield (*before, name)
        yield from _places(one, (*before, name))


def _at(value: Any, path: tuple) -> Any:
    for part in path:
        value = value[part]
    return value


def _with(sound: Any, path: tuple, *odd: Any) -> Any:
    made = copy.deepcopy(sound)
    target = _at(made, path[:-1])
    if odd:
        target[path[-1]] = odd[0]
    else:
        del target[path[-1]]
    return made


def _written(value: Any) -> bytes:
    return json.dumps(value).encode()
