"""What a person sees: findings, numbers as text, tables, figures, pages."""
