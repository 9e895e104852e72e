"""Reference numbers of prejudice, volatility and underspecified questions."""

import json
from pathlib import Path

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "pvf_unqover.json").read_text())
