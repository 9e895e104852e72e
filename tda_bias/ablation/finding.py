"""What ablations found, in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tda_bias.ablation.prune_curve import RANDOM, PruneCurve
from tda_bias.ablation.study import AblationStudy, end_of
from tda_bias.heads.finding import NOISY
from tda_bias.show.names import named
from tda_bias.show.text import Finding, counted, interval_text, number_text, p_text
from tda_bias.stats.resampling import LEVEL, least_pvalue

# Units of outcomes that have one.
_NATS = frozenset({"log_odds", "beta", "response_effect", "decision"})


def unit_of(outcome: str) -> str:
    """The unit of an outcome; empty where it has none."""
    return "nats" if outcome in _NATS else ""


def what_was_read(study: AblationStudy, noun: str = "item") -> str:
    """How much the numbers of a study are of: ``8 items, 120 words in 10 templates``."""
    triples = [counted(study.record.triples, noun)] if study.record.triples else []
    return ", ".join([*triples, *study.record.further.values()])


def ablation_finding(study: AblationStudy) -> Finding:
    """Effects of removing the top heads, compared with random heads of the same layers."""
    rows = {row["ranking"]: row for row in study.agreement.to_dict("records")}
    record = study.record
    tests = {row["outcome"]: row for row in study.set_tests.to_dict("records")}
    result = [
        *(_set_sentence(study, tests[name], name) for name in study.primary),
        *(_verdict(study, rows, name) for name in study.outcomes),
    ]
    control = [
        f"{counted(record.n_random, 'random set')} of as many heads of the same layers; "
        f"{what_was_read(study)}."
    ]
    if not record.survivors:
        control.append(f"{NOISY.removesuffix('.')}, and this tests what ablating such heads does.")
    control += limits_of_answers(study)
    few = " (there are no more)" if record.n_possible <= record.n_random else ""
    details = []
    if "beta" in study.outcomes:
        without = record.triples - record.twinned
        details.append(
            "Beta is the log-odds of a triple minus those of its twins: what ablating heads does "
            "to it, it does to the bias; most of what it does to the log-odds, it does to wording."
            + (f" {without} of {record.triples} triples have no twin." if without else "")
        )
    return Finding(
        result=result,
        control=control,
        power=[
            f"With {counted(record.n_random, 'random set')}{few} no p can be below "
            f"{least_pvalue(record.n_random):.3f}."
        ],
        details=details,
    )


def limits_of_answers(study: AblationStudy) -> list[str]:
    """Caveats on BBQ's accuracy and on the mass of decisions, where these were measured."""
    base, limits = study.record.base, []
    if "bbq_bias" in study.outcomes:
        limits.append(
            "Of BBQ's disambiguated questions the unchanged model answers a share of "
            f"{number_text(base.get('bbq_accuracy'), 3)} right; naming either person "
            "gets up to .5, and near that its answers to ambiguous ones say nothing."
        )
    if "decision" in study.outcomes:
        limits.append(
            f"The two answers of a decision have {base['decision_mass']:.0%} of the unchanged "
            "model's probability at the first place."
        )
    return limits


def _set_sentence(study: AblationStudy, test: Mapping[Any, Any], outcome: str) -> str:
    """What the top heads together change, beside random sets."""
    unit = f" {unit_of(outcome)}".rstrip()
    along = ", along responses of the unchanged model," if outcome == "response_effect" else ""
    return (
        f"Ablating the {counted(study.record.top, 'top head')} together changes the "
        f"{named(outcome)}{along} from "
        f"{number_text(study.record.base.get(outcome), 3)} by {test['effect']:+.3f}{unit}; random "
        f"heads of the same layers change it by {test['random_mean']:+.3f} (SD "
        f"{test['random_sd']:.3f}; p {p_text(test['p'])})."
    )


def _verdict(study: AblationStudy, rows: Mapping[str, Mapping[Any, Any]], outcome: str) -> str:
    """Tell whether the run's ranking predicts the size of the effect on an outcome."""
    end = end_of(outcome)
    rho = {ranking: number_text(row[f"rho_effect{end}"]) for ranking, row in rows.items()}
    text = f"Effects on the {named(outcome)}, over all heads: "
    ranking = f"z_{study.record.rank_by}"
    if ranking in rows:
        p = rows[ranking][f"p_effect{end}"]
        verdict = "the ranking by topology does not predict their size"
        if p < LEVEL:
            more = "larger" if rows[ranking][f"rho_effect{end}"] > 0 else "smaller"
            verdict = f"heads that stand high in the topological ranking have {more} ones"
        text += f"{verdict} (Spearman {rho[ranking]}, p {p_text(p)}); "
    exact = number_text(rows.get(f"abs_effect{end}", {}).get(f"rho_exact{end}"))
    attributions = {"importance": "gradient importance", "abs_direct": "direct effect"}
    others = ", ".join(f"{said} {rho[key]}" for key, said in attributions.items() if key in rho)
    text = f"{text}{others}. " if others else f"{text.removesuffix('; ')}. "
    return f"{text}First-order and exact ones where both exist: {exact}."


def random_orders(curve: PruneCurve) -> int:
    """The number of random orders."""
    return int(curve.curve.loc[curve.curve["ranking"] == RANDOM, "draw"].nunique())


def better_rankings(curve: PruneCurve) -> list[str]:
    """Rankings that end closer to 0 than random orders do, after correction for all of them.

    One that ablates no head, or ends farther from 0 than it began, brings nothing closer.
    """
    rows = curve.chosen.to_dict("records")
    return [
        str(row["ranking"])
        for row in rows
        if row["p_random"] * len(rows) < LEVEL and comes_closer(row)
    ]


def comes_closer(row: Mapping[Any, Any]) -> bool:
    """Tell whether the chosen number of heads of a ranking brings the bias closer to 0."""
    return bool(row["k"] > 0 and abs(row["test"]) < abs(row["before_test"]))


def smallest_of_curve(curve: PruneCurve) -> float:
    """The smallest corrected p that as many random orders can give."""
    return min(1.0, len(curve.chosen) / (1 + random_orders(curve)))


def curve_finding(curve: PruneCurve) -> Finding:
    """Remaining bias on unseen targets for each ranking, compared with random orders."""
    record, rows = curve.record, curve.chosen.to_dict("records")
    n_random, better = random_orders(curve), better_rankings(curve)
    closer = f"the {named(record.quantity)} closer to 0 on unseen targets than random orders do"
    smallest = smallest_of_curve(curve)
    if better:
        first = f"Ablating heads by {', '.join(better)} brings {closer}."
    elif smallest >= LEVEL:
        needed = round(len(rows) / LEVEL)
        first = (
            f"Whether a ranking brings {closer} cannot be told from so few random orders: "
            f"{counted(len(rows), 'ranking needs', 'rankings need')} {needed} (--n-random)."
        )
    else:
        first = f"No ranking brings {closer}."
    each = [
        f"{row['ranking']}: {counted(row['k'], 'head')}, {row['before_test']:.2f} to "
        f"{row['test']:.2f} nats ({interval_text(row['test_low'], row['test_high'])}), "
        f"log-perplexity {row['d_log_ppl']:+.3f}; p {p_text(row['p_random'])}."
        for row in rows
    ]
    return Finding(
        result=[first, *each],
        control=[
            f"Random orders, each with its own choice, end at {rows[0]['random_test']:.2f} on "
            f"average. p: (1 + random orders that end at as little) / (1 + {n_random}); compared "
            f"with .05 after correction for {counted(len(rows), 'ranking')}."
        ],
        power=[
            f"With {counted(n_random, 'random order')} no p can be below "
            f"{least_pvalue(n_random):.3f}, corrected for {counted(len(rows), 'ranking')} none "
            f"below {smallest:.3f}."
        ],
        details=[
            f"Numbers of heads were chosen on {', '.join(record.choosing)}, at most 2 % perplexity "
            "lost; 0 heads: nothing better was found.",
            "Rankings of the run saw all of its targets; importance and effect only those that "
            "choose.",
            f"Perplexity: {record.windows['read']} of {record.windows['of']} windows of "
            f"{record.windows['width']} tokens, stride {record.windows['stride']}.",
        ],
    )
