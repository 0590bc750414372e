"""The same distribution as llama.cpp's own sampler chain, on the real model's logits."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from llama_cpp import llama_cpp as llama
from numpy.typing import NDArray

from appliance.engine.backend import Rows
from appliance.engine.llama_backend import LlamaBackend
from appliance.engine.request import SamplingParams
from appliance.engine.sampler import TokenSampler, sample

PROMPT = "The capital of France is Paris. The capital of Italy is Rome. The capital of Spain is"
OPEN_PROMPT = "Once upon a time there was"
WINDOW = 64
N_VOCAB = 8192
"""The first part of the vocabulary: as good for the comparison as all of it, and drawn from six times as fast."""

# temperature, top_k, top_p, min_p, repetition_penalty
SETTINGS = [
    SamplingParams(0.7, 20, 0.8, 0.0, 1.1),  # Qwen2.5
    SamplingParams(0.2, 40, 0.9, 0.0, 1.1),  # SmolLM2
    SamplingParams(1.0, 40, 0.95, 0.05, 1.3),
    SamplingParams(1.5, 7, 1.0, 0.0, 1.0),
    SamplingParams(1.0, 0, 0.9, 0.0, 1.1),
    SamplingParams(0.9, 0, 1.0, 0.02, 1.1),
    SamplingParams(0.8, 500, 0.5, 0.0, 2.0),  # more than there are blocks
]


@pytest.fixture(scope="module", params=[PROMPT, OPEN_PROMPT], ids=["sure", "open"])
def row(request: pytest.FixtureRequest, backend: LlamaBackend) -> tuple[list[int], NDArray[np.float32]]:
    """Recent tokens, likely ones among them, and the logits that follow."""
    return recent_and_logits(backend, request.param)


def recent_and_logits(backend: LlamaBackend, prompt: str) -> tuple[list[int], NDArray[np.float32]]:
    ids = backend.vocabulary.tokenize(prompt, markers=False)
    logits = backend.decode([Rows(0, 0, ids, True)])[0, :N_VOCAB].copy()
    backend.truncate(0, 0)
    likely = np.argsort(-logits)[:8:2].tolist()
    return [i for i in ids if i < N_VOCAB] + likely, logits


def chain_probabilities(params: SamplingParams, ids: list[int], logits: NDArray[np.float32]) -> dict[int, float]:
    """What llama.cpp's own chain makes of a row: token -> probability of being drawn."""
    chain = llama.llama_sampler_chain_init(llama.llama_sampler_chain_default_params())
    add = llama.llama_sampler_chain_add
    add(chain, llama.llama_sampler_init_penalties(len(logits), WINDOW, params.repetition_penalty, 0.0, 0.0))
    add(chain, llama.llama_sampler_init_top_k(params.top_k))
    add(chain, llama.llama_sampler_init_top_p(params.top_p, 1))
    add(chain, llama.llama_sampler_init_min_p(params.min_p, 1))
    add(chain, llama.llama_sampler_init_temp(params.temperature))
    for token_id in ids:
        llama.llama_sampler_accept(chain, token_id)
    candidates = (llama.llama_token_data * len(logits))()
    for token_id, logit in enumerate(logits.tolist()):
        candidates[token_id] = llama.llama_token_data(token_id, logit, 0.0)
    array = llama.llama_token_data_array(candidates, len(logits), -1, False)
    llama.llama_sampler_apply(chain, ctypes.byref(array))
    left = [(array.data[i].id, array.data[i].logit) for i in range(array.size)]
    llama.llama_sampler_free(chain)
    scores = np.array([logit for _, logit in left], dtype=np.float64)
    weights = np.exp(scores - scores.max())
    return {token_id: float(w) for (token_id, _), w in zip(left, weights / weights.sum(), strict=True)}


def our_draws(params: SamplingParams, ids: list[int], logits: NDArray[np.float32], n: int) -> list[int]:
    """`n` draws of the same row, as `n` rows of a batch each with a seed of its own."""
    drawn: list[int] = []
    for start in range(0, n, 50):
        samplers = []
        for seed in range(start, min(start + 50, n)):
            values = vars(params) | {"seed": seed}
            samplers.append(TokenSampler(SamplingParams(**values)))
            samplers[-1].accept(ids)
        drawn += sample(samplers, np.tile(logits, (len(samplers), 1)))
    return drawn


def chi_square(drawn: list[int], probabilities: dict[int, float]) -> tuple[float, float]:
    """Distance of the draws from the probabilities, and the value one draw series in about 10,000 exceeds."""
    n = len(drawn)
    counts = np.array([drawn.count(token_id) for token_id in probabilities], dtype=np.float64)
    expected = n * np.array(list(probabilities.values()))
    big = expected >= 5
    observed = np.append(counts[big], counts[~big].sum())
    wanted = np.append(expected[big], expected[~big].sum())
    observed, wanted = observed[wanted > 0.5], wanted[wanted > 0.5]
    freedom = max(1, len(wanted) - 1)
    # Wilson and Hilferty's approximation of the quantile at 3.7 standard deviations
    limit = freedom * (1 - 2 / (9 * freedom) + 3.7 * np.sqrt(2 / (9 * freedom))) ** 3
    return float(((observed - wanted) ** 2 / wanted).sum()), float(limit)


@pytest.mark.parametrize("params", SETTINGS, ids=str)
def test_draws_follow_llama_cpps_own_chain(row, params):
    ids, logits = row
    probabilities = chain_probabilities(params, ids, logits)
    drawn = our_draws(params, ids, logits, 1500 if 0 < params.top_k <= 40 else 500)
    assert set(drawn) <= set(probabilities)
    distance, limit = chi_square(drawn, probabilities)
    assert distance < limit


@pytest.mark.parametrize("params", [params for params in SETTINGS if 0 < params.top_k <= 40], ids=str)
def test_the_candidates_are_llama_cpps(row, params):
    """At a temperature that flattens all differences every candidate shows up."""
    ids, logits = row
    probabilities = chain_probabilities(params, ids, logits)
    flat = SamplingParams(**(vars(params) | {"temperature": 1e6}))
    assert set(our_draws(flat, ids, logits, 700)) == set(probabilities)


@pytest.mark.parametrize(
    "change", [{"temperature": 0.5}, {"top_p": 0.5}, {"repetition_penalty": 1.6}, {"top_k": 3}], ids=str
)
def test_the_comparison_tells_other_parameters_apart(backend, change):
    """The distance above means something: draws by other parameters exceed the limit."""
    ids, logits = recent_and_logits(backend, OPEN_PROMPT)
    params = SamplingParams(0.9, 20, 0.95, 0.0, 1.1)
    probabilities = chain_probabilities(params, ids, logits)
    same, limit = chi_square(our_draws(params, ids, logits, 1500), probabilities)
    assert same < limit
    other = SamplingParams(**(vars(params) | change))
    distance, limit = chi_square(our_draws(other, ids, logits, 1500), probabilities)
    assert distance > limit


def test_temperature_zero_takes_what_llama_cpps_greedy_takes(row):
    ids, logits = row
    params = SamplingParams(0.0, 20, 0.8, 0.0, 1.1)
    drawer = TokenSampler(params)
    drawer.accept(ids)
    (ours,) = sample([drawer], logits[None].copy())
    warm = chain_probabilities(SamplingParams(1.0, 1, 1.0, 0.0, 1.1), ids, logits)
    assert [ours] == list(warm)


def test_the_penalty_looks_back_as_far_as_llama_cpps():
    """70 different tokens: of the first six only the model's own opinion counts."""
    ids = list(range(1000, 1070))
    logits = np.full(N_VOCAB, -1.0, dtype=np.float32)
    logits[1000:1070] = 2.0
    params = SamplingParams(1.0, 100, 1.0, 0.0, 1.5)
    probabilities = chain_probabilities(params, ids, logits)
    distance, limit = chi_square(our_draws(params, ids, logits, 1500), probabilities)
    assert distance < limit
    assert probabilities[1005] > 1.5 * probabilities[1006]
