"""Trained encoders for the tools that people use, in chapter 60: folders that sentence-transformers opens.

What is here is read back by `retlib.models.retriever.Architecture.of_checkpoint`::

    export(retriever, Path("mine"), "Mine", {"trained on": ["squad"], **system.settings})
    SentenceTransformer("mine").encode_query("where is the city?")
"""

import json
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from retlib.core.errors import require
from retlib.data.text import UNKNOWN, Tokenizer, WordPiece, bert_tokenizer
from retlib.models import checkpoints
from retlib.models.checkpoints import CONFIG, OWN, SIDES, TABLE, WEIGHTS
from retlib.models.encoders import BagOfWords
from retlib.models.retriever import Retriever
from retlib.models.transformer import Transformer

# What stands around a text whose mean leaves them out. A [SEP] inside of it is a part of it.
FRAME = ("[CLS]", "[END]")
# A letter that a normalized text does not hold, and no vocabulary: of what is left empty it makes one unknown token.
NOTHING = "\ue000"
EMBEDDINGS = "embeddings.word_embeddings.weight"

README = """---
library_name: sentence-transformers
tags: [sentence-transformers, sentence-similarity, dense-retrieval]
---

# {name}

A dual encoder: {made.dimension} numbers a text, compared by {made.similarity}. Write a blank for an empty string.

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

    Texts have there the encodings that a `Retriever` gives in float32; but for an empty string, which has no token
    there. Documents with a title are pairs of title and text, or of static embeddings both with a blank between. Of two
    towers each has a folder of its own, ``query`` and ``document``.
    """
    model, made, tokens = retriever.model, retriever.architecture, retriever.tokenizer
    is_static = made.encoder == "static"
    wrong = "only encoder = 'static', or 'transformer' over WordPiece, can be exported; here is "
    wrong += f"{made.encoder!r} over {type(tokens).__name__}"
    require(is_static or isinstance(model.query_encoder, Transformer) and isinstance(tokens, WordPiece), wrong)
    longest = math.inf if is_static else model.query_encoder.longest
    lengths = dict(zip(SIDES, (made.query_length, made.document_length), strict=True))
    require(not is_static or {*lengths.values()} == {None}, "static embeddings read whole texts: give no length")
    cuts = {side: 2 + min(length or longest, longest) for side, length in lengths.items()}
    taken = folder.is_dir() and any(folder.iterdir()) and not (folder / "modules.json").is_file()
    require(not taken, f"{folder} is there and holds no retriever: choose another folder")
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    router: dict[str, dict] = {"types": {}, "structure": {}, "parameters": {"default_route": "document"}}
    for side, encoder in zip(SIDES if made.towers == "two" else ("",), model.children(), strict=False):
        paths = _write(encoder, tokens, model.similarity, partial / side, cuts, cuts[side or "document"])
        router["types"] |= {f"{side}/{path}": kind for path, kind in paths.items()}
        router["structure"][side] = [f"{side}/{path}" for path in paths]
    if made.towers == "two":
        _json(partial / "router_config.json", router)  # with it sentence-transformers takes two towers as one
        _write_modules(partial, [("Router", None, {})], model.similarity)
    _json(partial / OWN, asdict(made) | {"checkpoint": ""})
    documents = '["a title a text", "a text without one"]' if is_static else '[("a title", "a text"), (" ", "a text")]'
    about = json.dumps(about, indent=1, default=str, ensure_ascii=False)
    readme = README.format(name=name, made=made, documents=documents, about=about)
    (partial / "README.md").write_text(readme, encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)  # nothing of a retriever that was there before stays
    partial.replace(folder)
    checkpoints.digest.cache_clear()


def _json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")


def _write_modules(folder: Path, modules: Sequence[tuple], similarity: str) -> dict[str, str]:
    # Writes modules of sentence-transformers: a kind, a configuration, if it has one, and weights; the types by path.
    types = {}
    for kind, config, weights in modules:
        path = f"{len(types)}_{kind}" if types else ""
        types[path] = f"sentence_transformers.models.{kind}"
        (folder / path).mkdir(parents=True, exist_ok=True)
        if config is not None:
            _json(folder / path / CONFIG, config)
        if weights:
            weights = {name: weight.detach().float().cpu().contiguous() for name, weight in weights.items()}
            save_file(weights, folder / path / WEIGHTS, {"format": "pt"})
    places = [{"idx": i, "name": str(i), "path": path, "type": each} for i, (path, each) in enumerate(types.items())]
    _json(folder / "modules.json", places)
    _json(folder / "config_sentence_transformers.json", {"similarity_fn_name": similarity})
    return types


def _write(
    encoder: nn.Module, tokens: Tokenizer, similarity: str, folder: Path, cuts: Mapping[str, int], cut: int
) -> dict[str, str]:
    # One encoder in a folder.
    normalize = [("Normalize", {}, {})] if similarity == "cosine" else []
    if isinstance(encoder, BagOfWords):
        types = _write_modules(folder, [("StaticEmbedding", None, {TABLE: encoder.weight}), *normalize], similarity)
        tokens.save(folder / "tokenizer.json")
        return types
    weights, mean = encoder.bert.state_dict(), encoder.pooling == "mean"
    if mean:
        # A text ends with a token of its own, whose embedding is that of [SEP]: by its id the mean leaves it out.
        others = [i for i, token in enumerate(tokens.tokens) if token != FRAME[1]]
        weights[EMBEDDINGS] = weights[EMBEDDINGS][[*others, tokens.sep]]
        tokens = WordPiece((*(tokens.tokens[i] for i in others), FRAME[1]))
    types = _write_modules(folder, [*_modules(encoder, tokens, weights), *normalize], similarity)
    _write_tokenizer(tokens, FRAME if mean else ("[CLS]", "[SEP]"), folder, cut)
    _json(folder / "sentence_bert_config.json", {f"{side}_length": length for side, length in cuts.items()})
    return types


def _modules(encoder: Transformer, words: WordPiece, weights: dict[str, Tensor]) -> Iterator[tuple]:
    width = encoder.bert.config.hidden_size
    if encoder.layers == 0:  # normed embeddings of tokens, and nothing beside them
        for name in weights.keys() - {EMBEDDINGS}:
            weights[name] = torch.full_like(weights[name], name.endswith("LayerNorm.weight"))
    # Nobody asks for BERT's own pooling, but transformers complains where its weights are missing.
    weights |= {"pooler.dense.weight": torch.zeros(width, width), "pooler.dense.bias": torch.zeros(width)}
    config = encoder.bert.config.to_dict() | {"vocab_size": len(words), "architectures": ["BertModel"]}
    config.pop("_name_or_path", None)
    yield "Transformer", config, weights
    if encoder.pooling == "mean":
        counts = torch.tensor([[float(token not in FRAME)] for token in words.tokens])
        unframed = {"vocab": words.tokens, "word_weights": dict.fromkeys(FRAME, 0.0), "unknown_word_weight": 1.0}
        yield "WordWeights", unframed, {"emb_layer.weight": counts}
    yield "Pooling", {"embedding_dimension": width, "pooling_mode": "cls" if encoder.pooling == "cls" else "mean"}, {}
    if isinstance(encoder.head, nn.Linear):
        sizes = {"in_features": width, "out_features": encoder.head.out_features, "bias": True}
        linear = {f"linear.{name}": weight for name, weight in encoder.head.named_parameters()}
        yield "Dense", sizes | {"activation_function": "torch.nn.modules.linear.Identity"}, linear


def _write_tokenizer(words: WordPiece, frame: tuple[str, str], folder: Path, cut: int) -> None:
    from tokenizers import Regex, normalizers, processors

    words.save(folder / "vocab.txt")
    made, special = bert_tokenizer(words.ids), list(dict.fromkeys([*words.SPECIAL, *frame]))
    made.add_special_tokens(special)
    # The blank in front lets the last step see a text of which nothing is left.
    steps = [normalizers.Prepend(" "), made.normalizer, normalizers.Replace(Regex(r"\A *\z"), NOTHING)]
    made.normalizer = normalizers.Sequence(steps)
    frames = {"single": f"{frame[0]} $A {frame[1]}", "pair": f"{frame[0]} $A [SEP] $B {frame[1]}"}
    ids = [(token, words.ids[token]) for token in special]
    made.post_processor = processors.TemplateProcessing(**frames, special_tokens=ids)
    made.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": ["input_ids", "attention_mask"]}
    # What looks like a special token in a text is text.
    config |= {"split_special_tokens": True, "do_lower_case": True, "model_max_length": cut}
    names = {"pad_token": "[PAD]", "unk_token": UNKNOWN, "cls_token": "[CLS]", "sep_token": "[SEP]"}
    _json(folder / "tokenizer_config.json", config | names | {"mask_token": "[MASK]"})
