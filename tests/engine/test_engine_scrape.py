"""Pages of metrics, whole and damaged."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pages import AWAKE, LEVEL_1, gauge, operations
from recordings import METRICS

from kvctl.engine import Operations, ScrapeError, parse_scrape
from kvctl.engine.scrape import MAX_SCRAPE

PAGES = sorted(METRICS.glob("*.txt"))


@pytest.mark.parametrize(
    ("name", "queries", "hits", "operations"),
    [
        ("awake", 1000, 608, Operations()),
        ("after-reset", 1320, 608, Operations()),
        ("sleep1", 1640, 896, Operations(sleep=1, counted=True)),
        ("woke", 1640, 896, Operations(sleep=1, wake=1, counted=True)),
        ("sleep2", 4712, 896, Operations(sleep=2, wake=1, counted=True)),
        ("pod-b-restarted", 320, 96, Operations()),
        ("fleet-b-asleep", 5256, 3072, Operations(sleep=1, counted=True)),
        ("fleet-b-end", 8731, 4096, Operations(sleep=1, wake=1, counted=True)),
        ("fleet-a-end", 13695, 5664, Operations(sleep=4, wake=5, release=2, counted=True)),
    ],
)
def test_a_recorded_page_is_read(
    name: str, queries: int, hits: int, operations: Operations
) -> None:
    scrape = parse_scrape((METRICS / f"{name}.txt").read_text())
    pod_b = name in ("pod-b-restarted", "fleet-b-asleep", "fleet-b-end")
    assert scrape.process_start_time == (1796108476.98 if pod_b else 1796108281.96)
    assert scrape.operations == operations
    assert list(scrape.ranks) == [0]
    rank = scrape.ranks[0]
    assert rank.models == ("tiny",)
    assert (rank.prefix_queries, rank.prefix_hits) == (queries, hits)
    assert (rank.num_gpu_blocks, rank.block_size) == (64, 32)
    assert (rank.running, rank.waiting, rank.kv_usage) == (0, 0, 0.0)


@pytest.mark.parametrize("name", ["dp2-awake", "dp2-asleep", "dp2-woken"])
def test_a_recorded_page_of_two_ranks_is_read(name: str) -> None:
    scrape = parse_scrape((METRICS / f"{name}.txt").read_text())
    assert [rank.prefix_queries for rank in scrape.ranks.values()] == [310, 450]
    assert list(scrape.ranks) == [0, 1]
    assert scrape.process_start_time is None  # several API servers: the page has none


def test_when_operations_were_first_done_is_read() -> None:
    scrape = parse_scrape((METRICS / "fleet-a-end.txt").read_text())
    assert scrape.first_done["sleep"] == 1796108367.2530985
    assert set(scrape.first_done) == {"sleep", "wake", "release_kv_cache_memory"}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_order_of_the_lines_does_not_matter(path: Path) -> None:
    text = path.read_text()
    lines = text.splitlines()
    for seed in range(5):
        random.Random(seed).shuffle(lines)
        assert parse_scrape("\n".join(lines) + "\n") == parse_scrape(text)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_cut_inside_a_line_is_refused(path: Path) -> None:
    text = path.read_text()
    cuts = [at for at in range(1, len(text), 17) if text[at - 1] != "\n"]
    assert len(cuts) > 100
    for at in cuts:
        with pytest.raises(ScrapeError):
            parse_scrape(text[:at])


def test_windows_line_ends_are_taken() -> None:
    text = (METRICS / "awake.txt").read_text()
    assert parse_scrape(text.replace("\n", "\r\n")) == parse_scrape(text)


def test_several_models_are_listed_and_their_counts_summed() -> None:
    text = "".join(
        f'vllm:prefix_cache_queries_total{{engine="0",model_name="{model}"}} {count}\n'
        f'vllm:num_requests_running{{engine="0",model_name="{model}"}} 2\n'
        f'vllm:kv_cache_usage_perc{{engine="0",model_name="{model}"}} 0.{count}\n'
        for model, count in (("b", 10), ("a", 5))
    )
    rank = parse_scrape(text).ranks[0]
    assert rank.models == ("a", "b")
    assert (rank.prefix_queries, rank.running, rank.kv_usage) == (15, 4, 0.5)
    assert (rank.prefix_hits, rank.waiting, rank.gauges) == (None, None, {})


def test_old_names_are_read_and_new_ones_preferred() -> None:
    old = (
        'vllm:gpu_prefix_cache_queries_total{model_name="m"} 20\n'
        'vllm:gpu_prefix_cache_hits_total{model_name="m"} 5\n'
        'vllm:gpu_cache_usage_perc{model_name="m"} 0.25\n'
    )
    rank = parse_scrape(old).ranks[0]
    assert (rank.prefix_queries, rank.prefix_hits, rank.kv_usage) == (20, 5, 0.25)
    both = old + 'vllm:prefix_cache_queries_total{model_name="m"} 7\n'
    assert parse_scrape(both).ranks[0].prefix_queries == 7


def test_a_configuration_without_a_rank_is_every_ranks() -> None:
    config = 'vllm:cache_config_info{block_size="16",num_gpu_blocks="None"} 1.0\n'
    scrape = parse_scrape(gauge(AWAKE) + gauge(AWAKE, rank=1) + config)
    assert [rank.block_size for rank in scrape.ranks.values()] == [16, 16]
    assert [rank.num_gpu_blocks for rank in scrape.ranks.values()] == [None, None]
    assert parse_scrape(config).ranks[0].block_size == 16


def test_each_rank_has_its_own_configuration() -> None:
    text = "".join(
        f'vllm:cache_config_info{{engine="{rank}",block_size="16",num_gpu_blocks="{blocks}"}} 1\n'
        for rank, blocks in ((0, 100), (1, 200))
    )
    blocks = [rank.num_gpu_blocks for rank in parse_scrape(text).ranks.values()]
    assert blocks == [100, 200]


def test_metrics_of_something_else_are_an_empty_scrape() -> None:
    scrape = parse_scrape("# HELP up x\n# TYPE up gauge\nup 1\nsglang:num_running_reqs 2\n")
    assert scrape.ranks == {}


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1", "1e300", "x", "1_0", ""])
@pytest.mark.parametrize(
    "series",
    [
        'vllm:engine_sleep_state{engine="0",sleep_state="awake"}',
        'vllm:sleep_mode_operation_duration_seconds_count{operation="sleep"}',
        'vllm:prefix_cache_queries_total{engine="0",model_name="tiny"}',
        "process_start_time_seconds",
    ],
)
def test_a_value_that_cannot_be_is_refused(series: str, value: str) -> None:
    with pytest.raises(ScrapeError):
        parse_scrape(f"{gauge(LEVEL_1)}{series} {value}\n")


def test_a_series_twice_is_refused_unless_it_says_the_same() -> None:
    assert parse_scrape(gauge(AWAKE) * 2) == parse_scrape(gauge(AWAKE))
    with pytest.raises(ScrapeError, match=r"engine_sleep_state\{.*\} is there twice"):
        parse_scrape(gauge(AWAKE) + gauge(LEVEL_1))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('vllm:engine_sleep_state{engine="x",sleep_state="awake"} 1', "'x' is no DP rank"),
        ('vllm:engine_sleep_state{engine="-1",sleep_state="awake"} 1', "'-1' is no DP rank"),
        ('vllm:engine_sleep_state{engine="0"sleep_state="awake"} 1', "damaged line"),
        ('vllm:engine_sleep_state{engine="0",engine="1"} 1', "damaged line"),
        ('vllm:engine_sleep_state{engine="0} 1', "damaged line"),
        ("vllm:engine_sleep_state{", "damaged line"),
        ("vllm:engine_sleep_state{" + 'a="b",' * 20_000 + "} 1", "damaged line"),
        ('vllm:engine_sleep_state{engine="\x1b[31m"} 1', "no DP rank"),
    ],
)
def test_a_damaged_line_is_named(line: str, told: str) -> None:
    with pytest.raises(ScrapeError, match=r"line|rank") as caught:
        parse_scrape(f"{line}\n")
    assert told in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "empty"),
        (" \n\n", "empty"),
        ("<!DOCTYPE html>\n<html></html>\n", "web page"),
        ("\n <HTML>\n", "web page"),
        ('{"error": "Not Found"}\n', "no Prometheus metrics"),
        ("\x00\x01\x02\xff\n", "no Prometheus metrics"),
        ("x" * (MAX_SCRAPE + 1), "over the limit"),
    ],
)
def test_what_is_no_page_of_metrics_is_said_to_be_none(text: str, told: str) -> None:
    with pytest.raises(ScrapeError, match=told):
        parse_scrape(text)


def read_or_refused(text: str) -> bool:
    """Whether the page was read, or refused in one printable line; no other error is caught."""
    try:
        parse_scrape(text)
    except ScrapeError as error:
        return str(error).isprintable()
    return True


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    assert read_or_refused(text)


@given(st.data())
def test_a_page_with_any_part_replaced_is_read_or_refused(data: st.DataObject) -> None:
    text = gauge(LEVEL_1) + operations(sleep=1, wake=0) + "process_start_time_seconds 1.7e+09\n"
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 20)))
    inserted = data.draw(st.text(st.sampled_from('{}"\\,=\n #\t\x00aé0.-+eNInf:_'), max_size=12))
    assert read_or_refused(text[:start] + inserted + text[end:])
