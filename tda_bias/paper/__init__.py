"""The head paper beside a run: its tables, its claims, one page."""
