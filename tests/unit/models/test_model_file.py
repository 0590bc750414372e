"""What is read of a model file before anybody loads it, and what is refused with which remedy."""

from __future__ import annotations

import pickle

import gguf
import numpy as np
import pytest

from appliance.base.errors import ModelFileError
from appliance.models import model_file
from appliance.models.model_file import inspect

N_EMBD, N_VOCAB, N_LAYERS = 64, 96, 2


def write(path, *, architecture="llama", kind="", part=None, tensors=True, licence="apache-2.0", head_keys=True):
    """A small model; `part` is (number from 0, count)."""
    writer = gguf.GGUFWriter(path, architecture)
    if kind:
        writer.add_type(kind)
    if licence:
        writer.add_license(licence)
    writer.add_chat_template("{{ messages }}" * 100)
    writer.add_token_list([f"token {i}" for i in range(N_VOCAB)])
    writer.add_context_length(2048)
    writer.add_block_count(N_LAYERS)
    if head_keys:
        writer.add_embedding_length(N_EMBD)
        writer.add_head_count(4)
        writer.add_head_count_kv(2)
    if part is not None:
        writer.add_uint16("split.no", part[0])
        writer.add_uint16("split.count", part[1])
    if tensors:
        random = np.random.default_rng(0)
        values = random.standard_normal((N_VOCAB, N_EMBD), dtype=np.float32)
        packed = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0)
        writer.add_tensor("token_embd.weight", packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        writer.add_tensor("output_norm.weight", random.standard_normal(N_EMBD, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def split(tmp_path, count=2):
    """A model in several files; the first holds no weights, as some makers write it."""
    paths = [tmp_path / f"big-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1)]
    for number, path in enumerate(paths):
        write(path, part=(number, count), tensors=number > 0)
    return paths


def refused(path) -> ModelFileError:
    with pytest.raises(ModelFileError) as caught:
        inspect(path)
    return caught.value


def test_a_model_says_what_it_is(tmp_path):
    path = write(tmp_path / "Small-Q8_0.gguf")
    facts = inspect(path)
    assert (facts.name, facts.architecture, facts.licence, facts.quantisation) == (
        "Small-Q8_0",
        "llama",
        "apache-2.0",
        "Q8_0",
    )
    assert (facts.n_parts, facts.size_bytes, facts.n_weights) == (1, path.stat().st_size, N_VOCAB * N_EMBD + N_EMBD)
    assert facts.context_tokens == 2048


def test_memory_is_weights_conversations_and_what_runs(tmp_path):
    facts = inspect(write(tmp_path / "m.gguf"))
    assert facts.kv_bytes_a_token == N_LAYERS * 2 * (16 + 16) * 2
    more = facts.memory_bytes(16, 1024) - facts.memory_bytes(0, 1024)
    assert more == facts.kv_bytes_a_token * 16 * 1024
    assert facts.memory_bytes(0, 0) > facts.size_bytes


def test_a_header_that_says_little_is_no_reason_to_refuse(tmp_path):
    facts = inspect(write(tmp_path / "m.gguf", licence="", head_keys=False))
    assert (facts.licence, facts.kv_bytes_a_token) == ("", 0)


def test_the_starter_model_is_whole(starter_model):
    facts = inspect(starter_model)
    assert (facts.architecture, facts.n_weights // 10**6) == ("llama", 134)
    assert facts.kv_bytes_a_token == 30 * 3 * (64 + 64) * 2


def test_the_sizes_of_types_are_the_librarys():
    known = {int(kind): size for kind, size in gguf.GGML_QUANT_SIZES.items()}
    names = {int(kind): kind.name for kind in gguf.GGMLQuantizationType}
    for type_id, (name, n_weights, n_bytes) in model_file._TYPES.items():
        assert known[type_id] == (n_weights, n_bytes)
        assert names[type_id] == name


@pytest.mark.parametrize("share", [0.999, 0.5, 0.05, 0.001])
def test_a_copy_that_is_cut_off_is_refused_wherever_it_ends(tmp_path, starter_model, share):
    path = tmp_path / "half.gguf"
    with starter_model.open("rb") as whole:
        path.write_bytes(whole.read(int(starter_model.stat().st_size * share)))
    error = refused(path)
    assert error.code == "cut_off"
    assert str(path) in str(error)
    assert "again, in full" in error.remedy


def test_a_cut_off_last_tensor_is_noticed_by_its_type(tmp_path):
    path = write(tmp_path / "m.gguf")
    path.write_bytes(path.read_bytes()[:-60])
    assert refused(path).code == "cut_off"


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"<!DOCTYPE html><title>Sign in</title>", "web_page"),
        (b"", "empty"),
        (b"\x7fELF", "foreign"),
        (b"GGUF" + b"\x09" + b"\0" * 200, "header"),
        (b"GGUF\x03\0\0\0" + b"\xff" * 200, "header"),
        (b"GGUF\x03\0\0\0", "cut_off"),
    ],
)
def test_what_is_no_model_is_told_apart(tmp_path, content, code):
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    assert refused(path).code == code


@pytest.mark.parametrize(
    ("architecture", "kind", "code"),
    [("bert", "", "no_chat"), ("clip", "mmproj", "no_model"), ("llama", "adapter", "no_model")],
)
def test_a_file_that_writes_no_answers_is_refused(tmp_path, architecture, kind, code):
    assert refused(write(tmp_path / "m.gguf", architecture=architecture, kind=kind)).code == code


def test_a_model_in_several_files_is_one(tmp_path):
    paths = split(tmp_path, 3)
    facts = inspect(paths[0])
    assert (facts.name, facts.n_parts) == ("big", 3)
    assert facts.size_bytes == sum(path.stat().st_size for path in paths)
    assert facts.n_weights == 2 * (N_VOCAB * N_EMBD + N_EMBD)


def test_the_parts_are_named_when_they_are_missing_or_cut_off(tmp_path):
    paths = split(tmp_path)
    assert refused(paths[1]).values == {"first": paths[0].name}
    paths[1].write_bytes(paths[1].read_bytes()[:-100])
    assert refused(paths[0]).path == paths[1]
    paths[1].unlink()
    assert refused(paths[0]).values == {"names": paths[1].name}


def test_a_part_that_lost_its_name_is_refused(tmp_path):
    paths = split(tmp_path)
    assert refused(paths[0].rename(tmp_path / "big.gguf")).code == "part_name"


def test_the_error_crosses_a_process_border(tmp_path):
    error = refused(tmp_path / "none.gguf")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 -- our own
    assert (str(again), again.code, again.values) == (str(error), "missing", {})
