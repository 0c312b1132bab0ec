"""Small packages that bring metrics and methods, installed by hand as pip would leave them."""

import importlib
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from gprune.plugins.registry import IN_APP, Installed
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
        folder = (project or site) / path
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.write_text(source, encoding="utf-8")
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


@contextmanager
def new_process() -> Iterator[Installed]:
    """The tables of methods as a process has them that starts now; as they were afterwards."""
    tables = (methods.PLUGINS, methods._PLUGIN_METHODS, methods._PLUGIN_METRICS)
    before, in_app = [dict(table) for table in tables], IN_APP.is_set()
    for table in tables:
        table.clear()
    IN_APP.clear()
    forget()
    try:
        yield methods.installed_plugins()
    finally:
        for table, items in zip(tables, before, strict=True):
            table.clear()
            table.update(items)
        (IN_APP.set if in_app else IN_APP.clear)()
        methods.installed_plugins.cache_clear()


def forget(package: str = "bring") -> None:
    """Forgets the modules of a package, and which packages are installed."""
    methods.installed_plugins.cache_clear()
    importlib.invalidate_caches()
    for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        del sys.modules[name]
