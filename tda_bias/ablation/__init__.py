"""Heads changed while a model runs: ablation, edits, attributions."""
