import re
import shutil
from pathlib import Path

import pytest

from tda_bias.models.load import load_language_model
from tda_bias.paper.model import published
from tda_bias.store.hashes import text_hash
from tda_bias.store.settings import read_settings
from tdabias_cli.figures import ReproduceSettings
from tdabias_cli.heads import HeadsSettings
from tdabias_cli.main import run

pytestmark = pytest.mark.thorough


def test_reproduce_writes_one_page_with_its_pictures_and_tables(reproduced):
    text = (reproduced / "README.md").read_text()
    pictures = [line.split("(")[1].rstrip(")") for line in text.splitlines() if line[:2] == "!["]
    assert len(pictures) == 12
    for picture in pictures:
        assert (reproduced / picture).is_file()
    assert "tdabias reproduce" in text
    assert "--model" in text
    assert "--limit 3" in text
    assert (reproduced / "tables" / "table4_religion.tex").is_file()
    assert (reproduced / "heads" / "example.npz").is_file()


def test_the_configuration_is_what_the_command_does_by_default():
    path = Path(__file__).parents[2] / "configs" / "paper_gpt2.yaml"
    reproduced = ReproduceSettings(model="gpt2").of_heads()
    written = HeadsSettings(**read_settings(path), out=reproduced.out)
    assert written == reproduced
    assert written.twins == "none"


OWN = """target,bias_type,context,stereotype,anti-stereotype,unrelated
pensioner,age,The pensioner came in.,She was slow.,She was fast.,Snow fell.
pensioner,age,A pensioner left.,He forgot it.,He knew it.,The bridge is closed.
student,age,The student came in.,He was poor.,He was rich.,Snow fell.
student,age,A student left.,She slept.,She worked.,The bridge is closed.
girl,gender,The girl came in.,She was quiet.,She was loud.,Snow fell.
girl,gender,A girl left.,She cried.,She laughed.,The bridge is closed.
"""


def test_a_category_of_ones_own_is_on_the_page_without_the_papers_numbers(
    tiny_folder, tmp_path, capsys
):
    (tmp_path / "own.csv").write_text(OWN)
    out = tmp_path / "out"
    command = ["reproduce", "--model", str(tiny_folder), "--data", str(tmp_path / "own.csv")]
    command += ["--quiet", "--out", str(out), "--n-permutations", "99"]
    assert run(command) == 0
    text = (out / "README.md").read_text()
    assert "**age**: metric T over heads; the paper has no such category." in text
    assert "**Table 1, gender**" in text
    assert {path.stem for path in (out / "tables").iterdir()} == {"table1_gender"}
    # Another run in the same place is refused with an option that the command has.
    other = [*command, "--category", "age"]
    assert run(other) == 2
    assert "write over it with --overwrite" in capsys.readouterr().err
    assert run([*other, "--overwrite"]) == 0
    assert "Table 1, gender" not in (out / "README.md").read_text()


def test_a_random_model_in_a_folder_called_gpt2_is_not_the_papers(
    tiny_folder, tmp_path, capsys, monkeypatch
):
    """It has the size and the vocabulary, and is asked what it says."""
    shutil.copytree(tiny_folder, tmp_path / "gpt2")
    (tmp_path / "own.csv").write_text(OWN)
    record = load_language_model(str(tiny_folder), device="cpu")
    text = "A girl left. She cried."
    about = {
        **published()["heads"],
        "size": {"parameters": record.n_parameters, "vocabulary": len(record.tokenizer)},
        "mean_log_likelihoods": {text_hash(text, size=8): -4.1},
    }
    monkeypatch.setattr("tda_bias.paper.model.published", lambda: {"heads": about})
    monkeypatch.chdir(tmp_path)
    command = ["reproduce", "--model", "./gpt2", "--data", "own.csv", "--n-permutations", "99"]
    assert run([*command, "--out", "out"]) == 0
    page = (tmp_path / "out" / "README.md").read_text()
    assert "This is the paper's model" not in page
    assert re.search(r"log-likelihood of 1 text is up to \d+\.\d\d nats per token off", page)
    # Claims about what the model says are answered from its own scores.
    assert (tmp_path / "out" / "stereoset" / "scores.csv").is_file()
    assert "prefers stereotypes to anti-stereotypes only 52 % of the time.* Here: all" in page
