"""Tuning the starter model for real: files written, measured, chosen, and the tuned one answers."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import gguf
import psutil
import pytest

from appliance.base.errors import ModelFileError
from appliance.engine.client import EngineClient
from appliance.engine.config import EngineConfig
from appliance.engine.request import Delta, Message, Request, SamplingParams
from appliance.operate.tune_command import report
from appliance.settings.schema import DEFAULT_SYSTEM_PROMPT
from appliance.tuning.choices import tuned_file
from appliance.tuning.tuner import Tuned, Tuner
from appliance.tuning.verdict import Form
from appliance.tuning.worker_jobs import CountThreads, JobCancelled, JobFailed, Quantise, run_job
from tests.unit.engine.waiting import engine_pids

CONFIG = EngineConfig(n_slots=4, n_ctx_seq=256, max_answer_tokens=32, max_input_tokens=100)
ANY_LOSS = 10.0


@pytest.fixture(scope="module")
def tuned(starter_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    """One pass over everything; whatever is clearly fastest may be chosen."""
    return Tuner(starter_model, tmp_path_factory.mktemp("tuned"), CONFIG, ANY_LOSS, n_rounds=1).run()


@pytest.mark.timeout(400)  # five forms of a real model, on a machine that others use too
def test_every_form_is_written_loaded_and_measured(tuned):
    print(report(tuned))  # noqa: T201 -- read with -rP
    assert [row.form for row in tuned.rows] == [Form.SOURCE, Form.Q4_0, Form.IQ4_NL, Form.Q8_0, Form.HEAD]
    assert [row.problem for row in tuned.rows] == [""] * 5
    losses = {row.form: row.quality.worst_kl for row in tuned.rows}
    assert losses[Form.SOURCE] < 1e-4
    assert losses[Form.Q8_0] < losses[Form.HEAD] < losses[Form.IQ4_NL] < losses[Form.Q4_0] < 2
    perplexities = {row.form: row.quality.perplexity for row in tuned.rows}
    assert perplexities[Form.SOURCE] < perplexities[Form.Q4_0] < 100
    assert perplexities[Form.Q8_0] == pytest.approx(perplexities[Form.SOURCE], rel=0.05)


def test_numbers_of_threads_are_measured_in_turns_in_one_process(starter_model):
    config = replace(CONFIG, model_path=starter_model, n_slots=2)
    found = run_job(CountThreads(config, (1, 2)), threading.Event())
    assert isinstance(found, dict)
    assert list(found) == [1, 2]
    assert len(found[1]) == len(found[2]) >= 3
    assert all(took_s > 0 for times_s in found.values() for took_s in times_s)


@pytest.mark.timeout(400)
async def test_the_tuned_file_answers(tuned, starter_model):
    if tuned.file is None:
        pytest.skip("on this computer no form is faster than the starter model's own file")
    folder = tuned.file.parent.parent
    file = tuned_file(starter_model, folder, tuned.n_threads, ANY_LOSS)
    assert file == tuned.file
    assert [path.name for path in folder.iterdir() if path.name.startswith("unfinished")] == []
    client = EngineClient(EngineConfig(model_path=file, n_slots=4, n_ctx_seq=256, max_answer_tokens=64))
    client.spawn()
    await client.start()
    try:
        info = await asyncio.wait_for(client.wait_ready(), 60)
        answers = [
            await _answer(client, f"capital {number}", messages)
            for number, messages in enumerate(
                [
                    (Message("user", "What is the capital of France? One word."),),
                    (Message("system", DEFAULT_SYSTEM_PROMPT), Message("user", "What is the capital of France?")),
                ]
            )
        ]
        assert "Paris" in " ".join(answers)  # so small a model may miss one of them in any form, its own included
        assert info.model_name in starter_model.name
    finally:
        await client.close()


async def _answer(client: EngineClient, request_id: str, messages: tuple[Message, ...]) -> str:
    request = Request(request_id, messages, 48, SamplingParams(temperature=0.0))
    return "".join([update.text async for update in client.submit(request) if isinstance(update, Delta)])


@pytest.mark.timeout(400)
def test_the_tuned_file_has_a_head_of_its_own_and_keeps_its_embedding(tuned, starter_model):
    if tuned.file is None:
        pytest.skip("on this computer no form is faster than the starter model's own file")
    types = {tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(tuned.file).tensors}
    before = {tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(starter_model).tensors}
    assert "output.weight" not in before
    assert types["token_embd.weight"] == before["token_embd.weight"]
    is_head_alone = tuned.chosen.form is Form.HEAD  # which of them is fastest is this computer's to say
    assert types["output.weight"] == ("IQ4_NL" if is_head_alone else tuned.chosen.form)
    assert types["blk.0.ffn_up.weight"] == (before["blk.0.ffn_up.weight"] if is_head_alone else tuned.chosen.form)


def test_a_process_that_dies_is_told_from_one_that_refuses(tmp_path, starter_model):
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(starter_model.read_bytes()[:30_000_000])
    with pytest.raises(ModelFileError, match=r"llama\.cpp cannot write it as Q4_0"):
        run_job(Quantise(cut, tmp_path / "out.gguf", "Q4_0", None, CONFIG), threading.Event())

    killer = threading.Thread(target=_kill_child, daemon=True)
    killer.start()
    with pytest.raises(JobFailed, match="ended with code -9"):
        run_job(Quantise(starter_model, tmp_path / "out.gguf", "IQ4_NL", None, CONFIG), threading.Event())
    killer.join()


def test_a_job_is_cancelled_while_llama_cpp_works(tmp_path, starter_model):
    cancelled = threading.Event()
    threading.Timer(0.5, cancelled.set).start()
    with pytest.raises(JobCancelled):
        run_job(Quantise(starter_model, tmp_path / "out.gguf", "IQ4_NL", None, CONFIG), cancelled)
    assert engine_pids() == []


def _kill_child() -> None:
    while not (children := engine_pids()):
        time.sleep(0.02)
    time.sleep(0.3)
    psutil.Process(children[0]).kill()


@pytest.mark.skipif(os.name == "nt", reason="Unix signals")
def test_the_command_is_interrupted_and_leaves_nothing(tmp_path, project_root):
    process = subprocess.Popen(
        [sys.executable, "app.py", "tune", "--data-dir", str(tmp_path)],
        cwd=project_root,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    tuned = tmp_path / "tuned"
    while not any(tuned.glob("unfinished-*/*.gguf")):
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole group
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "nothing has changed" in output
    assert list(tuned.iterdir()) == []
