"""What outcomes are called in words; files keep the names of their columns."""

from __future__ import annotations

from tda_bias.types import TESTS

_QUANTITIES = {
    "beta": "target effect",
    "beta_sum": "target effect",
    "beta_mean": "target effect per token",
    "abs_beta": "size of the target effect",
    "log_odds": "log-odds",
    "abs_log_odds": "size of the log-odds",
    "ss": "stereotype score",
    "ss_sum": "stereotype score",
    "ss_mean": "stereotype score per token",
    "lms": "language-model score",
    "lms_sum": "language-model score",
    "lms_mean": "language-model score per token",
    "log_perplexity": "log-perplexity",
    "log_ppl_unrelated": "log-perplexity, unrelated",
    "log_ppl_context": "log-perplexity, contexts",
    "kl_divergence": "KL divergence",
    "R": "risk R",
    "R_p": "prejudice R_p",
    "R_v": "volatility R_v",
    "union_mass": "union mass, mean",
    "bbq_bias": "bias in BBQ's ambiguous questions",
    "bbq_s_AMB": "s_AMB of BBQ",
    "bbq_accuracy": "accuracy in BBQ's disambiguated questions",
    "respond": "response effect",
    "response_effect": "response effect",
    "decision": "log-odds of decisions",
    "decision_mass": "mass of both answers of decisions",
    "unqover_mu": "open questions, mu",
    "unqover_eta": "open questions, eta",
    # Whole measures.
    "stereoset": "StereoSet",
    "intrasentence": "StereoSet's sentences",
    "pvf": "risk of words",
    "unqover": "open questions",
    "bbq": "BBQ",
    "divergence": "KL divergence",
    "r": "risk r",
    "r_p": "prejudice r_p",
    "r_v": "volatility r_v",
    "mean_T": "mean T of heads",
    "mean_abs_T": "mean |T| of heads",
    "max_abs_T": "largest |T| of heads",
    "sd_T": "spread of T over heads",
    "n_sig_heads": "heads with q < .05",
    "top_share": "share of the top tenth of heads",
    "gini": "Gini coefficient of |T|",
}
# What a set of pairs is called.
SETS = {
    "crows": "CrowS-Pairs",
    "crows-en-revised": "CrowS-Pairs, revised",
    "crows-fr": "CrowS-Pairs, French",
    "crows-nl": "CrowS-Pairs, Dutch",
    "winobias": "WinoBias",
    "winogender": "Winogender",
    "blimp": "BLiMP",
}
# Parts of these sets.
_PARTS = {"type1": "type 1", "type2": "type 2", "gender_agreement": "gender agreement"}
# How names of outcomes begin that are of one quantity in another place: before and after it.
_PLACES = {"intrasentence_": ("", " inside sentences"), "pvf_": ("", " of words")}
_OWN_PAIRS = "pairs_"
_SIGNED = "s_"


def named(column: str) -> str:
    """What an outcome is called whose column, or row, has a name.

    What follows a known name is a category, or a part of a set of pairs; an unknown name is its
    own.

    Examples:
        >>> named("beta_sum_gender"), named("intrasentence_ss_sum_race")
        ('target effect, gender', 'stereotype score, race inside sentences')
        >>> named("crows_race-color"), named("winobias_type1"), named("pvf_R_p")
        ('CrowS-Pairs, race-color', 'WinoBias, type 1', 'prejudice R_p of words')
        >>> named("s_female"), named("pairs_nurses"), named("mine")
        ('mean preference for female', 'nurses, log-odds', 'mine')
    """
    for begin, (before, after) in _PLACES.items():
        if column.startswith(begin):
            return f"{before}{named(column.removeprefix(begin))}{after}"
    if column.startswith(_OWN_PAIRS):
        return f"{column.removeprefix(_OWN_PAIRS)}, log-odds"
    if column.startswith(_SIGNED):
        return f"mean preference for {column.removeprefix(_SIGNED)}"
    known = _QUANTITIES | SETS
    # The longest that it begins with: log_odds before log, crows-fr before crows.
    begins = [name for name in known if column == name or column.startswith(f"{name}_")]
    if not begins:
        return column
    name = max(begins, key=len)
    rest = column.removeprefix(name).removeprefix("_")
    return f"{known[name]}, {_PARTS.get(rest, rest)}" if rest else known[name]


def named_map(by: str) -> str:
    """The values that heads are ranked by, as an axis or a table calls them.

    Examples:
        >>> named_map("evidence"), named_map("relative")
        ('z, dispersion test', 'map: relative')
    """
    return f"z, {TESTS[by]}" if by in TESTS else f"map: {by}"
