"""What we read of a GGUF, and the file with an added head, as the field's own library sees them."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from appliance.base.errors import ModelFileError
from appliance.tuning.gguf_layout import EMBEDDING, HEAD, read_layout, write_with_head
from tests.unit.tuning.files import N_EMBD, N_VOCAB, write_model


@pytest.mark.parametrize("alignment", [32, 64, 4096])
@pytest.mark.parametrize("tied", [True, False])
def test_the_layout_is_what_the_library_finds(tmp_path, tied, alignment):
    path = write_model(tmp_path / "m.gguf", tied=tied, alignment=alignment)
    layout, reader = read_layout(path), gguf.GGUFReader(path)
    assert layout.has_tied_head is tied
    assert layout.alignment == alignment
    assert [tensor.name for tensor in reader.tensors] == list(layout.tensors)
    for theirs in reader.tensors:
        ours = layout.tensors[theirs.name]
        assert ours.shape == tuple(int(n) for n in theirs.shape)
        assert ours.type_id == theirs.tensor_type
        assert layout.data_start + ours.offset == theirs.data_offset
        assert theirs.n_bytes <= ours.size_bytes < theirs.n_bytes + alignment
    assert layout.tensors[EMBEDDING].n_elements == N_EMBD * N_VOCAB


@pytest.mark.parametrize("alignment", [32, 4096])
def test_the_head_is_added_and_everything_else_is_the_same(tmp_path, alignment):
    source = read_layout(write_model(tmp_path / "source.gguf", alignment=alignment))
    giver = read_layout(write_model(tmp_path / "giver.gguf", seed=1))
    target = tmp_path / "target.gguf"
    write_with_head(source, giver.tensors[EMBEDDING], giver, target)

    before, after = gguf.GGUFReader(source.path), gguf.GGUFReader(target)
    assert {name: field.contents() for name, field in before.fields.items() if not name.startswith("GGUF.")} == {
        name: field.contents() for name, field in after.fields.items() if not name.startswith("GGUF.")
    }
    tensors = {tensor.name: tensor for tensor in after.tensors}
    for tensor in before.tensors:
        assert np.array_equal(tensor.data, tensors.pop(tensor.name).data)
    (name, head) = tensors.popitem()
    assert name == HEAD
    (given,) = (tensor for tensor in gguf.GGUFReader(giver.path).tensors if tensor.name == EMBEDDING)
    assert np.array_equal(head.data, given.data)
    assert not read_layout(target).has_tied_head


def test_a_file_whose_end_nobody_filled_up_gets_its_head_too(tmp_path):
    path = write_model(tmp_path / "m.gguf")
    with path.open("r+b") as file:
        file.truncate(read_layout(path).data_start + read_layout(path).tensors["output_norm.weight"].offset + 12)
    layout = read_layout(path)
    write_with_head(layout, layout.tensors[EMBEDDING], layout, tmp_path / "target.gguf")
    after = {tensor.name: tensor.data for tensor in gguf.GGUFReader(tmp_path / "target.gguf").tensors}
    assert np.array_equal(after[HEAD], after[EMBEDDING])


def test_a_part_of_a_split_model_says_so(tmp_path):
    assert read_layout(write_model(tmp_path / "m.gguf", n_parts=3)).n_parts == 3


@pytest.mark.parametrize("keep", [0, 3, 20, 400, 2000])
def test_a_cut_off_header_is_refused_with_a_sentence(tmp_path, keep):
    path = write_model(tmp_path / "m.gguf")
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ModelFileError, match=r"m\.gguf: (is cut off|its header cannot be read)"):
        read_layout(path)


def test_a_header_that_promises_more_than_there_is_is_refused(tmp_path):
    path = write_model(tmp_path / "m.gguf")
    data = bytearray(path.read_bytes())
    data[8:16] = (2**60).to_bytes(8, "little")
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match="header"):
        read_layout(path)
