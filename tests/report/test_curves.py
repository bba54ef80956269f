"""Contrasts of training curves whose truth is known."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from recorded import judge
from scipy import stats

from retlib.core.errors import DataError
from retlib.evaluation.results import Results
from retlib.report import contrasts
from retlib.report.contrasts import Contrast, Term, slope

EVERY = 20


def recorded(first=0, by=1, **systems):
    """Results with a curve (steps x seeds, in points of a hundred) for each system, of which A refreshes lists."""
    wide = {system: pd.DataFrame(values).div(100) for system, values in systems.items()}
    long = pd.concat({system: each.set_axis(first + by * each.index).stack() for system, each in wide.items()})
    long = long.rename("value").rename_axis(["system", "step", "seed"]).reset_index().assign(measure="RR@10")
    return Results(tables={"curves": long, "intervals": pd.DataFrame({"system": ["A"], "interval": [EVERY]})})


def wide(values, seeds=3, noise=0.0, seed=0):
    """The same curve for each seed, and noise of its own."""
    values = np.asarray(values, dtype=float)
    return values[:, None] + noise * np.random.default_rng(seed).normal(size=(len(values), seeds))


def of(system, kind, measure="RR@10"):
    return Contrast((Term(1.0, system, ("d",), measure, kind),))


def rise(made):
    return judge(slope([of("A", each) for each in contrasts.WINDOW]), made)


def sawtooth(made):
    """The fall within cycles, and the jump from the end of one to the start of the next."""
    early, late, after = (of("A", kind) for kind in (contrasts.EARLY, contrasts.LATE, contrasts.AFTER_REFRESH))
    return judge(early - late, made), judge(after - late, made)


def swing(a, b, noise=1.0, seed=0):
    made = recorded(A=wide(a, noise=noise, seed=seed), B=wide(b, noise=noise, seed=seed + 1))
    return judge(of("A", contrasts.swing("A")) - of("B", contrasts.swing("A")), made)


def teeth(cycles, fall=30.0, top=90.0):
    """Jumps to the top at each refresh, and falls until the next."""
    return np.tile(top - fall * np.arange(EVERY) / EVERY, cycles)


LEVEL = np.full(12 * EVERY, 50.0)


def test_a_curve_is_in_points_over_the_steps_that_all_seeds_have():
    made = recorded(A=[[1, 2], [3, 4], [5, 6]], B=[[9, 9]] * 3)
    made.tables["curves"] = made.tables["curves"].drop(index=1)  # step 0 of seed 1
    found = contrasts.curve(made, "A", "d", "RR@10")
    assert found.index.tolist() == [1, 2] and found.columns.tolist() == [0, 1]
    assert found.to_numpy() == pytest.approx(np.array([[3, 4], [5, 6]]))


@pytest.mark.parametrize("contrast", [of("A", contrasts.AT_END, "R@200"), of("A", contrasts.swing("B"))])
def test_a_curve_or_a_refresh_that_is_not_recorded_is_refused(contrast):
    with pytest.raises(DataError):
        judge(contrast, recorded(A=wide(teeth(5))))


def test_the_end_is_the_last_fifth_paired_by_step():
    made = recorded(A=[[0, 0]] * 8 + [[12, 14], [16, 22]], B=[[99, 99]] * 8 + [[10, 10], [10, 10]])
    found = judge(of("A", contrasts.AT_END) - of("B", contrasts.AT_END), made)
    # Differences 2, 4 and 6, 12: by step 3 and 9, by seed 4 and 8; each variance of the mean over two.
    parts = [18 / 2, 8 / 2]
    freedom = sum(parts) ** 2 / sum(part**2 for part in parts)
    assert found.means == pytest.approx([16, 10]) and found.effect == pytest.approx(6)
    assert found.p_for == pytest.approx(stats.t.sf(6 / sum(parts) ** 0.5, freedom))
    assert (found.seeds, found.questions, found.one_seed) == (2, 2, False)
    every = judge(of("A", contrasts.THROUGHOUT) - of("B", contrasts.THROUGHOUT), made)
    assert every.effect == pytest.approx(0.2 * 6 + 0.8 * -99) and every.questions == 10


def test_steps_of_one_training_count_by_blocks():
    # Differences that stay the same within a block, as slowly drifting weights make them.
    drift = np.repeat(np.random.default_rng(0).normal(size=contrasts.BLOCKS), 20)
    made = recorded(A=wide(50 + drift, seeds=1), B=wide(np.full(len(drift), 50.0), seeds=1))
    found = judge(of("A", contrasts.THROUGHOUT) - of("B", contrasts.THROUGHOUT), made)
    assert found.p_for == pytest.approx(stats.ttest_1samp(drift[::20], 0, alternative="greater").pvalue)
    assert found.one_seed and (contrasts.BLOCKS, found.freedom) == (10, 9)


@pytest.mark.parametrize(
    ("shape", "holds", "against"),
    [
        (lambda x: 40 + 10 * x, 1, 0),
        (lambda x: 40 + 10 * (1 - np.exp(-9 * x)), 1, 0),  # fast, then level
        (lambda x: 40 + 10 * x - 12 * ((x > 0.5) & (x < 0.6)), 1, 1),  # one window falls out
        (lambda x: 40 - 10 * x, 0, 1),
        (lambda x: 40 + 0 * x, 0, 0),
    ],
)
def test_a_rise_is_a_trend_in_which_no_window_falls(shape, holds, against):
    found = rise(recorded(A=wide(shape(np.linspace(0, 1, 400)), noise=1.0)))
    assert (found.p_for < 0.05) == holds and (found.p_against < 0.05) == against


def test_a_rise_is_measured_from_window_to_window():
    found = rise(recorded(A=wide(np.arange(200.0), noise=1e-6)))
    assert found.effect == pytest.approx(20, abs=1e-4) and found.means[0] == pytest.approx(9.5, abs=1e-4)
    assert rise(recorded(A=wide(np.arange(20.0), noise=1e-6))).effect == pytest.approx(2, abs=1e-4)
    with pytest.raises(DataError):
        rise(recorded(A=wide(np.arange(19.0))))


def test_a_sawtooth_falls_in_each_cycle_and_jumps_after_it():
    found = sawtooth(recorded(A=wide(teeth(5), noise=1.0)))
    # From the mean of places 0 to 4 of 20 to that of 15 to 19: three quarters of the fall.
    assert [each.effect for each in found] == pytest.approx([22.5, 22.5], abs=1)
    assert [each.questions for each in found] == [5, 4] and all(each.p_for < 1e-3 for each in found)
    exact = sawtooth(recorded(A=wide(teeth(3) + np.repeat([0, 1, 5], EVERY))))  # jumps are by 1 and by 4 higher
    assert [each.effect for each in exact] == pytest.approx([22.5, 25])


# Falls and never jumps; is level; rises; rises, then drops.
@pytest.mark.parametrize("values", [np.linspace(50 - x, 50 + x, 100) for x in (-30, 0, 30)] + [teeth(5)[::-1]])
def test_other_curves_are_no_sawtooth(values):
    assert max(each.p_for for each in sawtooth(recorded(A=wide(values, noise=1.0)))) > 0.2


def test_a_cycle_that_is_not_whole_is_no_tooth():
    values = wide(teeth(4), noise=1.0)
    assert sawtooth(recorded(A=values[: 3 * EVERY + 5]))[0].questions == 3
    with pytest.raises(DataError):
        sawtooth(recorded(A=values[: 3 * EVERY - 6]))
    moved = sawtooth(recorded(A=wide(np.roll(teeth(6), -7), noise=0.5), first=7))[0]
    assert moved.effect == pytest.approx(22.5, abs=1) and moved.questions == 5  # the first is not whole


def test_a_swing_is_the_mean_square_of_what_repeats():
    wave = 4 * np.sin(2 * np.pi * np.arange(12 * EVERY) / EVERY)
    found = swing(LEVEL + wave, LEVEL, noise=0.0)
    parts = wave[:EVERY].reshape(contrasts.PHASES, -1).mean(axis=1)
    assert found.means == pytest.approx([(parts**2).mean(), 0]) and found.questions == 10
    assert found.p_for < 1e-6
    with pytest.raises(DataError):  # five cycles are the fewest
        swing(teeth(4), teeth(4))


def test_the_values_of_a_swing_are_the_jackknifes():
    """Of the mean over all pairs of cycles: with n cycles, n times it less n - 1 times that without one of them."""
    made = recorded(A=wide(teeth(8, fall=8), seeds=1, noise=1.0))
    kind, values = contrasts.swing("A"), contrasts.curve(made, "A", "d", "RR@10")[0].to_numpy()
    parts = values.reshape(-1, contrasts.PHASES, EVERY // contrasts.PHASES).mean(axis=2).ravel()
    around = np.convolve(parts, np.ones(contrasts.PHASES) / contrasts.PHASES, mode="valid")
    profile = (parts[2:-2] - around)[3:-3].reshape(-1, contrasts.PHASES)  # of all cycles but the first and the last

    def over_pairs(cycles):
        return np.mean([(one * other).mean() for one, other in combinations(cycles, 2)])

    count = len(profile)
    without = np.array([over_pairs(np.delete(profile, each, axis=0)) for each in range(count)])
    expected = count * over_pairs(profile) - (count - 1) * without
    assert kind.read(made, "A", "d", "RR@10")[0][0].to_numpy() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("a", "b", "holds"),
    [
        (teeth(12, fall=8), np.linspace(50, 70, 12 * EVERY), 1),  # a steady rise is no swing
        (np.linspace(50, 70, 12 * EVERY), teeth(12, fall=8), 0),
        (60 - 30 * np.exp(-np.arange(12 * EVERY) / 30), LEVEL, 0),  # nor a bent one
        (50 + 5 * np.sin(np.arange(12 * EVERY) / 7.3), LEVEL, 0),  # another period
    ],
)
def test_what_swings_with_the_refreshes(a, b, holds):
    assert (swing(a, b).p_for < 0.05) == holds


def test_noise_swings_in_no_step_however_large():
    found = [swing(LEVEL, LEVEL, noise=5.0, seed=2 * seed) for seed in range(40)]
    assert np.mean([each.p_for < 0.05 for each in found]) <= 0.1
    means = np.array([each.means[0] for each in found])
    assert abs(means.mean()) < 3 * means.std() / 40**0.5  # the expectation is 0
    made = recorded(A=wide(LEVEL, noise=9.0), B=wide(LEVEL, noise=0.1))  # larger noise in A alone is no swing either
    assert judge(of("A", contrasts.swing("A")) - of("B", contrasts.swing("A")), made).p_for > 0.05
