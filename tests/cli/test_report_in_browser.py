"""The page in a real browser: it opens, answers, stays silent, and asks the network for nothing."""

import base64
import gzip
import json
import os
import re
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from tda_bias.show.audit import Audited, audit_of
from tda_bias.show.page import page_html
from tda_bias.show.verdict import HeadGrid, Outcome, overall
from tda_bias.store.record import ModelRecord, RunRecord
from tda_bias.topology.persistence import births_deaths
from tda_bias.types import Attention
from tdabias_cli.main import run
from tests.support.browser import browser_path, opened
from tests.support.reports import HOSTILE, with_tables

pytestmark = pytest.mark.browser
SIZES = {"wide": (1366, 768), "4k": (3840, 2160), "narrow": (390, 844)}


@pytest.fixture(scope="module")
def browser():
    path = browser_path()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def address(report_runs, folders, tmp_path_factory) -> str:
    base = tmp_path_factory.mktemp("browser")
    out = base / "report.html"
    more = [folders / "pvf0", with_tables(folders / "gender_race", base)]
    assert run(["report", *map(str, [*report_runs, *more]), "--out", str(out)]) == 0
    return out.as_uri()


def unfold(page) -> None:
    """Open everything that is folded."""
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    page.wait_for_timeout(100)


@contextmanager
def sorting(page):
    """Wait for the table that is sorted inside."""
    page.evaluate(
        """() => { window.sorted = new Promise(done => {
             document.addEventListener("sort-end", () => done(true), { once: true }); }); }"""
    )
    yield
    assert page.evaluate("window.sorted")


@pytest.fixture
def watched(browser, address):
    with opened(browser, address, viewport={"width": 1400, "height": 1000}) as found:
        unfold(found.page)
        yield found
        assert found.said == []
        assert found.requests == [address]


def pictures(page) -> list[str]:
    """Names of the figures, once each has been decoded and has two pixels to one of print size."""
    sizes = page.evaluate(
        """async () => { const all = [...document.images];
            await Promise.all(all.map(image => image.decode()));
            return all.map(image => image.naturalWidth / image.getAttribute('width')); }"""
    )
    assert sizes == pytest.approx([2] * len(sizes), abs=0.02)
    return [image.get_attribute("alt") for image in page.query_selector_all("img")]


def test_every_figure_has_its_name_its_caption_and_white_in_the_dark(browser, address):
    with opened(browser, address, color_scheme="dark") as found:
        unfold(found.page)
        names = pictures(found.page)  # of an ablation, StereoSet, words and questions
        assert len(names) == 1 + 1 + 3 + 3
        assert all(names)
        assert "one point per item" in found.page.inner_text("figure:has([alt^=Preference])")
        back = "image => getComputedStyle(image).backgroundColor"
        assert found.page.eval_on_selector("img", back) == "rgb(255, 255, 255)"


def test_the_verdicts_are_seen_first_and_a_number_opens_to_its_items(browser, address):
    with opened(browser, address, viewport={"width": 1366, "height": 768}) as found:
        page = found.page
        cards = page.locator(".card")
        assert 1 < cards.count() <= 6
        for card in cards.all():
            box = card.bounding_box()
            assert box["y"] + box["height"] < 768
        assert page.locator("details[open]").count() == 0
        page.locator(".card h2 a").first.click()
        items = page.locator("#items-0 table.data tbody tr")
        assert items.first.is_visible()
        assert items.count() > 1
        assert found.requests == [address]


def test_a_head_has_its_groups_and_its_values_under_exchange_as_drawings(watched):
    page = watched.page
    groups = page.locator(".chart svg[aria-label='Values of the head by group']")
    chance = page.locator(".chart svg[aria-label^='Values under exchange']")
    before = groups.inner_html()
    page.click(".map button[data-head='6']")
    assert groups.inner_html() != before
    rows = groups.locator("g title").all_text_contents()
    assert len(rows) == groups.locator("circle").count() == 2
    assert all("95 % interval" in row or "no interval" in row for row in rows)
    assert chance.locator("rect").count() > 5
    own = chance.locator("line.own title").text_content()
    assert own.removeprefix("this head: ") in page.inner_text(".detail")


def test_a_click_on_a_head_shows_it_and_its_places(watched):
    page = watched.page
    page.click(".map button[data-head='6']")
    assert page.inner_text(".detail h3") == "L1H2, gender"
    assert page.get_attribute(".map button[data-head='6']", "aria-pressed") == "true"
    places = page.inner_text("table[aria-label='Place in every ranking']")
    assert "of 8" in places
    assert "gradient importance" in places
    assert page.locator(".texts li").count() == 5
    # Another map shows other values.
    before = page.inner_text(".map tbody")
    page.check("text=mean z, S >> input")
    assert page.inner_text(".map tbody") != before
    assert "also ranks heads by their noise" in page.inner_text(".explorer .remark >> nth=0")


def test_heads_can_be_reached_and_chosen_with_keys_alone(watched):
    page = watched.page
    page.focus(".map button[tabindex='0']")
    at = int(page.evaluate("document.activeElement.dataset.head"))
    key, step = ("ArrowRight", 1) if at < 7 else ("ArrowLeft", -1)
    page.keyboard.press(key)
    assert "p " in page.inner_text("#tip")
    page.keyboard.press("Enter")
    head = at + step
    assert page.inner_text(".detail h3").startswith(f"L{head // 4}H{head % 4},")


def test_the_slider_drops_edges_until_every_birth_and_death_has_happened(watched):
    page = watched.page
    first = page.locator(".panel").first
    assert page.locator(".panel").count() == 4
    slider = page.locator("input[type=range]")
    slider.fill("0")
    assert "0 of" in first.locator(".state").inner_text()
    assert "1 component," in first.locator(".state").inner_text()
    slider.fill("100")
    births = int(first.get_attribute("data-births"))
    said = first.locator(".state").inner_text()
    assert f"{births + 1} components, 0 cycles; {births} births" in said


def test_births_in_the_page_are_those_of_the_library(watched):
    for attention in get_args(Attention):
        n, weights, births, deaths = watched.page.evaluate(
            """reading => {
              const of = sections[0].explorer.categories.gender, text = of.patterns[0];
              const n = text.tokens.length, weights = unpacked(text.pattern);
              const edges = filtrationOf({ weights, n, ...reading });
              return [n, [...weights], edges.filter(e => e.tree).map(e => e.weight),
                      edges.filter(e => !e.tree).map(e => e.weight)];
            }""",
            {"causal": attention == "causal"},
        )
        pattern = np.array(weights).reshape(n, n)
        expected = births_deaths(pattern, attention=attention)
        np.testing.assert_allclose(births, expected.births)
        np.testing.assert_allclose(deaths, expected.deaths)


def test_a_table_is_sorted_by_a_click_or_enter_and_comes_as_csv(watched):
    page = watched.page
    details = page.locator("#tables details.table").first
    layers = lambda: [int(t) for t in details.locator("tbody td:nth-child(2)").all_inner_texts()]  # noqa: E731
    heading = details.locator("th >> nth=1")
    with sorting(page):
        heading.click()
    assert layers() == sorted(layers(), reverse=True)
    with sorting(page):
        heading.press("Enter")
    assert layers() == sorted(layers())
    with page.expect_download() as waiting:
        details.locator("button.download").click()
    lines = Path(waiting.value.path()).read_text(encoding="utf-8").splitlines()
    assert waiting.value.suggested_filename == "heads.csv"
    assert len(lines) == 1 + details.locator("tbody tr").count()
    assert lines[0].startswith("category,layer,head")


def test_names_of_targets_and_models_are_text_wherever_they_stand(watched):
    page = watched.page
    assert page.evaluate("window.hostile") is None
    assert page.locator("main iframe, main object, main base").count() == 0
    addresses = page.eval_on_selector_all("img", "all => all.map(image => image.src)")
    assert all(one.startswith("data:image/png;base64,") for one in addresses)
    assert HOSTILE in page.text_content("body")


def test_the_page_opens_within_two_seconds_and_a_click_answers_within_a_tenth(browser, address):
    if "PYTEST_XDIST_WORKER" in os.environ or os.getloadavg()[0] > 1.5:
        limit, answer = 6.0, 400.0  # others use this machine
    else:
        limit, answer = 2.0, 100.0
    start = time.perf_counter()
    with opened(browser, address) as found:
        assert time.perf_counter() - start < limit
        found.page.wait_for_timeout(300)
        taken = found.page.evaluate(
            """() => { const start = performance.now();
                document.querySelectorAll('.map button')[5].click();
                document.body.getBoundingClientRect();
                return performance.now() - start; }"""
        )
    assert taken < answer


@pytest.mark.parametrize(
    ("size", "scheme"), [("wide", "light"), ("4k", "dark"), ("narrow", "dark")]
)
def test_no_serious_barrier_and_nothing_cut_off(browser, address, size, scheme):
    from axe_playwright_python.sync_playwright import Axe

    width, height = SIZES[size]
    view = {"width": width, "height": height}
    with opened(browser, address, viewport=view, color_scheme=scheme) as found:
        if folder := os.environ.get("TDABIAS_SCREENSHOTS"):
            found.page.screenshot(path=f"{folder}/report-{size}-{scheme}.png", full_page=True)
        assert found.page.evaluate("document.documentElement.scrollWidth") <= width
        unfold(found.page)
        pictures(found.page)
        assert found.page.evaluate("document.documentElement.scrollWidth") <= width
        violations = Axe().run(found.page).response["violations"]
        serious = [
            (v["id"], [node["html"][:120] for node in v["nodes"][:3]])
            for v in violations
            if v["impact"] in ("serious", "critical")
        ]
    assert serious == []


# What A4 leaves between margins of 12 mm, in CSS pixels; across, between margins of 8 mm.
PAPER = 703
ACROSS = 1062


def sheets(pdf: bytes) -> int:
    """How many sheets of paper a PDF has."""
    return len(re.findall(rb"/Type\s*/Page\b", pdf))


def test_the_page_prints_as_two_sheets_the_verdicts_and_the_audit_every_time(browser, address):
    printed = []
    for _ in range(10):
        made = browser.new_context()
        page = made.new_page()
        page.goto(address)  # and printed at once, as `chromium --print-to-pdf` does
        printed.append(sheets(page.pdf(prefer_css_page_size=True)))
        made.close()
    assert printed == [2] * 10


def of_many(number: int) -> str:
    """A page of so many outcomes, four of them of heads, as a whole audit has them."""
    rng, commands = np.random.default_rng(0), ("heads", "stereoset", "pairs", "pvf", "respond")
    made = []
    for place in range(number):
        command = commands[min(place // 4, 4)]
        more = {
            "clusters": 10,
            "category": f"kind {place % 4}",
            "power": "0.5 nats, " + "often " * 8,
        }
        one = Outcome(
            "says",
            f"Outcome number {place}",
            "about",
            0.3,
            -0.1,
            0.7,
            "nats",
            p=0.3,
            effect=0.3,
            effect_low=-0.1,
            effect_high=0.7,
            lines=["9 items"],
            **more,
        )
        if command == "heads":
            grid = HeadGrid(range(30), rng.normal(size=(30, 9)), np.zeros((30, 9), dtype=bool))
            one = replace(one, question="heads", found=0, of=270, grid=grid, effect=np.nan)
        record = RunRecord(command=command, model=ModelRecord(name="model", weights="a" * 32))
        line = f"tdabias {command} --model model --category kind --data stereoset.jsonl --limit 3"
        made.append(Audited(f"run {place}", record, [], line, id="b" * 12, outcomes=[one]))
    outcomes = [one for run in made for one in run.outcomes]
    return page_html(
        "model",
        outcomes,
        command="tdabias audit",
        scope=["Asked about all. " * 12],
        audit=audit_of(made, verdict=overall(outcomes), command="tdabias audit"),
    )


@pytest.mark.parametrize("number", [8, 9, 11, 14, 19])
def test_more_outcomes_are_printed_smaller_and_on_two_sheets(browser, tmp_path, number):
    (tmp_path / "page.html").write_text(of_many(number), encoding="utf-8")
    with opened(browser, (tmp_path / "page.html").as_uri()) as found:
        assert sheets(found.page.pdf(prefer_css_page_size=True)) == 2


def test_on_paper_nothing_is_cut_and_what_is_folded_is_not_there(browser, address):
    with opened(browser, address, viewport={"width": PAPER, "height": 1000}) as found:
        page = found.page
        page.emulate_media(media="print")
        assert page.locator(".paper").is_visible()
        assert page.locator(".card").first.is_visible()
        assert not any(one.is_visible() for one in page.locator("main > details").all())
        beyond = page.evaluate(
            f"""() => [...document.querySelectorAll('main *')]
                .filter(e => e.getBoundingClientRect().right > {PAPER} + 1)
                .map(e => `${{e.tagName}} ${{e.className.baseVal ?? e.className}}`).slice(0, 5)"""
        )
        assert beyond == []


@pytest.fixture(scope="module")
def with_printed_tables(report_runs, tmp_path_factory) -> str:
    out = tmp_path_factory.mktemp("tables") / "report.html"
    assert run(["report", *map(str, report_runs), "--tables", "--out", str(out)]) == 0
    return out.as_uri()


def test_tables_are_printed_where_they_are_asked_for_and_whole(browser, with_printed_tables):
    with opened(browser, with_printed_tables, viewport={"width": PAPER, "height": 1000}) as found:
        page = found.page
        pictures(page)
        page.emulate_media(media="print")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        tables = page.locator("#tables details.table")
        assert tables.count() == page.locator("#tables details.table table.data tbody").count() > 0
        assert all(one.is_visible() for one in page.locator("#tables table.data").all())
        # Tables of many columns are printed across.
        beyond = page.evaluate(
            f"""() => [...document.querySelectorAll('#tables *')]
                .filter(e => e.getBoundingClientRect().right >
                    (e.closest('details.table:has(th:nth-child(11))') ? {ACROSS} : {PAPER}) + 1)
                .map(e => `${{e.tagName}} ${{e.className.baseVal ?? e.className}}`).slice(0, 5)"""
        )
        assert beyond == []
        broken = page.evaluate(
            """() => [...document.querySelectorAll('#tables table.data td')].filter(cell => {
                const text = document.createRange();
                text.selectNodeContents(cell);
                return !/\\s/.test(cell.textContent.trim()) && text.getClientRects().length > 1;
            }).map(cell => cell.textContent).slice(0, 5)"""
        )
        assert broken == []
        hidden = page.evaluate(
            """() => [...document.querySelectorAll('#tables :is(.scroll, .picture)')]
                .filter(e => e.scrollHeight > e.clientHeight + 1).length"""
        )
        assert hidden == 0
        assert sheets(page.pdf(prefer_css_page_size=True)) > 2


@pytest.fixture(scope="module")
def unpacking(browser, address):
    """An open page, whose function is called and changes nothing there."""
    with opened(browser, address) as found:
        yield found.page


@pytest.mark.parametrize("level", [0, 1, 9])
@pytest.mark.parametrize("kind", ["short", "text", "noise", "long"])
def test_the_page_unpacks_what_python_packs(unpacking, level, kind):
    """Stored, fixed and dynamic blocks; every length and distance of a repeated part."""
    rng = np.random.default_rng(0)
    data = {
        "short": b"a",
        "text": json.dumps(list(range(9000))).encode(),
        "noise": rng.bytes(70_000),
        "long": b"".join(rng.bytes(n) + bytes(2 * n) for n in range(0, 700, 3)) * 3,
    }[kind]
    packed = base64.b64encode(gzip.compress(data, level, mtime=0)).decode()
    unpacked = unpacking.evaluate(
        """(base64) => { const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
            const text = Array.from(gunzipped(bytes), (b) => String.fromCharCode(b));
            return btoa(text.join('')); }""",
        packed,
    )
    assert base64.b64decode(unpacked) == data


CELLS = """([values, scale, survivors]) => {
  const explorer = document.querySelector('.explorer').explorer;
  Object.assign(explorer.map, { value: values, scale, survivors });
  explorer.showMap();
  const colours = explorer.cells.map(cell => getComputedStyle(cell).backgroundColor);
  return [colours, explorer.scale.textContent];
}"""


def channels(colour: str) -> list[float]:
    """Red, green and blue of what `color-mix` computes, from 0 to 1."""
    return [float(part) for part in colour.split("srgb")[-1].strip(" )").split()]


@pytest.mark.parametrize("chance", [2.5, None])
def test_the_map_is_grey_up_to_chance_and_has_the_same_colours_in_the_dark(
    browser, address, chance
):
    values, survivors = [-2.0, -1.0, 0.0, 1.0, 2.0, 2.4, 2.6, 9.0], [6, 7]
    shown = []
    for scheme in ("light", "dark"):
        with opened(browser, address, color_scheme=scheme) as found:
            shown.append(found.page.evaluate(CELLS, [values, [-2.0, 9.0, chance], survivors]))
    (colours, legend), dark = shown
    assert colours == dark[0]
    *greys, above, largest = map(channels, colours)
    assert greys[0] == [1, 1, 1]
    assert all(red == pytest.approx(blue, abs=0.01) for red, _, blue in greys)
    assert [grey[0] for grey in greys] == sorted((grey[0] for grey in greys), reverse=True)
    for red, _, blue in (above, largest):
        assert red > blue + 0.3
    assert (above == largest) == (chance is None)
    assert ("Grey up to 2.5," in legend) == (chance is not None)
    assert "2 of 8 heads survive" in legend


def test_a_kept_pattern_has_its_tokens_on_both_axes(watched):
    said, tokens = watched.page.evaluate(
        """() => {
          const said = [], pen = CanvasRenderingContext2D.prototype, write = pen.fillText;
          pen.fillText = function (text, ...at) { said.push(text); write.call(this, text, ...at); };
          const text = sections[0].explorer.categories.gender.patterns[0];
          const canvas = document.createElement('canvas');
          paintPattern(canvas, { weights: unpacked(text.pattern), n: text.tokens.length,
            tokens: text.tokens, causal: true }, -1);
          pen.fillText = write;
          return [said, text.tokens];
        }"""
    )
    assert len(said) == 2 * len(tokens)
    assert set(said) == {token if len(token) <= 11 else f"{token[:10]}…" for token in tokens}


@pytest.fixture(scope="module")
def comparisons(tiny_folder, tmp_path_factory) -> str:
    """A page of two models and two runs compared, trained heads and removed ones."""
    base = tmp_path_factory.mktemp("comparisons")
    text = base / "text.txt"
    text.write_text("My sister came in and sang a song. " * 1500, encoding="utf-8")
    texts = ["--data", "starter", "-L", "4", "--quiet"]
    few = ["--n-permutations", "100"]
    model = ["-m", str(tiny_folder)]
    heads, other = base / "heads", base / "other"
    for command in (
        ["heads", *model, *texts, "-c", "gender", *few, "--out", heads],
        ["edit", *model, "--head", "L0H1", "--how", "zero", "--out", base / "edited", "--quiet"],
        ["heads", "-m", base / "edited", *texts, "-c", "gender", *few, "--out", other],
        ["compare", tiny_folder, base / "edited", *texts, "--only", "stereoset", "--out",
         base / "two"],
        ["compare", heads, other, "--quiet", "--out", base / "maps"],
        ["debias", *model, *texts, "-c", "gender", "--n-random", "1", "--epochs", "1", "--top", "2",
         "--text", text, "--out", base / "debias"],
        ["ablate", heads, "--curve", "--most", "2", "--n-random", "19", "--text", text,
         "--windows", "2", "--width", "32", "--quiet", "--out", base / "curve"],
    ):  # fmt: skip
        assert run([*map(str, command)]) == 0, command
    runs = [base / name for name in ("two", "maps", "debias", "curve")]
    assert run(["report", *map(str, runs), "--out", str(base / "page.html"), "--quiet"]) == 0
    return (base / "page.html").as_uri()


@pytest.mark.parametrize("size", ["wide", "narrow"])
def test_comparisons_trainings_and_removals_are_figures_with_names(browser, comparisons, size):
    width, height = SIZES[size]
    with opened(browser, comparisons, viewport={"width": width, "height": height}) as found:
        unfold(found.page)
        said = pictures(found.page)
        for words in (
            "Before and after: every outcome", "two maps of heads",
            "bias left against perplexity", "while heads are ablated",
        ):  # fmt: skip
            assert any(words in name for name in said), (words, said)
        assert found.page.evaluate("document.documentElement.scrollWidth") == width
        assert found.said == []
        assert found.requests == [comparisons]
