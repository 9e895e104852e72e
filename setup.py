"""Which packages the wheel holds; everything else stands in pyproject.toml.

The folder ``cli`` is installed as ``tdabias_cli``: an installed package called ``cli`` would
collide with anybody's.
"""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["tda_bias*", "pvf*", "unqover*"]), "tdabias_cli"],
    package_dir={"tdabias_cli": "cli"},
)
