"""R, R_p and R_v of a model's preferences over classes of words, with and without heads.

Source: [BVF] "Bias and Volatility" (arXiv 2402.15481); see docs/method/pvf.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float

from pvf.config import Criterion, ScoreConfig
from pvf.preferences import ClassPreferences, class_preferences, word_probabilities
from pvf.reading import word_reader
from pvf.report import RiskReport
from pvf.risk import Risk, decompose
from pvf.slopes import risk_slopes, word_slopes
from pvf.words import Template, WordClasses, load_classes, load_templates, load_words
from tda_bias.ablation.readings import KINDS, Values, planned
from tda_bias.models.load import LanguageModel
from tda_bias.models.requests import require_kind
from tda_bias.show.text import counted


@dataclass(frozen=True)
class WordsAsked:
    """What a model is asked of words, and how risks follow from what it says.

    Attributes:
        words: Words x.
        templates: Contexts, weighted with their counts.
        classes: Words y by class.
        config: How words are read.
        x_weights: Weight of each x; uniform if None.
        reference: Preference of a model without bias, as in ``decompose``; uniform if None.
        criterion: Norm of the positive part of a stereotype.
    """

    words: tuple[str, ...]
    templates: tuple[Template, ...]
    classes: WordClasses
    config: ScoreConfig = field(default_factory=ScoreConfig)
    x_weights: Float[np.ndarray, " x"] | None = None
    reference: Float[np.ndarray, "*x_context y"] | None = None
    criterion: Criterion = "linf"

    @classmethod
    def published(cls) -> WordsAsked:
        """He and she in the ten published templates of 120 occupations."""
        return cls(
            load_words("occupations").words,
            tuple(load_templates("gender")),
            load_classes("pronouns"),
        )

    @classmethod
    def of(cls, report: RiskReport) -> WordsAsked:
        """What a run of ``tdabias pvf`` asked, with weights, reference and norm of its risks."""
        record = report.preferences.record
        return cls(
            words=report.preferences.x,
            templates=report.preferences.templates,
            classes=WordClasses(
                record.words.y.name,
                record.words.y.source,
                record.read.classes,
                (),
                report.preferences.printed,
            ),
            config=record.read_config or ScoreConfig(),
            x_weights=report.x_weights,
            reference=None if report.reference is None else report.reference.shares,
            criterion=report.config.criterion,
        )

    def first(self, n: int | None) -> WordsAsked:
        """The same of the first words alone; of all with None."""
        if n is None or n >= len(self.words):
            return self
        shares = self.reference
        return replace(
            self,
            words=self.words[:n],
            x_weights=None if self.x_weights is None else self.x_weights[:n],
            reference=shares if shares is None or shares.ndim == 1 else shares[:n],
        )


class WordRisk:
    """Risks as an outcome of removing heads.

    Args:
        model: A causal, masked or sequence-to-sequence language model.
        asked: Words, templates and classes.
        batch_size: Texts per forward pass.

    Raises:
        InputError: if the model is of another kind, or cannot read a class or a template.
    """

    name = "pvf"
    # What ``slopes`` knows the derivatives of.
    RISKS = ("R", "R_p", "R_v")

    def __init__(self, model: LanguageModel, asked: WordsAsked, *, batch_size: int = 32) -> None:
        require_kind(model, KINDS, "heads are removed from")
        self.asked = asked
        words, config = asked.words, asked.config
        self._reader = word_reader(model, words, asked.templates, asked.classes, config=config)
        self._trees = self._reader.trees(words)
        self.readings = planned(
            model,
            self._trees.trees,
            self._trees.sources,
            batch_size=batch_size,
            texts_per_tree=self._trees.together,
        )
        listed = list(self._reader.listed[0].classes.values())
        self._class_of = np.repeat(np.arange(len(listed)), list(map(len, listed)))

    @property
    def read(self) -> str:
        """What is read, in words."""
        words, templates = len(self.asked.words), len(self.asked.templates)
        return f"{counted(words, 'word')} in {counted(templates, 'template')}"

    @property
    def texts(self) -> list[list[int]]:
        """Token ids of every prompt, with special tokens."""
        return self._reader.inputs(self.asked.words)

    def risk(self, values: Values) -> Risk:
        """The decomposition of the risk, from what is read."""
        return self._risk(self._preferences(self._of_words(values)))

    def summary(self, values: Values) -> dict[str, float]:
        """R, R_p and R_v; and the mean union mass, without which they mean little."""
        preferences = self._preferences(self._of_words(values))
        risk = self._risk(preferences)
        return {
            "R": risk.R,
            "R_p": risk.R_p,
            "R_v": risk.R_v,
            "union_mass": float(preferences.union_mass.mean()),
        }

    def slopes(self, values: Values) -> dict[str, Values]:
        """Derivatives of R, R_p and R_v by every log-probability that is read."""
        read, ends = np.concatenate(values), np.cumsum(self.readings.sizes)[:-1]
        of_words = self._of_words(values)
        log_prob, continued = of_words["log_prob"], of_words["continued"]
        slopes = {}
        for name, by_preference in risk_slopes(self._risk(self._preferences(of_words))).items():
            by_word = word_slopes(by_preference, log_prob, continued, self._class_of)
            slopes[name] = np.split(self._reader.reading_slopes(self._trees, read, *by_word), ends)
        return slopes

    def _of_words(self, values: Values) -> Mapping[str, np.ndarray]:
        return self._reader.of_words(self._trees, np.concatenate(values))

    def _preferences(self, of_words: Mapping[str, np.ndarray]) -> ClassPreferences:
        probabilities = word_probabilities(of_words["log_prob"], of_words["continued"])
        return class_preferences(probabilities, self._class_of)

    def _risk(self, preferences: ClassPreferences) -> Risk:
        asked = self.asked
        return decompose(
            preferences.p,
            context_weights=np.array([template.count for template in asked.templates]),
            x_weights=asked.x_weights,
            reference=asked.reference,
            criterion=asked.criterion,
        )
