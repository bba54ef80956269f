"""Generators: a sequence-to-sequence model with its vocabulary, which writes queries (Liang 2020, section 2.1)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from retlib.core import runtime
from retlib.core.errors import require, require_one_of, require_positive
from retlib.core.history import History
from retlib.data.text import TokenTable, WordPiece
from retlib.data.tokenized import tokenize, tokens_key
from retlib.models.retriever import Retriever, Trained
from retlib.models.seq2seq import HEADS, BartTokenizer, Seq2Seq

CONFIG = "bart.json"


@dataclass(frozen=True)
class GeneratorArchitecture:
    """What a generator is made of; `head` is "pointer" or "bart", see `retlib.models.seq2seq`.

    Encoder and decoder have `layers` each. Tokens beyond `passage_length` and `query_length` are cut off, and no longer
    query is written; the paper does not state them. `checkpoint` is a folder or hub name of a pre-trained BART, to
    start from; layers, width and vocabulary are then its own. The paper's is BART-large, whose head is "bart".
    """

    head: str = "pointer"
    layers: int = 2
    width: int = 192
    passage_length: int = 128
    query_length: int = 32
    checkpoint: str = ""

    def __post_init__(self) -> None:
        require_one_of("head", self.head, HEADS)
        require_positive(self, "layers", "width", "passage_length", "query_length")

    def build(self, tokenizer: WordPiece | BartTokenizer, config: Path | None = None) -> Seq2Seq:
        """Return the model, what is new of its weights drawn from torch's generator.

        `config` is a file that describes a BART whose weights are not wanted.
        """
        kind, longest = HEADS[self.head], max(self.passage_length, self.query_length)
        if config:
            model = kind.from_config(config, tokenizer)
        elif self.checkpoint:
            model = kind.from_checkpoint(self.checkpoint, tokenizer)
        else:
            model = kind.from_scratch(tokenizer, self.layers, self.width, longest)
        require(longest <= model.longest, f"texts of {longest} tokens are asked for; the model takes {model.longest}")
        return model


class Generator(Trained):
    """A model that writes queries; the scores of its history are held-out log-likelihoods, the mean of a token."""

    architecture: GeneratorArchitecture
    tokenizer: WordPiece | BartTokenizer
    model: Seq2Seq

    @classmethod
    def fresh(cls, architecture: GeneratorArchitecture, tokenizer: WordPiece | None, seed: int) -> Generator:
        """Return a randomly initialized one, or a checkpoint as it is; `SettingError` if neither or both are given."""
        both = "a generator has the vocabulary that it is given or that of its checkpoint: give one of them"
        require((tokenizer is None) == bool(architecture.checkpoint), both)
        runtime.set_seeds(seed)
        tokenizer = BartTokenizer(architecture.checkpoint) if tokenizer is None else tokenizer
        return cls(architecture, tokenizer, architecture.build(tokenizer).to(runtime.device()).eval())

    def take_embeddings(self, retriever: Retriever) -> None:
        """Begin with the token embeddings of a retriever, as long on the average as its own were.

        It raises `SettingError` if the retriever is no Transformer, or if the two have not one vocabulary and width.
        """
        wrong = "a generator begins with the embeddings of a Transformer, with layers or without"
        require(retriever.architecture.encoder == "transformer", wrong)
        mine = self.model.bart.model.shared.weight
        theirs = retriever.model.query_encoder.bert.embeddings.word_embeddings.weight
        wrong = (
            f"a generator with {tuple(mine.shape)} embeddings cannot begin with {tuple(theirs.shape)} of a retriever"
        )
        require(mine.shape == theirs.shape, wrong)
        require(tokens_key(self.tokenizer) == tokens_key(retriever.tokenizer), f"{wrong} of another vocabulary")
        with torch.no_grad():
            mine.copy_(theirs * (mine.square().mean() / theirs.square().mean()).sqrt())

    @property
    def fingerprint(self) -> str:
        """sha256 of architecture, vocabulary and weights."""
        made, own = replace(self.architecture, checkpoint=""), self.tokenizer  # wherever it came from
        told = [asdict(made), own.tokens if isinstance(own, WordPiece) else len(own)]
        digest = hashlib.sha256(json.dumps(told).encode())
        for name, weight in sorted(self._weights().items()):
            digest.update(name.encode() + weight.numpy().tobytes())
        return digest.hexdigest()

    def _weights(self) -> dict[str, Tensor]:
        # All that a checkpoint of BART holds, shared weights once.
        bias = "bart.final_logits_bias", self.model.bart.final_logits_bias  # a buffer, learned all the same
        return {name: tensor.detach().cpu().contiguous() for name, tensor in (*self.model.named_parameters(), bias)}

    def passages(self, texts: Iterable[str]) -> TokenTable:
        """Passages as the model reads them."""
        return tokenize(texts, self.tokenizer, self.architecture.passage_length)

    def save(self, folder: Path) -> None:
        """Write vocabulary, weights, architecture and history."""
        self.tokenizer.save(folder / "vocab.txt" if isinstance(self.tokenizer, WordPiece) else folder / "tokens")
        save_file(self._weights(), folder / "model.safetensors")
        self.model.bart.config.to_json_file(folder / CONFIG)
        meta = {"architecture": asdict(self.architecture), "history": asdict(self.history)}
        (folder / "generator.json").write_text(json.dumps(meta))

    @classmethod
    def load(cls, folder: Path) -> Generator:
        """Read what `save` wrote."""
        meta = json.loads((folder / "generator.json").read_text())
        architecture, words = GeneratorArchitecture(**meta["architecture"]), folder / "vocab.txt"
        tokenizer = WordPiece.load(words) if words.exists() else BartTokenizer(folder / "tokens")
        model = architecture.build(tokenizer, folder / CONFIG)
        model.load_state_dict(load_file(folder / "model.safetensors"), strict=False)  # shared weights are there once
        model, history = model.to(runtime.device()).eval(), History(**meta["history"])
        return cls(architecture, tokenizer, model, history, folder.name)
