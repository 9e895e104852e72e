"""An example of each command with what it prints, for the end of its help.

The same stands in the command's page of the docs, whose commands a test runs again.
"""

from __future__ import annotations

from rich.markup import escape

EXAMPLES: dict[str, str] = {}


def epilog(name: str) -> str | None:
    """What stands below the options of a command; None where there is no example."""
    if name not in EXAMPLES:
        return None
    # Help texts join single lines; between empty ones each keeps its own.
    return "\n\n".join(["[bold]Example[/bold]", *escape(EXAMPLES[name].strip()).split("\n")])
