import pytest

from tests.support.answers import FEW, made_up_answers
from unqover.classes import load_class
from unqover.config import DesignConfig
from unqover.questions import sampled_design


@pytest.fixture(scope="session")
def few_file(tmp_path_factory):
    """A class file of four names, three templates and three attributes."""
    path = tmp_path_factory.mktemp("classes") / "few.yaml"
    path.write_text(FEW)
    return path


@pytest.fixture(scope="session")
def few(few_file):
    return sampled_design(load_class(few_file), DesignConfig())


@pytest.fixture(scope="session")
def made_up():
    """Answers of an imagined model."""
    return made_up_answers
