"""``python -m tda_bias``: the command line, for those who guess that name."""

import runpy

# By name: the library does not import the command line, which stands above it.
runpy.run_module("tdabias_cli.main", run_name="__main__", alter_sys=True)
