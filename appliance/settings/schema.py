"""The settings table: name, default, unit, help, live or restart. `files.py` reads the values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict
from pydantic.fields import FieldInfo

from appliance.engine.config import EngineConfig
from appliance.engine.request import SamplingParams
from appliance.network.hosts import parse_host_list

_MAX_CORE = 4095

DEFAULT_SYSTEM_PROMPT = "You are a helpful assistant. Answer briefly, in the language of the question."


def _row(
    default: object,
    help_text: str,
    *,
    unit: str = "",
    live: bool = False,
    ge: float | None = None,
    le: float | None = None,
    max_length: int | None = None,
) -> Any:
    """One row of the table."""
    extra: JsonDict = {"applies": "live" if live else "restart", "unit": unit}
    return Field(default=default, description=help_text, json_schema_extra=extra, ge=ge, le=le, max_length=max_length)


Share = Annotated[float, Field(gt=0, le=1)]


class Settings(BaseModel):
    """Every setting with its default. Frozen: a change makes a new one."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    host: str = _row(
        "0.0.0.0",  # noqa: S104 -- colleagues on the LAN are to reach it
        "Address to listen on; 127.0.0.1 keeps colleagues out.",
    )
    port: int = _row(
        0, "Port to listen on; 0: a free one, chosen at the first start and the same ever after.", ge=0, le=65535
    )
    lan_name: str = _row(
        "office-chat",
        "Name on the office network: office-chat makes it office-chat.local (mDNS); empty: none.",
        max_length=63,
    )
    access: Literal["open", "passcode"] = _row(
        "open",
        "Who may chat: open, everybody who reaches the address; passcode, who knows the shared passcode.",
        live=True,
    )
    allowed_hosts: str = _row(
        "",
        "Further names or addresses of this PC, like chat.example, 10.0.0.5: behind a proxy, or in a domain.",
        live=True,
        max_length=1000,
    )
    login_days: float = _row(30, "How long a login with the passcode lasts.", unit="days", live=True, ge=0.01, le=365)
    admin_login_hours: float = _row(12, "How long a login of the admin lasts.", unit="hours", live=True, ge=0.1, le=720)
    questions_per_minute: int = _row(
        20, "Questions one person, or one API key, may ask in a minute; 0: no limit.", live=True, ge=0, le=10_000
    )
    questions_per_minute_and_address: int = _row(
        200, "Questions all people behind one address may ask in a minute; 0: no limit.", live=True, ge=0, le=100_000
    )
    address_share: int = _row(
        5,
        "CPU time all people behind one address may take from the page's process in the long run, of one core, answers "
        "as they are read not counted; more of it waits. 0: no limit.",
        unit="percent",
        live=True,
        ge=0,
        le=100,
    )
    data_dir: str = _row("", "Folder for models, logs and the settings file; empty: the platform's own.")
    model: str = _row(
        "",
        "GGUF file that answers; empty: the one chosen on the admin page, else the largest in the models folder, else "
        "the starter model.",
    )
    download_endpoint: str = _row(
        "", "Address of the hub models are downloaded from, such as a mirror's; empty: Hugging Face.", max_length=300
    )
    download_proxy: str = _row("", "Proxy for downloads, like http://proxy.example:3128; empty: none.", max_length=300)
    backend: Literal["llama", "echo"] = _row("llama", "llama, or echo: repeats the question, for tests.")
    open_browser: bool = _row(True, "Open the page on this PC once it is ready.")
    language: Literal["auto", "zh", "en"] = _row("auto", "Language of the page; auto: the browser's.", live=True)
    notice: str = _row("", "A sentence of yours at the top of the chat page; empty: none.", live=True, max_length=300)
    starter_questions: str = _row(
        "",
        "Questions on the empty page, separated by |; empty: some of ours, in the reader's language.",
        live=True,
        max_length=600,
    )
    presets: str = _row(
        "",
        "Tasks on the empty page, separated by |: weekly, sql, translate, explain, titles, or your own as "
        "Name: beginning. Empty: those five.",
        live=True,
        max_length=2000,
    )
    keyless_here: bool = _row(
        False,
        "Programs on this PC may use /v1 and /metrics without a key while access = open. So may everybody whose "
        "requests a tunnel or proxy on this PC passes on.",
        live=True,
    )
    own_wishes: bool = _row(
        True,
        "People may have instructions of their own (after system_prompt), a creativity and a shorter answer length; "
        "kept in their browsers.",
        live=True,
    )
    system_prompt: str = _row(
        DEFAULT_SYSTEM_PROMPT, "What the model is told before every conversation.", live=True, max_length=4000
    )
    max_batch_size: int = _row(16, "Answers written at the same time.", ge=1, le=64)
    max_context_tokens: int = _row(
        1024, "Room of one conversation, question and answer together.", unit="tokens", ge=128, le=32768
    )
    max_answer_tokens: int = _row(
        256, "Longest answer; as much of the context is kept free for it.", unit="tokens", ge=1, le=16384
    )
    max_input_chars: int = _row(512, "Longest message.", unit="characters", ge=1, le=100_000)
    queue_size: int = _row(
        20, "Questions that may wait beside those in hand.", unit="questions", live=True, ge=0, le=1000
    )
    look_ahead: int | None = _row(
        None,
        "Waiting questions handed to the engine to put in order; not set: max_batch_size again.",
        live=True,
        ge=0,
        le=256,
    )
    max_wait_ms: float = _row(
        0, "How long an idle engine waits for more questions before it starts.", unit="ms", ge=0, le=1000
    )
    min_batch_size: int = _row(1, "As many questions end that wait.", unit="questions", ge=1, le=64)
    disconnect_grace_s: float = _row(
        10, "How long an answer without a reader goes on.", unit="s", live=True, ge=0, le=3600
    )
    disconnect_grace_busy_s: float = _row(2, "The same while others wait.", unit="s", live=True, ge=0, le=3600)
    session_ttl_s: float = _row(
        1800, "How long an unused conversation is kept on the server.", unit="s", live=True, ge=10, le=604_800
    )
    quick_answers: bool = _row(True, "Answer some questions by rules, without the model.", live=True)
    answer_cache_scope: Literal["off", "first", "all"] = _row(
        "first",
        "Which answers are kept for whoever asks the same: none, those to a conversation's first question, or all.",
        live=True,
    )
    answer_cache_ttl_s: float = _row(1800, "How long a saved answer is given.", unit="s", live=True, ge=10, le=604_800)
    answer_cache_mb: int = _row(64, "Disk space for saved answers; 0: none are kept.", unit="MB", ge=0, le=10_240)
    office_name: str = _row("", "What {office_name} in a quick answer becomes.", live=True, max_length=100)
    shorter_answers_wait_s: float = _row(
        45,
        "Expected wait from which answers get shorter; 0: never; so do the other three waits.",
        unit="s",
        live=True,
        ge=0,
        le=3600,
    )
    shorter_history_wait_s: float = _row(
        60, "Expected wait from which less of a long conversation is read anew.", unit="s", live=True, ge=0, le=3600
    )
    saved_only_wait_s: float = _row(
        90, "Expected wait from which only saved and quick answers are given.", unit="s", live=True, ge=0, le=3600
    )
    busy_wait_s: float = _row(120, "Expected wait from which nobody new is taken.", unit="s", live=True, ge=0, le=3600)
    short_answer_tokens: int = _row(
        128, "Longest answer while answers are shorter.", unit="tokens", live=True, ge=1, le=16384
    )
    max_answers_per_person: int = _row(
        2, "Answers one browser may have in hand; each takes one of its six connections.", live=True, ge=1, le=5
    )
    max_itl_ms: float = _row(
        500, "Longest pause in a running answer that other people's questions may cause.", unit="ms", ge=50, le=10_000
    )
    priority_session_timeout_s: float = _row(
        30, "How long after an answer its person counts as in mid-conversation.", unit="s", ge=0, le=3600
    )
    starvation_limit_ms: float = _row(
        150, "Whoever waits longer comes first; never less than a few steps.", unit="ms", ge=0, le=600_000
    )
    reuse_kv: bool = _row(True, "Keep what is computed of a conversation for its next question.")
    parked_ram_mb: int = _row(192, "Memory for that.", unit="MB", ge=0, le=65_536)
    parked_disk_mb: int = _row(2048, "Disk space for that, beyond the memory; 0: none.", unit="MB", ge=0, le=1_048_576)
    engine_cores: str = _row("", "Processor numbers for the engine, like 0,2-3; empty: all.", max_length=200)
    engine_priority: Literal["low", "normal", "high", "realtime"] = _row(
        "normal", "Priority of the engine; realtime needs engine_cores that leave one core to others."
    )
    yield_to_others: bool = _row(True, "The engine steps back while other programs on this PC are busy.")
    mlock: bool = _row(False, "Keep the model in memory, never swapped out.")
    tuning_max_kl: float = _row(
        0.1,
        "What `tune` may lose: mean KL divergence from the model's own file. Untested on Qwen's own weights.",
        unit="nats",
        ge=0,
        le=10,
    )
    n_threads: int = _row(
        0, "Threads of the engine; 0: what the self-test found best here, else the physical cores.", ge=0, le=256
    )
    temperature: float | None = _row(
        None, "0: always the likeliest word; not set: the model's own.", live=True, ge=0, le=5
    )
    top_p: Share | None = _row(None, "Share of the likely words to draw from; not set: the model's own.", live=True)
    top_k: int | None = _row(
        None, "Likely words to draw from; 0: all; not set: the model's own.", live=True, ge=0, le=1000
    )
    repetition_penalty: float | None = _row(
        None, "Over 1 makes repeating less likely; not set: the model's own.", live=True, ge=0.5, le=2
    )

    @property
    def allowed_host_names(self) -> tuple[str, ...]:
        """`allowed_hosts`, one by one; loading the settings has refused what cannot be read."""
        return parse_host_list(self.allowed_hosts) or ()

    @property
    def n_look_ahead(self) -> int:
        """Questions handed to the engine beyond its slots."""
        return self.max_batch_size if self.look_ahead is None else self.look_ahead

    @property
    def n_engine_places(self) -> int:
        """Questions that may be at the engine at once; the limit of Gradio's chat group."""
        return self.max_batch_size + self.n_look_ahead

    @property
    def n_places(self) -> int:
        """Everybody who may be in hand or waiting, page and API together."""
        return self.n_engine_places + self.queue_size

    @property
    def shedding_waits_s(self) -> tuple[float, ...]:
        """The thresholds of the levels of load_shedding.py, lowest level first."""
        return (self.shorter_answers_wait_s, self.shorter_history_wait_s, self.saved_only_wait_s, self.busy_wait_s)

    @property
    def max_input_tokens(self) -> int:
        """Longest message in tokens: as many as characters, but a quarter of the prompt stays for the rest."""
        return min(self.max_input_chars, (self.max_context_tokens - self.max_answer_tokens) * 3 // 4)

    def engine_config(self, model_path: Path | None, parked_dir: Path | None = None) -> EngineConfig:
        """What the engine child is told. `parked_dir`: where it may keep conversations that outlive it."""
        return EngineConfig(
            model_path=model_path,
            backend=self.backend,
            n_slots=self.max_batch_size,
            n_ctx_seq=self.max_context_tokens,
            max_answer_tokens=self.max_answer_tokens,
            max_input_tokens=self.max_input_tokens,
            max_itl_ms=self.max_itl_ms,
            starvation_limit_ms=self.starvation_limit_ms,
            priority_session_timeout_s=self.priority_session_timeout_s,
            reuse=self.reuse_kv,
            parked_ram_mb=self.parked_ram_mb,
            parked_disk_mb=self.parked_disk_mb,
            parked_ttl_s=self.session_ttl_s,
            parked_dir=parked_dir,
            cores=parse_cores(self.engine_cores) or (),
            priority=self.engine_priority,
            yields=self.yield_to_others,
            mlock=self.mlock,
            n_threads=self.n_threads,
            max_wait_ms=self.max_wait_ms,
            min_batch_size=self.min_batch_size,
        )

    @property
    def sampling(self) -> SamplingParams:
        """How tokens are drawn where the question does not say; what is not set is the model's own."""
        return SamplingParams(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            repetition_penalty=self.repetition_penalty,
        )


def parse_cores(text: str) -> tuple[int, ...] | None:
    """Processor numbers of a list like "0,2-3"; None where it is none."""
    cores: set[int] = set()
    for part in filter(None, text.replace(" ", "").split(",")):
        first, _, last = part.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal() or int(last or first) > _MAX_CORE:
            return None
        cores.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(cores))


@dataclass(frozen=True)
class Kind:
    """What a value of a setting has to be."""

    sort: Literal["choice", "switch", "text", "whole", "number", "share"]
    """`share`: a number above 0, up to 1."""
    unit: str = ""
    choices: tuple[str, ...] = ()
    low: float = 0
    high: float = 0
    longest: int = 0
    """Of a text, in characters; 0: any length."""


def kind_of(key: str) -> Kind:
    """What a value of this setting has to be."""
    row = Settings.model_fields[key]
    kinds, unit = str(row.annotation), str(_extra(row)["unit"])
    if "Literal" in kinds:
        return Kind("choice", choices=tuple(str(choice) for choice in _choices(row)))
    if row.annotation is bool:
        return Kind("switch")
    if row.annotation is str:
        return Kind("text", longest=int(_bound(row, "max_length")))
    if key == "top_p":
        return Kind("share", high=1)
    return Kind("number" if "float" in kinds else "whole", unit, low=_bound(row, "ge"), high=_bound(row, "le"))


def is_live(key: str) -> bool:
    """Whether a change of this setting acts without a restart."""
    return bool(_extra(Settings.model_fields[key])["applies"] == "live")


def expected(key: str) -> str:
    """What a value of this setting has to be, in words."""
    kind = kind_of(key)
    if kind.sort == "choice":
        return "one of " + ", ".join(kind.choices)
    if kind.sort == "switch":
        return "true or false"
    if kind.sort == "text":
        return f"text of up to {kind.longest} characters" if kind.longest else "text"
    if kind.sort == "share":
        return "a number above 0, up to 1"
    noun = "a number" if kind.sort == "number" else "a whole number"
    return f"{noun}{' of ' + kind.unit if kind.unit else ''} from {kind.low:.10g} to {kind.high:.10g}"


def _choices(row: FieldInfo) -> tuple[object, ...]:
    choices: tuple[object, ...] = getattr(row.annotation, "__args__", ())
    return choices


def _bound(row: FieldInfo, name: str) -> float:
    return next((getattr(part, name) for part in row.metadata if getattr(part, name, None) is not None), 0)


def _extra(row: FieldInfo) -> dict[str, Any]:
    return dict(row.json_schema_extra) if isinstance(row.json_schema_extra, dict) else {}
