"""Static embeddings that others trained: a tokenizer and a table with a row for each of its tokens.

A text is the mean of its tokens' rows, as sentence-transformers' StaticEmbedding has it. Read are the folder that this
library saves, that of model2vec, and that of the package ``wordllama``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Self

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from retlib.core.errors import DataError, require
from retlib.data.text import Tokenizer

# Where tokenizer and table lie in a folder: of both libraries, of sentence-transformers before 5, of wordllama.
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
        from tokenizers import Tokenizer as Library

        try:
            plain = json.loads(path.read_text(encoding="utf-8")) | {"truncation": None, "padding": None}
            ids = Library.from_str(rules := json.dumps(plain, ensure_ascii=False)).get_vocab()
        except Exception as error:  # of many kinds: the library has no class of its own
            raise DataError(f"{path}: no tokenizer of the library `tokenizers` ({error})") from error
        return cls(tuple(sorted(ids, key=ids.__getitem__)), (rules,))

    def save(self, path: Path) -> None:
        path.write_text(self.rules[0], encoding="utf-8")

    @cached_property
    def _tokenizer(self):
        from tokenizers import Tokenizer as Library

        return Library.from_str(self.rules[0])

    def _rows(self, texts: list[str]) -> Iterator[list[int]]:
        return (found.ids for found in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False))


def files(folder: Path) -> tuple[Path, Path] | None:
    """Return the tokenizer and the weights of a folder of static embeddings; None of another folder."""
    for places in PLACES:
        tokens, weights = (sorted(folder.glob(place)) for place in places)
        if len(tokens) == len(weights) == 1:
            try:
                with safe_open(weights[0], "pt") as opened:
                    return (tokens[0], weights[0]) if TABLES & {*opened.keys()} else None
            except (OSError, SafetensorError):  # for `checkpoints.described` to tell
                return None
    return None


def table(folder: Path) -> Tensor:
    """Return the embeddings of a folder of static embeddings, float32, shape (tokens, dimension)."""
    _, path = files(folder)
    weights = load_file(path)
    rows = next(weights[name] for name in sorted(TABLES) if name in weights)
    rows = (rows[weights["mapping"].long()] if "mapping" in weights else rows).float()
    rows = rows * weights["weights"][:, None] if "weights" in weights else rows
    require(
        rows.ndim == 2, f"{path}: the embeddings have the shape {tuple(rows.shape)}, not tokens × numbers", DataError
    )
    return rows.contiguous()
