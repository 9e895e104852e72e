"""BBQ: questions about two people that the text answers, or does not; in six languages.

What is read here is questions and answers; only ``asking`` runs a model.
"""
