"""Put what `COMMAND --help` prints where a page says `<!-- options: COMMAND -->`."""

import re
from pathlib import Path
from typing import Any

from tests.support.pages import replay

MARK = re.compile(r"^<!-- options: (.+) -->$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the page with the options of its commands, as MkDocs builds it."""
    return MARK.sub(lambda found: _options(found[1]), markdown)


def _options(command: str) -> str:
    return f"```text\n$ {command} --help\n{replay(f'{command} --help', Path.cwd())}```"
