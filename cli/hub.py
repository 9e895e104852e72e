"""Fail at once, not after half a minute of retries, where the Hugging Face hub is out of reach."""

from __future__ import annotations

import os
import urllib.error
import urllib.request

TIMEOUT_SECONDS = 5.0


def use_cache_if_unreachable() -> None:
    """Tell the hub's clients to use their cache alone, unless the hub answers.

    They read the variable when they are imported, so this comes before any of them.
    """
    if "HF_HUB_OFFLINE" not in os.environ and not _answers():
        os.environ["HF_HUB_OFFLINE"] = "1"


def _answers() -> bool:
    address = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    try:
        urllib.request.urlopen(address, timeout=TIMEOUT_SECONDS).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True
