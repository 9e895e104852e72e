"""Runs on disk: the cache of finished parts, files, records and tables."""
