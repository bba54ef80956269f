"""Small texts of letters for tests of query generators: a query is the first two letters of its passage."""

import numpy as np
import pandas as pd
import torch

from retlib.data.articles import Corpus
from retlib.data.collection import Article, Collection
from retlib.data.text import WordPiece
from retlib.models.generator import GeneratorArchitecture
from retlib.training.trainer import Schedule

LETTERS = WordPiece((*WordPiece.SPECIAL, *"abcdefghijkl", "'", "-"))
SMALL = GeneratorArchitecture(layers=1, width=64, passage_length=8, query_length=4)
SHORT = Schedule(steps=4, batch_size=4, evaluations=2, precision="float32")


def texts(count, seed=0, length=6):
    """Random letters."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(list("abcdefghijkl"), length)) for _ in range(count)]


def make_pairs(train=40, dev=8):
    """Pairs to train a generator on."""
    passages = texts(train + dev)
    split = ["train"] * train + ["dev"] * dev
    return pd.DataFrame({"query": [text[:3] for text in passages], "passage": passages, "split": split})


def make_corpus():
    """Six pages of two sentences."""
    halves = zip(texts(6), texts(6, seed=1), strict=True)
    articles = [Article(f"a{i}", "", (f"{one}. {other}.",), 1) for i, (one, other) in enumerate(halves)]
    return Corpus.build(articles, LETTERS.encode, lambda text: text.split("."))


def make_collection(articles=True):
    """Sixty passages, three of an article, each with a query; the first judged not relevant, q1 with two passages."""
    documents = pd.DataFrame({"text": texts(60)}, index=[f"d{i}" for i in range(60)])
    if articles:
        documents["article"] = [f"article {i // 3}" for i in range(60)]
    queries = pd.DataFrame({"text": documents["text"].str[:3].to_numpy()}, index=[f"q{i}" for i in range(60)])
    queries["split"] = ["train"] * 40 + ["dev"] * 10 + ["test"] * 10
    qrels = pd.DataFrame({"query_id": queries.index, "doc_id": documents.index, "relevance": 1})
    qrels.loc[0, "relevance"] = 0
    more = pd.DataFrame({"query_id": ["q1"], "doc_id": ["d5"], "relevance": [2]})
    qrels = pd.concat([qrels, more], ignore_index=True)
    return Collection("small", documents.rename_axis("doc_id"), queries.rename_axis("query_id"), qrels)


def save_bart(folder):
    """Save a BART of transformers with a tokenizer of its own, eighteen tokens long at the most; returns it."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BartConfig, BartForConditionalGeneration, PreTrainedTokenizerFast

    special = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    pieces = [*special.values(), *"abcdefgh", "<mask>"]
    tokenizer = Tokenizer(models.WordLevel({piece: i for i, piece in enumerate(pieces)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, mask_token="<mask>", **special).save_pretrained(folder)
    torch.manual_seed(0)
    sides = {f"{side}_{name}": value for side in ("encoder", "decoder")
             for name, value in (("layers", 1), ("attention_heads", 2), ("ffn_dim", 64))}  # fmt: skip
    config = BartConfig(vocab_size=15, d_model=32, max_position_embeddings=20, bos_token_id=0, pad_token_id=1,
                        eos_token_id=2, decoder_start_token_id=2, **sides)  # fmt: skip
    bart = BartForConditionalGeneration(config)
    for weight in bart.parameters():
        weight.data += 0.3 * torch.randn_like(weight)
    bart.final_logits_bias += torch.randn(15)
    bart.save_pretrained(folder)
    return bart
