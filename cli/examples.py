"""An example of each command with some of what it prints, for the end of its help.

The same stands in the command's page of the docs, whose commands a test runs again.
"""

from __future__ import annotations

from rich.markup import escape

_RUN = "runs/smollm2-135m/gender"
EXAMPLES = {
    "heads": """\
$ tdabias heads --model smollm2-135m --category gender --data starter --top 5
┃ head  ┃ evidence ┃ hot-spot p ┃ max-z p ┃    q ┃ unstable ┃
│ L22H2 │     2.30 │     0.0151 │    0.96 │ 0.98 │          │
No hot spot of the category survives correction.""",
    "confirm": f"""\
$ tdabias confirm {_RUN} --top 5 --n-resamples 99
4 targets, 3 splits (all), ranked by evidence with twins.
Heads that stand out on some targets do not stand out on others more than chance.""",
    "unqover": """\
$ tdabias unqover --model smollm2-135m --class gender --subjects 4 --attributes 6 --top 3
┃ gender ┃ attribute     ┃  gamma ┃              95% ┃    q ┃   eta ┃
│ female │ lawyer        │ +0.020 │ -0.047 to +0.086 │ 0.95 │ +0.34 │""",
    "stereoset": """\
$ tdabias stereoset --model smollm2-135m --category gender --data starter
┃ scored by ┃ category ┃ items ┃      lms ┃       ss ┃     icat ┃ ss over items ┃
│ sum       │ gender   │    48 │     68.8 │     56.2 │     60.2 │          56.2 │""",
    "pairs": """\
$ tdabias pairs --model smollm2-135m --set winogender --limit 4
│ plumber      │     2 │            -3.14 │            0.7 │               3.3 │
│ librarian    │     2 │             2.35 │           83.0 │              85.6 │""",
    "twins": """\
$ tdabias twins --category gender --data starter --out twins.jsonl
│ gender   │      48 │         48 │    48 │        0 │
  My [grandmother -> grandfather] visited us on Sunday.""",
    "pvf": """\
$ tdabias pvf --model smollm2-135m --attribute pronouns --top 3
┃ x          ┃     r ┃   r_p ┃    r_v ┃ s_male ┃ s_female ┃ union_mass ┃
│ president  │ 0.453 │ 0.438 │ 0.0151 │  0.438 │   -0.438 │      0.229 │""",
    "report": f"""\
$ tdabias report {_RUN} --out report.html
Page: report.html (1 run, 1.5 MB, one file that fetches nothing)""",
    "figures": f"""\
$ tdabias figures {_RUN} --format png
fig4_gender: Head paper, figure 4: hot spots, gender
10 figures (png), 2 tables. Files: figures/""",
    "show": f"""\
$ tdabias show {_RUN} --top 3
┃ head  ┃ evidence ┃ hot-spot p ┃ max-z p ┃    q ┃ unstable ┃
│ L22H2 │     2.30 │     0.0151 │    0.96 │ 0.98 │          │""",
    "ls": """\
$ tdabias ls categories
┃ category   ┃ groups ┃ triples ┃
│ gender     │      4 │      48 │""",
}


def epilog(name: str) -> str | None:
    """What stands below the options of a command; None where there is no example."""
    if name not in EXAMPLES:
        return None
    return f"[bold]Example[/bold]\n{escape(EXAMPLES[name])}"
