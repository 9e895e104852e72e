"""Word lists and templates, each with its source."""
