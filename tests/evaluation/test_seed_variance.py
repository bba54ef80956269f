"""The variance between seeds, pooled over systems: by hand, and how often its tests err."""

import numpy as np
import pandas as pd
import pytest
from scipy import special

from retlib.evaluation.measures import _joined, average, between_seeds, compare, larger


def test_the_larger_of_own_and_pooled_counts_with_its_freedom():
    own, pooled = [(2.0, 2)], [(1.0, 16), (0.5, 8)]
    assert larger(own, pooled) == own and larger(own, [(3.0, 16)]) == [(3.0, 16)]
    assert larger(own, []) == own and larger([], []) == []


def test_a_pooled_variance_takes_the_place_of_a_smaller_own_one():
    """By hand: differences 1 and 3 for every query, so that nothing is of queries."""
    found = compare(pd.DataFrame([[1.0, 3.0]] * 4))
    alone = average([found])
    assert (alone.error**2, alone.freedom) == pytest.approx((2 / 2, 1))  # a variance of 2 over two seeds
    pooled = average([found], [(1.5, 10), (0.5, 5)])
    assert pooled.effect == 2 and pooled.error**2 == pytest.approx(2.0)
    assert pooled.freedom == pytest.approx(2.0**2 / (1.5**2 / 10 + 0.5**2 / 5))  # Satterthwaite
    assert average([found], [(0.9, 10)]) == alone


def test_the_parts_of_the_variance_by_hand():
    """Each system less its own mean: (-1, 1), (-3, 3); seeds' means -2 and 2, the rest (1, -1), (-1, 1)."""
    (alone, freedom), (block, of) = between_seeds(pd.DataFrame([[4.0, 6.0], [7.0, 13.0]]))
    assert (alone, freedom) == (4.0, 1) and (block, of) == (8.0 - 4.0 / 2, 1)
    # What all share is not below 0, however much the systems differ.
    assert between_seeds(pd.DataFrame([[0.0, 2.0], [2.0, 0.0]]))[1] == (0.0, 1)


# Standard deviations between seeds of eight systems, of which the first two are compared.
SCENARIOS = {
    "equal": [1] * 8,
    "half of them four times as noisy": [4, 4, 4, 4, 1, 1, 1, 1],
    "the two alone four times as noisy": [4, 4, 1, 1, 1, 1, 1, 1],
    "one alone four times as noisy": [4, 1, 1, 1, 1, 1, 1, 1],
}


def rates(deviations, seeds, shared, untrained=False, trials=1500):
    """How often a one-sided test at 5 % errs: by its own variance, the pooled one, and the larger of the two.

    `shared` is the share of the variance that is of what all systems of a seed begin with; the first system is
    compared with the second, or with one that is not trained.
    """
    rng, deviations = np.random.default_rng(seeds), np.array(deviations, dtype=float)[:, None]
    wrong = np.zeros(3)
    for _ in range(trials):
        common, alone = rng.normal(size=seeds), rng.normal(size=(len(deviations), seeds))
        means = deviations * (shared**0.5 * common + (1 - shared) ** 0.5 * alone)
        (alone, freedom), (block, of) = between_seeds(pd.DataFrame(means))
        pooled = [(alone / seeds, freedom), (block / seeds, of)] if untrained else [(2 * alone / seeds, freedom)]
        difference = means[0] - (0 if untrained else means[1])
        own = [(difference.var(ddof=1) / seeds, seeds - 1)]
        for place, pieces in enumerate((own, pooled, larger(own, pooled))):
            error, freedom = _joined(pieces)
            wrong[place] += special.stdtr(freedom, -difference.mean() / error) < 0.05
    return wrong / trials


@pytest.mark.parametrize("seeds", [3, 5, 10])
@pytest.mark.parametrize("shared", [0.0, 0.5, 0.85])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_how_often_the_larger_variance_errs(scenario, shared, seeds):
    own, pooled, guarded = rates(SCENARIOS[scenario], seeds, shared)
    noise = 3 * (0.05 * 0.95 / 1500) ** 0.5
    assert guarded < 0.05 + noise and own < 0.05 + noise
    if scenario == "equal":
        assert pooled < 0.05 + noise
    elif "alone" in scenario and shared < 0.85:
        assert pooled > 0.08  # why it is not taken by itself


@pytest.mark.parametrize("seeds", [3, 10])
@pytest.mark.parametrize("shared", [0.0, 0.85])
def test_how_often_it_errs_beside_a_system_that_is_not_trained(shared, seeds):
    """What all systems of a seed share does not go out: its freedom is that of the seeds, however many systems."""
    own, pooled, guarded = rates([1] * 22, seeds, shared, untrained=True)
    noise = 3 * (0.05 * 0.95 / 1500) ** 0.5
    assert max(own, pooled, guarded) < 0.05 + noise
