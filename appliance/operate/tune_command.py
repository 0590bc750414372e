"""`app.py tune`: tuning at the owner's console, in plain lines."""

from __future__ import annotations

from collections.abc import Callable

from appliance.base.paths import Paths
from appliance.models.catalogue import find_model
from appliance.settings.schema import Settings
from appliance.tuning.threads import for_this_cpu
from appliance.tuning.tuner import Progress, Tuned, Tuner
from appliance.tuning.verdict import Form, Row, gain

_DOING = {
    "head": "writing an output head of its own",
    "quantise": "writing the model as {form}",
    "measure": "measuring {form}",
    "keep": "keeping the choice",
}
_NAMES = {Form.SOURCE: "as it is", Form.HEAD: "as it is, IQ4_NL head"}


def tune_at_console(settings: Settings, paths: Paths, say: Callable[[str], None]) -> Tuned:
    """Tune the model in use and say what came out. Raises as `Tuner.run`."""
    tuner = make_tuner(settings, paths, lambda progress: say(progress_line(progress)))
    say("Tuning takes some minutes and this PC's whole attention; Ctrl-C ends it and leaves everything as it was.")
    try:
        result = tuner.run()
    except KeyboardInterrupt:
        say("Tuning was ended; nothing has changed.")
        raise
    say(report(result))
    return result


def make_tuner(settings: Settings, paths: Paths, on_progress: Callable[[Progress], None]) -> Tuner:
    """A tuner for the model in use. Raises ModelFileError when there is none."""
    source = find_model(settings.model, paths.models, paths.model_choice)
    config = for_this_cpu(settings.engine_config(source), paths.tuned)
    return Tuner(source, paths.tuned, config, settings.tuning_max_kl, on_progress)


def progress_line(progress: Progress) -> str:
    """What it is doing, n of m, and how long the rest will take."""
    doing = _DOING[progress.step].format(form=_name(progress.form))
    left = f", about {progress.left_s:.0f} s left" if progress.left_s is not None else ""
    return f"[{progress.number}/{progress.n_steps}] {doing}{left}"


def report(result: Tuned) -> str:
    """The table, and in a sentence what happens now."""
    lines = [
        f"{result.source.name} on {result.cpu_name}, {result.n_threads} threads, {result.took_s:.0f} s:",
        f"{'':24}{'MB':>6}{'runs':>6}{'tokens/s':>10}{'1 stream':>10}{'prompts':>9}{'speed':>7}"
        f"{'KL zh':>8}{'KL en':>8}{'KL p99':>8}{'perplexity':>12}{'same word':>11}",
        *(_line(row, result.rows[0]) for row in result.rows),
        f"tokens/s: {result.n_streams} streams together; prompts: tokens/s read; speed: answers in the same time.",
        "KL: how far its choice of words is from the model's own file, in nats; p99: the worst hundredth.",
    ]
    if result.file is None:
        lines.append(
            f"No form within tuning_max_kl = {result.max_kl:g} is clearly faster: the model's own file stays in use."
        )
    else:
        loss = result.chosen.quality.worst_kl if result.chosen.quality else 0.0
        lines.append(
            f"Chosen: {_name(result.chosen.form)}, {result.gain:.2f} times as fast, loses {loss:.3f} nats of at most "
            f"{result.max_kl:g}. In use from the next start; delete {result.file.parent} to go back."
        )
    return "\n".join(lines)


def _line(row: Row, source: Row) -> str:
    start = f"{_name(row.form):24}{row.size_bytes / 1e6:>6.0f}{row.n_runs:>6}"
    if row.speed is None or row.quality is None:
        return f"{_name(row.form):24}left out: {row.problem}"
    speed, quality = row.speed, row.quality
    start += f"{speed.many:>10.1f}{speed.one:>10.1f}{speed.prefill:>9.0f}{gain(row, source):>7.2f}"
    if row.form is Form.SOURCE:
        return f"{start}{'-':>8}{'-':>8}{'-':>8}{quality.perplexity:>12.2f}{'-':>11}"
    zh, en = (quality.kl_by_language.get(name, 0.0) for name in ("zh", "en"))
    return f"{start}{zh:>8.3f}{en:>8.3f}{quality.kl_p99:>8.3f}{quality.perplexity:>12.2f}{quality.agreement:>11.1%}"


def _name(form: Form) -> str:
    return _NAMES.get(form, form.value)
