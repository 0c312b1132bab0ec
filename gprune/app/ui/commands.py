"""The exact command line that does what the page does, so that every result can be made again."""

import json
import shlex
from typing import Any

from gprune.study import Study, field_names
from gprune.study.demo import name_of
from gprune.study.fields import OPTIONS

_OPTIONS = {name: f"--{option}" for option, name in OPTIONS.items()}
_ALWAYS = ("model", "primary", "auxiliary", "metric", "retention")


def field(study: Study, dotted: str) -> Any:
    """Value of a field given by its dotted name."""
    value: Any = study
    for part in dotted.split("."):
        value = getattr(value, part)
    return value


def words(study: Study) -> list[str]:
    """Arguments of `python -m gprune study` that write this study; defaults are left out."""
    plain = Study(model=study.model, primary=study.primary, auxiliary=study.auxiliary)
    arguments: list[str] = []
    for name in field_names():
        value = field(study, name)
        if value == field(plain, name) and name not in _ALWAYS:
            continue
        if name in ("evaluation.texts", "evaluation.tasks", "methods"):
            arguments += [_OPTIONS[name], *value] if value else ["--set", f"{name}=[]"]
        elif name in _OPTIONS and value is not None:
            arguments += [_OPTIONS[name], str(value)]
        else:
            plain_value = list(value) if isinstance(value, tuple) else value
            arguments += ["--set", f"{name}={json.dumps(plain_value)}"]
    return arguments


def command(study: Study, *others: Study, told: tuple[str, ...] = ()) -> str:
    """Shell commands that run this study, and others that differ from it in their seed alone."""
    seeds = "".join(f" {one.seed}" for one in (study, *others)) if others else ""
    more = (f" --seeds{seeds}" if seeds else "") + "".join(f" {word}" for word in told)
    if bundled := name_of(study):
        return f"python -m gprune run {bundled}{more}"
    return f"{_written(study, 'study.json')}\npython -m gprune run study.json{more}"


def in_slurm(*studies: Study) -> str:
    """Shell commands that put studies into Slurm, as one array."""
    files = {one: "study.json" if len(studies) == 1 else f"study-{one.seed}.json" for one in studies}
    made = [_written(one, name) for one, name in files.items() if not name_of(one)]
    words = [name_of(one) or name for one, name in files.items()]
    return "\n".join([*made, f"python -m gprune submit {' '.join(words)} --engine slurm"])


def _written(study: Study, file: str) -> str:
    """The command that writes a study to a file."""
    lines, line = [], "python -m gprune study"
    for word in words(study):
        if word.startswith("--") and len(line) > 70:
            lines.append(line)
            line = "   "
        line += " " + shlex.quote(word)
    lines.append(f"{line} > {file}")
    return " \\\n".join(lines)
