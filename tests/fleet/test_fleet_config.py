"""`config.toml` read: every shape, and everything that can be wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvctl.errors import UsageError
from kvctl.fleet import Config, Context, config_path, load_config, parse_pod
from kvctl.fleet.config import MAX_CONFIG, parse_config

FULL = """
# The fleet in Frankfurt.
current-context = "prod"

[contexts.prod]
index = "sqlite:/var/lib/kvctl/prod.db"
api-key-file = "keys/prod"
model = "llama"

[contexts.prod.pods.pod-a]
host = "10.0.0.7"

[contexts.prod.pods."ns/pod-b"]
events = ["tcp://10.0.0.8:5557", "tcp://10.0.0.8:5560"]
replay = "none"
api = "https://10.0.0.8"
model = "mistral"
dp = 2
engine = "sglang"
bind = false

[contexts.dev]
"""


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KVCTL_CONFIG", raising=False)
    monkeypatch.delenv("KVCTL_CONTEXT", raising=False)


def test_a_context_holds_a_fleet_and_what_belongs_to_it(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(FULL)
    config = load_config(path)
    prod = config.context()
    assert (prod.name, prod.index, prod.model) == (
        "prod",
        "sqlite:/var/lib/kvctl/prod.db",
        "llama",
    )
    assert prod.api_key_file == tmp_path / "keys" / "prod"
    assert prod.pods == (
        parse_pod("name=pod-a,host=10.0.0.7,model=llama"),
        parse_pod(
            "name=ns/pod-b,events=tcp://10.0.0.8:5557|tcp://10.0.0.8:5560,replay=none,"
            "api=https://10.0.0.8,model=mistral,dp=2,engine=sglang,bind=false"
        ),
    )
    assert config.context("dev") == Context("dev")


def test_an_absolute_key_file_and_one_at_home_stay_where_they_are(tmp_path: Path) -> None:
    def key_file(text: str) -> Path | None:
        config = parse_config(f"[contexts.a]\napi-key-file = '{text}'\n", tmp_path / "config.toml")
        return config.context("a").api_key_file

    assert key_file("/etc/kvctl/key") == Path("/etc/kvctl/key")
    assert key_file("~/key") == Path.home() / "key"
    with pytest.raises(UsageError, match=r"\[contexts\.a\]: api-key-file: there is no such user"):
        key_file("~nobody-of-that-name/key")


def test_the_context_is_the_one_asked_for_or_the_environments_or_the_current(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = Config(Path("c"), "one", {name: Context(name) for name in ("one", "two", "three")})
    assert config.context().name == "one"
    monkeypatch.setenv("KVCTL_CONTEXT", "two")
    assert config.context().name == "two"
    assert config.context("three").name == "three"


def test_no_file_is_an_empty_configuration(tmp_path: Path) -> None:
    config = load_config(tmp_path / "none" / "config.toml")
    assert (config.current, config.contexts) == (None, {})
    assert config.context() == Context()
    with pytest.raises(UsageError, match=r"config\.toml has no context 'x' \(the file has no"):
        config.context("x")


def test_an_unknown_context_suggests_the_nearest() -> None:
    config = Config(Path("/etc/kvctl.toml"), "prd", {"prod": Context("prod")})
    with pytest.raises(UsageError, match=r"kvctl\.toml has no context 'prd' \(did you mean prod"):
        config.context()


def test_the_file_is_in_the_users_directory_unless_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert config_path().parts[-2:] == ("kvctl", "config.toml")
    monkeypatch.setenv("KVCTL_CONFIG", str(tmp_path / "mine.toml"))
    assert config_path() == tmp_path / "mine.toml"
    (tmp_path / "mine.toml").write_text("[contexts.here]\n")
    assert list(load_config().contexts) == ["here"]
    monkeypatch.setenv("KVCTL_CONFIG", "~/mine.toml")
    assert config_path() == Path.home() / "mine.toml"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x", "is not TOML: "),
        ("a = " + "[" * 5000, "is not TOML: nested too deeply"),
        ("curent-context = 'a'", r"unknown key 'curent-context' \(did you mean current-context"),
        ("current-context = 1", "current-context: expected a string"),
        ("current-context = ''", "current-context: expected a string"),
        ("contexts = 1", "contexts: expected a table"),
        ("[contexts]\na = 1", r"\[contexts\.a\]: expected a table"),
        ("[contexts.a]\nindx = 'x'", r"\[contexts\.a\]: unknown key 'indx' .did you mean index"),
        ("[contexts.a]\nindex = 5", r"\[contexts\.a\]: index: expected a string"),
        ("[contexts.a]\npods = []", r"\[contexts\.a\]: pods: expected a table"),
        ("[contexts.'a b'.pods]\np = 3", r"\[contexts\.'a b'\.pods\.p\]: expected a table"),
        ("[contexts.a.pods.p]\nevnts = 'x'", r"\[contexts\.a\.pods\.p\]: unknown key 'evnts'"),
        ("[contexts.a.pods.p]\nname = 'x'", "unknown key 'name'"),
        ("[contexts.a.pods.p]\nhost = 3", r"pods\.p\]: host: expected a string"),
        ("[contexts.a.pods.p]\nhost = ''", "host: expected a string"),
        ("[contexts.a.pods.p]\nhost = 'h'\ndp = true", "dp: expected a whole number"),
        ("[contexts.a.pods.p]\nhost = 'h'\ndp = 1.5", "dp: expected a whole number"),
        ("[contexts.a.pods.p]\nhost = 'h'\nbind = 1", "bind: expected true or false"),
        ("[contexts.a.pods.p]\nevents = ['tcp://h:1', 2]", "events: expected a list of endpoints"),
        ("[contexts.a.pods.p]\nevents = []", "events: expected"),
        ("[contexts.a.pods.p]\nevents = ['tcp://h:1|tcp://h:2']", "expected a list of endpoints"),
        ("[contexts.a.pods.p]\nevents = 'tcp://h'", r"pods\.p\]: pod p: events: 'tcp://h' is no"),
        ("[contexts.a.pods.p]", r"pod p: events: nothing says where they are"),
        ("[contexts.a.pods.'p q']\nhost = 'h'", "'p q' is not a pod's name"),
        ("[contexts.a.pods.p]\n[contexts.a.pods.p]", "is not TOML: .*twice"),
        ("[contexts.a.pods.p]\nhost='h'\nhost='i'", "is not TOML: "),
    ],
)
def test_what_is_wrong_is_named_by_file_table_and_key(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told) as caught:
        parse_config(f"{text}\n", Path("/etc/kvctl.toml"))
    assert str(caught.value).startswith("/etc/kvctl.toml")
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        load_config(tmp_path)
    path = tmp_path / "config.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="is not UTF-8 text"):
        load_config(path)
    path.write_bytes(b"#" * (MAX_CONFIG + 1))
    with pytest.raises(UsageError, match="is larger than"):
        load_config(path)
    with pytest.raises(UsageError, match="cannot be read: not a path"):
        load_config(Path("a\x00b"))


@given(st.text(st.sampled_from("[]contexs.apd='\"\\\n #{}=,h1é\x00"), max_size=60))
def test_any_text_is_a_configuration_or_a_usage_error(text: str) -> None:
    for whole in (text, FULL + text):
        try:
            refusal = ""
            assert isinstance(parse_config(whole, Path("c")), Config)
        except UsageError as error:
            refusal = str(error)
        assert "\n" not in refusal
