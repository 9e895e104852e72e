"""The bias statistic of attention heads, in the order of the paper's sections."""
