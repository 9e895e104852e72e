"""Put what `COMMAND --help` prints where a page says `<!-- options: COMMAND -->`; let names break.

A dotted name in a table may break after a dot, so that it leaves room for the other columns.
"""

import re
from pathlib import Path
from typing import Any

from tests.support.pages import replay

MARK = re.compile(r"^<!-- options: (.+) -->$", re.MULTILINE)
DOTTED = re.compile(r"<code>((?:tda_bias|pvf|unqover)\.[\w.]+)</code>")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the page with the options of its commands, as MkDocs builds it."""
    return MARK.sub(lambda found: _options(found[1]), markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Return the page with dotted names that can break."""
    return DOTTED.sub(lambda found: f"<code>{found[1].replace('.', '.<wbr>')}</code>", html)


def _options(command: str) -> str:
    return f"```text\n$ {command} --help\n{replay(f'{command} --help', Path.cwd())}```"
