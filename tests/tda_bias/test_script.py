"""Words in any script: vowel signs are letters, and scripts without spaces have no long words."""

import pytest
import regex

from tda_bias.script import is_one_line, pieces, whole_word, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It's the cook\u2019s, x_1.", ["It's", "the", "cook\u2019s", ",", "x_1", "."]),
        (
            "\u0935\u0939 \u091c\u093e\u0924\u093e \u0939\u0948",
            ["\u0935\u0939", "\u091c\u093e\u0924\u093e", "\u0939\u0948"],
        ),
        ("cafe\u0301 late", ["cafe\u0301", "late"]),
        ("\u5979\u5403\u996d\u3002", ["\u5979", "\u5403", "\u996d", "\u3002"]),
        (
            "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
            ["\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"],
        ),
        ("\U0001f468\u200d\U0001f469 ran", ["\U0001f468\u200d\U0001f469", "ran"]),
    ],
)
def test_words_are_whole_in_any_script(text, expected):
    assert [text[a:b] for a, b in words(text)] == expected
    assert "".join(pieces(f" {text}  ")) == f" {text}  "


@pytest.mark.parametrize(
    ("word", "text", "n"),
    [
        ("nurse", "nurses, nurse", 1),
        (
            "\u091a\u0940\u0928",
            "\u091a\u0940\u0928\u0940 \u091a\u0940\u0928",
            1,
        ),  # not in the word for Chinese
        ("\u4e2d\u56fd", "\u5728\u4e2d\u56fd\u4eba", 1),  # nothing shows where a word ends
        ("U\\.S\\.", "the U.S.A. and U.S. cook", 1),
    ],
)
def test_a_word_is_found_whole_or_not_at_all(word, text, n):
    assert len(regex.findall(whole_word(word), text)) == n


@pytest.mark.parametrize(
    ("text", "one"),
    [
        ("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", True),
        ("\U0001f468\u200d\U0001f469", True),
        ("the cook", True),
        ("the\ncook", False),
        ("the\u2028cook", False),
        ("a\u202eb", False),
        ("a\x07b", False),
    ],
)
def test_joiners_stand_in_a_line_and_line_breaks_do_not(text, one):
    assert is_one_line(text) is one
