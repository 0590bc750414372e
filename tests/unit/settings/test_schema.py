"""The settings table: where values come from, and what a wrong one is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.base.errors import SettingsError
from appliance.settings.files import load_settings
from appliance.settings.schema import Settings, expected


def load(tmp_path: Path, toml: str = "", env: dict[str, str] | None = None, **flags: object) -> Settings:
    (tmp_path / "office-chat.toml").write_text(toml, encoding="utf-8")
    return load_settings(env or {}, {"data_dir": str(tmp_path), **flags})


def refused(tmp_path: Path, toml: str = "", env: dict[str, str] | None = None, **flags: object) -> str:
    with pytest.raises(SettingsError) as caught:
        load(tmp_path, toml, env, **flags)
    return str(caught.value)


def test_defaults_are_those_of_the_issue(tmp_path):
    settings = load(tmp_path)
    assert (settings.max_batch_size, settings.max_context_tokens, settings.max_answer_tokens) == (16, 1024, 256)
    assert (settings.n_engine_places, settings.n_places) == (32, 52)
    assert (settings.disconnect_grace_s, settings.disconnect_grace_busy_s) == (10, 2)


def test_a_flag_beats_the_environment_and_that_beats_the_file(tmp_path):
    toml = "port = 1001\nqueue_size = 1\nmax_batch_size = 3\n"
    env = {"OFFICE_CHAT_PORT": "1002", "OFFICE_CHAT_QUEUE_SIZE": "2"}
    settings = load(tmp_path, toml, env, port="1003")
    assert (settings.port, settings.queue_size, settings.max_batch_size) == (1003, 2, 3)


def test_a_bad_value_names_key_value_source_and_what_is_right(tmp_path):
    assert refused(tmp_path, 'max_batch_size = "lots"') == (
        'max_batch_size = "lots" in office-chat.toml: expected a whole number from 1 to 64'
    )


def test_a_number_written_as_text_in_the_file_is_refused(tmp_path):
    assert refused(tmp_path, 'port = "7860"').startswith('port = "7860" in office-chat.toml: expected a whole number')


@pytest.mark.parametrize("value", ["-1", "999", "2.5", "", "many"])
def test_threads_out_of_range_are_refused(tmp_path, value):
    text = refused(tmp_path, env={"OFFICE_CHAT_N_THREADS": value})
    assert text.startswith(
        f'OFFICE_CHAT_N_THREADS = "{value}" in the environment: expected a whole number from 0 to 256'
    )


def test_a_flag_is_spelt_as_it_is_typed(tmp_path):
    assert refused(tmp_path, port="http").startswith(
        '--port = "http" in the command line: expected a whole number from 0'
    )


@pytest.mark.parametrize(("key", "near"), [("max_batchsize", "max_batch_size"), ("prot", "port")])
def test_an_unknown_key_suggests_the_nearest(tmp_path, key, near):
    assert (
        refused(tmp_path, f"{key} = 1") == f"{key} in office-chat.toml: there is no such setting. Did you mean {near}?"
    )


def test_an_unknown_variable_stops_the_start_too(tmp_path):
    text = refused(tmp_path, env={"OFFICE_CHAT_QUEUESIZE": "3"})
    assert "OFFICE_CHAT_QUEUESIZE in the environment" in text
    assert "queue_size" in text


def test_the_variable_of_the_set_up_is_no_setting(tmp_path):
    assert load(tmp_path, env={"OFFICE_CHAT_WHEELS": "/somewhere"}).port == 0


@pytest.mark.parametrize("name", ["Office", "办公室", "office-chat.local", "-x", "x-", "a b"])
def test_a_name_that_cannot_stand_in_the_network_is_refused(tmp_path, name):
    assert "like office-chat, without .local" in refused(tmp_path, f'lan_name = "{name}"')


def test_no_name_is_a_choice(tmp_path):
    assert load(tmp_path, 'lan_name = ""').lan_name == ""


def test_choices_are_listed(tmp_path):
    assert refused(tmp_path, 'language = "fr"').endswith("expected one of auto, zh, en")


def test_every_setting_can_say_what_it_expects():
    assert all(expected(key) for key in Settings.model_fields)
    assert expected("open_browser") == "true or false"
    assert expected("session_ttl_s") == "a number of s from 10 to 604800"
    assert expected("temperature") == "a number from 0 to 5"


def test_an_answer_longer_than_half_the_context_is_refused(tmp_path):
    assert refused(tmp_path, "max_answer_tokens = 900") == (
        "max_answer_tokens = 900 in office-chat.toml: expected at most 512, half of max_context_tokens = 1024"
    )


def test_the_short_grace_cannot_be_the_longer_one(tmp_path):
    assert "at most disconnect_grace_s = 1" in refused(tmp_path, "disconnect_grace_s = 1")


def test_broken_toml_names_the_file_and_the_line(tmp_path):
    text = refused(tmp_path, "port = \n")
    assert "office-chat.toml" in text
    assert "line 1" in text


def test_a_file_in_another_encoding_is_named(tmp_path):
    (tmp_path / "office-chat.toml").write_bytes("# 设置".encode("gbk"))
    with pytest.raises(SettingsError, match="UTF-8"):
        load_settings({}, {"data_dir": str(tmp_path)})


def test_a_byte_order_mark_is_no_error(tmp_path):
    (tmp_path / "office-chat.toml").write_bytes(b"\xef\xbb\xbfport = 81\n")
    assert load_settings({}, {"data_dir": str(tmp_path)}).port == 81


def test_a_named_file_must_exist(tmp_path):
    with pytest.raises(SettingsError, match="there is no such file"):
        load_settings({}, {"data_dir": str(tmp_path)}, tmp_path / "none.toml")


def test_the_engine_is_told_the_owners_choices(tmp_path):
    settings = load(tmp_path, "max_batch_size = 4\ntemperature = 0\n")
    config = settings.engine_config(Path("m.gguf"))
    assert (config.n_slots, settings.sampling.temperature, settings.sampling.top_p) == (4, 0.0, None)
    assert config.max_input_tokens == 512
