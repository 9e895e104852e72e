"""Numbers as commands print them."""


def p_text(value: float) -> str:
    """A p-value: four decimals where they matter."""
    if value != value:
        return "undefined"
    return f"{value:.4f}" if value < 0.1 else f"{value:.2f}"
