"""Texts to attention patterns."""
