"""The risk that shows in a model's output probabilities: prejudice and volatility."""
