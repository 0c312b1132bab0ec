"""Where an installed package keeps its source, and the hash of what it says, from its metadata alone.

pip leaves beside every package a RECORD with the SHA-256 of each of its files, and of an editable install
where its project is; then the files themselves are hashed. Nothing is imported.
"""

import ast
import base64
import hashlib
import importlib.util
import os
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution
from itertools import islice
from pathlib import Path

from gprune.system import safe_parsing
from gprune.system.errors import PluginError, UnreadableError

MOST_FILES, MOST_BYTES = 2000, 64 * 2**20
"""what an editable package may hold, as data files within it count too"""
_PASSED_OVER = ("__pycache__", ".git", ".venv", ".mypy_cache", ".pytest_cache", ".ruff_cache")


@dataclass(frozen=True, slots=True)
class Recorded:
    """The files of an ordinary install, as its RECORD lists them."""

    hashes: tuple[tuple[str, str, str], ...]
    """(name, SHA-256 as pip writes it, path) of each, its metadata and caches left out"""

    def module(self, name: str) -> Path:
        """The file of a module; PluginError where it is none of the package's own."""
        stem = name.replace(".", "/")
        paths = {file: path for file, _, path in self.hashes}
        # where both are there, Python takes the package
        for file in (f"{stem}/__init__.py", f"{stem}.py"):
            if file in paths:
                return Path(paths[file])
        raise PluginError(f"the package has no module {name}, which its entry point names: install it again")

    def content(self) -> str:
        """Hash of all files, from the record alone."""
        return _digest(f"{name} {told}" for name, told, _ in self.hashes)

    def require_unchanged(self) -> None:
        """Checks that the files, source and data, are those of the record.

        Raises PluginError where one was changed since, so that the key of a result would not tell.
        """
        for name, told, path in self.hashes:
            if told != _as_recorded(Path(path)):
                raise PluginError(
                    f"its file {name} was changed after it was installed: install the package again, or as "
                    "`pip install -e`, so that every change is seen"
                )


@dataclass(frozen=True, slots=True)
class Editable:
    """The packages of an editable install, which are read where they are worked on."""

    project: Path
    roots: tuple[Path, ...]
    """the folders, or single files, of the top-level modules that the entry points name, or the metadata"""

    def module(self, name: str) -> Path:
        """The file of a module; PluginError where it is none of the package's own."""
        top, *inner = name.split(".")
        for root in self.roots:
            if root.is_file() and root.stem == top and not inner:
                return root
            if root.is_dir() and root.name == top:
                place = root.joinpath(*inner)
                for path in (place / "__init__.py", place.with_name(f"{place.name}.py")):
                    if path.is_file():
                        return path
        raise PluginError(f"{self.project} has no module {name}, which its entry point names")

    def content(self) -> str:
        """Hash of every file of these packages as it is now, a link as the file that it leads to.

        Raises PluginError where they are too large, lead to another folder, or cannot be read.
        """
        found, size = [], 0
        for path in sorted(islice(self.files(), MOST_FILES + 1)):
            data = _read(path)
            size += len(data)
            found.append(f"{path.relative_to(self.project)} {hashlib.sha256(data).hexdigest()}")
            if len(found) > MOST_FILES or size > MOST_BYTES:
                raise PluginError(
                    f"its packages in {self.project} hold more than {MOST_FILES} files or "
                    f"{MOST_BYTES // 2**20} MiB: move its data elsewhere"
                )
        return _digest(found)

    def require_unchanged(self) -> None:
        """Every change is seen by `content`."""

    def files(self) -> Iterator[Path]:
        """Every file of these packages; PluginError where a folder of them is a link."""
        for root in self.roots:
            if root.is_file():
                yield root
                continue
            for folder, folders, names in os.walk(root):
                folders[:] = [name for name in folders if name not in _PASSED_OVER]
                linked = next((name for name in folders if Path(folder, name).is_symlink()), None)
                if linked is not None:
                    # what lies there is not gone through, and its edits would not be seen
                    raise PluginError(
                        f"its folder {safe_parsing.quoted(linked)} is a link to another place: put the "
                        "folder itself there"
                    )
                paths = (Path(folder) / name for name in names if not name.endswith((".pyc", ".pyo")))
                yield from (path for path in paths if path.is_file())


Source = Recorded | Editable


def source_of(distribution: Distribution, modules: Iterable[str]) -> Source:
    """Where the source of a package with these modules is.

    Raises PluginError where it was not installed by pip, or lies elsewhere than it says.
    """
    project = _project(distribution)
    if project is not None:
        tops = dict.fromkeys(name.partition(".")[0] for name in modules)
        roots = dict.fromkeys([*(_root(name, project) for name in tops), *_others(distribution, project)])
        return Editable(project, _with_imported(roots, project))
    files = []
    for file in distribution.files or ():
        if file.hash is not None and not file.parts[0].endswith((".dist-info", ".egg-info")):
            files.append((file.as_posix(), file.hash.value, str(distribution.locate_file(file))))
    if not files:
        raise PluginError("it has no record of its files: install it with pip")
    return Recorded(tuple(sorted(files)))


def _project(distribution: Distribution) -> Path | None:
    """The folder of an editable install; None of any other."""
    text = distribution.read_text("direct_url.json")
    if not text:
        return None
    try:
        found = safe_parsing.json_object(text, "direct_url.json")
    except UnreadableError as error:
        raise PluginError(f"its metadata cannot be read ({error}): install it again") from error
    told, url = found.get("dir_info"), urllib.parse.urlsplit(str(found.get("url", "")))
    if not isinstance(told, dict) or told.get("editable") is not True or url.scheme != "file":
        return None
    return Path(urllib.request.url2pathname(url.path)).resolve()


def _root(top: str, project: Path) -> Path:
    """Where a top-level module of an editable install is; what finds it imports nothing of it."""
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError) as error:
        raise PluginError(f"its module {top} cannot be found ({safe_parsing.sentence(error, 100)})") from error
    places = list(spec.submodule_search_locations or ()) or [spec.origin or ""] if spec is not None else []
    if not places:
        raise PluginError(f"its module {top} cannot be found: install it again")
    root = Path(places[0]).resolve()
    if not root.is_relative_to(project):
        raise PluginError(
            f"its module {top} would be imported from {root}, which is not in its project {project}: remove "
            "what stands before it on the path"
        )
    return root


def _others(distribution: Distribution, project: Path) -> Iterator[Path]:
    """What its entry points may import: the top-level modules that setuptools notes of a project."""
    for top in (distribution.read_text("top_level.txt") or "").split():
        try:
            yield _root(top, project)
        except PluginError:
            # what cannot be imported from the project is no part of the plug-in
            continue


def _with_imported(roots: Iterable[Path], project: Path) -> tuple[Path, ...]:
    """Roots of a project, and those that their source imports of it: not every builder notes what there is.

    Told from the source alone, so that what is imported under a name that is made when it runs is not seen.
    """
    found, waiting = dict.fromkeys(roots), list(roots)
    while waiting:
        for top in sorted(_imported(waiting.pop(), project)):
            try:
                root = _root(top, project)
            except PluginError:
                # another package, or a part of Python
                continue
            # an environment may lie in the project, with all that is installed in it
            inner = root.relative_to(project).parts
            if root not in found and not {"site-packages", *_PASSED_OVER} & {*inner}:
                found[root] = None
                waiting.append(root)
    return tuple(found)


def _imported(root: Path, project: Path) -> set[str]:
    """Names of the top-level modules that the source below a root imports, those of Python left out."""
    named: set[str] = set()
    try:
        every = list(islice(Editable(project, (root,)).files(), MOST_FILES))
    except PluginError:
        # said when its content is asked for
        return named
    for path in (path for path in every if path.suffix == ".py"):
        try:
            tree = ast.parse(_read(path))
        except (PluginError, SyntaxError, ValueError, RecursionError, MemoryError):
            # what cannot be read cannot be imported either
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                named |= {one.name.partition(".")[0] for one in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                named.add(node.module.partition(".")[0])
    return named - sys.stdlib_module_names


def _read(path: Path) -> bytes:
    try:
        return safe_parsing.contents(path, path.name, most=MOST_BYTES)
    except (OSError, UnreadableError) as error:
        raise PluginError(f"its file {path.name} cannot be read ({safe_parsing.sentence(error, 100)})") from error


def _as_recorded(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").digest()
    except OSError as error:
        raise PluginError(f"its file {path.name} cannot be read ({error.strerror}): install it again") from error
    return base64.urlsafe_b64encode(found).rstrip(b"=").decode()


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]
