"""MaxSim by hand and against loops; models that score pairs with it, and that they are kept."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from letters import LETTERS, SMALL, table, tokens

from retlib.core.errors import DataError
from retlib.core.history import History
from retlib.data.text import TokenTable, offsets_of
from retlib.models import pair_models
from retlib.models.pair_models import PAIR_MODELS, PairModel, maxsim
from retlib.models.retriever import Retriever
from retlib.training.losses import NEGATIVE, POSITIVE
from retlib.training.negatives import Batch
from retlib.training.tasks import PairTask


@given(st.integers(1, 3), st.integers(0, 99))
def test_scores_are_those_of_loops(count, seed):
    generator = np.random.default_rng(seed)
    asked, found = generator.integers(0, 4, count).tolist(), generator.integers(0, 5, 2 * count).tolist()

    def texts(lengths):
        tokens = generator.normal(size=(sum(lengths), 3))
        return tokens, np.split(tokens, offsets_of(np.array(lengths))[1:-1])

    (left, queries), (right, documents) = texts(asked), texts(found)
    scores = maxsim(torch.from_numpy(left), np.array(asked), torch.from_numpy(right), np.array(found))
    for row, query in enumerate(queries):
        for place, document in enumerate(documents[2 * row : 2 * row + 2]):
            expected = sum(max((token @ other for other in document), default=0.0) for token in query)
            assert scores[row, place].item() == pytest.approx(expected)


def make_model(kind, seed=1):
    made = PairModel.fresh(kind, Retriever.fresh(SMALL, LETTERS, seed), seed)
    torch.manual_seed(seed)
    # As they start, layers hardly change what goes through them, and a mistake would hardly show.
    for weight in made.model.parameters():
        weight.data += 0.1 * torch.randn_like(weight)
    made.model.eval()
    return made


@pytest.fixture(scope="module")
def cross():
    return make_model("cross-encoder").model


@pytest.fixture(scope="module")
def late():
    return make_model("late-interaction").model


QUERIES = table("a b", "c", "d e f")
DOCUMENTS = table("d", "e f g", "a", "h i j k", "b", "c c")


def vectors(model, row):
    """Vectors of a row that is read by itself: (tokens, d)."""
    return model.encoder.head(model.encoder.states(TokenTable.from_rows([row]))) / model.length


@pytest.mark.parametrize("layers", [0, 1])
def test_a_model_begins_with_the_retriever_s_vectors(layers):
    """Whose mean is a text's encoding; all as long as vectors of unit length, taken together."""
    start = Retriever.fresh(replace(SMALL, layers=layers), LETTERS, 0)
    made, texts = PairModel.fresh("late-interaction", start, 0), table("a b c", "d")
    with torch.no_grad():
        found = made.model.vectors(texts) * made.model.length
        encoded = start.model.query_encoder(texts)
        whole = made.model.vectors(table(*"abcdefghijk"))
    torch.testing.assert_close(torch.stack([found[:3].mean(0), found[3]]), encoded)
    assert 0.3 < whole.square().sum(1).mean().sqrt() < 3


def test_all_is_exact_where_the_layers_are_not(late):
    states = late.encoder.states(DOCUMENTS).detach().bfloat16()
    with pytest.MonkeyPatch.context() as patch, torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        patch.setattr(late.encoder, "states", lambda table: states)
        found = late.vectors(DOCUMENTS)
        scores = maxsim(found[:2], np.array([2]), found[2:5], np.array([3]))
        exact = late.encoder.head.float()
    with torch.no_grad():
        exact = exact(states.float()) / late.length
    assert found.dtype == scores.dtype == torch.float32
    torch.testing.assert_close(found, exact)
    torch.testing.assert_close(scores, (exact[:2] @ exact[2:5].T).amax(dim=1).sum()[None, None])


def test_a_cross_encoder_reads_query_separator_and_document_of_each_pair(cross):
    """And sums, over the query's tokens, the largest inner product with a token of the document."""
    queries = table("a b", "c")
    with torch.no_grad():
        found = cross(queries, DOCUMENTS)
        expected = []
        for i, row in enumerate(tokens(DOCUMENTS)):
            asked = tokens(queries)[i // 3]
            read = vectors(cross, [*asked, LETTERS.sep, *row])
            own = read[len(asked) + 1 :]
            expected.append(sum(max(float(token @ other) for other in own) for token in read[: len(asked)]))
    assert found.shape == (2, 3)
    np.testing.assert_allclose(found.ravel(), expected, atol=1e-5)
    assert len({round(score, 4) for score in expected}) == 6


def test_what_is_too_long_is_cut_at_the_end_of_the_document(cross, monkeypatch):
    monkeypatch.setattr(type(cross.encoder), "longest", 5)
    with torch.no_grad():
        assert cross(table("a b"), table("c d e f")).item() == cross(table("a b"), table("c d")).item()
        assert cross(table("a b"), table("c d e f")).item() != cross(table("a b"), table("c e")).item()
        monkeypatch.setattr(type(cross.encoder), "longest", 3)  # the separator of the second is cut away, too
        assert cross(table("a b", "a b c"), table("c d", "e")).tolist() == [[0], [0]]


def test_query_and_document_are_read_apart(late):
    with torch.no_grad():
        found = late(QUERIES, DOCUMENTS)
        expected = []
        for i in range(6):
            asked, own = vectors(late, QUERIES.row(i // 2)), vectors(late, DOCUMENTS.row(i))
            expected.append(sum(max(float(a @ b) for b in own) for a in asked))
    assert found.shape == (3, 2)
    np.testing.assert_allclose(found.ravel(), expected, atol=1e-5)
    with pytest.raises(DataError):
        late(TokenTable.from_rows([[]]), table("a"))


class Scripted(torch.nn.Module):
    """Scores each pair by ten times the query's first token, less the document's first."""

    def forward(self, queries, documents):
        first = [torch.tensor([float(row[0]) for row in tokens(side)]) for side in (queries, documents)]
        return 10 * first[0][:, None] - first[1].view(len(queries), -1)


@pytest.mark.parametrize("block", [1, 2, 512])
def test_scores_are_those_of_each_row_in_its_place(block, monkeypatch, exact):
    monkeypatch.setattr(pair_models, "BLOCK", block)
    queries, documents = table("a b c", "d", "a", "b b"), table("a", "a b c d", "k", "j")
    a, b, d, j, k = (LETTERS.ids[letter] for letter in "abdjk")
    found = PairModel(SMALL, LETTERS, Scripted()).scores(queries, documents)
    assert found.dtype == np.float32 and found.tolist() == [10 * a - a, 10 * d - a, 10 * a - k, 10 * b - j]
    made = make_model("cross-encoder")
    with torch.no_grad():
        expected = [made.model(queries.take([i]), documents.take([i])).item() for i in range(4)]
    np.testing.assert_allclose(made.scores(queries, documents), expected, atol=1e-5)


@pytest.mark.parametrize("kind", PAIR_MODELS.names())
def test_a_model_is_read_as_it_was_written(kind, tmp_path):
    made = make_model(kind)
    made.history = History([{"step": 0, "loss": 1.0, "score": 0.5, "seconds": 0.0}])
    made.save(tmp_path)
    found = PairModel.load(tmp_path)
    assert (found.architecture, found.history, found.name) == (made.architecture, made.history, tmp_path.name)
    assert found.tokenizer == LETTERS and type(found.model) is type(made.model) and not found.model.training
    np.testing.assert_array_equal(
        found.scores(QUERIES, DOCUMENTS.take([0, 1, 2])), made.scores(QUERIES, DOCUMENTS.take([0, 1, 2]))
    )
    assert found.parameters == made.parameters > 1000


def test_the_loss_is_over_the_documents_of_a_query():
    targets = torch.tensor([[POSITIVE, NEGATIVE], [POSITIVE, NEGATIVE]], dtype=torch.int8)
    batch = Batch(table("a", "b"), table("c", "d", "f", "e"), targets, shared=False)
    # Scores differ by the ids of the documents: the positive is one above, then one below.
    expected = (np.log(1 + np.exp(-1)) + np.log(1 + np.exp(1))) / 2
    assert PairTask(Scripted(), None, "softmax").loss(batch).item() == pytest.approx(expected, abs=1e-5)
    assert PairTask(Scripted(), None, "ranknet").loss(batch).item() == pytest.approx(expected, abs=1e-5)
