"""What is slow and plainly right, to compare with."""

import numpy as np


def slow_search(vectors, queries, k):
    """All inner products, in 64-bit floats, then a full sort by score and row."""
    scores = queries.astype(np.float64) @ vectors.T.astype(np.float64)
    rows = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, rows, axis=1), rows


def slow_sum(values, weights, clusters):
    """A weighted sum of systems by question and seed: effect, standard error and freedom, a number at a time.

    `values` are lists of questions, each a list of seeds; the error is that of `retlib.evaluation.measures.compare`.
    """
    questions, seeds = len(values[0]), len(values[0][0])
    sums = [[sum(w * v[q][s] for w, v in zip(weights, values, strict=True)) for s in range(seeds)]
            for q in range(questions)]  # fmt: skip
    effect = sum(map(sum, sums)) / questions / seeds
    groups = {name: 0.0 for name in clusters}
    for name, row in zip(clusters, sums, strict=True):
        groups[name] += sum(row) / seeds - effect
    count = len(groups)
    parts = [(count / (count - 1) * sum(each**2 for each in groups.values()) / questions**2, count - 1)]
    if seeds > 1:
        means = [sum(row[s] for row in sums) / questions for s in range(seeds)]
        parts.append((sum((mean - effect) ** 2 for mean in means) / (seeds - 1) / seeds, seeds - 1))
    variance, spread = sum(part for part, _ in parts), sum(part**2 / freedom for part, freedom in parts)
    return effect, variance**0.5, variance**2 / spread if spread else count - 1


def slow_holm(p_values):
    """Holm's correction, one hypothesis after the other from the smallest p-value on."""
    corrected, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = highest
    return corrected
