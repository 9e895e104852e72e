"""One run of every command, of one tiny model, as they lie on disk."""

import pytest

from pvf.config import RiskConfig
from pvf.report import risk_report
from tda_bias import HeadBias, HeadBiasConfig, head_bias, load_model, load_triples
from tda_bias.ablation.ablator import Ablator
from tda_bias.ablation.study import ablation_study
from tda_bias.config import CrossrefConfig, StudyConfig
from tda_bias.crossref.crossref import WordScores, cross_reference
from tda_bias.heads.items import example_pattern
from tda_bias.scores.stereoset_scores import stereoset_scores
from tests.support.answers import made_up_answers
from tests.support.preferences import made_up, renamed
from unqover.config import InferenceConfig
from unqover.report import bias_report


@pytest.fixture(scope="session")
def every_run(tiny_folder, tmp_path_factory):
    """Folders by command; ``ablate`` and ``crossref`` inside the run of heads."""
    base = tmp_path_factory.mktemp("every") / "runs"
    folders = {name: base / name for name in ("heads", "pvf", "unqover", "stereoset")}
    folders |= {name: base / "heads" / name for name in ("ablate", "crossref")}
    model = load_model(str(tiny_folder), device="cpu")
    triples = load_triples("starter", limit=2)
    heads = head_bias(model, triples, twins=None, config=HeadBiasConfig(n_permutations=99))
    settings = {"model": str(tiny_folder), "category": "all", "limit": 2}
    heads = heads.with_record(settings=settings, data={"source": "starter"})
    heads.with_patterns(example_pattern(model, triples[0])).save(folders["heads"])
    heads = HeadBias.load(folders["heads"])
    gender = [triple for triple in triples if triple.category == "gender"]
    ablator = Ablator(model, gender)
    study = ablation_study(
        ablator, heads, category="gender", config=StudyConfig(top=1, n_permutations=99)
    )
    study.save(folders["ablate"])
    scores = stereoset_scores(model, triples, twins=None)
    scores.save(folders["stereoset"])
    preferences = made_up(n_x=len(heads.groups))
    preferences = renamed(preferences, x=tuple(heads.groups["group"]))
    preferences = preferences.with_record(model=scores.record.model)
    report = risk_report(preferences, config=RiskConfig())
    preferences.save(folders["pvf"])
    report.save(folders["pvf"])
    answers = made_up_answers("gender", subjects=4, attributes=3)
    answers.save(folders["unqover"])
    bias_report(answers, config=InferenceConfig(n_flips=19, n_bootstrap=100)).save(
        folders["unqover"]
    )
    cross_reference(
        heads,
        WordScores.load(folders["pvf"]),
        stereoset=scores,
        config=CrossrefConfig(n_permutations=99),
    ).save(folders["crossref"])
    return folders
