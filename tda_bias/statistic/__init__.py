"""Step functions of a group to the statistic of every head, and what lengths alone would give."""

from tda_bias.statistic.group_statistic import GroupStatistic, group_statistic, unstable_heads

__all__ = ["GroupStatistic", "group_statistic", "unstable_heads"]
