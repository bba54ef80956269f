"""stub of word vectors, until the module lands"""
from __future__ import annotations
from dataclasses import dataclass
import numpy as np
from retlib.text import Vocabulary, words


@dataclass(eq=False)
class WordVectors:
    vocabulary: Vocabulary
    matrix: np.ndarray
    settings: dict


def train(texts, seed, epochs=5, dimension=300):
    from gensim.models import Word2Vec
    m = Word2Vec([words(t) for t in texts], vector_size=dimension, seed=seed, epochs=epochs, workers=1, min_count=2, hashfxn=lambda w: sum(map(ord, w)))
    return WordVectors(Vocabulary(tuple(m.wv.index_to_key)), np.vstack([np.zeros((1, dimension)), m.wv.vectors]).astype(np.float32), {"dimension": dimension, "epochs": epochs})


class AveragedVectors:
    def __init__(self, vectors, idf_texts=None):
        self.v = vectors
        self.w = np.ones(len(vectors.vocabulary), np.float32)
        if idf_texts is not None:
            t = vectors.vocabulary.encode(idf_texts)
            df = np.zeros(len(self.w))
            for i in range(len(t)):
                df[np.unique(t.row(i))] += 1
            self.w = np.log((1 + len(t)) / (1 + df)).astype(np.float32)
        self.w[0] = 0

    def encode(self, texts):
        t = self.v.vocabulary.encode(texts)
        x = self.v.matrix[t.ids] * self.w[t.ids, None]
        s = np.add.reduceat(x, t.offsets[:-1])
        return (s / np.maximum(np.linalg.norm(s, axis=1, keepdims=True), 1e-9)).astype(np.float32)
