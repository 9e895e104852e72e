"""The tasks for lm-evaluation-harness, run by it: the same numbers as the commands."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tda_bias import load_language_model, load_triples
from tda_bias.config import SentenceConfig
from tda_bias.lm_eval import tasks
from tda_bias.pairs.load import load_pairs
from tda_bias.scores.pair_scores import compared, pair_items
from tda_bias.scores.stereoset_scores import (
    sentence_items,
    sentence_scores,
    sentence_twins,
    stereoset_scores,
)
from tda_bias.stats.clusters import cluster_mean
from tda_bias.triples import load_sentence_triples
from tda_bias.twins import make_twins
from tda_bias.types import ROLES
from tdabias_cli.main import run

FOLDER = Path(tasks.__file__).parent
# lm-eval and what it stands on warn of much that is not ours.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.setenv(name, "1")


@pytest.fixture(scope="session")
def saved_lm(tiny_lm, tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("lm_eval") / "model"
    model = tiny_lm("gpt2", n_positions=256)
    model.hf_model.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    return str(folder)


def measured(task: str, model: str, *, limit: int | None = None, **metadata) -> dict[str, float]:
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(FOLDER), include_defaults=False, metadata=metadata)
    found = simple_evaluate(
        model="hf",
        model_args={"pretrained": model, "dtype": "float32"},
        tasks=[task],
        task_manager=manager,
        limit=limit,
        batch_size=16,
        device="cpu",
    )
    results = found["results"][task]
    return {name.partition(",")[0]: v for name, v in results.items() if name.endswith(",none")}


def written(folder: Path, *more: str) -> str:
    path = folder / "documents.jsonl"
    told = ["--data", "starter", "--as", "lm-eval", "--out", str(path), *more]
    assert run(["twins", *told, "--quiet"]) == 0
    return str(path)


def first_items(path: str, n: int) -> None:
    """Keep every so many triple, so that all targets occur, with its twins."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    step = (1 + max(json.loads(line)["item"] for line in lines)) // n
    kept = [line for line in lines if json.loads(line)["item"] % step == 0]
    Path(path).write_text("\n".join(kept), encoding="utf-8")


# -- where the tasks are --


def test_the_module_prints_the_folder_of_five_tasks():
    said = subprocess.run(
        [sys.executable, "-m", "tda_bias.lm_eval"], capture_output=True, text=True, check=True
    )
    assert Path(said.stdout.strip()) == FOLDER
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(FOLDER), include_defaults=False)
    assert set(manager.all_tasks) == {
        "stereoset_intersentence",
        "stereoset_intrasentence",
        "tdabias_pairs",
        "winobias",
        "winogender",
    }


@pytest.mark.parametrize("name", ["stereoset_intersentence", "own_pairs"])
def test_a_task_whose_data_is_not_given_says_how_to_give_it(name):
    with pytest.raises(tasks.InputError, match=r"""--metadata '\{"data": "FILE"\}'"""):
        getattr(tasks, name)()


# -- the same numbers --


def same_as_the_command(found: dict[str, float], scores, tolerance: float) -> None:
    official = scores.scores.query("scoring == 'sum'").iloc[0]
    beta = scores.beta.query("scoring == 'sum'").iloc[0]
    for name, expected in (
        *((name, official[name]) for name in ("lms", "ss", "icat")),
        *((name, beta[name]) for name in ("beta", "log_odds")),
    ):
        assert found[name] == pytest.approx(expected, abs=tolerance), name


def test_beta_and_the_official_scores_are_those_of_stereoset(saved_lm, tmp_path):
    path = written(tmp_path)
    first_items(path, 24)
    found = measured("stereoset_intersentence", saved_lm, data=path)
    triples = load_triples("starter")
    model = load_language_model(saved_lm, device="cpu")
    scores = stereoset_scores(model, triples[::7], twins=make_twins(triples))
    same_as_the_command(found, scores, 1e-4)
    has_twin = scores.items.dropna(subset=["beta_sum"])
    over_targets = cluster_mean(has_twin["beta_sum"].to_numpy(), has_twin["group"])
    assert found["beta_stderr"] == pytest.approx(over_targets.error, abs=1e-4)


def test_triples_without_twins_count_in_the_official_score(tmp_path):
    documents = tasks.stereoset_intersentence(written(tmp_path, "--category", "gender"))["test"]
    rng = np.random.default_rng(0)
    readings = [
        tasks.read(doc, [(value, False) for value in rng.normal(size=len(doc["texts"]))])
        for doc in documents
    ]
    alone = [reading for reading in readings if not reading["twin"]]
    assert 0 < len(alone) < len(readings)
    assert tasks.ss(alone) == tasks.ss(readings)
    assert np.isfinite(tasks.beta(readings))
    assert np.isnan(tasks.beta(alone))


def sentence_file(folder, *items):
    """Intrasentence items: target and the three words that fill the blank of each."""
    lines = [
        {
            "target": group,
            "bias_type": "gender",
            "context": f"The {group} was BLANK .",
            **{role: f"The {group} was {word} ." for role, word in zip(ROLES, words, strict=True)},
        }
        for group, *words in items
    ]
    path = folder / "sentences.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    return path


def test_whole_sentences_and_their_twins_score_as_behind_the_start_token(saved_lm, tmp_path):
    path = sentence_file(
        tmp_path,
        ("mother", "kind", "rude", "wood"),
        ("father", "tall", "shy that", "ice"),
        ("sister", "quiet", "loud", "blue"),
        ("nurse", "late", "rich that", "x"),
    )
    found = measured("stereoset_intrasentence", saved_lm, data=str(path))
    model, sentences = load_language_model(saved_lm, device="cpu"), load_sentence_triples(path)[0]
    scored = sentence_scores(model, sentences, config=SentenceConfig(start="bos"))
    row = scored.scores.query("scored == 'whole' and scoring == 'sum'").iloc[0]
    for name in ("lms", "ss", "icat"):
        assert found[name] == pytest.approx(row[name])
    twins = sentence_twins(sentences)
    assert len(twins) == 3  # a nurse has no other gender in her name
    every = [*sentences, *twins.values()]
    items = sentence_items(model, every, which=("whole",), start="bos")
    odds = (items["log_prob_s"] - items["log_prob_a"]).to_numpy()
    assert found["log_odds"] == pytest.approx(odds[:4].mean(), abs=1e-4)
    assert found["beta"] == pytest.approx((odds[:3] - odds[4:]).mean(), abs=1e-4)


@pytest.mark.parametrize("task", ["winogender", "tdabias_pairs"])
def test_pairs_score_as_behind_the_start_token(saved_lm, tmp_path, task):
    source, metadata = task, {}
    if task == "tdabias_pairs":
        lines = [
            {"id": str(n), "group": group, "context": f"The {group} wrote.", "more": "He felt it.",
             "less": "She felt that."}
            for n, group in enumerate(("nurse", "cook", "man", "woman"))
        ]  # fmt: skip
        path = tmp_path / "own.jsonl"
        path.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
        source, metadata = path, {"data": str(path)}
    found = measured(task, saved_lm, limit=24, **metadata)
    model, pairs = load_language_model(saved_lm, device="cpu"), load_pairs(source)
    pairs = replace(pairs, pairs=pairs.pairs[:24])
    table = compared(pair_items(model, pairs, start="tokenizer" if metadata else "bos"))
    assert found["log_odds"] == pytest.approx(table["log_odds"].mean(), abs=1e-4)
    assert found["preferred"] == pytest.approx(100 * table["preferred"].mean())


# -- standard errors --


def test_a_standard_error_is_that_of_the_interval_over_targets_of_which_there_must_be_five():
    rng = np.random.default_rng(1)
    targets = list("aaabbcccddddeeffg")
    values = rng.normal(size=len(targets))
    assert tasks.standard_error(values, targets) == cluster_mean(values, targets).error
    assert np.isnan(tasks.standard_error(values[:12], targets[:12]))


def test_an_occupation_in_two_types_of_pairs_is_one_cluster():
    documents = tasks.winobias()["test"]
    odds = np.random.default_rng(1).normal(size=len(documents))
    readings = [
        tasks.read(doc, [(value, False), (0.0, False)])
        for doc, value in zip(documents, odds, strict=True)
    ]
    occupations = [pair.unit for pair in load_pairs("winobias").pairs]
    assert len(set(occupations)) == 40
    assert tasks.log_odds_stderr(readings) == cluster_mean(odds, occupations).error
    preferred = 100.0 * (odds > 0)
    assert tasks.preferred_stderr(readings) == cluster_mean(preferred, occupations).error
