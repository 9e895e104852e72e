import pytest

from pvf.config import RiskConfig
from pvf.results import risk_report
from tda_bias import HeadBias, HeadBiasConfig, head_bias, load_triples
from tda_bias.ablation import Ablator
from tda_bias.ablation_study import ablation_study
from tda_bias.capture import example_pattern
from tests.pvf.test_preferences import made_up as preferences_of
from tests.unqover.conftest import made_up_answers


@pytest.fixture(scope="session")
def heads_run(tiny) -> HeadBias:
    """A tiny model on all starter categories."""
    triples = load_triples("starter", category="all", limit=4)
    return head_bias(tiny("gpt2"), triples, config=HeadBiasConfig(n_resamples=99))


@pytest.fixture(scope="session")
def example(tiny):
    return example_pattern(tiny("gpt2"), load_triples("starter", category="gender")[0])


@pytest.fixture(scope="session")
def risk_report_of_two():
    return risk_report(preferences_of(), config=RiskConfig(n_resamples=100))


@pytest.fixture(scope="session")
def folders(heads_run, example, tiny, tmp_path_factory):
    """Runs of every command, as they lie on disk."""
    base = tmp_path_factory.mktemp("runs")
    heads_run.with_record(settings={"category": "all"}).save(base / "heads")
    example.save(base / "heads")
    for number in range(2):
        report = risk_report(preferences_of(number), config=RiskConfig(n_resamples=100))
        report.preferences.save(base / f"pvf{number}")
        report.save(base / f"pvf{number}")
    model = tiny("gpt2")
    triples = load_triples("starter", category="gender", limit=2)
    study = ablation_study(
        Ablator(model, triples), heads_run, category="gender", top=1, n_resamples=99
    )
    study.with_record(command="ablate", model="tiny-gpt2").save(base / "heads" / "ablate")
    for name in ("gender", "gender_race"):
        made_up_answers(name, subjects=6, attributes=3).save(base / name)
    return base
