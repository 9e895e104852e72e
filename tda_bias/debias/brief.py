"""A training for less bias at a glance: one sentence, and the numbers it rests on."""

from __future__ import annotations

from tda_bias.debias.finding import TESTS_THE_PROGRAM, best_ranking, less_or_not
from tda_bias.debias.protocol import RANDOM
from tda_bias.debias.run_debias import DebiasRun
from tda_bias.debias.summary import failing_guards, quantity_of
from tda_bias.show.brief import Brief, Line
from tda_bias.show.text import about_run, counted, data_remarks, interval_text
from tda_bias.stats.resampling import least_pvalue


def debias_brief(run: DebiasRun) -> Brief:
    """Whether less bias is left on unseen targets, at what cost, and whether heads mattered."""
    record, table, protocol = run.record, run.conditions, run.record.protocol
    quantity = quantity_of(record.twins)
    row = table[table["condition"] == record.recommended].iloc[0].to_dict()
    helped, best = best_ranking(table, protocol)
    left = less_or_not(row)
    random = float(table.loc[table["condition"] == RANDOM, "beta_at_lms"].iloc[0])
    sets = counted(protocol.n_random, "random set")
    interval = interval_text(row["change_low"], row["change_high"], 3, sign="+")
    lines = [
        Line(f"{quantity} left", f"{row['beta']:.3f}", f"nats per token of {row['before']:.3f}"),
        Line("change", f"{row['change']:+.3f}", f"({interval})"),
        Line("perplexity", f"{row['perplexity']:+.1f}", "%"),
        Line(
            f"best, {best['condition']}", f"{abs(best['beta_at_lms']):.3f}", "at a point of score"
        ),
        Line("random heads", f"{random:.3f}", f"there (p {best['p']:.2f} of {sets})"),
        Line("smallest p", f"{least_pvalue(protocol.n_random):.2f}", f"with {sets}"),
    ]
    remarks = [*record.broken]
    if TESTS_THE_PROGRAM in record.verdict:
        remarks.append(f"Few steps a training: {TESTS_THE_PROGRAM}")
    if failing := failing_guards(row, protocol):
        remarks.append(f"It costs more than the guards allow ({'; '.join(failing)}): not for use.")
    if record.unchanged:
        remarks.append("No check did better within the guards: the saved model is the original.")
    heads = counted(int(row["heads"]), "head")
    return Brief(
        about=about_run(record, record.category, f"{heads} by {record.recommended}"),
        said=f"{left[:1].upper()}{left[1:]} {helped}.",
        lines=lines,
        remarks=[*remarks, *data_remarks(record, starter=False)],
    )
