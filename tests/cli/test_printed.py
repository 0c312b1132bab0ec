"""What commands print of what others wrote: nothing in it reaches a terminal as a command."""

import ast
import io
import json

import pytest
from synthetic_run import a_study, read, write_run

from gprune.__main__ import main
from gprune.cli import say
from gprune.jobs import folder
from gprune.pipeline import runs
from gprune.store import Store
from gprune.system import safe_parsing

RAW = "\x1b]0;mine\x07\x1b[2J\x9b31m\u202e\x7f\r"
"""sets a title, clears the screen, changes a colour in two ways, turns the direction, overwrites the line"""
OBEYED = set(RAW) - set("0;mine[2J31]")


def test_every_character_that_a_terminal_obeys_is_shown_by_its_number():
    for number in (*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)):
        shown = safe_parsing.printable(f"a{chr(number)}b")
        assert shown == f"a{chr(number)}b" if chr(number) in "\t\n" else shown.isprintable() and shown != "ab"
    assert safe_parsing.printable("a\x1b[2Kb\x1b[31;1mc é 漢 \U0001f600") == "abc é 漢 \U0001f600"
    assert not OBEYED & set(folder.printable(f"a line{RAW}"))
    values = {f"a{RAW}": ["é\n", RAW, {"b": RAW}, 3, None]}
    text = safe_parsing.printable_json(json.dumps(values, ensure_ascii=False))
    assert json.loads(text) == values and not OBEYED & set(text)
    say("a", RAW, 3, file=(file := io.StringIO()))
    assert file.getvalue().startswith("a ") and not OBEYED & set(file.getvalue())


@pytest.fixture
def foreign(tmp_path):
    """A run whose record somebody else has made."""
    name = write_run(tmp_path, study=a_study(name="theirs"))
    values = read(tmp_path, name)
    values["study"] |= {"model": f"theirs{RAW}\nno run at all", "name": f"theirs{RAW}"}
    runs.save(Store(tmp_path), name, values)
    return tmp_path, name


def test_a_run_of_others_is_listed_in_one_line(foreign, capsys):
    cache, name = foreign
    assert main(["runs", "--cache", str(cache)]) == 0
    said = capsys.readouterr().out
    assert said.count("\n") == 1 and name in said and not OBEYED & set(said)
    for words in (["cache", "list"], ["report", name, "-o", str(cache / "a.html")], ["cache", "verify"]):
        main([*words, "--cache", str(cache)])
        said = capsys.readouterr()
        assert not OBEYED & set(said.out + said.err), words


def test_commands_print_by_say_alone(project):
    for path in (project / "gprune" / "cli").glob("*.py"):
        called = [
            node.lineno
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
        ]
        assert len(called) == (path.name == "__init__.py"), f"{path.name} prints in lines {called}: use say"
