"""Log-probabilities of texts, and the scores made of them."""
