"""A page holds what it is given as text, and lets nothing else in."""

import base64
import gzip
import hashlib
import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tda_bias.show import page as pages
from tda_bias.show.page import Picture, Section, column_data, packed, page_html
from tda_bias.show.text import Finding
from tda_bias.show.verdict import Bar, Example, HeadGrid, Outcome, Side
from tda_bias.types import InputError
from tests.support.reports import unpacked

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>{{7*7}}\u2028&amp;"


def hostile_page() -> str:
    frame = pd.DataFrame({HOSTILE: [HOSTILE, None], "n": [1.0, np.nan]})
    outcome = Outcome(
        "says", HOSTILE, HOSTILE, 1.0, 0.5, 1.5, HOSTILE, p=0.01, clusters=9, cluster=HOSTILE,
        effect=0.3, effect_low=0.1, effect_high=0.5, category=HOSTILE, lines=[HOSTILE],
        bars=[Bar(HOSTILE, 0.5)], items=frame,
        example=Example(HOSTILE, [Side(HOSTILE, HOSTILE, HOSTILE, 0.4)]),
        grid=HeadGrid([0, 1], np.ones((2, 3)), np.zeros((2, 3), bool)),
    )  # fmt: skip
    section = Section(
        title=HOSTILE,
        caveats=[HOSTILE],
        findings=[(HOSTILE, Finding(result=[HOSTILE], control=[HOSTILE]))],
        pictures=[Picture(HOSTILE, b"<script>", 200, 100, HOSTILE)],
        tables={HOSTILE: frame},
        explorer={"name": HOSTILE},
        command=HOSTILE,
        record=HOSTILE,
    )
    return page_html(HOSTILE, [outcome], [section], model=HOSTILE, date=HOSTILE, command=HOSTILE)


def test_a_page_that_cannot_be_mailed_is_refused(monkeypatch):
    monkeypatch.setattr(pages, "MAX_BYTES", 1000)
    with pytest.raises(InputError, match="the page would have .* MB, more than .* --keep-patterns"):
        page_html("title")


def test_names_that_would_like_to_be_code_are_text():
    text = hostile_page()
    assert text.count("<script>") == len(pages._SCRIPTS)
    assert re.findall("<img src=[^ ]*", text) == ['<img src="data:image/png;base64,PHNjcmlwdD4="']
    assert "{{7*7}}" in text  # not computed
    assert "alert(1)</script>" not in text.replace("&lt;/script&gt;", "")


def test_the_data_comes_back_as_it_was_with_null_for_what_is_undefined():
    text = hostile_page()
    [found] = re.findall(r'id="data">(.*?)</script>', text, re.DOTALL)
    section, items = json.loads(gzip.decompress(base64.b64decode(found)))
    assert section["explorer"] == {"name": HOSTILE}
    assert items["tables"][0]["columns"] == [[HOSTILE, ""], [1.0, None]]
    assert section["tables"][0]["names"] == [HOSTILE, "n"]
    assert section["tables"][0]["columns"] == [[HOSTILE, ""], [1.0, None]]


def test_the_policy_names_each_script_and_the_style_by_its_hash_and_allows_nothing_else():
    text = page_html("title")
    [policy] = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    policy = policy.replace("&#39;", "'")
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    styles = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    hashes = [
        f"'sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()}'"
        for part in (*scripts, *styles)
    ]
    assert re.findall(r"'sha256-[^']*'", policy) == hashes
    assert "unsafe" not in policy
    assert "; img-src data:;" in policy
    assert policy.startswith("default-src 'none';")
    assert "http" not in policy


def test_a_page_names_no_address_that_a_browser_would_fetch():
    text = hostile_page()
    outside = re.sub(r"<script>.*?</script>|<style>.*?</style>", "", text, flags=re.DOTALL)
    assert re.findall(r"<(?:link|iframe|object|embed|base|form)\b", outside) == []
    assert "url(" not in text.split("</style>")[0]


@given(
    arrays(
        float,
        st.integers(0, 20),
        elements=st.floats(-1e6, 1e6, allow_subnormal=False) | st.just(np.nan),
    )
)
def test_packed_numbers_come_back_to_a_step_of_their_largest(values):
    again = unpacked(packed(values))
    largest = np.abs(values[np.isfinite(values)]).max(initial=0.0)
    np.testing.assert_array_equal(np.isnan(again), np.isnan(values))
    known = np.isfinite(values)
    np.testing.assert_allclose(again[known], values[known], atol=largest / 32767)


def test_columns_keep_their_kinds():
    frame = pd.DataFrame(
        {"n": [1, 2], "x": [0.123456789, np.inf], "b": [True, False], "s": ["a", None]}
    )
    assert column_data(frame)["columns"] == [[1, 2], [0.12346, None], [True, False], ["a", ""]]


def test_a_table_of_more_rows_than_a_page_holds_says_how_many_there_are(monkeypatch):
    monkeypatch.setattr(pages, "MAX_ROWS", 2)
    section = Section("s", tables={"t": pd.DataFrame({"n": range(5)})})
    data, _ = pages.page_data([section])
    assert data["tables"][0]["of"] == 5
    assert data["tables"][0]["columns"] == [[0, 1]]


def test_a_style_of_a_drawing_is_a_class_or_an_attribute_which_the_policy_allows():
    assert " style=" not in re.sub(r"<script.*?</script>", "", hostile_page(), flags=re.DOTALL)


def test_an_outcome_opens_to_its_items_and_colour_is_for_what_is_clear_after_correction():
    def outcome(name, p):
        items = pd.DataFrame({"text": ["a"]})
        return Outcome("says", name, "beta", 1.0, p=p, clusters=9, effect=0.3, items=items)

    text = page_html("title", [outcome("First", 0.5), outcome("Second", 0.001)])
    cards = re.findall(r'<section class="card([^"]*)".*?href="#(items-\d)">(\w+)', text, re.DOTALL)
    assert cards == [("", "items-0", "First"), (" clear", "items-1", "Second")]
    for name in ("items-0", "items-1"):
        assert f'id="{name}"' in text
    alone = page_html("title", [outcome("First", 0.5), outcome("Second", 0.04)])
    assert re.findall('(class="(?:card|drawn) clear"|tr class="clear")', text)
    assert not re.findall('(class="(?:card|drawn) clear"|tr class="clear")', alone)
    assert alone.count("clear alone") == 2  # on the card and in the chart
    assert alone.count("not after Holm's correction over outcomes") == 1


def test_the_verdict_over_all_and_what_was_not_measured_stand_above_the_cards():
    one = Outcome("says", "Gender", "beta", 1.0, p=0.5, clusters=9, power="2 nats")
    scope = ["A quick audit.", f"Not measured: {HOSTILE}."]
    text = page_html("title", [replace(one, name=f"Set {n}") for n in range(7)], scope=scope)
    order = [
        "Inconclusive: nothing is clear",
        "A quick audit.",
        "Not measured: &lt;",
        'class="cards of-6',
    ]
    places = [text.index(said) for said in order]
    assert places == sorted(places)
    assert "6 of 7 outcomes have a card; the others stand below" in text
    assert "have a card" not in page_html("title", [one])


def test_a_head_has_colour_where_it_survives_and_is_grey_elsewhere():
    grid = HeadGrid([3, 5], np.array([[0.0, 2.0, -1.0], [np.nan, 1.0, 0.5]]), np.eye(2, 3) > 0)
    one = Outcome("heads", "Heads", "heads", p=0.01, found=2, of=6, grid=grid)
    text = page_html("title", [one])
    kinds = re.findall(r'<rect class="(head|survives)"[^>]*><title>(L\dH\d)', text)
    assert [name for kind, name in kinds if kind == "survives"] == ["L3H0", "L5H1"]
    assert len(kinds) == 6


def test_a_page_of_no_outcome_begins_with_what_was_found():
    section = Section("Training", findings=[("gender", Finding(result=["Nothing changed."]))])
    first, _, rest = page_html("title", [], [section]).partition('<details id="sure">')
    assert "gender: Nothing changed." in first
    assert "Nothing changed." in rest
    assert 'class="card' not in first
