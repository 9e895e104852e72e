"""Modules and functions stay short enough to be read at once, and nothing imports in circles."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ["tda_bias", "pvf", "unqover", "cli", "benchmarks", "figures"]
MODULES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
MOST_LINES, MOST_LINES_OF_A_FUNCTION = 520, 60


def lines_without_docstring(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    lines = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function) is not None:
        docstring = function.body[0]
        lines -= docstring.end_lineno - docstring.lineno + 1
    return lines


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_and_its_functions_are_short(path):
    source = path.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= MOST_LINES
    functions = (
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    long = {
        f.name: n for f in functions if (n := lines_without_docstring(f)) > MOST_LINES_OF_A_FUNCTION
    }
    assert not long


# For users: these methods draw, and import the plot inside the call.
ALLOWED = ("tda_bias.heads.result", "tda_bias.plots.heat_map")


def test_no_modules_import_each_other_in_a_circle(monkeypatch):
    """Imports inside functions and for types alone count."""
    monkeypatch.syspath_prepend(str(ROOT))
    graph = grimp.build_graph("tda_bias", "pvf", "unqover", "cli", cache_dir=None)
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    assert len(imports) > 100
    imports[ALLOWED[0]] = imports[ALLOWED[0]] - {ALLOWED[1]}
    TopologicalSorter(imports).prepare()  # raises CycleError, which names them
