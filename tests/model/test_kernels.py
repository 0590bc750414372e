"""Kernels that die or compute wrong, as real libraries: each is stepped over, and nobody who asked loses an answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

import trial_reference
from appliance.base.errors import EngineFailed, ModelFileError
from appliance.engine.client import EngineClient, EngineState
from appliance.engine.config import EngineConfig
from appliance.engine.kernels import LEVELS, WRONG, Failure, label_of
from appliance.engine.llama_trial import REFERENCE, TOLERANCE
from appliance.engine.request import Delta, Finished, FinishReason, Message, Request, SamplingParams
from appliance.engine.step_down import StepDown
from appliance.tuning.kernel_file import remember, remembered
from tests.model.faulty_llama import SITE, Fault, able_here, faulty_llama
from tests.unit.engine.waiting import until

pytestmark = pytest.mark.model

MakeLlama = Callable[..., list[str]]


@pytest.fixture
def make_llama(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeLlama:
    """Puts a copy of llama.cpp in front of the installed one for every engine that is started from here on."""

    def make(**faults: Fault) -> list[str]:
        monkeypatch.syspath_prepend(str(tmp_path / "site"))
        return faulty_llama(tmp_path / "site", **faults)

    return make


@asynccontextmanager
async def engine(model: Path, kernels: StepDown | None = None, n_slots: int = 16) -> AsyncIterator[EngineClient]:
    client = EngineClient(EngineConfig(model, n_slots=n_slots, n_ctx_seq=512, max_answer_tokens=200), kernels)
    client.spawn()
    await client.start()
    try:
        yield client
    finally:
        await client.close()


def request(number: int, max_tokens: int = 8) -> Request:
    words = (Message("user", f"Write a very long story about {number} dragons and their many friends."),)
    return Request(f"q{number}", words, max_tokens, SamplingParams(temperature=0.0))


async def answer(client: EngineClient, number: int, max_tokens: int = 8) -> tuple[str, int, Finished]:
    """The text, its tokens, the end."""
    text, n_tokens = "", 0
    async for update in client.submit(request(number, max_tokens)):
        if isinstance(update, Delta):
            text, n_tokens = text + update.text, n_tokens + len(update.token_ids)
        elif isinstance(update, Finished):
            return text, n_tokens, update
    raise AssertionError("a stream without an end")


def test_the_reference_is_what_exact_arithmetic_comes_to():
    known = np.load(REFERENCE).astype(float)
    assert np.abs(known - trial_reference.reference()).max() < 0.01
    assert np.linalg.norm(known, axis=1).min() > 5


@pytest.mark.parametrize("name", trial_reference.model.TYPES)
def test_a_type_of_weights_that_is_computed_wrong_is_far_beyond_the_tolerance(name):
    known = np.load(REFERENCE).astype(float)
    wrong = trial_reference.matrix(name)
    wrong[:16] = np.roll(wrong[:16], 1, axis=1)  # sixteen of 256 rows are enough
    found = trial_reference.reference(**{name.rpartition(".")[2]: wrong}).astype(float)
    errors = np.linalg.norm(found - known, axis=1) / np.linalg.norm(known, axis=1)
    assert errors.max() > 3 * TOLERANCE


def test_every_module_that_was_compiled_has_its_place():
    placed = {name for _, names in LEVELS for name in names}
    assert {path.stem.partition("ggml-cpu-")[2] for path in (SITE / "bin").glob("libggml-cpu-*.so")} <= placed


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("fault", "how"),
    [
        (Fault.ON_LOAD, "SIGILL"),
        (Fault.AT_FIRST_EVALUATION, "SIGSEGV"),
        (Fault.WRONG_NUMBERS, WRONG),
        (Fault.AT_64_ROWS, "SIGSEGV"),
    ],
)
async def test_kernels_with_a_fault_are_stepped_over_at_the_start(make_llama, starter_model, tmp_path, fault, how):
    names = make_llama(native=fault)
    kernels = StepDown(keep=lambda failures: remember(tmp_path, failures))
    began_s = time.monotonic()
    async with engine(starter_model, kernels, n_slots=2) as client:
        info = await client.wait_ready()
        assert time.monotonic() - began_s < 20
        assert info.kernels == label_of(names[1])
        assert kernels.failures == (Failure("native", how),)
        text, _, end = await answer(client, 1)
        assert text
        assert end.reason in (FinishReason.STOP, FinishReason.LENGTH)
    # Another start goes there directly.
    again = StepDown(remembered(tmp_path))
    assert again.n_passed_over == 1
    async with engine(starter_model, again, n_slots=2) as client:
        assert (await client.wait_ready()).kernels == label_of(names[1])
        assert again.failures == (Failure("native", how),)


async def test_a_fault_in_everything_is_said_with_what_was_tried_and_what_to_do(make_llama, starter_model):
    names = make_llama(**dict.fromkeys(["native", *able_here()], Fault.AT_FIRST_EVALUATION))
    async with engine(starter_model) as client:
        with pytest.raises(EngineFailed) as refusal:
            await asyncio.wait_for(client.wait_ready(), 30)
        assert client.state is EngineState.FAILED
    for name in names:
        assert f"{label_of(name)}: SIGSEGV" in str(refusal.value)
    assert "delete the folder wheels" in str(refusal.value)
    assert refusal.value.key == "no_kernels"


async def test_a_model_that_kills_every_kind_of_kernels_is_named_and_the_kernels_stay(make_llama, starter_model):
    make_llama(**dict.fromkeys(["native", *able_here()], Fault.ON_ANY_OTHER_MODEL))
    kernels = StepDown()
    async with engine(starter_model, kernels) as client:
        with pytest.raises(ModelFileError) as refusal:
            await asyncio.wait_for(client.wait_ready(), 30)
    assert (refusal.value.path, refusal.value.code) == (starter_model, "kills")
    assert kernels.failures == ()


@pytest.mark.timeout(180)
async def test_kernels_that_die_while_sixteen_are_answered_give_way_and_every_answer_ends(
    make_llama, starter_model, tmp_path, monkeypatch
):
    told = tmp_path / "told"
    monkeypatch.setenv("FAULT_WHEN", str(told))
    names = make_llama(native=Fault.WHEN_TOLD)
    kernels = StepDown()
    async with engine(starter_model, kernels) as client:
        assert (await client.wait_ready()).kernels == "native"
        alone = [await answer(client, number, 100) for number in (1, 7)]
        people = [asyncio.create_task(answer(client, number, 100)) for number in range(16)]
        for n_deaths in (1, 2):
            n_before = client.n_decoded_total
            await until(lambda n=n_before: client.n_decoded_total > n + 40, within_s=40)
            told.touch()
            await until(lambda n=n_deaths: client.n_restarts == n, within_s=40)
        died_s = time.monotonic()
        assert (await client.wait_ready()).kernels == label_of(names[1])
        assert time.monotonic() - died_s < 10
        assert kernels.failures == (Failure("native", "SIGSEGV"),)
        for text, n_tokens, end in await asyncio.gather(*people):
            assert end.reason in (FinishReason.STOP, FinishReason.LENGTH)
            assert n_tokens == 100 or end.reason is FinishReason.STOP
            assert text
        # A sum differs in its last digit in another batch: the beginning of an answer hardly ever.
        for number, (text, _, _) in zip((1, 7), alone, strict=True):
            assert people[number].result()[0][:12] == text[:12]
