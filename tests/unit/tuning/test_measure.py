"""Speed and distance of a model from its reference, with a backend whose probabilities are known."""

from __future__ import annotations

import numpy as np
import pytest

from appliance.engine.backend import N_BATCH
from appliance.engine.config import EngineConfig
from appliance.engine.echo_backend import EchoBackend
from appliance.tuning.measure import Part, measure_backend, measuring_config, n_steps, reference_bytes
from appliance.tuning.tuner import TEXTS as TEXTS_DIR
from appliance.tuning.verdict import LANGUAGES

TEXTS = ["".join(chr(97 + i % 26) for i in range(400)), "".join(chr(65 + i % 26) for i in range(300))]
FIRST = Part(0, 3)


class Leaning(EchoBackend):
    """Gives one token another weight than echo does, and keeps what it was asked to read."""

    def __init__(self, n_slots: int, lean: float = 0.0) -> None:
        super().__init__(n_slots)
        self.lean = lean
        self.largest = 0
        self.read: list[list[int]] = []

    def decode(self, batch):
        self.largest = max(self.largest, sum(len(rows.token_ids) for rows in batch))
        logits = super().decode(batch)
        logits[:, 0] += self.lean
        if len(self.read) < len(self._held):
            self.read = [[] for _ in self._held]
        for slot, held in enumerate(self._held):
            self.read[slot] = max(self.read[slot], held.copy(), key=len)
        return logits


def passes(tmp_path, n_slots, lean, part=FIRST):
    reference = tmp_path / "reference.npy"
    exact, leaning = Leaning(n_slots), Leaning(n_slots, lean)
    first = measure_backend(exact, n_slots, TEXTS, part, reference, is_reference=True)
    second = measure_backend(leaning, n_slots, TEXTS, part, reference, is_reference=False)
    return first, second, exact


def test_a_model_is_no_distance_from_itself(tmp_path):
    first, second, _ = passes(tmp_path, 4, lean=0.0)
    for one in (first, second):
        assert one.divergence.max() < 1e-4
        assert one.agrees.all()
    assert np.array_equal(first.surprise, second.surprise)


def test_the_distance_is_the_divergence_of_the_distributions(tmp_path):
    _, second, _ = passes(tmp_path, 4, lean=8.0)
    logits = np.zeros(258)
    logits[257] = 10.0
    p = np.exp(logits) / np.exp(logits).sum()
    logits[0] += 8.0
    q = np.exp(logits) / np.exp(logits).sum()
    assert second.divergence == pytest.approx(np.full(second.divergence.size, (p * np.log(p / q)).sum()), rel=2e-3)
    assert second.surprise == pytest.approx(np.full(second.surprise.size, -np.log(q[1])), rel=1e-4)
    assert second.agrees.all()


def test_another_likeliest_token_is_noticed(tmp_path):
    assert not passes(tmp_path, 2, lean=20.0)[1].agrees.any()


@pytest.mark.parametrize("n_slots", [1, 3, 16, 64])
def test_every_slot_reads_its_own_piece_and_no_step_is_too_large(tmp_path, n_slots):
    first, _, backend = passes(tmp_path, n_slots, lean=0.0)
    assert backend.largest <= N_BATCH
    assert first.divergence.size == n_slots * n_steps(n_slots)
    assert set(first.text) <= {0, 1}
    for slot, ids in enumerate(backend.read):
        assert len(ids) - 32 - n_steps(n_slots) in (0, 1)  # one more by the stream that is measured alone
        assert bytes(ids).decode() in TEXTS[first.text[slot]]
    assert first.prefill_per_s > 0
    assert first.many_per_s > 0
    assert first.one_per_s > 0


def test_passes_read_different_pieces_of_both_texts(tmp_path):
    pieces = set()
    for number in range(3):
        first, _, backend = passes(tmp_path, 2, 0.0, Part(number, 3))
        assert set(first.text) == {0, 1}
        pieces |= {bytes(ids) for ids in backend.read}
    assert len(pieces) == 6


def test_a_text_that_is_too_short_is_refused(tmp_path):
    with pytest.raises(ValueError, match="too short"):
        measure_backend(Leaning(1), 1, ["short"], Part(0, 1), tmp_path / "r.npy", is_reference=True)


def test_the_reference_is_as_large_as_was_said(tmp_path):
    passes(tmp_path, 3, lean=0.0)
    assert reference_bytes(3, 258) <= (tmp_path / "reference.npy").stat().st_size <= reference_bytes(3, 258) + 256


def test_the_model_is_measured_as_the_engine_runs_it(tmp_path):
    config = EngineConfig(n_slots=8, n_threads=3, n_ctx_seq=4096, cores=(0,), mlock=True)
    measuring = measuring_config(config, tmp_path)
    assert (measuring.n_slots, measuring.n_threads, measuring.cores) == (8, 3, (0,))
    assert measuring.n_ctx_seq > 32 + n_steps(1)


def test_the_bundled_texts_are_long_enough_for_any_number_of_streams():
    for name in LANGUAGES:
        text = (TEXTS_DIR / f"{name}.txt").read_text(encoding="utf-8")
        assert len(text) > 1100  # a token is seldom more than four characters, in Chinese two
        assert len(text.encode()) > 3000
