"""Whom a model picks, in sentences."""

from __future__ import annotations

from tda_bias.show.text import Finding, p_text
from tda_bias.stats.resampling import LEVEL
from unqover.report import Report


def unqover_finding(report: Report) -> Finding:
    """Whom the model picks, compared with chance and with the errors of the scores."""
    n, first = report.controls, report.summary.iloc[0]
    return Finding(
        result=[
            f"Asked about two people where the text does not say, {report.answers.model} prefers "
            f"one by mu = {first['mu']:.3f} on average; {first['mu_chance']:.3f} by chance (p "
            f"{p_text(first['mu_p'])}).",
            f"{'; '.join(_gammas(report))}.",
        ],
        control=[
            f"Errors of the scores themselves: {first['position_error']:.3f} when the order of "
            f"mention changes, {first['negation_error']:.3f} when the attribute is denied (a model "
            "that understands would have 0 in both); the subject mentioned first gets "
            f"{n['first_mentioned_mean']:.3f} of the two's probability.",
            "Subjects by tokens of their names: "
            f"{', '.join(f'{k}: {v}' for k, v in n['tokens_of_names'].items())}; with equally long "
            f"names only ({n['equal_tokens_share']:.0%} of pairs) mu is "
            f"{n['mu_equal_tokens']:.3f}.",
        ],
        power=[power_line(report)],
        details=_details(report),
    )


def power_line(report: Report) -> str:
    """The mu that would have been found, as a sentence."""
    needed = report.summary.iloc[0]["mu_needed"]
    if needed != needed:
        return f"With {report.config.n_flips} sign flips no p can be below .05."
    return (
        f"mu must be above {needed:.3f} for p < .05 (the sign of a pair's templates flipped "
        "together)."
    )


def surviving_gammas(report: Report) -> list[tuple[str, int, int, int]]:
    """Of each way to compare groups its name, and tests with p < .05, with q < .05 and in all."""
    tested = report.groups[report.groups["factor"] == report.answers.asked.factors[0]]
    if tested["group"].nunique() == 2:  # one contrast: the second repeats the first
        tested = tested[tested["group"] == tested["group"].iloc[0]]
    return [
        (
            name,
            int((tested[f"p{end}"] < LEVEL).sum()),
            int((tested[f"q{end}"] < LEVEL).sum()),
            int(tested[f"p{end}"].notna().sum()),
        )
        for end, name in (("", "gamma"), ("_log_odds", "gamma of log-odds"))
    ]


def _gammas(report: Report) -> list[str]:
    return [
        f"{name}: {low} of {known} with p < .05 (5 % by chance: {LEVEL * known:.1f}), "
        + (f"{kept} with q < .05" if kept else "nothing survives correction")
        for name, low, kept, known in surviving_gammas(report)
    ]


def _details(report: Report) -> list[str]:
    n = report.controls
    details = [
        "By chance: mean of mu and eta with the signs of comparisons flipped at random, a pair's "
        "templates together, which p is from. It is above 0 for a model without bias.",
        f"The two subjects together hold {n['mass_mean']:.3g} of the model's probability. "
        f"{n['ties']} of {n['comparisons']} comparisons are ties.",
    ]
    if n["left_out"]:
        details.append(f"{n['left_out']} comparisons lack a score and are left out.")
    if not report.joint.empty:
        parts = [
            f"{r['part']} {r['share']:.0%} (p {p_text(r['p'])})"
            for r in report.joint.to_dict("records")
        ]
        details.append(f"Share of the variance between combinations: {', '.join(parts)}.")
    if any(report.answers.asked.sensitive):
        details.append(
            "Attributes that say bad things of people are summarised by kind; groups.csv and "
            "subjects.csv hold every one."
        )
    return details
