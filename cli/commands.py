"""The commands there are: the one list from which help, runs, pages and messages are made.

Nothing of a command is imported before it is asked for.
"""

from __future__ import annotations

from .spec import Audited, Form, Spec

_HEADS = "--model smollm2-135m --category gender --data starter"
_RUN = "runs/smollm2-135m/gender"

# In the order of the work, a panel of the program's help each.
PANELS = {
    "Measure": (
        Spec(
            "heads",
            "Rank heads by how differently they attend to stereotype and anti-stereotype texts.",
            settings=".heads:HeadsSettings",
            example=f"tdabias heads {_HEADS} --top 5",
            forms={
                "heads": Form(
                    texts=".heads:texts",
                    compute=".heads:compute",
                    load="tda_bias.heads.result:HeadBias.load",
                    shown="tda_bias.heads.shown:shown",
                    kept="groups",
                    outcomes="tda_bias.heads.outcomes:heads_outcomes",
                )
            },
            instead={"dry_run": ".heads:dry_run"},
            audited=Audited(
                "category",
                takes=frozenset({"data"}),
                quick={"limit": 3, "n_permutations": 999, "keep_patterns": 2},
                less="triples beyond 3 of each target, and 9000 of 9999 permutations",
            ),
        ),
        Spec(
            "stereoset",
            "Score a model on StereoSet: stereotype, language-model and idealised CAT score.",
            settings=".stereoset:StereoSetSettings",
            example=f"tdabias stereoset {_HEADS}",
            forms={
                "stereoset": Form(
                    texts=".loading:triples_asked",
                    function="tda_bias.scores.stereoset_scores:stereoset_scores",
                    config="tda_bias.config:StereoSetConfig",
                    unit="triples",
                    load="tda_bias.scores.stereoset_scores:StereoSetScores.load",
                    shown="tda_bias.scores.shown:shown",
                    outcomes="tda_bias.scores.outcomes:stereoset_outcomes",
                ),
                "stereoset intrasentence": Form(
                    texts=".stereoset:sentences",
                    function="tda_bias.scores.stereoset_scores:sentence_scores",
                    config="tda_bias.config:SentenceConfig",
                    unit="sentences",
                    load="tda_bias.scores.stereoset_scores:SentenceScores.load",
                    shown="tda_bias.scores.shown:sentences_shown",
                    outcomes="tda_bias.scores.outcomes:sentence_outcomes",
                ),
            },
            audited=Audited(
                "category",
                takes=frozenset({"data"}),
                quick={"limit": 3},
                less="triples beyond 3 of each target",
            ),
        ),
        Spec(
            "pairs",
            "Score a model on minimal pairs: CrowS-Pairs, WinoBias, Winogender, BLiMP, or your "
            "own.",
            settings=".pairs:PairsSettings",
            example="tdabias pairs --model smollm2-135m --pairs winogender --limit 4",
            forms={
                "pairs": Form(
                    texts=".pairs:texts",
                    function="tda_bias.scores.pair_scores:pair_set_scores",
                    config="tda_bias.config:PairsConfig",
                    unit="pairs",
                    load="tda_bias.scores.pair_scores:PairSetScores.load",
                    shown="tda_bias.scores.pairs_shown:shown",
                    outcomes="tda_bias.scores.outcomes:pairs_outcomes",
                )
            },
            audited=Audited(
                runs=({"pairs": "crows"}, {"pairs": "winobias"}, {"pairs": "winogender"}),
                quick={"limit": 5},
                less="pairs beyond 5 of each group",
            ),
        ),
        Spec(
            "pvf",
            "Prejudice and volatility in a model's output probabilities.\n\n"
            "With a command (score, risk, mine, social, plot), only that part.",
            settings=".pvf:PvfSettings",
            example="tdabias pvf --model smollm2-135m --attribute pronouns --top 3",
            run=".pvf:pvf",
            forms={
                "pvf": Form(
                    load="pvf.report:load_report",
                    shown="pvf.shown:shown",
                    outcomes="pvf.outcomes:pvf_outcomes",
                )
            },
            audited=Audited(
                "attribute",
                named={"gender": "gender", "race": "race", "religion": "religion"},
                quick={"words": "winogender"},
                less="half of the occupations",
            ),
        ),
        Spec(
            "unqover",
            "Ask underspecified questions about pairs of people, and measure whom the model picks.",
            settings=".unqover:UnqoverSettings",
            example="tdabias unqover --model smollm2-135m --class gender --subjects 4 "
            "--attributes 6 --top 3",
            forms={
                "unqover": Form(
                    texts=".unqover:design",
                    compute=".unqover:compute",
                    load="unqover.report:load_report",
                    shown="unqover.shown:shown",
                    outcomes="unqover.outcomes:unqover_outcomes",
                )
            },
        ),
        Spec(
            "bbq",
            "Ask BBQ's questions, in six languages, or score answers that you already have.",
            settings=".bbq:BBQSettings",
            example="tdabias bbq --answers our-model.jsonl --data hands.jsonl --out answered",
            forms={
                "bbq": Form(
                    texts=".bbq:texts",
                    compute=".bbq:compute",
                    load="unqover.bbq.result:BBQScores.load",
                    shown="unqover.bbq.shown:shown",
                    outcomes="unqover.bbq.outcomes:bbq_outcomes",
                )
            },
            audited=Audited(
                "category",
                named={
                    "gender": "Gender_identity",
                    "race": "Race_ethnicity",
                    "religion": "Religion",
                },
                quick={"limit": 60},
                less="items beyond 60",
            ),
        ),
        Spec(
            "respond",
            "Sample what a model writes about people of two groups, and measure what the group "
            "changes.",
            settings=".respond:RespondSettings",
            example="tdabias respond --model smollm2-135m --category gender --quick",
            forms={
                "respond": Form(
                    texts=".respond:texts",
                    compute=".respond:compute",
                    load="tda_bias.responses.result:Responses.load",
                    shown="tda_bias.responses.shown:shown",
                    outcomes="tda_bias.responses.outcomes:respond_outcomes",
                )
            },
            audited=Audited(
                "category",
                named={"gender": "gender", "race": "race"},
                quick={"limit": 6, "samples": 1, "tokens": 30},
                less="prompts beyond 6, samples beyond one each, tokens beyond 30",
            ),
        ),
    ),
    "Test": (
        Spec(
            "confirm",
            "Choose heads on half of the targets and test them on the others, or on other data.",
            settings=".confirm:ConfirmSettings",
            example=f"tdabias confirm {_RUN} --top 5 --n-permutations 99",
            forms={
                "confirm": Form(
                    compute=".confirm:compute",
                    load="tda_bias.heads.confirmation:Confirmed.load",
                    shown="tda_bias.heads.confirmation_shown:shown",
                    outcomes="tda_bias.heads.confirmation_outcomes:confirm_outcomes",
                )
            },
        ),
        Spec(
            "crossref",
            "Correlate what heads do with what the model says: over targets, items or heads.",
            settings=".crossref:CrossrefSettings",
            example="tdabias crossref runs/items/heads runs/items/stereoset --items",
            forms={
                "crossref": Form(
                    texts=".crossref:runs",
                    compute=".crossref:by_target",
                    load="tda_bias.crossref.crossref:CrossReference.load",
                    shown="tda_bias.crossref.shown:shown",
                    outcomes="tda_bias.crossref.outcomes:target_outcomes",
                ),
                "crossref items": Form(
                    texts=".crossref:runs",
                    compute=".crossref:by_item",
                    load="tda_bias.crossref.item_crossref:ItemCrossReference.load",
                    shown="tda_bias.crossref.shown:items_shown",
                    outcomes="tda_bias.crossref.outcomes:item_outcomes",
                ),
                "crossref heads": Form(
                    texts=".crossref:runs",
                    compute=".crossref:by_head",
                    load="tda_bias.crossref.head_crossref:HeadCrossReference.load",
                    shown="tda_bias.crossref.shown:heads_shown",
                    outcomes="tda_bias.crossref.outcomes:head_outcomes",
                ),
                "crossref published": Form(
                    texts=".crossref:runs",
                    compute=".crossref:by_published",
                    load="tda_bias.paper.rankings:PublishedAgreement.load",
                    shown="tda_bias.paper.shown:shown",
                    outcomes="tda_bias.paper.outcomes:published_outcomes",
                ),
            },
        ),
        Spec(
            "ablate",
            "Ablate the top heads of a run, and compare with ablating random heads.",
            settings=".ablate:AblateSettings",
            example=f"tdabias ablate {_RUN} --top 2 --limit 2 --out runs/ablation",
            forms={
                "ablate": Form(
                    texts=".ablate:asked",
                    compute=".ablate:study",
                    load="tda_bias.ablation.study:AblationStudy.load",
                    shown="tda_bias.ablation.shown:shown",
                    outcomes="tda_bias.ablation.outcomes:ablation_outcomes",
                    kept="batches",
                ),
                "ablate curve": Form(
                    texts=".ablate:asked",
                    compute=".ablate:curve",
                    load="tda_bias.ablation.prune_curve:PruneCurve.load",
                    shown="tda_bias.ablation.shown:curve_shown",
                    outcomes="tda_bias.ablation.outcomes:curve_outcomes",
                    kept="steps",
                ),
            },
        ),
    ),
    "Change": (
        Spec(
            "edit",
            "Switch off, damp or average heads for good; the model loads with plain transformers.",
            settings=".edit:EditSettings",
            example="tdabias edit --model smollm2-135m --head L5H3 --head L10H0 --how zero "
            "--out edited",
            run=".edit:edit",
        ),
        Spec(
            "debias",
            "Train chosen heads for less bias, and compare with random heads.",
            settings=".debias:DebiasSettings",
            example=f"tdabias debias {_HEADS} --out runs/smollm2-135m/debias-gender",
            forms={
                "debias": Form(
                    texts=".debias:asked",
                    compute=".debias:compute",
                    load="tda_bias.debias.run_debias:DebiasRun.load",
                    shown="tda_bias.debias.shown:shown",
                    outcomes="tda_bias.debias.outcomes:debias_outcomes",
                    kept="trainings",
                )
            },
        ),
        Spec(
            "compare",
            "Measure two models alike, item by item: what changed, how sure, and at what cost.",
            settings=".compare:CompareSettings",
            example="tdabias compare smollm2-135m without-four --data starter --limit 3 "
            "--only stereoset --only winogender --out compared",
            forms={
                "compare": Form(
                    compute=".compare:models",
                    load="tda_bias.comparison.models:ModelComparison.load",
                    shown="tda_bias.comparison.shown:shown",
                    outcomes="tda_bias.comparison.outcomes:comparison_outcomes",
                ),
                "compare heads": Form(
                    texts=".compare:runs",
                    compute=".compare:heads",
                    load="tda_bias.comparison.head_maps:HeadsComparison.load",
                    shown="tda_bias.comparison.shown:heads_shown",
                    outcomes="tda_bias.comparison.agreement_outcomes:heads_outcomes",
                ),
                "compare beta": Form(
                    texts=".compare:runs",
                    compute=".compare:beta",
                    load="tda_bias.comparison.beta_agreement:BetaAgreement.load",
                    shown="tda_bias.comparison.shown:beta_shown",
                    outcomes="tda_bias.comparison.agreement_outcomes:beta_outcomes",
                ),
                "compare bbq": Form(
                    texts=".compare:runs",
                    compute=".compare:bbq",
                    load="tda_bias.comparison.bbq_change:BBQChange.load",
                    shown="tda_bias.comparison.shown:bbq_shown",
                    outcomes="tda_bias.comparison.outcomes:bbq_outcomes",
                ),
                "compare samples": Form(
                    texts=".compare:samples",
                    compute=".compare:scores",
                    load="tda_bias.comparison.samples:SampleComparison.load",
                    shown="tda_bias.comparison.shown:samples_shown",
                    outcomes="tda_bias.comparison.outcomes:samples_outcomes",
                ),
            },
        ),
    ),
    "Read": (
        Spec(
            "audit",
            "Measure a model in every way there is for it, and write the page.",
            settings=".audit:AuditSettings",
            example="tdabias audit --model smollm2-135m --category gender,profession --quick",
            run=".audit:audit",
        ),
        Spec(
            "report",
            "Write one page that opens anywhere: findings, map of heads, texts, figures, tables.",
            settings=".report:ReportSettings",
            example=f"tdabias report {_RUN} --out report.html",
            run=".report:report",
        ),
        Spec(
            "show",
            "Print a finished run again, from its folder and without the model.",
            settings=".report:ShowSettings",
            example=f"tdabias show {_RUN} --top 3",
            run=".report:show",
        ),
        Spec(
            "figures",
            "Draw every figure and table that saved runs allow, ready for print.",
            settings=".figures:FiguresSettings",
            example=f"tdabias figures {_RUN} --as png",
            run=".figures:figures",
        ),
        Spec(
            "reproduce",
            "Reproduce the head paper's tables, figures and claims for a model, on one page.",
            settings=".figures:ReproduceSettings",
            example=f"tdabias reproduce {_HEADS} --limit 3 --n-permutations 99",
            run=".figures:reproduce",
            # What `tdabias heads` prints is no part of it; its configuration files are.
            file=".heads:HeadsSettings",
        ),
        Spec(
            "ls",
            "List models, data, categories and groups that can be used here, or finished runs.",
            settings=".ls:LsSettings",
            example="tdabias ls categories",
            run=".ls:ls",
        ),
    ),
    "Texts": (
        Spec(
            "twins",
            "Make the twins of triples: the same texts about the other gender or another target.",
            settings=".twins:TwinsSettings",
            example="tdabias twins --category gender --data starter --out twins.jsonl",
            run=".twins:twins",
        ),
    ),
}
# Commands inside a command.
PARTS = (
    Spec(
        "pvf score",
        "Read word probabilities and save them; every later number needs no model.",
        settings=".pvf:ScoreSettings",
        run=".pvf:score",
        file=".pvf:PvfSettings",
    ),
    Spec(
        "pvf risk",
        "Compute the risks of saved preferences, without the model.",
        settings=".pvf:RiskSettings",
        run=".pvf:risk",
        file=".pvf:PvfSettings",
    ),
    Spec(
        "pvf social",
        "Regress the risk of each x on social factors: share of women, word frequency, yours.",
        settings=".pvf:SocialSettings",
        run=".pvf:social",
    ),
    Spec(
        "pvf plot",
        "Draw the figures of one run, or compare several.",
        settings=".pvf:PlotSettings",
        run=".pvf:plot",
    ),
    Spec(
        "pvf mine",
        "Mine context templates from a corpus.",
        settings=".pvf:MineSettings",
        run=".pvf:mine",
        panel="Texts",
    ),
)
COMMANDS = {spec.name: spec for specs in PANELS.values() for spec in specs}
SPECS = COMMANDS | {part.name: part for part in PARTS}
# Kinds of finished runs, by the command's name in the record.
FORMS = {name: form for spec in SPECS.values() for name, form in spec.forms.items()}
