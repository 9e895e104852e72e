"""Draws the pictures of the gallery and writes its page: every figure of the catalogue, once.

    python figures/draw.py [FOLDER]

runs the commands below on the starter data in FOLDER (build/gallery, where a stopped run goes on),
draws every figure that they allow, and writes docs/gallery.md.
"""

import contextlib
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from PIL import Image
from torch import nn

from tda_bias.models.load import load_language_model
from tda_bias.show.figures import Drawn, Entry, drawings, write_print
from tda_bias.store.run import Run, open_run, with_parts
from tdabias_cli.figures import catalogue

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
WIDTH = 1000  # pixels
RUNS = "runs/smollm2-135m"
# Runs that the pages of `tdabias ablate` and `bbq` show, which take minutes to make.
CURVE, BBQ = f"{RUNS}/gender/ablate-curve", f"{RUNS}/bbq-religion"
COMMANDS = (
    "heads --model smollm2-135m --category all --data starter",
    "heads --model minilm-l6 --category all --data starter",
    "stereoset --model smollm2-135m --category all --data starter",
    "pvf --model smollm2-135m --attribute pronouns",
    f"pvf --model smollm2-135m --attribute pronouns --words targets.txt --out {RUNS}/pvf-targets",
    "pvf --model smollm2-135m --attribute pronouns --words winogender --reference bls "
    f"--out {RUNS}/pvf-bls",
    "unqover --model smollm2-135m --class gender_race --subjects 3 --attributes 6",
    f"crossref {RUNS}/all {RUNS}/pvf-targets",
    f"crossref {RUNS}/all {RUNS}/pvf-pronouns --by heads --category gender --limit 12 --top 8",
    f"ablate {RUNS}/all --category gender --top 3 --limit 3",
    "respond --model smollm2-135m --category gender --quick",
    "debias --model smollm2-135m --category gender --data starter --n-random 3 --epochs 3 "
    f"--controls all --out {RUNS}/debias-gender",
)
# A changed model, and what it is compared with; a folder that is there is not written again.
EDIT = "edit --model smollm2-135m --head L21H1 --head L18H4 --head L5H2 --how zero --out edited"
COMPARED = (
    "pvf --model edited --attribute pronouns --out runs/edited/pvf-pronouns",
    "heads --model edited --category all --data starter --out runs/edited/all",
    "compare smollm2-135m edited --data starter --out runs/edited/compare",
    f"compare {RUNS}/all runs/edited/all --category gender --out runs/edited/compare-heads",
)
# Layers left of SmolLM2's 30, from both ends: models of other sizes.
SIZES = (24, 18)
PVF_OF_SIZE = "pvf --model {0}-layers --attribute pronouns --out runs/{0}-layers/pvf-pronouns"
# Targets of the starter data, as words that a template can be about.
TARGETS = ["nurse", "engineer", "teacher", "farmer", "Italian", "Buddhist", "Catholic", "Quaker"]
FOLDERS = (
    f"{RUNS}/all",
    "runs/minilm-l6/all",
    f"{RUNS}/stereoset-all",
    f"{RUNS}/pvf-pronouns",
    f"{RUNS}/pvf-targets",
    f"{RUNS}/pvf-bls",
    f"{RUNS}/unqover-gender_race",
    CURVE,
    BBQ,
    f"{RUNS}/respond-gender",
    f"{RUNS}/debias-gender",
    "runs/edited/compare",
    "runs/edited/compare-heads",
)
# What some figures compare, in place of the first runs that can be drawn.
COMPARED_RUNS = {
    "pvf6_change": (f"{RUNS}/pvf-pronouns", "runs/edited/pvf-pronouns"),
    "pvf7_size": (
        f"{RUNS}/pvf-pronouns",
        *(f"runs/{layers}-layers/pvf-pronouns" for layers in SIZES),
    ),
}


def run(command: str, folder: Path) -> None:
    """Run a command as a user would."""
    print(f"$ tdabias {command}", flush=True)
    program = Path(sys.executable).with_name("tdabias")
    subprocess.run([program, *shlex.split(command)], cwd=folder, check=True)


def write_smaller(layers: int, folder: Path) -> None:
    """Write SmolLM2 without the layers in its middle, as an ordinary model."""
    if folder.exists():
        return
    model = load_language_model("smollm2-135m", device="cpu")
    body: Any = model.hf_model.model
    whole = list(body.layers)
    body.layers = nn.ModuleList([*whole[: layers // 2], *whole[layers // 2 - layers :]])
    model.hf_model.config.num_hidden_layers = layers
    model.hf_model.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)


def drawn(entry: Entry, runs: Sequence[Run]) -> Figure | None:
    """A figure from the first runs that have what it shows."""
    if entry.name in COMPARED_RUNS:
        runs = [open_run(Path(path)) for path in COMPARED_RUNS[entry.name]]
    usable = [run for run in runs if run.command == entry.command and entry.holds(run)]
    used = usable if entry.fewest > 1 else usable[:1]
    for found in drawings(used, [entry]):
        return found.figure
    return None


def stored(source: Path, target: Path) -> None:
    """A picture at the width of a page."""
    with Image.open(source) as image:
        scale = min(1.0, WIDTH / image.width)
        size = (round(image.width * scale), round(image.height * scale))
        small = image.convert("RGB").resize(size, Image.Resampling.LANCZOS)
        # In all its colours: fewer make the few coloured cells of a map grey, or its greys blue.
        small.save(target, optimize=True)


def main(folder: Path) -> None:
    """All pictures and the page."""
    (folder / "targets.txt").write_text("\n".join(TARGETS) + "\n", encoding="utf-8")
    for made in (CURVE, BBQ):
        shutil.copytree(ROOT / "tests/golden/pages" / made, folder / made, dirs_exist_ok=True)
    if not (folder / "edited").exists():
        run(EDIT, folder)
    for layers in SIZES:
        write_smaller(layers, folder / f"{layers}-layers")
    for command in (*COMMANDS, *COMPARED, *map(PVF_OF_SIZE.format, SIZES)):
        run(command, folder)
    shutil.rmtree(DOCS / "gallery", ignore_errors=True)
    (DOCS / "gallery").mkdir()
    page = DOCS / "gallery.md"
    parts = [page.read_text(encoding="utf-8").split("\n## ")[0].rstrip()]
    with contextlib.chdir(folder):
        runs = with_parts([Path(path) for path in FOLDERS])
        for entry in catalogue():
            figure = drawn(entry, runs)
            if figure is None:
                print(f"not drawn: {entry.name}")
                continue
            one = Drawn(entry.name, entry.title, figure, "")
            [path] = write_print(Path("drawn"), one, ["png"])
            stored(path, DOCS / "gallery" / path.name)
            parts.append(f"## {entry.title}\n\n![{entry.name}](gallery/{path.name})")
    page.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    where = Path(sys.argv[1] if len(sys.argv) > 1 else "build/gallery")
    where.mkdir(parents=True, exist_ok=True)
    main(where)
