"""Bytes of tokens to text: whole characters only, and no part of a stop string (cases 5 and 18)."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from appliance.engine.detokenizer import Detokenizer

RARE = "\u9f98"
OUTSIDE_BMP = "\U00020bb7"
FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
FLAG = "\U0001f1e8\U0001f1f3"
MIXED = f"Hello, 你好世界 {RARE}{OUTSIDE_BMP} {FAMILY}{FLAG} café naïve\n\t终"


def chunks_of(data: bytes, cuts: list[int]) -> list[bytes]:
    """`data` cut at the given places, taken modulo its length."""
    places = sorted({c % (len(data) + 1) for c in cuts})
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


def shown(pieces: list[bytes], stop: tuple[str, ...] = ()) -> tuple[list[str], Detokenizer]:
    detokenizer = Detokenizer(stop)
    texts = [detokenizer.feed(piece) for piece in pieces]
    return [*texts, detokenizer.finish()], detokenizer


def test_mixed_scripts_byte_by_byte_give_the_text_back_without_a_box():
    texts, _ = shown([bytes([b]) for b in MIXED.encode()])
    assert "".join(texts) == MIXED
    assert not any("\ufffd" in t for t in texts)


def test_every_character_appears_with_its_last_byte():
    detokenizer = Detokenizer(("<|im_end|>",))
    for character in MIXED:
        *first, last = (bytes([b]) for b in character.encode())
        assert [detokenizer.feed(b) for b in first] == [""] * len(first)
        assert detokenizer.feed(last) == character


@given(st.text(), st.lists(st.integers(0, 400)))
def test_any_text_in_any_pieces_comes_out_whole(text, cuts):
    texts, _ = shown(chunks_of(text.encode("utf-8", errors="ignore"), cuts))
    assert "".join(texts) == text.encode("utf-8", errors="ignore").decode()


@pytest.mark.parametrize("character", [RARE, OUTSIDE_BMP, "é", FLAG[0]])
def test_an_end_in_the_middle_of_a_character_shows_no_box_and_raises_nothing(character):
    data = character.encode()
    for n in range(1, len(data)):
        texts, _ = shown([b"ok ", data[:n]])
        assert "".join(texts) == "ok "


@given(st.binary(max_size=40), st.lists(st.integers(0, 40)))
def test_bytes_that_are_no_text_never_show_a_box(data, cuts):
    texts, _ = shown(chunks_of(data, cuts))
    assert "\ufffd" not in "".join(texts) or "\ufffd".encode() in data


def test_text_after_broken_bytes_is_not_lost():
    texts, _ = shown([b"\xe9\xbe", b"A", "\u4f60".encode()])
    assert "".join(texts) == "A\u4f60"


# A small alphabet, so that stop strings really occur, nearly occur and overlap themselves.
stops = st.lists(st.text("ab<|龘", min_size=1, max_size=5), min_size=1, max_size=3).map(tuple)


@given(st.text("ab<|龘", max_size=30), st.lists(st.integers(0, 60)), stops)
@example("aab", [1, 2], ("aab",))
@example("aaab", [1, 2, 3], ("aab",))
@example("<<|a", [1, 2, 3], ("<|",))
@settings(max_examples=400)
def test_no_split_of_a_text_shows_a_stop_string(text, cuts, stop):
    texts, detokenizer = shown(chunks_of(text.encode(), cuts), stop)
    joined = "".join(texts)
    assert not any(s in joined for s in stop)
    assert text.startswith(joined)
    assert detokenizer.stopped == any(s in text for s in stop)
    if not detokenizer.stopped:
        assert joined == text


@given(st.text("ab<|龘", max_size=30), st.lists(st.integers(0, 60)), st.text("ab<|龘", min_size=1, max_size=6))
@settings(max_examples=400)
def test_no_part_of_a_stop_string_is_shown_wherever_it_is_split(before, cuts, stop):
    whole = before + stop
    expected = whole[: whole.find(stop)]
    texts, _ = shown(chunks_of((whole + "b a").encode(), cuts), (stop,))
    assert "".join(texts) == expected


@given(st.text("ab<|龘", max_size=30), st.lists(st.integers(0, 60)), stops)
def test_text_that_can_no_longer_become_a_stop_string_is_not_held_back(text, cuts, stop):
    detokenizer = Detokenizer(stop)
    given_so_far, out = b"", ""
    for piece in chunks_of(text.encode(), cuts):
        given_so_far += piece
        out += detokenizer.feed(piece)
        if detokenizer.stopped:
            return
        certain = given_so_far.decode("utf-8", errors="ignore")
        held = certain[len(out) :]
        assert held == "" or any(s.startswith(held) for s in stop)


def test_nothing_is_said_after_a_stop_string():
    detokenizer = Detokenizer(("END",))
    assert detokenizer.feed(b"one EN") == "one "
    assert detokenizer.feed(b"D two") == ""
    assert detokenizer.stopped
    assert detokenizer.feed(b"three") == ""
    assert detokenizer.finish() == ""


def test_a_stop_string_that_never_came_is_said_at_the_end():
    texts, detokenizer = shown([b"a <", b"|im"], ("<|im_end|>",))
    assert "".join(texts) == "a <|im"
    assert not detokenizer.stopped


def test_an_empty_stop_string_stops_nothing():
    texts, detokenizer = shown([b"text"], ("",))
    assert "".join(texts) == "text"
    assert not detokenizer.stopped
