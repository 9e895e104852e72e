"""Commands that say what a changed model does, for those that change one."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from tda_bias.responses.persons import CATEGORIES, USUAL_CATEGORY
from tda_bias.show.text import data_option
from tda_bias.store.record import RunRecord

# How classes of models end that go on with a text, as transformers names them.
_WRITE = ("ForCausalLM", "LMHeadModel")


def comparing(
    before: str, after: Path, *, category: str, record: RunRecord | None, architecture: str | None
) -> list[str]:
    """Commands that compare a model with what became of it: by a battery, and by what both write.

    Args:
        before: The model.
        after: Folder of the changed one.
        category: Of the texts that the change was chosen on; ``all`` where there is none.
        record: Of the run that chose it, whose texts the battery takes; None without one.
        architecture: Class of the model: only causal ones write. Nor are there people of every
            category to write about.

    Examples:
        >>> about = {"category": "all", "record": None, "architecture": "GPT2LMHeadModel"}
        >>> for command in comparing("gpt2", Path("edited"), **about):
        ...     print(command)
        tdabias compare gpt2 edited
        tdabias compare gpt2 edited --only respond --out edited-respond
    """
    models = f"tdabias compare {quote(before)} {quote(str(after))}"
    of = "" if category == "all" else f" --category {quote(category)}"
    commands = [f"{models}{of}{data_option(record)}"]
    if category in ("all", *CATEGORIES) and (architecture or "").endswith(_WRITE):
        people = "" if category in ("all", USUAL_CATEGORY) else of
        # In a folder of its own: the battery's holds a run of other settings.
        out = quote(f"{after}-respond")
        commands.append(f"{models} --only respond{people} --out {out}")
    return commands
