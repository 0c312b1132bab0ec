"""The house's walls: who may import what, and that no part of it is forgotten by the contracts."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

TORCH_ROOMS = {
    "__main__",
    "api",
    "bench",
    "calibration",
    "commands",
    "evaluation",
    "export",
    "measure",
    "models",
    "modularization",
    "registration",
    "sparsity",
    "surgery",
    "testing",
}
"""parts that may load torch; of some of them single modules may not"""


@pytest.fixture(scope="module")
def contracts(project):
    settings = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
    return {each["name"]: each for each in settings["tool"]["importlinter"]["contracts"]}


def parts(folder: Path):
    packages = {path.parent.name for path in folder.glob("*/__init__.py")}
    return packages | {path.stem for path in folder.glob("*.py")} - {"__init__"}


def test_every_part_either_may_load_torch_or_is_held_to_load_none(project, contracts):
    held = {
        name.split(".")[1] for name in contracts["the app's process never imports torch"]["source_modules"]
    }
    whole = {
        name.split(".")[1]
        for name in contracts["the app's process never imports torch"]["source_modules"]
        if name.count(".") == 1
    }
    assert held | TORCH_ROOMS == parts(project / "gprune")
    assert not whole & TORCH_ROOMS


def test_the_contracts_of_layers_name_every_part(contracts):
    layered = [each for each in contracts.values() if each["type"] == "layers"]
    assert len(layered) == 2 and all(each["exhaustive"] for each in layered)


def test_pages_are_short_and_only_choose_a_view(project):
    for page in (project / "pages").glob("*.py"):
        assert len(page.read_text(encoding="utf-8").splitlines()) <= 15, page


def test_a_kind_of_gpu_is_named_in_one_place(project):
    """All else asks gprune.models.devices, and so runs on a device of the tests' own."""
    pattern = re.compile(r"""torch\.cuda|\.type\s*[!=]=\s*["']cuda|startswith\(["']cuda""")
    files = ((file.relative_to(project).as_posix(), file) for file in (project / "gprune").rglob("*.py"))
    found = {name for name, file in files if pattern.search(file.read_text(encoding="utf-8"))}
    # what may be typed as a device; it loads no torch
    assert found == {"gprune/study.py"}


def test_what_runs_in_several_processes_is_named_in_two_places(project):
    """A run of one process loads none of it."""
    files = ((file.relative_to(project).as_posix(), file) for file in (project / "gprune").rglob("*.py"))
    found = {
        name
        for name, file in files
        if re.search(r"import torch\.distributed|from torch\.distributed", file.read_text(encoding="utf-8"))
    }
    assert found == {"gprune/models/ranks.py", "gprune/models/launch.py"}


def calls(project: Path):
    """Every call in the package, as (file, dotted name of what is called, arguments)."""
    for file in sorted(
        [project / "app.py", *(project / "gprune").rglob("*.py"), *(project / "pages").rglob("*.py")]
    ):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                yield file.relative_to(project).as_posix(), ast.unparse(node.func), node.args


READ_ELSEWHERE = {
    "gprune/store/manifests.py": "what json.dumps has written in the line before",
    "gprune/pipeline/record.py": "the study in memory, as its own to_json writes it",
}
"""files that parse JSON by themselves, and why they may"""
BUILT_PATTERNS = {
    "gprune/packs/privacy.py": "escaped names of this machine and its folders, which no file brings along",
    "gprune/demo/docstrings.py": "put together from constants",
    "gprune/demo/questions.py": "a word that an expression of letters alone has found",
    "gprune/reproduction/scale.py": "constants of the module",
}
"""files that match a regular expression which is not written out in the call, and why they may"""


def test_json_yaml_and_typed_paths_have_one_reader(project):
    names = (
        "json.loads",
        "json.load",
        "yaml.load",
        "yaml.safe_load",
        "yaml.unsafe_load",
        "pickle.loads",
        "eval",
    )
    found = {file for file, name, _ in calls(project) if name in names or name.endswith(".expanduser")}
    assert found - {"gprune/untrusted.py"} == set(READ_ELSEWHERE)


def test_no_regular_expression_is_made_of_what_came_from_outside(project):
    kinds = ("compile", "match", "search", "fullmatch", "sub", "split", "findall", "finditer")
    found = {
        file
        for file, name, arguments in calls(project)
        if name in [f"re.{kind}" for kind in kinds] and not isinstance(arguments[0], ast.Constant)
    }
    assert found == set(BUILT_PATTERNS)


def test_no_library_is_told_to_load_unsafely(project):
    for file in sorted((project / "gprune").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and isinstance(node.value, ast.Constant):
                unsafe = {("trust_remote_code", True), ("allow_pickle", True), ("weights_only", False)}
                assert (node.arg, node.value.value) not in unsafe, file


def test_tables_reach_a_page_and_a_file_in_one_way(project):
    """Their cells are guarded there against being run by a spreadsheet."""
    drawn = {
        file for file, name, _ in calls(project) if name in ("st.dataframe", "st.data_editor", "st.table")
    }
    written = {file for file, name, _ in calls(project) if name.endswith(".to_csv")}
    assert drawn == {"gprune/views/frame/tables.py"} and written == {"gprune/analysis/spreadsheet.py"}
