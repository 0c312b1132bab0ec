#!/usr/bin/env python3
"""Hold the size and the vocabulary of the project against the ceilings in pyproject.toml.

    python scripts/code_size.py            every figure beside its ceiling; exit code 1 if one is above
    python scripts/code_size.py --lower    lower the ceilings to today's figures, never raise them

Code lines are lines that hold code: no docstring, comment or blank line counts.
"""

import argparse
import ast
import io
import re
import sys
import tokenize
import tomllib
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
TABLE = "tool.gprune.size"
ENTRY_POINTS = {"show", "add", "main", "score", "score_neurons", "allocate", "repair", "ready"}
"""public names that several modules of a room may have: the protocols of pages, commands, metrics and repairs"""
FILLER = frozenset(
    "found one known told asked kept there own place whole made shown drawn what wanted given named others most begun "
    "held heard seen taken written counted decided standing standings company course acting outlook ours theirs beside "
    "ahead afterwards alike apart such nothing something anything everything someone somebody here now then whoever "
    "whichever lacking lacked spoilt goods".split()
)
"""names that say nothing of what they hold"""
RIDDLES = frozenset("What Whether Which How Why Who Whose Where When Answers Has Lets".split())
"""first words of docstrings that ask in place of saying"""
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "docs/*.md")


@dataclass
class Vocabulary:
    """Counts of the names and docstrings of one room."""

    bindings: Counter[str] = field(default_factory=Counter)
    openers: Counter[str] = field(default_factory=Counter)
    public: Counter[str] = field(default_factory=Counter)


def count_code_lines(source: str) -> int:
    """Return the lines of a module that hold code."""
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    blank = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in blank:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def read_vocabulary(tree: ast.Module, vocabulary: Vocabulary) -> None:
    """Add the names that a module binds and the first words of its docstrings to `vocabulary`."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    definitions = (node for node in tree.body if isinstance(node, (*functions, ast.ClassDef)))
    vocabulary.public.update(node.name for node in definitions if not node.name.startswith("_"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            vocabulary.bindings[node.id.strip("_")] += 1
        elif isinstance(node, ast.arg) and node.arg not in ("self", "cls"):
            vocabulary.bindings[node.arg.strip("_")] += 1
        elif isinstance(node, functions):
            vocabulary.bindings[node.name.strip("_")] += 1
        if isinstance(node, (*functions, ast.ClassDef)) and (text := ast.get_docstring(node)):
            vocabulary.openers[re.split(r"\W", text, maxsplit=1)[0]] += 1


def count_lines(project: Path, patterns: tuple[str, ...]) -> int:
    """Return the lines of all files below `project` that match one of the patterns."""
    paths = {path for pattern in patterns for path in project.glob(pattern)}
    return sum(path.read_text(encoding="utf-8").count("\n") for path in paths)


def measure(project: Path) -> dict[str, int | float]:
    """Return every figure that has a ceiling, by its name in `[tool.gprune.size]`."""
    rooms: Counter[str] = Counter()
    vocabularies: dict[str, Vocabulary] = defaultdict(Vocabulary)
    for path in sorted((project / "gprune").rglob("*.py")):
        parts, source = path.relative_to(project / "gprune").parts, path.read_text(encoding="utf-8")
        room = parts[0] if len(parts) > 1 else "top"
        rooms[room] += count_code_lines(source)
        read_vocabulary(ast.parse(source), vocabularies[room])
    bindings = sum((v.bindings for v in vocabularies.values()), Counter())
    openers = sum((v.openers for v in vocabularies.values()), Counter())
    public = [v.public[name] for v in vocabularies.values() for name in v.public if name not in ENTRY_POINTS]
    return {
        **{f"code.{room}": rooms[room] for room in sorted(rooms)},
        "code.total": rooms.total(),
        "code.tests": sum(count_code_lines(p.read_text(encoding="utf-8")) for p in (project / "tests").rglob("*.py")),
        "lines.documents": count_lines(project, DOCUMENTS),
        "lines.web": count_lines(project, ("gprune/**/*.js", "gprune/**/*.css")),
        "names.filler_percent": percent(sum(bindings[name] for name in FILLER), bindings.total()),
        "names.riddle_percent": percent(sum(openers[word] for word in RIDDLES), openers.total()),
        "names.repeated": sum(count for count in public if count > 1),
    }


def percent(part: int, total: int) -> float:
    """Return a share in percent, to two digits."""
    return round(100 * part / max(total, 1), 2)


def read_ceilings(project: Path) -> dict[str, int | float]:
    """Return the ceilings of pyproject.toml by the names that `measure` uses."""
    table = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["gprune"]["size"]
    return {f"{group}.{name}": ceiling for group, values in table.items() for name, ceiling in values.items()}


def find_excesses(figures: dict[str, int | float], ceilings: dict[str, int | float]) -> list[str]:
    """Return one sentence for each figure that is above its ceiling or has none."""
    without = [
        f"{name} is {value} and has no ceiling in [{TABLE}]" for name, value in figures.items() if name not in ceilings
    ]
    above = [
        f"{name} is {figures[name]}, above its ceiling of {ceiling}: remove something, or raise the ceiling in a "
        "commit that names the feature it pays for"
        for name, ceiling in ceilings.items()
        if figures.get(name, 0) > ceiling
    ]
    return without + above


def lower_ceilings(project: Path, figures: dict[str, int | float], ceilings: dict[str, int | float]) -> None:
    """Write the lower of figure and ceiling into pyproject.toml; ceilings of rooms that are gone are removed."""
    path = project / "pyproject.toml"
    head, _, rest = path.read_text(encoding="utf-8").partition(f"[{TABLE}.")
    following = re.search(rf"^\[(?!{re.escape(TABLE)})", f"[{TABLE}.{rest}", re.MULTILINE)
    tail = f"[{TABLE}.{rest}"[following.start() :] if following else ""
    groups: dict[str, list[str]] = defaultdict(list)
    for name, value in figures.items():
        group, key = name.split(".")
        groups[group].append(f"{key} = {min(value, ceilings.get(name, value))}")
    tables = "\n".join("\n".join([f"[{TABLE}.{group}]", *lines, ""]) for group, lines in groups.items())
    path.write_text(head + tables + ("\n" if tail else "") + tail, encoding="utf-8")


def main(project: Path, lower: bool) -> int:
    """Print every figure beside its ceiling; return 1 if one is above."""
    figures, ceilings = measure(project), read_ceilings(project)
    if lower:
        lower_ceilings(project, figures, ceilings)
        ceilings = read_ceilings(project)
    for name, value in figures.items():
        print(f"{name:22}{value:>9}{ceilings.get(name, '-'):>9}")
    excesses = find_excesses(figures, ceilings)
    print("\n".join(excesses), file=sys.stderr)
    return 1 if excesses else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--project", type=Path, default=PROJECT, help="a checkout")
    parser.add_argument("--lower", action="store_true", help="lower the ceilings to today's figures")
    options = parser.parse_args()
    sys.exit(main(options.project, options.lower))
