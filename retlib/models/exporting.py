"""Trained encoders for the tools that people use: folders that sentence-transformers opens.

What is here is read back by `retlib.models.retriever.Architecture.of_checkpoint`::

    export(retriever, Path("mine"), "Mine", {"trained on": ["squad"], **system.settings})
    SentenceTransformer("mine").encode_query("where is the city?")
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from retlib.core import cache
from retlib.core.errors import require
from retlib.data.text import UNKNOWN, WordPiece, bert_tokenizer
from retlib.models import checkpoints
from retlib.models.checkpoints import CONFIG, FRAME, IDENTITY, SIDES, UNFRAMED, WEIGHTS
from retlib.models.encoders import BagOfWords
from retlib.models.retriever import Retriever
from retlib.models.static import TABLE, FileTokenizer
from retlib.models.transformer import Transformer

# A letter that a normalized text does not hold, and no vocabulary: of what is left empty it makes one unknown token.
NOTHING = "\ue000"
EMBEDDINGS = "embeddings.word_embeddings.weight"


README = """---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags: [sentence-transformers, sentence-similarity, dense-retrieval]
---

# {name}

A dual encoder for dense retrieval: {made.dimension} numbers a text, compared by {made.similarity}. {reading} An empty
string has no token at all: where there is no title, or no text, write a blank.

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer(".")  # this folder
queries = model.encode_query(["a question"])
documents = model.encode_document({documents})
scores = model.similarity(queries, documents)
```

```json
{about}
```
"""


def export(retriever: Retriever, folder: Path, name: str, about: Mapping[str, Any]) -> None:
    """Write a retriever for sentence-transformers (6.2 or later), and a card, ``README.md``, with what is known of it.

    Texts have there the encodings that `Retriever.encode_queries` and `Retriever.encode_documents` give in float32; but
    for an empty string, which has no token there. Documents with a title are pairs of title and text, or of static
    embeddings both with a blank between. Of two towers each has a folder of its own, ``query`` and ``document``, and
    sentence-transformers takes both as one. It raises `SettingError` if the retriever is neither of Transformers, with
    or without layers, over WordPiece, nor of static embeddings.
    """
    model, made = retriever.model, retriever.architecture
    is_static = made.encoder == "static"
    fits = is_static or isinstance(model.query_encoder, Transformer) and isinstance(retriever.tokenizer, WordPiece)
    here = f"here is {made.encoder!r} over {type(retriever.tokenizer).__name__}"
    require(fits, f"only encoder = 'static', or 'transformer' over WordPiece, can be exported; {here}")
    longest = math.inf if is_static else model.query_encoder.longest
    lengths = dict(zip(SIDES, (made.query_length, made.document_length), strict=True))
    require(not is_static or {*lengths.values()} == {None}, "static embeddings read whole texts: give no length")
    cuts = {side: 2 + min(length or longest, longest) for side, length in lengths.items()}
    write = _write_static if is_static else _write
    taken = folder.is_dir() and any(folder.iterdir()) and not (folder / "modules.json").is_file()
    require(not taken, f"{folder} is there and holds no retriever: choose another folder")
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    if made.towers == "two":
        for side, encoder in zip(SIDES, (model.query_encoder, model.document_encoder), strict=True):
            write(encoder, retriever.tokenizer, model.similarity, partial / side, cuts, cuts[side])
        _write_router(partial, model.similarity)
    else:
        write(model.query_encoder, retriever.tokenizer, model.similarity, partial, cuts, cuts["document"])
    reading, documents = "Texts are read whole.", '["a title a text", "a text without one"]'
    if not is_static:
        documents = '[("a title", "a text"), (" ", "a text without one")]'
        reading = f"Text is lowercased. A query is cut at {cuts['query'] - 2} tokens, a document at "
        reading += f"{cuts['document'] - 2}, those that are put around it not counted."
    about = json.dumps(about, indent=1, default=str, ensure_ascii=False)
    readme = README.format(name=name, made=made, reading=reading, documents=documents, about=about)
    (partial / "README.md").write_text(readme, encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)  # nothing of a retriever that was there before stays
    cache.publish(partial, folder)
    checkpoints.digest.cache_clear()


def _json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")


def _weights(path: Path, weights: Mapping[str, Tensor]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    weights = {name: weight.detach().float().cpu().contiguous() for name, weight in weights.items()}
    save_file(weights, path, {"format": "pt"})


# --- one encoder -----------------------------------------------------------------------------------


def _write_static(encoder: BagOfWords, tokens: FileTokenizer, similarity: str, folder: Path, *_: Any) -> None:
    _weights(folder / WEIGHTS, {TABLE: encoder.weight})
    tokens.save(folder / "tokenizer.json")
    behind = {"1_Normalize": "Normalize"} if similarity == "cosine" else {}
    for path in behind:
        _json(folder / path / CONFIG, {})
    _write_modules(folder, {"": "StaticEmbedding", **behind}, similarity)


def _write(
    encoder: Transformer, words: WordPiece, similarity: str, folder: Path, cuts: Mapping[str, int], cut: int
) -> None:
    weights, width, mean = encoder.bert.state_dict(), encoder.bert.config.hidden_size, encoder.pooling == "mean"
    if mean:
        # A text ends with a token of its own, whose embedding is that of [SEP]: by its id the mean leaves it out.
        kept = [i for i, token in enumerate(words.tokens) if token != FRAME[1]]
        weights[EMBEDDINGS] = weights[EMBEDDINGS][[*kept, words.sep]]
        words = WordPiece((*(words.tokens[i] for i in kept), FRAME[1]))
    if encoder.layers == 0:  # normed embeddings of tokens, and nothing beside them
        for name, weight in weights.items():
            if name != EMBEDDINGS:
                weights[name] = torch.full_like(weight, name.endswith("LayerNorm.weight"))
    # Nobody asks for BERT's own pooling, but transformers complains where its weights are missing.
    weights |= {"pooler.dense.weight": torch.zeros(width, width), "pooler.dense.bias": torch.zeros(width)}
    _weights(folder / WEIGHTS, weights)
    config = encoder.bert.config.to_dict() | {"vocab_size": len(words), "architectures": ["BertModel"]}
    _json(folder / CONFIG, {name: value for name, value in config.items() if name != "_name_or_path"})
    _write_tokenizer(words, FRAME if mean else ("[CLS]", "[SEP]"), folder, cut)
    _json(folder / "sentence_bert_config.json", {f"{side}_length": length for side, length in cuts.items()})
    modules = {"": "Transformer"}
    for kind, config, weights in _behind(encoder, words, similarity):
        path = f"{len(modules)}_{kind}"
        modules[path] = kind
        _json(folder / path / CONFIG, config)
        if weights:
            _weights(folder / path / WEIGHTS, weights)
    _write_modules(folder, modules, similarity)


def _behind(encoder: Transformer, words: WordPiece, similarity: str) -> Iterator[tuple[str, dict, dict[str, Tensor]]]:
    # The modules behind the Transformer: kind, configuration and weights of each.
    width = encoder.bert.config.hidden_size
    if encoder.pooling == "mean":
        counted = torch.tensor([[UNFRAMED["word_weights"].get(token, 1.0)] for token in words.tokens])
        yield "WordWeights", {"vocab": words.tokens, **UNFRAMED}, {"emb_layer.weight": counted}
    yield "Pooling", {"embedding_dimension": width, "pooling_mode": "cls" if encoder.pooling == "cls" else "mean"}, {}
    if isinstance(encoder.head, nn.Linear):
        sizes = {"in_features": width, "out_features": encoder.dimension, "bias": True}
        weights = {f"linear.{name}": weight for name, weight in encoder.head.named_parameters()}
        yield "Dense", sizes | {"activation_function": IDENTITY}, weights
    if similarity == "cosine":
        yield "Normalize", {}, {}


def _write_tokenizer(words: WordPiece, frame: tuple[str, str], folder: Path, cut: int) -> None:
    from tokenizers import Regex, normalizers, processors

    words.save(folder / "vocab.txt")
    made, special = bert_tokenizer(words.ids), list(dict.fromkeys([*words.SPECIAL, *frame]))
    made.add_special_tokens(special)
    # The blank in front lets the last step see a text of which nothing is left.
    steps = [normalizers.Prepend(" "), made.normalizer, normalizers.Replace(Regex(r"\A *\z"), NOTHING)]
    made.normalizer = normalizers.Sequence(steps)
    made.post_processor = processors.TemplateProcessing(
        single=f"{frame[0]} $A {frame[1]}",
        pair=f"{frame[0]} $A [SEP] $B {frame[1]}",
        special_tokens=[(token, words.ids[token]) for token in special],
    )
    made.save(str(folder / "tokenizer.json"))
    told = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": ["input_ids", "attention_mask"]}
    # What looks like a special token in a text is text.
    told |= {"split_special_tokens": True, "do_lower_case": True, "model_max_length": cut}
    names = {"pad_token": "[PAD]", "unk_token": UNKNOWN, "cls_token": "[CLS]", "sep_token": "[SEP]"}
    _json(folder / "tokenizer_config.json", told | names | {"mask_token": "[MASK]"})


# --- a folder --------------------------------------------------------------------------------------


def _write_modules(folder: Path, kinds: Mapping[str, str], similarity: str) -> None:
    # `kinds` has the kind of module under each path.
    modules = [{"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{kind}"}
               for place, (path, kind) in enumerate(kinds.items())]  # fmt: skip
    _json(folder / "modules.json", modules)
    _json(folder / "config_sentence_transformers.json", {"similarity_fn_name": similarity})


def _write_router(folder: Path, similarity: str) -> None:
    # With it sentence-transformers takes two towers as one.
    towers = {side: json.loads((folder / side / "modules.json").read_text()) for side in SIDES}
    paths = {side: [f"{side}/{each['path']}" for each in modules] for side, modules in towers.items()}
    types = {f"{side}/{each['path']}": each["type"] for side, modules in towers.items() for each in modules}
    told = {"types": types, "structure": paths, "parameters": {"default_route": "document"}}
    _json(folder / "router_config.json", told)
    _write_modules(folder, {"": "Router"}, similarity)
