"""Runs on disk: results, their records, finished parts, locks and files."""
