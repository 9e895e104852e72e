"""Questions, and the answers of an imagined model."""

import numpy as np

from tda_bias.store.record import ModelRecord
from unqover.answers import Answers, AnswersRecord
from unqover.classes import load_class
from unqover.config import DesignConfig
from unqover.questions import sampled_design

FEW = """
factors: [gender]
compare: across
subjects:
  female: [Mary, Ann]
  male: [James, Bo]
forms:
  name: {mention: "{subject}", answer: "{subject}"}
  man: {mention: "{a} {subject} {noun}", answer: "the {subject} {noun}", nouns: [cook, nurse]}
frames:
  - {form: name, context: "{first} wrote to {second}."}
  - {form: man, context: "Today {second} felt that {first} knew."}
attributes:
  nouns: [nurse, cook, old uncle]
"""


def made_up_answers(
    name="gender", subjects=4, attributes=5, lean=0.0, noise=1.0, seed=0
) -> Answers:
    """Answers of an imagined model: random, plus what is asked for."""
    config = DesignConfig(subjects=subjects, attributes=attributes)
    design = sampled_design(load_class(name), config)
    rng = np.random.default_rng(seed)
    shape = (*design.shape, 2, 2, 2)
    log_prob = rng.normal(-3, noise, shape)
    log_prob[..., 0, 0] += lean  # x1 for the attribute
    log_prob[~np.broadcast_to(design.asked, design.shape)] = np.nan
    record = AnswersRecord(
        model=ModelRecord(name="made-up", weights="w"),
        ask="cloze",
        questions=design.n_questions,
        tokens=((1,) * len(design.subjects),) * len(design.templates),
        design=design.record,
    )
    return Answers(design.first, design.second, log_prob, np.exp(log_prob).sum(-1), record)
