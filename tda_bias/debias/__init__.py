"""Training of chosen heads alone, so that a preference depends less on the target, with tests."""
