"""Small runs of every kind that a report shows, some with names that would like to be code."""

import base64
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tda_bias import HeadBias, HeadBiasConfig, head_bias, load_triples
from tda_bias.ablation.ablator import Ablator
from tda_bias.ablation.study import ablation_study
from tda_bias.config import StudyConfig
from tda_bias.heads.items import example_pattern, kept_patterns
from tda_bias.scores.stereoset_scores import stereoset_scores
from tda_bias.twins import make_twins
from unqover.answers import Answers
from unqover.config import InferenceConfig
from unqover.report import bias_report

HOSTILE = "</script><img src=x onerror=window.hostile=1><script>window.hostile=1</script>{{7*7}}"


def runs_for_report(tiny, base: Path) -> list[Path]:
    """A run of heads with twins, an ablation of it, and StereoSet's scores of the same texts."""
    model = replace(tiny("gpt2"), name=f"tiny {HOSTILE}")
    triples = load_triples("starter", category="gender", groups=["girl", "boy"], limit=6)
    twins = make_twins(load_triples("starter")).only(triples)
    hostile = [replace(t, group=HOSTILE) if t.group == "girl" else t for t in triples]
    hostile = [
        t if t.group != HOSTILE else replace(t, context=f"{t.context} {HOSTILE}") for t in hostile
    ]
    result = head_bias(
        model, [*triples, *hostile[:6]], twins=twins, config=HeadBiasConfig(n_permutations=99)
    )
    kept = kept_patterns(model, result.texts_to_keep(8))
    result.with_patterns(example_pattern(model, triples[0]), kept).save(base / "heads")
    saved = HeadBias.load(base / "heads")
    study = ablation_study(
        Ablator(tiny("gpt2"), triples[:4]),
        saved,
        category="gender",
        config=StudyConfig(top=1, n_permutations=99),
    )
    study.save(base / "heads" / "ablate")
    scores = stereoset_scores(tiny("gpt2"), triples, twins=twins)
    scores.save(base / "stereoset")
    return [base / "heads", base / "stereoset"]


def with_tables(answers: Path, base: Path) -> Path:
    """A copy of a run of questions, with the tables that the command adds to it."""
    folder = Path(shutil.copytree(answers, base / answers.name))
    bias_report(Answers.load(folder), config=InferenceConfig(n_flips=19, n_bootstrap=100)).save(
        folder
    )
    return folder


def unpacked(given: Mapping[str, Any]) -> np.ndarray:
    """The inverse of ``packed`` but for the shape, as the page's script reads it."""
    whole = np.frombuffer(base64.b64decode(given["base64"]), dtype="<i2").astype(float)
    return np.asarray(np.where(whole == -32768, np.nan, whole * given["step"]))
