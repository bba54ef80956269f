"""Models with their vocabulary, saved and loaded, in all chapters that train; retrievers: dual encoders."""

import copy
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from safetensors.torch import load_model, save_model
from torch import Tensor, nn

from retlib.core import runtime
from retlib.core.errors import DataError, require, require_one_of, require_positive
from retlib.core.history import History
from retlib.core.registry import Registry
from retlib.data.collection import Collection
from retlib.data.text import Tokenizer, TokenTable, Vocabulary, WordPiece
from retlib.data.tokenized import TokenizedCollection, tokens_key
from retlib.models import checkpoints
from retlib.models.checkpoints import BartTokenizer, FileTokenizer
from retlib.models.encoders import SIMILARITIES, BagOfWords, BagOfWordsMLP, DualEncoder, encode
from retlib.models.transformer import HEADS, POOLINGS, Transformer

# Files of a saved model; the configuration is that of its BERT or BART, if it has one.
VOCABULARY, WEIGHTS, CONFIG, META = "vocab.txt", "model.safetensors", "bert.json", "model.json"

# Called with architecture, tokenizer and the folder of a saved retriever, or None; returns a module as
# `retlib.models.encoders` describes it, its weights drawn from torch's generator. An encoder may say that encoding
# documents anew is cheaper than keeping their encodings on disk.
ENCODERS = Registry("encoder", cheap=False)


@dataclass(frozen=True)
class Architecture:
    """What a retriever is made of; see `of_checkpoint`."""

    encoder: str = "transformer"  # a name in `ENCODERS`
    layers: int = 2
    width: int = 128  # of hidden states, or of the word embeddings of a BoW-MLP
    dimension: int = 128  # of an encoding; 512 in Chang 2020
    pooling: str = "mean"  # as of `retlib.models.transformer.Transformer`; the papers pool by "cls"
    head: str = "linear"  # or "none"; Liang 2020 has tanh behind it
    towers: str = "siamese"  # both sides share one encoder; or "two", which begin alike (Liang 2020, section 4)
    similarity: str = "dot"  # or "cosine"
    query_length: int | None = 32  # tokens beyond it are cut off; 64 and 288 in Chang 2020
    document_length: int | None = 96
    checkpoint: str = ""  # a BERT or static embeddings to start from, as `retlib.models.checkpoints.folder` finds it

    def __post_init__(self) -> None:
        choices = {"encoder": ENCODERS.names(), "towers": ("siamese", "two"), "pooling": POOLINGS, "head": HEADS}
        for name, valid in {**choices, "similarity": SIMILARITIES}.items():
            require_one_of(name, getattr(self, name), valid)
        require(self.layers >= 0, f"layers = {self.layers} must be at least 0")
        lengths = [name for name in ("query_length", "document_length") if getattr(self, name) is not None]
        require_positive(self, "width", "dimension", *lengths)

    @classmethod
    def of_checkpoint(cls, name: str, **lengths: int) -> Self:
        """Return that of a sentence encoder, public or of `retlib.models.exporting.export`, as it describes itself.

        `lengths` are `query_length` and `document_length`; by default texts are cut where it cuts them itself.
        """
        return cls(**checkpoints.described(name) | lengths)

    def build(self, tokenizer: Tokenizer, folder: Path | None = None) -> DualEncoder:
        """Return the model, its weights drawn from torch's generator; `folder` is that of a saved retriever."""
        sides = checkpoints.sides(self.checkpoint) if self.checkpoint and folder is None else [self.checkpoint]
        make = ENCODERS.get(self.encoder)
        query, *others = (make(replace(self, checkpoint=str(side)), tokenizer, folder) for side in sides)
        document = (others or [copy.deepcopy(query)])[0] if self.towers == "two" else None
        return DualEncoder(query, document, self.similarity)


@ENCODERS.register("bag-of-words", cheap=True)
def bag_of_words(architecture: Architecture, tokenizer: Tokenizer, folder: Path | None = None) -> nn.Module:
    """The mean of token embeddings (Gillick 2018, section 2)."""
    return BagOfWords(len(tokenizer), architecture.dimension)


@ENCODERS.register("static")
def static_embeddings(architecture: Architecture, tokenizer: Tokenizer, folder: Path | None = None) -> nn.Module:
    """The mean of token embeddings that others trained."""
    made = BagOfWords(len(tokenizer), architecture.dimension)
    if folder is None:
        rows, size = checkpoints.static_table(Path(architecture.checkpoint)), tuple(made.weight.shape)
        wrong = f"{architecture.checkpoint}: its table is {tuple(rows.shape)}, and its tokens ask for {size}"
        require(rows.shape == made.weight.shape, wrong, DataError)
        made.weight.data.copy_(rows)
    return made


@ENCODERS.register("bow-mlp")
def bow_mlp(architecture: Architecture, tokenizer: Tokenizer, folder: Path | None = None) -> nn.Module:
    """The mean of token embeddings, and two layers (Chang 2020, section 4.2)."""
    return BagOfWordsMLP(len(tokenizer), architecture.width, architecture.dimension)


@ENCODERS.register("transformer")
def transformer(architecture: Architecture, tokenizer: WordPiece, folder: Path | None = None) -> nn.Module:
    """BERT (Chang 2020, section 4.1)."""
    from transformers import BertConfig

    head = {name: getattr(architecture, name) for name in ("dimension", "pooling", "head")}
    if folder is not None:
        return Transformer.from_config(BertConfig.from_json_file(folder / CONFIG), tokenizer, **head)
    if architecture.checkpoint:
        return Transformer.from_checkpoint(architecture.checkpoint, tokenizer, **head)
    return Transformer.from_scratch(tokenizer, architecture.layers, architecture.width, **head)


@dataclass(eq=False)
class Trained:
    """What all models have: a module with its vocabulary and the history of its last training; saved and loaded.

    `name` is the address of the artefact; "" of one that is not trained.
    """

    architecture: Any
    tokenizer: Tokenizer
    model: nn.Module
    history: History = field(default_factory=History)
    name: str = ""
    architecture_class: ClassVar[type] = Architecture

    @classmethod
    def fresh(cls, architecture: Any, tokenizer: Tokenizer, seed: int) -> Self:
        """Return a randomly initialized one, or a checkpoint as it is."""
        runtime.set_seeds(seed)
        return cls(architecture, tokenizer, architecture.build(tokenizer).to(runtime.device()).eval())

    @property
    def parameters(self) -> int:
        """The number of its weights, embeddings included."""
        return sum(weight.numel() for weight in self.model.parameters())

    @property
    def fingerprint(self) -> str:
        """The sha256 of architecture, vocabulary and weights, wherever a checkpoint lies."""
        return self._digest(self.model, asdict(replace(self.architecture, checkpoint="")))

    def _digest(self, module: nn.Module, facts: Any) -> str:
        digest = hashlib.sha256(json.dumps([facts, tokens_key(self.tokenizer)]).encode())
        for name, weight in sorted(module.state_dict().items()):
            digest.update(name.encode() + weight.cpu().numpy().tobytes())
        return digest.hexdigest()

    def tokenize(self, queries: Sequence[str]) -> TokenTable:
        """Return queries as this model reads them."""
        return self.tokenizer.encode(queries, self.architecture.query_length)

    def reads(self, collection: Collection) -> TokenizedCollection:
        """Return a collection as this model reads it."""
        lengths = self.architecture.query_length, self.architecture.document_length
        return TokenizedCollection.of(collection, self.tokenizer, *lengths)

    def save(self, folder: Path) -> None:
        """Write vocabulary, weights, architecture and history."""
        self.tokenizer.save(folder / VOCABULARY)
        save_model(self.model, str(folder / WEIGHTS))
        for library in [each for each in self.model.modules() if hasattr(each, "config_class")][:1]:
            library.config.to_json_file(folder / CONFIG)
        meta = {"architecture": asdict(self.architecture), "history": asdict(self.history)}
        (folder / META).write_text(json.dumps({**meta, "tokens": type(self.tokenizer).__name__}))

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read what `save` wrote."""
        meta = json.loads((folder / META).read_text())
        kind = {each.__name__: each for each in (WordPiece, Vocabulary, FileTokenizer, BartTokenizer)}[meta["tokens"]]
        architecture, tokenizer = cls.architecture_class(**meta["architecture"]), kind.load(folder / VOCABULARY)
        model = architecture.build(tokenizer, folder)
        load_model(model, folder / WEIGHTS)
        model, history = model.to(runtime.device()).eval(), History(**meta["history"])
        return cls(architecture, tokenizer, model, history, folder.name)


class Retriever(Trained):
    """A dual encoder, whatever its encoders are made of."""

    model: DualEncoder

    @property
    def document_fingerprint(self) -> str:
        """The sha256 of what encodes documents: trainings of the query encoder alone share it with their start."""
        made = self.architecture
        facts = [made.document_length, made.similarity, made.pooling, made.head, ENCODERS.source(made.encoder)]
        return self._digest(self.model.document_encoder, facts)

    def encode_queries(self, table: TokenTable) -> np.ndarray:
        """Return encodings of queries, float32, shape (rows, d)."""
        return self._encode(self.model.queries, table)

    def encode_documents(self, table: TokenTable) -> np.ndarray:
        """Return encodings of documents, float32, shape (rows, d)."""
        return self._encode(self.model.documents, table)

    def encode_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Return encodings of documents as they stand, float32, shape (texts, d)."""
        return self.encode_documents(self.tokenizer.encode(texts, self.architecture.document_length))

    def _encode(self, side: Callable[[TokenTable], Tensor], table: TokenTable) -> np.ndarray:
        # Batches of texts of like length have little padding.
        order = np.argsort(table.lengths, kind="stable")
        # Without dropout, in the midst of a training too, in which only a part of the model may take part.
        before = [(module, module.training) for module in self.model.modules()]
        self.model.eval()
        with runtime.autocast("bfloat16"):
            encoded = encode(side, table.take(order))
        for module, training in before:
            module.training = training
        return encoded[np.argsort(order)]
