"""Small packages that bring metrics and methods, installed by hand as pip would leave them."""

import base64
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gprune.plugins import discovery
from gprune.study import methods

METRIC = """\
import numpy as np
from gprune.plugins import Metric

def neurons(measured):
    return np.sqrt(measured.column_square)

def groups(measured):
    return measured.grouped(measured.column_square).sum(axis=1)

size = Metric(label="weight size", neurons=neurons, groups=groups)
"""
METHOD = """\
from gprune.records import budget
from gprune.pruning.allocation import uniform
from gprune.plugins import Kept, Method

def decide(problem):
    masks = uniform.allocate(problem.scores[0], problem.shape, problem.retention)
    return Kept(masks.ffn, masks.heads)

even = Method(label="even cut", decide=decide)
"""
BOTH = {"bring/__init__.py": "", "bring/metric.py": METRIC, "bring/method.py": METHOD}
METRICS, METHODS = {"size": "bring.metric:size"}, {"even": "bring.method:even"}
_TABLES = ("METRICS", "METHODS", "PLUGINS", "INSTALLED")


def install(
    site: Path,
    name: str = "bring",
    files: Mapping[str, str] = BOTH,
    metrics: Mapping[str, str] = METRICS,
    decisions: Mapping[str, str] = METHODS,
    *,
    version: str = "1.0",
    project: Path | None = None,
) -> None:
    """Writes a package and its metadata.

    Args:
        site: folder of installed packages.
        name: of the package.
        files: its source by path.
        metrics: its entry points of that group.
        decisions: those of methods.
        version: of the package.
        project: where its source goes instead, which makes it an editable install.
    """
    for path, source in files.items():
        place = (project or site) / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(source, encoding="utf-8")
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    points = []
    for group, entries in (("gprune.metrics", metrics), ("gprune.methods", decisions)):
        points += [f"[{group}]", *(f"{entry} = {value}" for entry, value in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(points) + "\n")
    if project is not None:
        (info / "direct_url.json").write_text(json.dumps({"url": project.as_uri(), "dir_info": {"editable": True}}))
        (site / f"{name}.pth").write_text(f"{project}\n")
    told = [f"{path},sha256={_hash(site / path)},1" for path in ({} if project else files)]
    (info / "RECORD").write_text("\n".join([*told, f"{info.name}/METADATA,,"]) + "\n")


def _hash(path: Path) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=").decode()


def found() -> discovery.Found:
    """What this environment brings now."""
    return discovery.found(methods.BUILT_IN_METRICS, methods.BUILT_IN)


@contextmanager
def adopted(patch: pytest.MonkeyPatch) -> Iterator[discovery.Found]:
    """The tables of methods as a process has them that starts now; as they were afterwards."""
    before: dict[str, Any] = {name: dict(getattr(methods, name)) for name in _TABLES}
    now = found()
    patch.setattr(methods, "faults", lambda: now.faults)
    for one in sorted(now.installed, key=lambda one: one.plugin.kind == "metric"):
        methods.INSTALLED.add(one.plugin.place, one)
        methods.adopt(one.plugin)
    try:
        yield now
    finally:
        for name, items in before.items():
            getattr(methods, name)._items = items


def forget(package: str = "bring") -> None:
    """Lets go of the modules of a package and of the digest they were imported under."""
    from gprune.plugins import loading

    loading._imported.clear()
    for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        del sys.modules[name]
