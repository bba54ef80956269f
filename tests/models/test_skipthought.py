"""Skip-Thought: what is read of a sentence, and what its neighbours cost."""

import pytest
import torch

from retlib.data.text import TokenTable
from retlib.models.skipthought import SkipThought, SkipThoughtEncoder

ROWS = [[3, 1, 4], [2], [5, 5, 1, 2, 3]]


@pytest.fixture
def encoder():
    torch.manual_seed(0)
    return SkipThoughtEncoder(6, 8)


def test_a_sentence_s_vector_is_the_state_after_its_own_last_word(encoder):
    together = encoder(TokenTable.from_rows(ROWS))
    assert together.shape == (3, 8)
    for row, vector in zip(ROWS, together, strict=True):
        states, _ = encoder.gru(encoder.embedding(torch.tensor([row])))
        torch.testing.assert_close(vector, states[0, -1])


def test_the_loss_is_that_of_the_words_of_both_neighbours(encoder):
    model = SkipThought(encoder)
    sentence, previous, following = (TokenTable.from_rows([row]) for row in ROWS)

    def by_hand(decoder, row):
        given = torch.cat([torch.zeros(1, 8), encoder.embedding(torch.tensor(row[:-1], dtype=torch.long))])
        hidden, _ = decoder(given[None], encoder(sentence)[None])
        classes = sorted(set(row))
        scores = hidden[0] @ model.output(torch.tensor(classes)).T
        chosen = torch.log_softmax(scores, dim=1)[range(len(row)), [classes.index(word) for word in row]]
        return -chosen.mean()

    expected = (by_hand(model.before, ROWS[1]) + by_hand(model.after, ROWS[2])) / 2
    torch.testing.assert_close(model(sentence, previous, following), expected)
    assert model(sentence, following, previous) != expected
