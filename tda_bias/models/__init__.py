"""Models by name or path, and what they predict: read once, used by heads, words and questions."""
