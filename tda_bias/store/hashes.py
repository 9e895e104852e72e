"""The two hashes that stand in files and records.

Texts are named and pinned by BLAKE2b: items of tables, revisions of files, marks in names. Weights,
arrays and whole files, which are large, are compared by XXH3. The values stand in saved runs, so
neither can become the other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import xxhash


def text_hash(*texts: str | bytes, size: int = 16) -> str:
    """Name or pin texts, as if they were one; ``size`` is in bytes, two characters each."""
    digest = hashlib.blake2b(digest_size=size)
    for text in texts:
        digest.update(text.encode() if isinstance(text, str) else text)
    return digest.hexdigest()


def bytes_hash(pieces: Iterable[bytes | memoryview]) -> str:
    """Compare content that may be large: the pieces as if they were one, 32 characters."""
    digest = xxhash.xxh3_128()
    for piece in pieces:
        digest.update(piece)
    return str(digest.hexdigest())


def file_hash(path: Path) -> str:
    """The same for a file, which may be larger than the memory."""
    with path.open("rb") as file:
        return str(hashlib.file_digest(file, xxhash.xxh3_128).hexdigest())
