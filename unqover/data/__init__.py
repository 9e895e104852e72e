"""Subjects, attributes and frames, each with its source."""
