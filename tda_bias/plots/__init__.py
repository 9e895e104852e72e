"""Results to matplotlib axes."""
