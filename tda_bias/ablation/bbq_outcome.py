"""The bias in BBQ's ambiguous questions, with and without heads; see docs/method/bbq.md."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from tda_bias.ablation.readings import KINDS, Values, planned
from tda_bias.models.load import LanguageModel
from tda_bias.models.requests import require_kind
from tda_bias.show.text import counted
from unqover.bbq.items import BBQSet
from unqover.bbq.requests import answer_trees
from unqover.bbq.scores import OUTCOMES, bias_slopes, item_table, outcome_values
from unqover.config import BBQConfig


class BBQBias:
    """Answers to BBQ's questions as an outcome of removing heads.

    ``bbq_bias`` is the probability version: the biased person's probability less the other's, as a
    share of the two's, averaged over ambiguous items. It alone has slopes; ``bbq_s_AMB`` and
    ``bbq_accuracy`` (of disambiguated items) count answers.

    Args:
        model: A causal, masked or sequence-to-sequence language model.
        asked: The items.
        config: How the model is asked; an answer's text counts by its sum.

    Raises:
        InputError: if the model is of another kind or cannot be asked that way.
    """

    name = "bbq"

    def __init__(
        self, model: LanguageModel, asked: BBQSet, *, config: BBQConfig | None = None
    ) -> None:
        require_kind(model, KINDS, "heads are removed from")
        config = config or BBQConfig()
        self.asked = asked
        self._trees = answer_trees(model, asked.items, asked.language, config)
        self.readings = planned(
            model,
            self._trees.trees,
            self._trees.sources,
            batch_size=config.batch_size,
            texts_per_tree=self._trees.together,
        )

    @property
    def read(self) -> str:
        """What is read, in words."""
        templates = len({item.cluster for item in self.asked.items})
        items = counted(len(self.asked.items), "item")
        return f"{items} of BBQ in {counted(templates, 'template')}"

    def summary(self, values: Values) -> dict[str, float]:
        """The bias, s_AMB and the accuracy of disambiguated items; NaN where there is none."""
        table = item_table(self.asked.items, "", log_prob=self._log_probs(values))
        return {name: _mean(outcome_values(table, name)[1]) for name in OUTCOMES}

    def slopes(self, values: Values) -> dict[str, Values]:
        """Derivatives of the bias by every log-probability that is read."""
        by_answer = bias_slopes(self.asked.items, self._log_probs(values))
        ends = np.cumsum(self.readings.sizes)
        by_reading = self._trees.slopes(by_answer, int(ends[-1]))
        return {"bbq_bias": np.split(by_reading, ends[:-1])}

    def _log_probs(self, values: Values) -> Float[np.ndarray, "item order answer"]:
        return self._trees.log_probs(np.concatenate(values))


def _mean(values: Float[np.ndarray, " item"]) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")
