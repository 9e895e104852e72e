"""End the page of a command with what its `--help` prints; let names break.

A dotted name in a table may break after a dot, so that it leaves room for the other columns.
"""

import re
from pathlib import Path
from typing import Any

from tdabias_cli.program import loaded
from tests.support.pages import replay

COMMAND = re.compile(r"^# tdabias (.+)$", re.MULTILINE)
DOTTED = re.compile(r"<code>((?:tda_bias|pvf|unqover)\.[\w.]+)</code>")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the page of a command with its options, as MkDocs builds it."""
    path = Path(page.file.src_uri)
    found = COMMAND.search(markdown)
    if path.parent.name != "commands" or found is None:
        return markdown
    options = "\n\n".join(map(_options, _with_parts(found[1], Path(page.file.abs_src_path).parent)))
    return f"{markdown}\n\n## Options\n\n{options}\n"


def on_page_content(html: str, **_: Any) -> str:
    """Return the page with dotted names that can break."""
    return DOTTED.sub(lambda found: f"<code>{found[1].replace('.', '.<wbr>')}</code>", html)


def _with_parts(command: str, folder: Path) -> list[str]:
    """A command and those below it that have no page of their own."""
    name, *part = command.split()
    below = [] if part else getattr(loaded(name), "commands", {})
    return [command, *(f"{name} {one}" for one in below if not (folder / f"{one}.md").exists())]


def _options(command: str) -> str:
    asked = f"tdabias {command} --help"
    return f"```text\n$ {asked}\n{replay(asked, Path.cwd())}```"
