"""An example of each command with some of what it prints, for the end of its help.

The same stands in the command's page of the docs, whose commands a test runs again.
"""

from __future__ import annotations

from rich.markup import escape

_RUN = "runs/smollm2-135m/gender"
EXAMPLES = {
    "heads": """\
$ tdabias heads --model smollm2-135m --category gender --data starter --top 5
RESULT   No head of smollm2-135m is found to treat gender differently (270
         heads, 48 triples).
┃ head  ┃    z ┃      p ┃ p (family-wise) ┃ q (FDR) ┃ unstable ┃
│ L22H2 │ 2.30 │ 0.0151 │            0.96 │    0.98 │          │""",
    "confirm": f"""\
$ tdabias confirm {_RUN} --top 5 --n-resamples 99
RESULT   Heads that stand out on some targets do not stand out on others more
         than chance.""",
    "unqover": """\
$ tdabias unqover --model smollm2-135m --class gender --subjects 4 --attributes 6 --top 3
┃ gender ┃ attribute     ┃  gamma ┃              95% ┃    q ┃   eta ┃
│ female │ lawyer        │ +0.020 │ -0.047 to +0.086 │ 0.95 │ +0.34 │""",
    "stereoset": """\
$ tdabias stereoset --model smollm2-135m --category gender --data starter
RESULT   Gender: the target effect (beta) is 0.90 nats of 2.62 (0.44 to 1.39;
         over 4 targets no interval; p 0.0005).""",
    "pairs": """\
$ tdabias pairs --model smollm2-135m --set winogender --limit 4
│ plumber      │     2 │           -3.14 │            0.7 │                3.3 │
│ librarian    │     2 │            2.35 │           83.0 │               85.6 │""",
    "twins": """\
$ tdabias twins --category gender --data starter --out twins.jsonl
│ gender   │      48 │         48 │    48 │        0 │
  My [grandmother -> grandfather] visited us on Sunday.""",
    "pvf": """\
$ tdabias pvf --model smollm2-135m --attribute pronouns --top 3
RESULT   smollm2-135m: risk R 0.263, of which prejudice R_p 0.207 (0.161 to
         0.240) and volatility R_v 0.056, of male and female. 38 of 120 words
         lean to male, the others to female.""",
    "ablate": f"""\
$ tdabias ablate {_RUN} --top 2 --limit 2 --out runs/ablation
RESULT   Removing the 2 top heads together changes the target effect (beta) from
         2.312 by -0.022 nats; random heads of the same layers change it by
         -0.074 (SD 0.200; p 0.81).""",
    "export": f"""\
$ tdabias export {_RUN} --top 3 --to heads.json
3 heads of smollm2-135m in heads.json. None of them survives correction: a ranking of noise.""",
    "edit": """\
$ tdabias edit --model smollm2-135m --head L5H3 --head L10H0 --how zero --out edited
Model: edited/ (load it with transformers, tdabias is not needed)""",
    "compare": """\
$ tdabias compare smollm2-135m without-four --data starter --limit 3 \\
    --only stereoset --only winogender --out compared
RESULT   without-four is not measurably less biased than smollm2-135m; a loss of
         quality is not ruled out.
┃ outcome                ┃ before ┃ after ┃ change ┃        interval ┃    p ┃ Holm ┃
│ beta_sum_gender        │  1.672 │ 1.631 │ -0.041 │ -0.189 to 0.251 │ 0.75 │ 0.75 │""",
    "crossref": """\
$ tdabias crossref runs/items/heads runs/items/stereoset --items
RESULT   Profession: 2 heads follow the target effect (beta) of items after""",
    "debias": """\
$ tdabias debias --model smollm2-135m --category gender --data starter \\
    --n-random 3 --epochs 3 --out runs/smollm2-135m/debias-gender
POWER    With 3 random sets no p can be below 0.25.
┃ condition ┃ heads ┃ beta (95 %) ┃   rms ┃ ppl % ┃  lms ┃ guard ┃    p ┃
│ untouched │     0 │       0.073 │ 0.263 │  +0.0 │ 79.2 │  pass │      │
│ effect    │    27 │       0.063 │ 0.255 │  +0.6 │ 83.3 │  pass │ 0.75 │""",
    "prune-curve": f"""\
$ tdabias prune-curve {_RUN} --by evidence --most 2 \\
    --n-random 19 --limit 2 --text neutral.txt --windows 2 --width 64
┃ ranking  ┃ heads ┃    targets ┃    targets ┃ random ┃     p ┃ log-perplexity ┃
│ evidence │     0 │    2.44 to │    2.18 to │   2.17 │ 0.900 │        +0.0000 │""",
    "reproduce": """\
$ tdabias reproduce --model smollm2-135m --category gender --data starter \\
    --limit 3 --n-resamples 99
Page: runs/smollm2-135m/reproduce/README.md""",
    "report": f"""\
$ tdabias report {_RUN} --out report.html
Page: report.html (1 run, 1.2 MB, one file that fetches nothing)""",
    "figures": f"""\
$ tdabias figures {_RUN} --format png
fig4_gender: Head paper, figure 4: hot spots, gender
10 figures (png), 2 tables. Files: figures/""",
    "show": f"""\
$ tdabias show {_RUN} --top 3
RESULT   No head of smollm2-135m is found to treat gender differently (270
         heads, 48 triples).
┃ head  ┃    z ┃      p ┃ p (family-wise) ┃ q (FDR) ┃ unstable ┃
│ L22H2 │ 2.30 │ 0.0151 │            0.96 │    0.98 │          │""",
    "ls": """\
$ tdabias ls categories
┃ category   ┃ groups ┃ triples ┃
│ gender     │      4 │      48 │""",
}


def epilog(name: str) -> str | None:
    """Text below the options of a command; None where there is no example."""
    if name not in EXAMPLES:
        return None
    return f"[bold]Example[/bold]\n{escape(EXAMPLES[name])}"
