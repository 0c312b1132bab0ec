"""The house's walls: who may import what, and that no part of it is forgotten by the contracts."""

import ast
import json
import re
import tomllib
from graphlib import TopologicalSorter

import grimp
import pytest

MAY_LOAD_TORCH = (
    *("__main__", "api", "app.preview.worker", "cli", "evaluation", "models", "plugins.testing", "testing"),
    *(f"pruning.{part}" for part in "calibration masking modules origin recovery removal repair".split()),
    *("pruning.sparsity", "pruning.surgery", "pruning.experts.routers", "pruning.experts.routing"),
    "pruning.experts.surgery",
)
"""parts that may load torch; single modules of theirs may not, where the contract names them"""


@pytest.fixture(scope="module")
def contracts(project):
    settings = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
    return {each["name"]: each for each in settings["tool"]["importlinter"]["contracts"]}


def parts(folder):
    packages = {path.parent.name for path in folder.glob("*/__init__.py")}
    return packages | {path.stem for path in folder.glob("*.py")} - {"__init__"}


def test_there_are_sixteen_rooms_and_every_module_may_load_torch_or_loads_none(project, contracts):
    rooms = parts(project / "gprune") - {"__main__", "errors", "testing"}
    assert len(rooms) <= 16 and all((project / "gprune" / room).is_dir() for room in rooms)
    stored = contracts["the app's process never imports torch"]["source_modules"]
    listed = {*stored, *(f"gprune.{part}" for part in MAY_LOAD_TORCH)}
    # a package whose parts are named one by one
    divided = {name.rsplit(".", cut)[0] for name in listed for cut in range(1, name.count(".") + 1)}
    for file in (project / "gprune").rglob("*.py"):
        module = ".".join(file.relative_to(project).with_suffix("").parts).removesuffix(".__init__")
        packages = {module.rsplit(".", cut)[0] for cut in range(module.count("."))}
        assert packages & listed or module in divided, module


def test_layers_name_every_part_and_pages_are_short_and_choose_a_view(contracts, project):
    layered = [each for each in contracts.values() if each["type"] == "layers"]
    assert len(layered) == 3 and all(each["exhaustive"] for each in layered)
    for page in (project / "pages").glob("*.py"):
        assert len(page.read_text(encoding="utf-8").splitlines()) <= 15, page


def test_a_kind_of_gpu_is_named_where_it_may_be_typed_alone(project):
    """All else asks gprune.models.devices, and so runs on a device of the tests."""
    pattern = r"""torch\.cuda|\.type\s*[!=]=\s*["']cuda|startswith\(["']cuda"""
    files = [file for file in (project / "gprune").rglob("*.py") if re.search(pattern, file.read_text("utf-8"))]
    assert [file.relative_to(project / "gprune").as_posix() for file in files] == ["study/study.py"]


@pytest.fixture(scope="module")
def parsed(project):
    """Every file of the package and the pages, with all that stands in it."""
    folders = [file for folder in ("gprune", "pages") for file in (project / folder).rglob("*.py")]
    return [
        (file.relative_to(project).as_posix(), [*ast.walk(ast.parse(file.read_text(encoding="utf-8")))])
        for file in sorted([project / "app.py", *folders])
    ]


def dotted(node):
    """The name that an expression ends with, as far as it is one: `.to_csv` for `table(rows).to_csv`."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


@pytest.fixture(scope="module")
def calls(parsed):
    """Every call in them, as (file, dotted name of what is called, arguments)."""
    nodes = [(file, node) for file, nodes in parsed for node in nodes if isinstance(node, ast.Call)]
    return [(file, dotted(node.func), node.args) for file, node in nodes]


READ_ELSEWHERE = {
    "gprune/data/demo/texts.py": "documents that come with the package",
    "gprune/data/demo/questions.py": "questions that come with the package",
    "gprune/data/published/__init__.py": "figures of the paper that come with the package",
    "gprune/analysis/formatting.py": "values in memory, as it writes them",
    "gprune/pipeline/record.py": "the study in memory, as its own to_json writes it",
}
"""files that parse JSON by themselves, and why they may"""
BUILT_PATTERNS = {
    "gprune/app/ui/documents.py": "from the words of the glossary, escaped",
    "gprune/pipeline/eta.py": "from the kinds of stages",
    "gprune/experiments/reproduction/scale.py": "constants of the module",
    "gprune/evaluation/tasks/rows.py": "a user's check of a generated answer, without nested repetition",
}
"""files that match a regular expression which is not written out in the call, and why they may"""


def test_json_yaml_and_typed_paths_have_one_reader(calls):
    names = ("json.loads", "json.load", "yaml.load", "yaml.safe_load", "yaml.unsafe_load", "pickle.loads", "eval")
    results = {file for file, name, _ in calls if name in names or name.endswith(".expanduser")}
    assert results - {"gprune/system/safe_parsing.py"} == set(READ_ELSEWHERE)


def test_no_regular_expression_is_made_of_what_came_from_outside(calls):
    kinds = ("compile", "match", "search", "fullmatch", "sub", "split", "findall", "finditer")
    results = {
        file
        for file, name, arguments in calls
        if name in [f"re.{kind}" for kind in kinds] and not isinstance(arguments[0], ast.Constant)
    }
    assert results == set(BUILT_PATTERNS)


def test_only_the_interface_of_streamlit_is_imported(parsed):
    for file, nodes in parsed:
        for node in nodes:
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [item.name for item in node.names] if isinstance(node, ast.Import) else []
            assert not any(name.startswith("streamlit.") for name in names), file


def test_no_library_is_told_to_load_unsafely_and_tables_reach_a_page_and_a_file_in_one_way(parsed, calls):
    for file, nodes in parsed:
        for node in nodes:
            if isinstance(node, ast.keyword) and isinstance(node.value, ast.Constant):
                unsafe = {("trust_remote_code", True), ("allow_pickle", True), ("weights_only", False)}
                assert (node.arg, node.value.value) not in unsafe, file
    # Their cells are guarded there against being run by a spreadsheet.
    rendered = {file for file, name, _ in calls if name in ("st.dataframe", "st.data_editor", "st.table")}
    saved = {file for file, name, _ in calls if name.endswith(".to_csv")}
    assert rendered == {"gprune/app/ui/tables.py"} and saved == {"gprune/analysis/table.py"}


def test_no_module_leads_back_to_itself():
    """Lazy imports and those for type checkers count; what stands in a room has an order too."""
    graph = grimp.build_graph("gprune")
    edges = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    # the package names its API for type checkers alone
    edges["gprune"] = set()
    TopologicalSorter(edges).prepare()


@pytest.mark.parametrize(
    ("walk", "python", "scripts"), [("From a dragged line", 9, 3), ("From `gprune run study.json`", 18, 0)]
)
def test_a_walk_through_the_code_is_short_and_names_files_that_exist(project, walk, python, scripts):
    text = (project / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition(f"### {walk}")[2].partition("\n#")[0]
    files = re.findall(r"^\d+\. `(gprune/\S+)`", section, re.MULTILINE)
    assert len({*files}) == len(files) and all((project / file).is_file() for file in files)
    assert len([file for file in files if file.endswith(".py")]) <= python
    assert len([file for file in files if file.endswith(".js")]) <= scripts


def test_every_planted_fault_is_a_line_that_stands_once_in_its_file(project):
    faults = json.loads((project / "tests" / "planted" / "faults.json").read_text("utf-8"))
    counts = [(project / fault["file"]).read_text("utf-8").count(fault["before"]) for fault in faults]
    lost = [fault["before"] for fault, count in zip(faults, counts, strict=True) if count != 1]
    assert len(faults) >= 50 and not lost
    assert all((project / name).exists() for fault in faults for name in fault["tests"])
