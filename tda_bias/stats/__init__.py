"""Statistics that several rooms share."""
