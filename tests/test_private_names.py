"""No private name of another package is used, and none of its modules is patched."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from test_architecture import dotted

ROOT = Path(__file__).resolve().parents[1]
OURS = {"gprune", "__future__"}
UNDOCUMENTED = ("lm_eval.tasks._", "streamlit.runtime.scriptrunner_utils", "streamlit.web", "uvicorn.protocols")
"""modules without an underscore that their packages do not document either"""


def is_private(dotted: str) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in dotted.split("."))


def imported_names(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Name in the module and dotted source of every import from another package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.asname or alias.name.split(".")[0], alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


def uses_of_private_names(source: str) -> list[str]:
    tree = ast.parse(source)
    packages = {
        name: dotted
        for name, dotted in imported_names(tree)
        if dotted.split(".")[0] not in OURS | sys.stdlib_module_names
    }
    uses = [dotted for dotted in packages.values() if is_private(dotted) or dotted.startswith(UNDOCUMENTED)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and dotted(node).partition(".")[0] in packages:
            if isinstance(node.ctx, ast.Store | ast.Del) or is_private(node.attr):
                uses.append(dotted(node))
    return uses


def test_private_names_and_patches_are_recognized():
    source = (
        "import torch, os\nfrom lm_eval.tasks._yaml_loader import load\ntorch._dynamo.x\ntorch.y = 1\nos._exit(1)\n"
    )
    assert set(uses_of_private_names(source)) == {"lm_eval.tasks._yaml_loader.load", "torch._dynamo", "torch.y"}


def test_no_module_uses_private_names_of_other_packages():
    paths = sorted((ROOT / "gprune").rglob("*.py"))
    uses = {path.relative_to(ROOT).as_posix(): uses_of_private_names(path.read_text("utf-8")) for path in paths}
    assert not {path: names for path, names in uses.items() if names}
