"""Correlations of what heads do with what the model says."""
