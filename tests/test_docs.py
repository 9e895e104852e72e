"""What is written about the code is true of it: names, examples, links, and the site."""

import doctest
import functools
import importlib
import os
import re
import subprocess
import sys
import textwrap
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import click
import numpy as np
import pytest
import typer

import tda_bias
from tda_bias import HeadBias, InputError, load_model, load_triples
from tda_bias.ablation.prune_curve import PruneCurve
from tda_bias.ablation.study import AblationStudy
from tda_bias.comparison.head_maps import HeadsComparison
from tda_bias.comparison.models import ModelComparison
from tda_bias.crossref.crossref import CrossReference
from tda_bias.crossref.head_crossref import HeadCrossReference
from tda_bias.crossref.item_crossref import ItemCrossReference
from tda_bias.heads.group_statistic import group_statistic
from tda_bias.paper.rankings import PublishedAgreement
from tda_bias.responses.result import Responses
from tda_bias.scores.pair_scores import PairSetScores
from tda_bias.scores.stereoset_scores import StereoSetScores
from tdabias_cli.commands import COMMANDS
from tdabias_cli.options import taking
from tdabias_cli.program import loaded
from tests.support.bbq import FOLDERS as BBQ_FOLDERS
from tests.support.browser import browser_path
from unqover.bbq.result import BBQScores

REPOSITORY = Path(__file__).parents[1]
PACKAGES = ("tda_bias", "pvf", "unqover")
PAGES = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md")])


def relative(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def test_the_page_of_files_names_every_table_that_a_result_saves():
    saved = [
        StereoSetScores, PairSetScores, CrossReference, ItemCrossReference, PublishedAgreement,
        HeadCrossReference, AblationStudy, PruneCurve, ModelComparison, HeadsComparison, BBQScores,
        Responses,
    ]  # fmt: skip
    names = {name for result in saved for _, name, _ in result.TABLES}
    names |= {name for _, name, _ in HeadBias.TABLES}
    assert len(names) > 15
    page = (REPOSITORY / "docs" / "files.md").read_text(encoding="utf-8")
    assert not {name for name in names if f"`{name}`" not in page}


def options_of(command: click.Command) -> set[str]:
    """Options of a command and of those below it."""
    own = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    return own.union(*(options_of(sub) for sub in getattr(command, "commands", {}).values()))


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_an_option_that_a_page_names_is_one_of_a_command(page):
    known = set().union(*(options_of(loaded(name)) for name in COMMANDS))
    known |= {"--help", "--version", "--install-completion"}
    known |= {"--include_path", "--log_samples", "--metadata", "--model_args"}  # of lm_eval
    known |= {"--output_path", "--tasks"}
    text = page.read_text(encoding="utf-8")
    # Other programs' options, what changed in the past, and the worked example of a new command.
    text = re.sub(r"(pip install|sbatch|#SBATCH) [^`\n]*|`--array[^`]*`|\"--gpus[^\"]*\"", "", text)
    if page.name in ("CHANGELOG.md", "CONTRIBUTING.md"):
        return
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z_-]+", text))
    assert named <= known, sorted(named - known)


def variables_of(command: click.Command, *words: str) -> set[str]:
    """Environment variables of a command and of those below it."""
    names = [str(one.name).rstrip("_") for one in command.params]
    own = {"_".join(["TDABIAS", *words, name]).upper() for name in names}
    below = getattr(command, "commands", {}).items()
    return own.union(*(variables_of(sub, *words, name) for name, sub in below))


def test_a_variable_that_a_page_or_a_docstring_names_is_read():
    known = {"TDABIAS_STEREOSET", "TDABIAS_PAIRS", *BBQ_FOLDERS}
    known = known.union(*(variables_of(loaded(name), name) for name in COMMANDS))
    assert "TDABIAS_PVF_RISK_SEED" in known
    code = [*(REPOSITORY / "cli").glob("*.py"), *(REPOSITORY / "tda_bias").rglob("*.py")]
    example = {"TDABIAS_LENGTHS_CATEGORY"}  # of the worked example of a new command
    for path in [*PAGES, *code]:
        named = set(re.findall(r"\bTDABIAS_[A-Z][A-Z_]*[A-Z]\b", path.read_text(encoding="utf-8")))
        assert named <= known | example, (relative(path), sorted(named - known))


def modules_with_examples() -> list[str]:
    files = [path for package in PACKAGES for path in (REPOSITORY / package).rglob("*.py")]
    names = [
        ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)
        for path in files
        if ">>> " in path.read_text(encoding="utf-8")
    ]
    assert names
    return sorted(names)


@pytest.mark.parametrize("name", modules_with_examples())
def test_the_examples_in_docstrings_give_what_they_say(name):
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    found = doctest.testmod(importlib.import_module(name), optionflags=flags)
    assert found.attempted > 0
    assert found.failed == 0


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_links_between_the_files_of_the_repository_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'src="([^"]+)"', text)
    for target in targets:
        if not re.match(r"[a-z]+:|#", target):
            assert (page.parent / target.split("#")[0]).exists(), target


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=REPOSITORY,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    warnings = [line for line in done.stderr.splitlines() if not line.startswith("INFO")]
    assert done.returncode == 0, "\n".join(warnings)
    return folder


# A tag that may name an address which is fetched; of a reference page most others are links.
_FETCHING = re.compile(r"<(?!a\s)[a-z]+\s[^>]*(?:src|srcset|data|href)=[^>]*>")


class Fetched(HTMLParser):
    """Addresses that a browser asks for by itself when it opens a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        fetched = [named.get("src"), named.get("srcset"), named.get("data")]
        if tag == "link" and named.get("rel") not in ("canonical", "prev", "next"):
            fetched.append(named.get("href"))
        self.addresses += [address for address in fetched if address]


@pytest.mark.thorough
def test_the_site_builds_without_a_warning_and_fetches_nothing_from_the_network(site):
    pages = sorted(site.rglob("*.html"))
    assert {"index.html", "tutorial.html", "glossary.html"} <= {page.name for page in pages}
    for page in pages:
        parser = Fetched()
        parser.feed("".join(_FETCHING.findall(page.read_text(encoding="utf-8"))))
        outside = [a for a in parser.addresses if re.match(r"(https?:)?//", a)]
        assert not outside, (page, outside)
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//", style.read_text(encoding="utf-8")), style


@pytest.mark.thorough
@pytest.mark.browser
def test_the_search_of_the_site_works_from_the_disk(site):
    path = browser_path()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / "commands" / "heads.html").as_uri())
        page.click("input[name=query]")
        page.wait_for_selector("text=Type to start searching", timeout=20_000)
        page.keyboard.type("placebo")
        found = page.wait_for_selector(".md-search-result__item", timeout=20_000)
        assert "placebo" in found.inner_text().lower()
        browser.close()
    assert [
        address for address in asked if not address.startswith(("file:", "about:", "data:"))
    ] == []


@pytest.mark.thorough
def test_every_module_has_a_page_in_the_reference(site):
    for package in PACKAGES:
        for path in (REPOSITORY / package).rglob("*.py"):
            if path.name == "__main__.py":
                continue
            inside = path.relative_to(REPOSITORY).with_suffix(".html")
            if path.name == "__init__.py":
                inside = inside.with_name("index.html")
            assert (site / "reference" / inside).exists(), path


def python_blocks(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return [
        textwrap.dedent(block)
        for block in re.findall(r"^ *```python\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE)
    ]


def test_the_worked_examples_for_contributors_work(capsys):
    statistic, its_test, data_set, command = python_blocks(REPOSITORY / "CONTRIBUTING.md")

    code = {"np": np, "group_statistic": group_statistic, "replace": replace}
    exec(statistic, code)
    exec(its_test, code)
    code["test_participation_is_the_defined_ratio_and_1_where_all_contexts_carry_alike"]()

    code = {}
    exec(data_set, code)
    [pair] = code["from_csv"]("number,job,usual,unusual\n7,nurse,She left.,He left.\n", "jobs.csv")
    assert (pair.id, pair.group, pair.more, pair.less) == ("7", "nurse", "She left.", "He left.")
    with pytest.raises(InputError, match=r"jobs.csv pair 7: `more` and `less` are the same text"):
        code["from_csv"]("number,job,usual,unusual\n7,nurse,She left.,She left.\n", "jobs.csv")

    code = {"__package__": "tdabias_cli", "__name__": "tdabias_cli.lengths"}
    exec(command, code)
    app = typer.Typer(add_completion=False)
    lengths = code["lengths"]
    app.command("lengths")(
        taking(code["LengthsSettings"], lambda given: lengths(given).print(given))
    )
    app(["--category", "gender", "--format", "csv"], standalone_mode=False)
    groups = [triple.group for triple in load_triples("starter", category="gender")]
    printed = dict(line.split(",") for line in capsys.readouterr().out.splitlines()[1:])
    assert list(printed) == list(dict.fromkeys(groups))
    assert all(5 < float(count) < 40 for count in printed.values())


@pytest.fixture(scope="module")
def load_once():
    """The loader of models, which pages ask for the same one and leave as it is."""
    return functools.cache(load_model)


@pytest.mark.real
@pytest.mark.parametrize("name", ["README.md", "docs/python.md", "docs/reproduce.md"])
def test_the_python_of_a_page_runs_from_top_to_bottom(
    name, load_once, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tda_bias, "load_model", load_once)
    blocks = python_blocks(REPOSITORY / name)
    assert blocks
    code: dict[str, object] = {}
    for block in blocks:
        exec(block, code)


# -- as many words as a reader has time for --


def words(page: Path) -> int:
    """Words of a page as `wc -w` counts them, with tables and blocks."""
    return len(page.read_text(encoding="utf-8").split())


# What is written of the product, which may not grow.
DOCUMENTED = [REPOSITORY / "README.md", *REPOSITORY.glob("docs/**/*.md")]
MOST_WORDS = 30_000
LONGER_RESULTS = {"summaries.md": 700}


def test_readme_and_docs_do_not_grow():
    assert sum(map(words, DOCUMENTED)) <= MOST_WORDS


@pytest.mark.parametrize("page", sorted(REPOSITORY.glob("docs/results/**/*.md")), ids=relative)
def test_a_page_of_results_is_a_finding_and_no_report_of_work(page):
    assert words(page) <= LONGER_RESULTS.get(page.name, 600)


# -- the README: what a stranger reads first --


def _read(markdown: str) -> str:
    """What is read of a page: without blocks, addresses of links and marks."""
    without_blocks = re.sub(r"^```.*?^```$", "", markdown, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"<[^>]+>|(?<=\])\([^)]*\)|^\|[-|]+\|$", "", without_blocks, flags=re.MULTILINE)


def test_the_readme_is_read_in_two_minutes():
    text = _read((REPOSITORY / "README.md").read_text(encoding="utf-8"))
    assert len(re.findall(r"\w[\w'.-]*", text)) <= 500
    assert len(re.findall(r"(?<![\w.-])\d[\d.,]*(?![\w-])", text)) <= 20


def test_what_is_read_of_a_page_are_words_and_numbers():
    page = "# A [page](x.md) of 3\n```\nnot 4\n```\n| a | b |\n|---|---|\n<img src='5.png'>\n"
    assert _read(page).split() == ["#", "A", "[page]", "of", "3", "|", "a", "|", "b", "|"]
