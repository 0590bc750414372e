"""Drawing tokens: the same candidates as a full sort, the same arithmetic as llama.cpp's chain."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.engine.request import SamplingParams
from appliance.engine.sampler import TokenSampler, sample

SIZES = (1, 2, 100, 127, 128, 129, 258, 1000, 49_152, 151_936)
FLAT = 1e6  # a temperature at which all candidates are drawn about equally often


def sampler(**changes: float | int | None) -> TokenSampler:
    values: dict[str, float | int | None] = {
        "temperature": 1.0,
        "top_k": 0,
        "top_p": 1.0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "seed": 1,
    }
    return TokenSampler(SamplingParams(**(values | changes)))  # type: ignore[arg-type]


def draws(drawer: TokenSampler, row: np.ndarray, n: int) -> list[int]:
    return [sample([drawer], row[None].copy())[0] for _ in range(n)]


def candidates(row: np.ndarray, n_draws: int = 600, **changes: float | int | None) -> set[int]:
    """Every token that can be drawn, seen by drawing flatly very often."""
    return set(draws(sampler(temperature=FLAT, **changes), row, n_draws))


@pytest.mark.parametrize("n_vocab", SIZES)
def test_temperature_zero_takes_the_most_likely_token(n_vocab):
    rows = np.random.default_rng(n_vocab).normal(size=(5, n_vocab)).astype(np.float32)
    assert sample([sampler(temperature=0.0) for _ in rows], rows.copy()) == rows.argmax(axis=1).tolist()


@pytest.mark.parametrize("n_vocab", SIZES)
def test_the_most_likely_token_is_found_in_the_last_short_block_too(n_vocab):
    row = np.zeros((1, n_vocab), dtype=np.float32)
    row[0, -1] = 1.0
    assert sample([sampler(temperature=0.0)], row) == [n_vocab - 1]


@pytest.mark.parametrize("n_vocab", [100, 128, 129, 258, 1000, 5000])
@pytest.mark.parametrize("k", [1, 2, 3, 7, 20])
def test_top_k_draws_from_the_k_best_and_from_all_of_them(n_vocab, k):
    # 20 is more than the number of blocks of the small vocabularies
    row = np.random.default_rng(k).normal(size=n_vocab).astype(np.float32)
    assert candidates(row, top_k=k) == set(np.argsort(-row)[:k].tolist())


@given(st.lists(st.sampled_from([-1.0, 0.0, 1.0, 2.0, -math.inf]), min_size=130, max_size=700), st.integers(1, 8))
@settings(max_examples=60, deadline=None)
def test_top_k_with_ties_keeps_exactly_k_and_none_below_the_kth_value(values, k):
    row = np.array(values, dtype=np.float32)
    if not np.isfinite(row).any():
        return
    best = np.sort(row)[::-1][:k]
    drawn = candidates(row, 250, top_k=k)
    assert len(drawn) <= k
    assert min(row[i] for i in drawn) >= best[-1]
    assert all(np.isfinite(row[i]) for i in drawn)
    if np.isfinite(best).all():
        assert sorted((row[i] for i in drawn), reverse=True) == best.tolist()


@pytest.mark.parametrize("k", [0, 64, 100])
def test_no_top_k_or_one_beyond_the_vocabulary_keeps_everything(k):
    row = np.zeros(64, dtype=np.float32)
    assert candidates(row, 1500, top_k=k) == set(range(64))


def test_top_p_keeps_the_token_that_reaches_the_mass_and_no_more():
    row = np.log(np.array([0.5, 0.3, 0.15, 0.05], dtype=np.float32))
    assert candidates(row, top_p=0.5 - 1e-3) == {0}
    assert candidates(row, top_p=0.5 + 1e-3) == {0, 1}
    assert candidates(row, top_p=0.9) == {0, 1, 2}
    assert candidates(row, top_p=1.0) == {0, 1, 2, 3}
    assert candidates(row, top_p=0.0) == {0}


def test_top_p_counts_the_mass_after_top_k():
    row = np.log(np.array([0.4, 0.2, 0.2, 0.2], dtype=np.float32))
    assert candidates(row, top_k=2, top_p=0.65) == {0}  # 0.4 / 0.6 of what top-k left
    assert candidates(row, top_p=0.65) != {0}


def test_min_p_is_a_share_of_the_most_likely_token():
    row = np.log(np.array([0.5, 0.3, 0.15, 0.05], dtype=np.float32))
    assert candidates(row, min_p=0.59) == {0, 1}
    assert candidates(row, min_p=0.61) == {0}
    assert candidates(row, min_p=5.0) == {0}


def test_temperature_comes_after_the_cuts():
    row = np.log(np.array([0.5, 0.3, 0.15, 0.05], dtype=np.float32))
    assert candidates(row, top_p=0.9) == {0, 1, 2}  # at FLAT temperature a cut after it would keep all four


def test_the_repetition_penalty_divides_positive_and_multiplies_negative_logits():
    drawer = sampler(temperature=0.0, repetition_penalty=2.0)
    drawer.accept([0, 2])
    row = np.array([[3.0, 2.0, -1.0, -1.5]], dtype=np.float32)
    assert sample([drawer], row) == [1]
    assert row[0].tolist() == [1.5, 2.0, -2.0, -1.5]


def test_a_token_seen_twice_is_punished_once():
    drawer = sampler(temperature=0.0, repetition_penalty=2.0)
    drawer.accept([0, 0, 0])
    row = np.array([[3.0, 1.0]], dtype=np.float32)
    sample([drawer], row)
    assert row[0, 0] == 1.5


def test_only_the_last_64_tokens_are_punished():
    drawer = sampler(temperature=0.0, repetition_penalty=2.0)
    drawer.accept([0, *[1] * 63])
    assert sample([drawer], np.array([[3.0, 0.0, 2.0]], dtype=np.float32)) == [2]
    drawer.accept([1])
    assert sample([drawer], np.array([[3.0, 0.0, 2.0]], dtype=np.float32)) == [0]


def test_one_persons_penalty_does_not_touch_anothers_row():
    punished, plain = sampler(temperature=0.0, repetition_penalty=9.0), sampler(temperature=0.0)
    punished.accept([0])
    assert sample([plain, punished], np.array([[2.0, 1.0], [2.0, 1.0]], dtype=np.float32)) == [0, 1]


def test_the_same_seed_draws_the_same_tokens_whoever_shares_the_batch():
    rows = np.random.default_rng(3).normal(size=(30, 500)).astype(np.float32)
    alone = [sample([a], row[None].copy())[0] for a in [sampler(seed=7)] for row in rows]
    mine, other = sampler(seed=7), sampler(seed=8)
    shared = [sample([other, mine], np.stack([row, row]))[1] for row in rows]
    assert alone == shared


def test_other_seeds_and_no_seed_draw_other_tokens():
    row = np.zeros(1000, dtype=np.float32)
    runs = [tuple(draws(sampler(seed=s), row, 10)) for s in (1, 2, None, None)]
    assert len(set(runs)) == 4


@pytest.mark.parametrize("seed", [0, -1, -(2**63), 2**64 - 1, 2**70])
def test_any_whole_number_is_a_seed(seed):
    row = np.zeros(100, dtype=np.float32)
    assert draws(sampler(seed=seed), row, 5) == draws(sampler(seed=seed), row, 5)


def test_a_tiny_temperature_is_not_an_error():
    row = np.array([0.0, 3.0, 1.0], dtype=np.float32)
    assert draws(sampler(temperature=1e-6), row, 5) == [1] * 5


def test_frequencies_are_the_probabilities():
    probabilities = np.array([0.5, 0.3, 0.15, 0.05])
    n = 20_000
    counts = np.bincount(draws(sampler(seed=5), np.log(probabilities).astype(np.float32), n), minlength=4)
    chi_square = (((counts - n * probabilities) ** 2) / (n * probabilities)).sum()
    assert chi_square < 16.3  # 3 degrees of freedom, one in a thousand


def test_parameters_left_open_are_refused():
    with pytest.raises(ValueError, match="must all be set"):
        TokenSampler(SamplingParams(temperature=1.0))
