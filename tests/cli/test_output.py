"""What a command says on standard error while it works."""

import pytest

from tda_bias.show.terminal import say
from tdabias_cli.run import progress_bar
from tdabias_cli.settings import OutputSettings


@pytest.mark.parametrize(("quiet", "total"), [(False, 10), (False, None), (True, 10)])
def test_a_log_ends_with_all_that_was_done_and_quiet_is_quiet(quiet, total, capsys):
    settings = OutputSettings(quiet=quiet)
    with progress_bar(settings, "a [title]", "texts") as moved:
        for done in (0, 4, 10):
            moved(done, total)
        say(settings.console, "a [remark]")
    shown = capsys.readouterr().err
    assert ("10 texts" if total is None else "a [title]: 100%|") in shown or quiet
    assert ("\na [remark]\n" in shown) == (not quiet)
    assert "\r" not in shown
    assert shown.count("title") == (0 if quiet else 2)  # the first line and the last
