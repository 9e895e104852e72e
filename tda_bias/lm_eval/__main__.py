"""``python -m tda_bias.lm_eval``: print the folder of the tasks, for ``lm_eval --include_path``."""

from pathlib import Path

print(Path(__file__).parent)
