"""Tasks for lm-evaluation-harness: ``lm_eval --include_path "$(python -m tda_bias.lm_eval)"``."""
