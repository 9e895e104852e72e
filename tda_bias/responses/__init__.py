"""What a model writes about somebody, and how much of it depends on who that is."""
