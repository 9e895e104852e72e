"""What a model says: log-probabilities of texts, and the scores made of them."""
