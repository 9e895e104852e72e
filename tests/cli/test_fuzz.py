"""A thousand broken inputs and damaged runs: one line each, never a traceback, never a wait.

All in one process, with the model loaded once; every case is seeded, so that a failure comes again.
"""

import copy
import json
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import datasets.config
import huggingface_hub.constants
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import tda_bias.models.load
from tda_bias.runs.files import RECORD
from tda_bias.runs.run import file_hash
from tda_bias.triples import load_triples
from tda_bias.types import InputError
from tdabias_cli.commands import COMMANDS, loaded
from tdabias_cli.main import run
from tests.support.answers import FEW
from tests.support.damage import changed_records, changed_tables, damaged
from tests.support.models import tiny_hf_model
from tests.support.runs import resealed

pytestmark = pytest.mark.thorough

SECONDS = 30
SEEN = Counter()


@contextmanager
def no_longer_than(seconds: int, case: str) -> Iterator[None]:
    """End a case that hangs with its name."""

    def ring(*_):
        raise AssertionError(f"{case}: not done after {seconds} seconds")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def status_of(arguments: list[str], capsys, case: str) -> int:
    """What a command line comes to: 0, or 2 with one line; anything else fails, with the case."""
    words = " ".join(arguments)
    with no_longer_than(SECONDS, f"{case}: {words}"):
        try:
            status = run(arguments)
        except Exception as error:
            raise AssertionError(f"{case}: {words}: {type(error).__name__}: {error}") from error
    captured = capsys.readouterr()
    assert status in (0, 2), f"{case}: {words}: {status}"
    if status == 2:
        lines = captured.err.strip().splitlines()
        assert lines, f"{case}: {words}: no word"
        assert lines[-1].startswith("Error: "), f"{case}: {words}: {captured.err}"
        assert captured.err.count("Error: ") == 1, f"{case}: {words}: {captured.err}"
    SEEN[status] += 1
    return status


# -- runs ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(subwords, tmp_path_factory):
    """A folder with a tiny model."""
    folder = tmp_path_factory.mktemp("fuzz") / "tiny"
    tiny_hf_model("gpt2", len(subwords), n_positions=512).save_pretrained(folder)
    subwords.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", autouse=True)
def loaded_once(model):
    """The tiny model is read from disk once; every other name is refused without asking a hub."""
    whole = tda_bias.models.load.load_language_model
    kept = {}

    def load(name, **options):
        if name != str(model):
            raise InputError(f"`model` {name} is not here")
        key = json.dumps(options, sort_keys=True)
        if key not in kept:
            kept[key] = whole(name, **options)
        return copy.deepcopy(kept[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tda_bias.models.load, "load_language_model", load)
        # The hub's clients have read the variable if another test imported them before.
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
        patch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
        yield


@pytest.fixture(scope="module")
def runs(model, tmp_path_factory):
    """A run of every command that leaves one, from the command line."""
    base = tmp_path_factory.mktemp("runs")
    groups = {triple.group for triple in load_triples("starter", category="gender")}
    (base / "words.txt").write_text("\n".join(sorted(groups)), encoding="utf-8")
    (base / "classes.yaml").write_text("male: [he, his]\nfemale: [she, her]\n", encoding="utf-8")
    (base / "templates.csv").write_text(
        "template,count\nThe [X] said that [Y],5\nThe [X] was and [Y],3\n", encoding="utf-8"
    )
    (base / "few.yaml").write_text(FEW, encoding="utf-8")
    (base / "text.txt").write_text("My sister came in and sang a song. " * 40, encoding="utf-8")
    pairs = [
        {"id": str(n), "group": "nurse", "more": f"The nurse said she {n}", "less": f"He {n} said"}
        for n in range(4)
    ]
    (base / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)), encoding="utf-8")
    texts = ["--data", "starter", "-c", "gender", "-L", "4"]
    few = ["--n-resamples", "100"]
    m = ["-m", str(model)]
    heads = str(base / "heads")
    words = ["-a", base / "classes.yaml", "--words", base / "words.txt", "--templates"]
    for arguments in (
        ["twins", "--data", "starter", "--tagger", "rule", "--out", base / "twins.jsonl"],
        ["heads", *m, *texts, "--twins", base / "twins.jsonl", *few, "--out", heads],
        ["stereoset", *m, *texts, "--twins", base / "twins.jsonl", *few, "--out", base / "scores"],
        ["pvf", *m, *words, base / "templates.csv", *few, "--out", base / "pvf"],
        ["pvf", "risk", base / "pvf", *few, "--out", base / "risk"],
        ["unqover", *m, "--class", base / "few.yaml", *few, "--n-flips", "19", "--out",
         base / "asked"],
        ["pairs", *m, "--data", base / "pairs.jsonl", *few, "--out", base / "pairs"],
        ["ablate", heads, "--top", "1", "--n-random", "20", *few, "--out", base / "ablate"],
        ["crossref", heads, base / "pvf", *few, "--out", base / "crossref"],
        ["crossref", heads, base / "scores", "--items", *few, "--out", base / "items"],
        ["confirm", heads, "--top", "2", *few, "--n-splits", "3", "--out", base / "confirm"],
        ["export", heads, "--top", "2", "--to", base / "heads.json"],
        ["prune-curve", heads, "--most", "1", "--n-random", "19", "--text", base / "text.txt",
         "--windows", "2", "--width", "32", *few, "--out", base / "curve"],
    ):  # fmt: skip
        assert run([*map(str, arguments)]) == 0, arguments
    return base


# Commands, and the run of which they read files; OUT is where they write.
READERS = {
    "show HEADS": "heads",
    "show SCORES --format json": "scores",
    "show PVF": "pvf",
    "show RISK --format csv": "risk",
    "show ASKED": "asked",
    "show ABLATE": "ablate",
    "show CROSSREF": "crossref",
    "show ITEMS --format json": "items",
    "export HEADS --to OUT/x.json": "heads",
    "confirm HEADS --top 1 --n-splits 2 --n-resamples 99 --out OUT": "heads/groups",
    "crossref HEADS ASKED --n-resamples 99 --out OUT": "asked",
    "crossref HEADS SCORES --items --n-resamples 99 --out OUT": "scores",
    "pvf social PVF --factors WORDS": "pvf",
    "figures ABLATE --only ablation --format svg --out OUT": "ablate",
    "ls runs --folder BASE": "curve",
    "ls runs --folder BASE --format json": "pairs",
    "edit --heads EXPORTED --how zero --out OUT/edited": ".",
    "heads MODEL --data starter -c gender -L 4 --n-resamples 100 --out HEADS": "heads/groups",
    "stereoset MODEL --data starter -c gender -L 4 --n-resamples 100 --out SCORES": "scores/parts",
    "pvf MODEL -a CLASSES --words WORDS --templates TEMPLATES --n-resamples 100 --out PVF":
        "pvf/parts",
}  # fmt: skip
# Those that work for seconds where a damage does not matter to them, with the files they do read.
SLOW_READERS = {
    "pvf risk PVF --n-resamples 100 --out OUT": ("pvf", "words.parquet preferences.parquet"),
    "pvf plot PVF RISK --out OUT": ("pvf", "words.parquet preferences.parquet risk.json"),
    "edit HEADS --how zero --top 1 --out OUT/e": ("heads", "category.parquet groups.csv"),
    "ablate HEADS --top 1 --n-random 20 --out OUT": ("heads", "heads.parquet category.parquet"),
    "prune-curve HEADS --text TEXT --out OUT": ("heads", "combined.parquet groups.csv run.json"),
}
# Those that read a record and its tables at once, and are done in no time.
QUICK = {
    "show HEADS --top 2": "heads",
    "show SCORES": "scores",
    "show PVF --format json": "pvf",
    "show ASKED --format csv": "asked",
    "show ABLATE": "ablate",
    "show CROSSREF": "crossref",
    "show ITEMS": "items",
    "ls runs --folder BASE --format csv": "confirm",
}


@pytest.fixture
def case(runs, model, tmp_path, capsys):
    """Calls a command of the tables above."""
    names = {path.name.upper(): str(path) for path in runs.iterdir() if path.is_dir()}
    names |= {"BASE": str(runs), "MODEL": f"-m {model}", "EXPORTED": str(runs / "heads.json")}
    for name in ("text.txt", "words.txt", "classes.yaml", "templates.csv"):
        names[Path(name).stem.upper()] = str(runs / name)

    def called(words: str, what: str) -> int:
        out = tmp_path / "out"
        named = [names.get(word, word).replace("OUT", str(out)) for word in words.split()]
        status = status_of([word for one in named for word in one.split()], capsys, what)
        if status == 2:
            assert not list(out.rglob("*.*")), f"{words}: {what}: leaves files"
        shutil.rmtree(out, ignore_errors=True)
        return status

    return called


def files_of(folder: Path) -> list[Path]:
    endings = (".json", ".csv", ".parquet", ".npz")
    return sorted(p for p in folder.iterdir() if p.suffix in endings)


@contextmanager
def put_back(path: Path) -> Iterator[bytes]:
    """What happens to a file meanwhile is undone."""
    whole = path.read_bytes()
    try:
        yield whole
    finally:
        path.write_bytes(whole)


def some(cases: Iterator, rng: np.random.Generator, number: int) -> list:
    every = list(cases)
    chosen = rng.choice(len(every), min(number, len(every)), replace=False)
    return [every[index] for index in sorted(chosen)]


@pytest.mark.parametrize("words", READERS)
def test_a_damaged_file_is_one_line_whoever_reads_it(runs, case, words):
    rng = np.random.default_rng(len(words))
    for path in files_of(runs / READERS[words]):
        with put_back(path) as whole:
            for what, content in some(damaged(whole, rng, flips=3), rng, 5):
                path.write_bytes(content)
                case(words, f"{path.name}: {what}")


@pytest.mark.parametrize("words", SLOW_READERS)
def test_a_damaged_file_that_is_read_ends_the_command_before_its_work(runs, case, words):
    rng = np.random.default_rng(len(words))
    folder, names = SLOW_READERS[words]
    for name in names.split():
        path = runs / folder / name
        with put_back(path) as whole:
            for what, content in damaged(whole, rng, flips=4):
                path.write_bytes(content)
                assert case(words, f"{name}: {what}") == 2, f"{words}: {name}: {what}"


@pytest.mark.parametrize("words", QUICK)
def test_a_record_with_other_entries_and_a_fitting_checksum_is_one_line(runs, case, words):
    rng = np.random.default_rng(len(words))
    path = runs / QUICK[words] / RECORD
    values = json.loads(path.read_text(encoding="utf-8"))
    values.pop("checksum")
    with put_back(path) as whole:
        for what, changed in changed_records(values, rng, number=30):
            path.write_bytes(whole)
            resealed(path.parent, lambda _, now=changed: now)
            case(words, what)


@pytest.mark.parametrize("words", [words for words in QUICK if words.startswith("show")])
def test_a_table_with_other_values_and_a_fitting_hash_is_one_line(runs, case, words):
    rng = np.random.default_rng(len(words))
    folder = runs / QUICK[words]
    listed = json.loads((folder / RECORD).read_text(encoding="utf-8"))["files"]
    with put_back(folder / RECORD):
        for path in files_of(folder):
            if path.name not in listed:
                continue
            with put_back(path) as whole:
                damages = damaged(whole, rng, flips=3)
                if path.suffix == ".csv":
                    damages = ((w, t.encode()) for w, t in changed_tables(whole.decode(), rng))
                for what, content in some(damages, rng, 5):
                    path.write_bytes(content)
                    _list_again(folder, path)
                    case(words, f"{path.name}: {what}")


def _list_again(folder: Path, path: Path) -> None:
    """Say in the record that a file is as it should be."""

    def change(values):
        entry = {**values["files"][path.name], "hash": file_hash(path.read_bytes()), "rows": None}
        return {**values, "files": {**values["files"], path.name: entry}}

    resealed(folder, change)


# -- inputs ----------------------------------------------------------------------------------------

# The same in every run; a failure is shown as it was found, without hours of looking for a smaller.
FAST = settings(
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.generate],
)
WORDS = (
    "",
    " ",
    "girl",
    "girls",
    "GIRL",
    "\u200b",
    "a\nb",
    "$x$",
    "<b>",
    "=1+1",
    "x" * 300,
    "\x07",
)
words_or_text = st.one_of(st.sampled_from(WORDS), st.text(max_size=12))
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), words_or_text),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(words_or_text, inner, max_size=3)
    ),
    max_leaves=4,
)


def lines_of(whole: dict) -> st.SearchStrategy[str]:
    """JSON Lines of which some entries are others, missing or more."""
    keys = st.one_of(st.sampled_from(sorted(whole)), words_or_text)
    changes = st.dictionaries(keys, values, max_size=2)
    lost = st.sets(st.sampled_from(sorted(whole)), max_size=1)
    line = st.builds(
        lambda changed, without: json.dumps(
            {k: v for k, v in {**whole, **changed}.items() if k not in without}
        ),
        changes,
        lost,
    )
    whatever = st.one_of(line, line, st.text(max_size=20), st.just(json.dumps(whole)))
    return st.lists(whatever, max_size=4).map("\n".join)


TRIPLE = {
    "target": "girl", "bias_type": "gender", "context": "The girl sat.",
    "stereotype": "She wept.", "anti-stereotype": "She fought.", "unrelated": "Rain fell.",
}  # fmt: skip
TEXTS = {name: TRIPLE[name] for name in ("context", "stereotype", "anti-stereotype", "unrelated")}
TWIN = {
    "target": "girl", "bias_type": "gender", "twin_target": "boy", "original": TEXTS,
    "twin": {**TEXTS, "context": "The boy sat."},
}  # fmt: skip
PAIR = {"id": "1", "group": "nurse", "more": "She is a nurse", "less": "He is a nurse"}
yaml_text = st.one_of(
    values.map(json.dumps),
    st.text(max_size=30),
    st.sampled_from(
        ["a: [1, 2\n", "a: &x [*x]", "? [1]: 2", "!!python/object:os.system x", "a: 1\na: 2",
         "- " * 50, "[" * 3000, "male: [he]\nfemale: [she]", "male: [true]\nfemale: [010]",
         "male: {he}", "\0"]
    ),
)  # fmt: skip
table_text = st.lists(
    st.lists(st.one_of(words_or_text, st.floats().map(str)), max_size=3).map(",".join), max_size=5
).map("\n".join)
# What a file is given to, and what stands in it.
INPUTS = {
    "stereoset -m nowhere -c gender --twins none --data FILE": lines_of(TRIPLE),
    "twins --tagger rule --out OUT --data FILE": lines_of(TRIPLE),
    "heads -m nowhere -c gender --data starter --twins FILE": lines_of(TWIN),
    "pairs -m nowhere --data FILE": lines_of(PAIR),
    "heads -m nowhere -c gender --data starter --twins none --config FILE": yaml_text,
    "unqover -m nowhere --class FILE": yaml_text,
    "twins --tagger rule --data starter --out OUT --kinds FILE": yaml_text,
    "pvf -m nowhere --templates gender --words professions -a FILE": yaml_text,
    "pvf -m nowhere -a gender --words FILE": table_text,
    "pvf -m nowhere -a gender --words professions --templates FILE": table_text,
    "pvf social PVF --factors FILE": table_text,
    "edit --how zero --out OUT --heads FILE": values.map(json.dumps),
}


@pytest.mark.parametrize("words", INPUTS)
def test_whatever_stands_in_a_file_is_used_or_one_line(runs, tmp_path, capsys, words):
    file, out = tmp_path / "file.txt", tmp_path / "out"
    names = {"FILE": str(file), "OUT": str(out), "PVF": str(runs / "pvf")}

    @settings(FAST, max_examples=50)
    @given(st.one_of(INPUTS[words].map(lambda text: text.encode("utf-8", "surrogatepass")),
                     st.binary(max_size=30)))  # fmt: skip
    def holds(content: bytes) -> None:
        file.write_bytes(content)
        status_of([names.get(word, word) for word in words.split()], capsys, repr(content))

    holds()


NUMBERS = ("0", "-1", "1e9", "nan", "inf", "0x10", "9" * 40, "1_000", "true", "\u0661", "3.5", " ")
ODD = (
    "", " ", "\t", "-", "--", "nowhere", "../..", "/dev/null", "a" * 300, "a/" * 200, "\u202e",
    "$x$", "[bold]", "L0H0", "scale=nan", "scale=1e999", "gender,race", "{}", "null", *NUMBERS,
)  # fmt: skip


def every_option() -> list[tuple[str, str]]:
    """Commands with an option each, as typer knows them."""
    found = []
    for name in COMMANDS:
        command = loaded(name)
        inner = getattr(command, "commands", {}).items()
        for words, one in ((name, command), *((f"{name} {part}", c) for part, c in inner)):
            names = [
                option.opts[0] for option in one.params if option.name not in ("help", "config")
            ]
            found += [(words, option) for option in names]
    return found


def test_whatever_an_option_is_given_is_used_or_one_line(runs, tmp_path, capsys, monkeypatch):
    """Every option of every command, with what nobody means."""
    monkeypatch.chdir(tmp_path)
    needed = {"heads": "-m nowhere -c gender", "stereoset": "-m nowhere -c gender",
              "reproduce": "-m nowhere", "pvf": "-m nowhere -a gender", "pairs": "-m nowhere",
              "pvf score": "-m nowhere -a gender", "unqover": "-m nowhere --class gender",
              "edit": "-m nowhere --head L0H0 --how zero --out x"}  # fmt: skip
    rng = np.random.default_rng(0)
    options = every_option()
    assert len(options) > 150
    for words, option in options:
        for value in rng.choice(ODD, 2, replace=False):
            given_too = needed.get(words, "").split()
            status_of([*words.split(), *given_too, option, str(value)], capsys, repr(value))


def test_so_many_cases_were_tried():
    """Where the tests above ran in this process."""
    if len(SEEN) < 2:
        pytest.skip("counts the cases of the other tests of this file")
    assert SEEN.total() > 1000, SEEN
    assert SEEN[2] > 800, SEEN
