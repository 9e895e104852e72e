"""Before and after: two models on one battery of outcomes, two rankings of heads side by side."""
