"""Hundreds of broken inputs: one line each, never a traceback, never a wait.

All in one process, with the model loaded once; every case is seeded, so that a failure comes again.
"""

import copy
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import tda_bias.models.load
from tda_bias.types import InputError
from tdabias_cli.commands import COMMANDS
from tdabias_cli.main import run
from tdabias_cli.program import loaded

pytestmark = pytest.mark.thorough


def status_of(arguments: list[str], capsys, case: str) -> int:
    """What a command line comes to: 0, or 2 with one line; anything else fails, with the case.

    An audit of which nothing can be run ends with 1, each run with its reason.
    """
    words = " ".join(arguments)
    try:
        status = run(arguments)
    except Exception as error:
        raise AssertionError(f"{case}: {words}: {type(error).__name__}: {error}") from error
    captured = capsys.readouterr()
    allowed = (0, 1, 2) if arguments[0] == "audit" else (0, 2)
    assert status in allowed, f"{case}: {words}: {status}"
    if status == 2:
        lines = captured.err.strip().splitlines()
        assert lines, f"{case}: {words}: no word"
        assert lines[-1].startswith("Error: "), f"{case}: {words}: {captured.err}"
        said = [line for line in captured.err.splitlines() if line.startswith("Error: ")]
        assert len(said) == 1, f"{case}: {words}: {captured.err}"
    return status


# -- runs ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(words_folder):
    """A folder with a tiny model."""
    return words_folder


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
        yield


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
    "twins --out OUT --data FILE": lines_of(TRIPLE),
    "heads -m nowhere -c gender --data starter --twins FILE": lines_of(TWIN),
    "pairs -m nowhere --pairs FILE": lines_of(PAIR),
    "heads -m nowhere -c gender --data starter --twins none --config FILE": yaml_text,
    "unqover -m nowhere --class FILE": yaml_text,
    "twins --data starter --out OUT --kinds FILE": yaml_text,
    "pvf -m nowhere --templates gender --words professions -a FILE": yaml_text,
    "pvf -m nowhere -a gender --words FILE": table_text,
    "pvf -m nowhere -a gender --words professions --templates FILE": table_text,
    "pvf social PVF --factors FILE": table_text,
    "edit --how zero --out OUT --heads FILE": values.map(json.dumps),
}


@pytest.mark.parametrize("words", INPUTS)
def test_whatever_stands_in_a_file_is_used_or_one_line(folders, tmp_path, capsys, words):
    file, out = tmp_path / "file.txt", tmp_path / "out"
    names = {"FILE": str(file), "OUT": str(out), "PVF": str(folders / "pvf0")}

    @settings(FAST, max_examples=20)
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


NEEDED = {"heads": "-m nowhere -c gender", "stereoset": "-m nowhere -c gender",
          "reproduce": "-m nowhere", "pvf": "-m nowhere -a gender",
          "pairs": "-m nowhere --pairs winobias", "respond": "-m nowhere",
          "pvf score": "-m nowhere -a gender", "unqover": "-m nowhere --class gender",
          "edit": "-m nowhere --head L0H0 --how zero --out x"}  # fmt: skip
OPTIONS = every_option()
VALUES = np.random.default_rng(0).choice(ODD, len(OPTIONS)).tolist()


def test_there_are_many_options():
    assert len(OPTIONS) > 150


@pytest.mark.parametrize(
    ("words", "option", "value"),
    [(*of, value) for of, value in zip(OPTIONS, VALUES, strict=True)],
    ids=[f"{' '.join(of)} {v!a:.30}" for of, v in zip(OPTIONS, VALUES, strict=True)],
)
def test_whatever_an_option_is_given_is_used_or_one_line(
    tmp_path, capsys, monkeypatch, words, option, value
):
    """Every option of every command, with what nobody means."""
    monkeypatch.chdir(tmp_path)
    status_of([*words.split(), *NEEDED.get(words, "").split(), option, value], capsys, repr(value))
