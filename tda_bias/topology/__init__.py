"""Attention patterns to births and deaths, and these to step functions."""
