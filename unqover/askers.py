"""Log-probabilities of subjects as answers of causal and masked models.

This file and ``span_asker`` are the only ones of the package that run a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from tda_bias.models.batching import batches_of_similar_width, common_prefix, special_tokens_around
from tda_bias.models.causal import TreeReader, reader_of
from tda_bias.models.load import LanguageModel
from tda_bias.models.masked import masked_log_probs
from tda_bias.models.token_trees import TokenTree, merge
from tda_bias.types import InputError
from unqover.config import AskConfig
from unqover.instances import Asked, Asker, Instance, polarities
from unqover.span_asker import SpanAsker


def asker(model: LanguageModel, config: AskConfig) -> Asker:
    """The way to ask a model.

    Raises:
        InputError: if the model cannot be asked that way.
    """
    usual = {"causal": "cloze", "masked": "mask", "span": "span"}
    able = {"causal": ("cloze", "question"), "masked": ("mask",), "span": ("span",)}
    if model.kind not in usual:
        raise InputError(
            f"`model` {model.name} is a {model.kind} model; questions are asked of causal and "
            "masked language models and of models that answer with a span"
        )
    how = usual[model.kind] if config.ask == "auto" else config.ask
    if how not in able[model.kind]:
        raise InputError(
            f"`ask` must be one of {', '.join(able[model.kind])} for the {model.kind} model "
            f"{model.name}; got {config.ask!r}"
        )
    if model.kind == "span":
        model.require_whole_checkpoint()
    else:
        model.require_language_head()
    kinds: dict[str, Any] = {
        "cloze": ContinuationAsker, "question": ContinuationAsker, "mask": MaskAsker,
        "span": SpanAsker,
    }  # fmt: skip
    made: Asker = kinds[how](model, config, how)
    return made


# -- causal models ---------------------------------------------------------------------------------


class ContinuationAsker:
    """Causal models: the log-probability of a sentence, or of an answer, behind a text.

    All texts of an instance are one tree of tokens: what they share is run once.
    """

    def __init__(self, model: LanguageModel, config: AskConfig, how: str) -> None:
        self.how = how
        self._model, self._config = model, config
        self._leading = special_tokens_around(model.tokenizer)[0]
        self._reader: TreeReader | None = None

    @property
    def notes(self) -> dict[str, Any]:
        """Whether texts shared their beginnings, and why."""
        if self._reader is None:
            return {}
        return {"share_prefix": self._reader.packed, "share_prefix_check": self._reader.why}

    def ask(self, instances: Sequence[Instance]) -> list[Asked]:
        """As in ``Asker``."""
        texts = [self._texts(instance) for instance in instances]
        split = self._split(texts)
        trees = [_scored_tree(texts) for texts in split]
        if self._reader is None:
            # As many tokens in a pass as that many separate texts would have.
            length = np.mean([len(text.ids) for texts in split for text in texts])
            self._reader = reader_of(
                self._model,
                [tree.tree for tree in trees],
                batch_size=self._config.batch_size,
                texts_per_tree=max(1, round(max(len(tree.tree) for tree in trees) / length)),
                share_prefix=self._config.share_prefix,
            )
        values = self._reader.read([tree.tree for tree in trees])
        return [
            self._asked(instance, tree, value)
            for instance, tree, value in zip(instances, trees, values, strict=True)
        ]

    def _texts(self, instance: Instance) -> list[tuple[str, str, str]]:
        """By attribute, polarity and subject: the given text, with the subject, and the whole."""
        texts = []
        template, context = instance.template, instance.context
        for attribute in instance.attributes:
            for negation in polarities(self._config):
                for subject in instance.candidates:
                    if self.how == "cloze":
                        said, place = template.statement(subject, attribute, negation)
                        given = context
                    else:
                        asked = template.question(attribute, negation)
                        given = f"Paragraph: {context} Question: {asked} Answer:"
                        # The full stop ends it: Ann must not stand for Anna.
                        answer, place = template.answer(subject)
                        said = f"{answer}."
                    named = f"{given} {said[: place.stop]}"
                    texts.append((given, named, f"{given} {said}"))
        return texts

    def _split(self, texts: list[list[tuple[str, str, str]]]) -> list[list[_Text]]:
        """Token ids of each text, and where the scored part and what follows the subject begin."""
        distinct = list(dict.fromkeys(t for triples in texts for three in triples for t in three))
        ids = self._model.tokenizer(distinct, add_special_tokens=False)["input_ids"]
        of = dict(zip(distinct, ids, strict=True))
        split = []
        for of_instance in texts:
            rows = []
            for given, named, whole in of_instance:
                start = common_prefix(of[given], of[whole])
                named_to = max(start + 1, common_prefix(of[named], of[whole]))
                if start == 0 or start >= len(of[whole]):
                    raise InputError(f"the tokenizer makes no token of a part of {whole!r}")
                n = len(self._leading)
                rows.append(_Text([*self._leading, *of[whole]], n + start, n + named_to))
            split.append(rows)
        return split

    def _asked(self, instance: Instance, scored: _ScoredTree, values: np.ndarray) -> Asked:
        shape = (len(instance.attributes), 2, 2)
        whole, named = scored.whole @ values, scored.named @ values
        if self._config.length == "mean":
            whole = whole / scored.whole.sum(1)
        n_tokens = scored.named.sum(1).astype(int).reshape(shape)
        return Asked(whole.reshape(shape), n_tokens, np.exp(named.reshape(shape)).sum(-1))


@dataclass(frozen=True)
class _Text:
    """Token ids, and where in them the scored part and what follows the subject's name begin."""

    ids: list[int]
    start: int
    named_to: int


@dataclass(frozen=True)
class _ScoredTree:
    """The tree of an instance's texts, and how its readings add up.

    Attributes:
        tree: The tree.
        whole: 1 where a reading belongs to a text's scored part.
        named: 1 where it belongs to its beginning, up to the end of the subject's name.
    """

    tree: TokenTree
    whole: Float[np.ndarray, "text reading"]
    named: Float[np.ndarray, "text reading"]


def _scored_tree(texts: Sequence[_Text]) -> _ScoredTree:
    """Every token that is scored is read once, whatever number of texts goes through it."""
    tokens, parent, ends = merge([text.ids for text in texts])
    reading: dict[int, int] = {}
    paths = []
    for text, end in zip(texts, ends.tolist(), strict=True):
        path = [end]
        while len(path) < len(text.ids) - text.start:
            path.append(int(parent[path[-1]]))
        path.reverse()
        paths.append([reading.setdefault(node, len(reading)) for node in path])
    whole = np.zeros((len(texts), len(reading)))
    named = np.zeros_like(whole)
    for row, (text, path) in enumerate(zip(texts, paths, strict=True)):
        whole[row, path] = 1.0
        named[row, path[: text.named_to - text.start]] = 1.0
    read = np.array(list(reading))
    # Nothing is read behind a last token, so it is not run.
    inner = np.zeros(len(tokens), dtype=bool)
    inner[parent[parent >= 0]] = True
    place = np.cumsum(inner) - 1
    parents = parent[inner]
    tree = TokenTree(
        tokens=tokens[inner],
        parent=np.where(parents >= 0, place[parents], -1),
        read_node=place[parent[read]],
        read_token=tokens[read],
    )
    return _ScoredTree(tree, whole, named)


# -- masked models ---------------------------------------------------------------------------------


class MaskAsker:
    """Masked models: the subject of a sentence behind the context is masked and read.

    The whole vocabulary shares the probability; a subject of several tokens is read with as many
    masks, from left to right. Rows that two subjects share are run once.
    """

    def __init__(self, model: LanguageModel, config: AskConfig, how: str) -> None:
        self.how = how
        self._model, self._config = model, config
        if model.tokenizer.mask_token_id is None:
            raise InputError(f"`model` {model.name}: its tokenizer has no mask token")

    @property
    def notes(self) -> dict[str, Any]:
        """Nothing to report."""
        return {}

    def ask(self, instances: Sequence[Instance]) -> list[Asked]:
        """As in ``Asker``."""
        wanted = [span for instance in instances for span in self._masked(instance)]
        # Each row is run once, whoever reads it.
        tokens: dict[tuple[int, ...], dict[int, set[int]]] = {}
        for ids, first, last in wanted:
            for place in range(first, last):
                row = self._row(ids, first, last, place)
                tokens.setdefault(row, {}).setdefault(place, set()).add(ids[place])
        log_probs = self._read(tokens)
        values, counts = [], []
        for ids, first, last in wanted:
            rows = [(self._row(ids, first, last, p), p, ids[p]) for p in range(first, last)]
            total = sum(log_probs[key] for key in rows)
            counts.append(last - first)
            values.append(total / (last - first) if self._config.length == "mean" else total)
        results, done = [], 0
        for instance in instances:
            shape = (len(instance.attributes), 2, 2)
            part = slice(done, done + int(np.prod(shape)))
            done = part.stop
            log_prob, n = np.reshape(values[part], shape), np.reshape(counts[part], shape)
            summed = log_prob * n if self._config.length == "mean" else log_prob
            results.append(Asked(log_prob, n, np.exp(summed).sum(-1)))
        return results

    def _masked(self, instance: Instance) -> list[tuple[tuple[int, ...], int, int]]:
        """Token ids of each statement behind its context, and which of them are the subject."""
        texts, places = [], []
        context = instance.context
        for attribute in instance.attributes:
            for negation in polarities(self._config):
                for subject in instance.candidates:
                    said, place = instance.template.statement(subject, attribute, negation)
                    start = len(context) + 1
                    texts.append(f"{context} {said}")
                    places.append((start + place.start, start + place.stop))
        encoded = self._model.tokenizer(texts, return_offsets_mapping=True)
        masked = []
        for ids, offsets, (start, stop), text in zip(
            encoded["input_ids"], encoded["offset_mapping"], places, texts, strict=True
        ):
            inside = [i for i, (a, b) in enumerate(offsets) if a < stop and b > start and b > a]
            if not inside:
                raise InputError(f"the tokenizer makes no token of the subject of {text!r}")
            masked.append((tuple(ids), inside[0], inside[-1] + 1))
        return masked

    def _row(self, ids: tuple[int, ...], first: int, last: int, place: int) -> tuple[int, ...]:
        """The text with everything of the subject masked from a place on."""
        mask = self._model.tokenizer.mask_token_id
        return (*ids[:place], *[mask] * (last - place), *ids[last:])

    def _read(
        self, wanted: dict[tuple[int, ...], dict[int, set[int]]]
    ) -> dict[tuple[tuple[int, ...], int, int], float]:
        rows = [(row, place) for row, places in wanted.items() for place in places]
        read: dict[tuple[tuple[int, ...], int, int], float] = {}
        for batch in batches_of_similar_width([len(r) for r, _ in rows], self._config.batch_size):
            chosen = [rows[i] for i in batch]
            tokens = [np.array(sorted(wanted[row][place])) for row, place in chosen]
            values = masked_log_probs(
                self._model, [row for row, _ in chosen], [place for _, place in chosen], tokens
            )
            for (row, place), candidates, value in zip(chosen, tokens, values, strict=True):
                read |= {
                    (row, place, int(t)): float(v) for t, v in zip(candidates, value, strict=True)
                }
        return read
