"""Which form a vLLM version writes."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from event_forms import ARRAY_LENGTHS, VERSIONS
from hypothesis import given

from kvctl.errors import UsageError
from kvctl.events import FORMS, wire_form


def parts(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


@pytest.mark.parametrize("version", sorted(VERSIONS))
def test_the_form_of_a_version_is_the_contracts(version: str) -> None:
    is_map, stored, removed, elements = VERSIONS[version]
    form = wire_form(version)
    assert (form.maps, list(form.stored), list(form.removed)) == (is_map, stored, removed)
    assert form.rank == (elements == 3)
    assert form.replay_topic == (parts(version) >= (0, 26))
    assert form.fields("BlockStored") == form.stored
    assert form.fields("BlockRemoved") == form.removed
    assert form.fields("AllBlocksCleared") == ()


@pytest.mark.parametrize(("version", "length"), ARRAY_LENGTHS.items())
def test_a_store_has_as_many_elements_as_the_contracts_count(version: str, length: int) -> None:
    assert len(wire_form(version).stored) + 1 == length


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("0.9", "0.9.0"),
        ("v0.9.0", "0.9.0"),
        (" 0.9.2 ", "0.9.1"),
        ("0.10.1", "0.9.1"),
        ("0.10.2", "0.10.2"),
        ("0.18", "0.17.0"),
        ("0.25.99", "0.24.0"),
        ("0.32.0", "0.30.0"),
        ("0.33", "0.33.0"),
        ("v1.0", "0.33.0"),
    ],
)
def test_a_version_has_the_form_of_the_last_change_before_it(version: str, name: str) -> None:
    assert wire_form(version).name == name


def test_every_form_is_the_form_of_its_own_version() -> None:
    assert [wire_form(form.name) for form in FORMS] == list(FORMS)
    assert [form.since for form in FORMS] == sorted(form.since for form in FORMS)


@pytest.mark.parametrize(
    "text",
    ["", "new", "0", "0.", ".9", "1.2.3.4", "0.-1", "0.9.x", "v", "vv0.9", "0,9", "0.9\n.1",
     "0.٩", "0.9" + "9" * 5000],
)  # fmt: skip
def test_what_is_no_version_is_refused_with_a_remedy(text: str) -> None:
    with pytest.raises(UsageError, match="is not a vLLM version") as caught:
        wire_form(text)
    assert caught.value.exit_code == 2
    assert "0.32.0" in caught.value.remedy


@pytest.mark.parametrize("version", ["0.8", "v0.8.5", "0.0", "0.8.99"])
def test_a_version_older_than_kv_events_is_refused(version: str) -> None:
    with pytest.raises(UsageError, match="published no KV events") as caught:
        wire_form(version)
    assert "0.9.0" in caught.value.remedy


@given(text=st.text() | st.text(alphabet="v0123456789.- ") | st.from_regex(r"v?\d+\.\d+(\.\d+)?"))
def test_any_text_is_a_version_or_a_usage_error(text: str) -> None:
    try:
        form = wire_form(text)
    except UsageError:
        return
    assert form in FORMS
    numbers = parts(text.strip().removeprefix("v"))
    assert form.since <= (*numbers, 0)
