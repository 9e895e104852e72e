"""Nothing imports in circles."""

from graphlib import TopologicalSorter
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
# For users: these methods draw, and import the plot inside the call.
ALLOWED = ("tda_bias.heads.result", "tda_bias.plots.heads")


def test_no_modules_import_each_other_in_a_circle(monkeypatch):
    """Imports inside functions and for types alone count."""
    monkeypatch.syspath_prepend(str(ROOT))
    graph = grimp.build_graph("tda_bias", "pvf", "unqover", "cli", cache_dir=None)
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    assert len(imports) > 100
    imports[ALLOWED[0]] = imports[ALLOWED[0]] - {ALLOWED[1]}
    TopologicalSorter(imports).prepare()  # raises CycleError, which names them
