"""Shared fixtures: tiny models with random weights, a tiny tokenizer, the real model and data."""

import os

# Before the hub's clients are imported, which read it then: without an answer they try for half a
# minute, and a test must not depend on one.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from collections.abc import Callable, Iterator
from pathlib import Path

import matplotlib as mpl
import pytest
from hypothesis import settings

from pvf.config import RiskConfig
from pvf.report import risk_report
from tda_bias import HeadBias, HeadBiasConfig, head_bias, load_triples
from tda_bias.ablation.ablator import Ablator
from tda_bias.ablation.study import ablation_study
from tda_bias.config import StudyConfig
from tda_bias.heads.items import example_pattern
from tda_bias.models.load import LanguageModel, LoadedModel, bridge_model, load_model
from tda_bias.models.scoring import Scorer
from tda_bias.types import Triple
from tests.support.answers import made_up_answers
from tests.support.bbq import FOLDERS as BBQ_FOLDERS
from tests.support.models import tiny_hf_model
from tests.support.preferences import made_up as preferences_of
from tests.support.processes import Workers
from tests.support.reports import runs_for_report
from tests.support.tokenizers import subwords_in

mpl.use("Agg")
STEREOSET = os.environ.get("TDABIAS_STEREOSET", "")
# The same examples in every run; no deadline, because the first call of a library is slow.
settings.register_profile("tdabias", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("tdabias")
# Whole files go to workers: those that take minutes begin first, and none is left alone at the end.
LONGEST = (
    "test_pages.py", "test_examples.py", "test_docs.py", "test_processes.py",
    "test_report_in_browser.py", "test_calibration.py", "test_real.py",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of the longest files first, each file in its order."""
    rank = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.name, len(rank)))


@pytest.fixture(autouse=True)
def no_data_by_itself(monkeypatch):
    """Commands read data of the environment too: a test gives it itself, or sets the name."""
    for name in ("TDABIAS_STEREOSET", "TDABIAS_PAIRS", *BBQ_FOLDERS):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def scorers(monkeypatch):
    """The scorers that a test makes, in order."""
    made, begin = [], Scorer.__init__

    def remembered(self, *given, **options):
        made.append(self)
        begin(self, *given, **options)

    monkeypatch.setattr(Scorer, "__init__", remembered)
    return made


@pytest.fixture
def two_threads():
    """Torch with two threads, whatever the machine has."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory):
    """A word-level tokenizer over the starter triples; unknown words share one id.

    From disk, because the bridge loads a tokenizer a second time from where it came from.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    words = {w for t in load_triples("starter") for text in t.texts() for w in _words(text)}
    vocabulary = {w: i for i, w in enumerate(["<unk>", "<pad>", "<bos>", "<eos>", *sorted(words)])}
    raw = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<bos>"}
    made = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<eos>", **special)
    folder = tmp_path_factory.mktemp("tokenizer")
    made.save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)


def _words(text: str) -> list[str]:
    from tokenizers import pre_tokenizers

    return [word for word, _ in pre_tokenizers.Whitespace().pre_tokenize_str(text)]


@pytest.fixture(scope="session")
def subwords(tmp_path_factory):
    """A byte-level tokenizer that writes "he" and "she" in one token, "heiress" in several."""
    return subwords_in(tmp_path_factory.mktemp("subwords"))


@pytest.fixture(scope="session")
def tiny_lm(subwords) -> Callable[..., LanguageModel]:
    """Tiny language models with random weights, by architecture name."""

    def make(kind: str = "gpt2", **changes) -> LanguageModel:
        special = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
        hf_model = tiny_hf_model(kind, len(subwords), **{**special, **changes})
        return LanguageModel(hf_model, subwords, f"tiny-{kind}")

    return make


@pytest.fixture(scope="session")
def tiny(tokenizer) -> Callable[..., LoadedModel]:
    """Tiny bridged models by architecture name."""

    def make(kind: str = "gpt2", **changes) -> LoadedModel:
        hf_model = tiny_hf_model(kind, len(tokenizer), **changes)
        return bridge_model(hf_model, tokenizer, name=f"tiny-{kind}")

    return make


@pytest.fixture(scope="session")
def tiny_folder(tokenizer, tmp_path_factory) -> Path:
    """A tiny GPT-2 saved to disk, for everything that takes a model by path."""
    folder = tmp_path_factory.mktemp("models") / "tiny-gpt2"
    tiny_hf_model("gpt2", len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def workers(tmp_path_factory) -> Iterator[Workers]:
    """Two workers of a Dask cluster, which take seconds to start."""
    started = Workers(tmp_path_factory.mktemp("workers"))
    yield started
    started.close()


@pytest.fixture(scope="session")
def gender() -> list[Triple]:
    """The starter triples of two gender groups, six each."""
    return load_triples("starter", category="gender", groups=["girl", "boy"], limit=6)


@pytest.fixture(scope="session")
def stereoset() -> Path:
    """The real StereoSet development set as JSON Lines."""
    if not STEREOSET:
        pytest.skip("set TDABIAS_STEREOSET to StereoSet's intersentence half as JSON Lines")
    return Path(STEREOSET)


@pytest.fixture(scope="session")
def smollm2() -> LoadedModel:
    """The real SmolLM2-135M."""
    return load_model("smollm2-135m", device="cpu")


@pytest.fixture(scope="session")
def heads_run(tiny) -> HeadBias:
    """A tiny model on all starter categories."""
    triples = load_triples("starter", category="all", limit=4)
    return head_bias(tiny("gpt2"), triples, twins=None, config=HeadBiasConfig(n_permutations=99))


@pytest.fixture(scope="session")
def example(tiny):
    return example_pattern(tiny("gpt2"), load_triples("starter", category="gender")[0])


@pytest.fixture(scope="session")
def risk_report_of_two():
    return risk_report(preferences_of(), config=RiskConfig())


@pytest.fixture(scope="session")
def folders(heads_run, example, tiny, tmp_path_factory):
    """Runs of every command, as they lie on disk."""
    base = tmp_path_factory.mktemp("runs")
    heads_run.with_record(settings={"category": "all"}).with_patterns(example).save(base / "heads")
    heads = HeadBias.load(base / "heads")
    for number in range(2):
        report = risk_report(preferences_of(number), config=RiskConfig())
        report.preferences.save(base / f"pvf{number}")
        report.save(base / f"pvf{number}")
    model = tiny("gpt2")
    triples = load_triples("starter", category="gender", limit=2)
    study = ablation_study(
        Ablator(model, triples),
        heads,
        category="gender",
        config=StudyConfig(top=1, n_permutations=99),
    )
    study.save(base / "heads" / "ablate")
    for name in ("gender", "gender_race"):
        made_up_answers(name, subjects=6, attributes=3).save(base / name)
    return base


@pytest.fixture(scope="session")
def report_runs(tiny, tmp_path_factory):
    """Runs of heads and of StereoSet with names that would like to be code; nobody changes them."""
    return runs_for_report(tiny, tmp_path_factory.mktemp("report"))
