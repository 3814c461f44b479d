"""Pods as they are named on a command line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvctl.errors import UsageError
from kvctl.fleet import Pod, PodStream, is_address, parse_pod, pod_from_endpoint

ALL = frozenset({"events", "replay", "api"})


def events(pod: Pod) -> list[str]:
    return [stream.events for stream in pod.streams]


def replay(pod: Pod) -> list[str | None]:
    return [stream.replay for stream in pod.streams]


def test_a_pod_with_everything_told_assumes_nothing() -> None:
    pod = parse_pod(
        "name=ns/pod-a,events=tcp://10.0.0.7:6000,replay=tcp://10.0.0.8:6001,"
        "api=https://10.0.0.7/engine/,model=m=1,dp=1,engine=sglang,bind=false"
    )
    assert pod == Pod(
        "ns/pod-a",
        (PodStream(0, "tcp://10.0.0.7:6000", "tcp://10.0.0.8:6001"),),
        "https://10.0.0.7/engine",
        "m=1",
        False,
        "sglang",
        frozenset(),
    )


def test_a_host_stands_for_its_usual_ports() -> None:
    pod = parse_pod(" name = pod-a , host = 10.0.0.7 ")
    assert pod == Pod(
        "pod-a",
        (PodStream(0, "tcp://10.0.0.7:5557", "tcp://10.0.0.7:5558"),),
        "http://10.0.0.7:8000",
        assumed=ALL,
    )
    assert parse_pod("name=s,host=h,engine=sglang").api == "http://h:30000"


@pytest.mark.parametrize("told", ["events=tcp://10.0.0.7:5557", "api=http://10.0.0.7:8000"])
def test_one_usual_port_stands_for_the_others(told: str) -> None:
    pod = parse_pod(f"name=pod-a,{told}")
    assert (events(pod), replay(pod)) == (["tcp://10.0.0.7:5557"], ["tcp://10.0.0.7:5558"])
    assert pod.api == "http://10.0.0.7:8000"
    assert pod.assumed == ALL - {told.partition("=")[0]}


def test_an_unusual_port_says_nothing_about_the_usual_ones() -> None:
    # Another engine may be there: its replay would be taken for this pod's.
    pod = parse_pod("name=pod-b,events=tcp://10.0.0.7:5559")
    assert (replay(pod), pod.api, pod.assumed) == ([None], None, frozenset())
    with pytest.raises(UsageError, match=r"pod pod-b: events: .* the api is not at the usual port"):
        parse_pod("name=pod-b,api=http://10.0.0.7:8001")
    with pytest.raises(UsageError, match="not at the usual port"):
        parse_pod("name=pod-b,api=https://10.0.0.7")
    assumed = parse_pod("name=pod-b,events=tcp://10.0.0.7:5559,host=10.0.0.7")
    assert replay(assumed) == ["tcp://10.0.0.7:5558"]
    assert assumed.assumed == {"replay", "api"}


def test_replay_and_api_can_be_switched_off() -> None:
    pod = parse_pod("name=a,host=h,replay=none,api=none")
    assert (events(pod), replay(pod), pod.api) == (["tcp://h:5557"], [None], None)
    assert pod.assumed == {"events"}


def test_ranks_are_at_port_plus_rank() -> None:
    pod = parse_pod("name=a,events=tcp://h:5557,replay=tcp://h:5600,dp=3")
    assert events(pod) == ["tcp://h:5557", "tcp://h:5558", "tcp://h:5559"]
    assert replay(pod) == ["tcp://h:5600", "tcp://h:5601", "tcp://h:5602"]
    assert [stream.rank for stream in pod.streams] == [0, 1, 2]


def test_ranks_can_be_listed() -> None:
    pod = parse_pod("name=a,events=tcp://h:5557| tcp://i:5557,replay=tcp://h:9|tcp://i:9,dp=2")
    assert events(pod) == ["tcp://h:5557", "tcp://i:5557"]
    assert replay(pod) == ["tcp://h:9", "tcp://i:9"]
    assert len(parse_pod("name=a,events=ipc:///a|ipc:///b").streams) == 2


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ("host=h,dp=2", "replay: rank 0's replay would be at h:5558, rank 1's events too"),
        ("host=H,dp=2", "rank 1's events too .*or replay=none"),
        ("events=tcp://h:5557,replay=tcp://h:5558,dp=2", "rank 1's events too"),
        ("events=tcp://h:5557,replay=tcp://h:5556,dp=2", "rank 1's replay would be at h:5557"),
        ("events=tcp://h:7|tcp://h:7", "rank 1's events would be at h:7, rank 0's events too"),
        ("events=ipc:///a|ipc:///a", "rank 0's events too"),
        ("events=tcp://h:8000,api=http://h:8000", "the api would be at h:8000"),
        ("events=tcp://[::1]:7,replay=tcp://[::1]:7", r"at \[::1\]:7"),
    ],
)
def test_two_things_at_one_address_are_refused(fields: str, told: str) -> None:
    with pytest.raises(UsageError, match=f"pod a: .*{told}"):
        parse_pod(f"name=a,{fields}")


def test_ranks_that_do_not_collide_are_taken() -> None:
    assert replay(parse_pod("name=a,host=h,dp=2,replay=none")) == [None, None]
    pod = parse_pod("name=a,host=h,dp=2,replay=tcp://h:5559")
    assert replay(pod) == ["tcp://h:5559", "tcp://h:5560"]
    assert pod.assumed == {"events", "api"}


def test_a_wildcard_is_bound_and_tells_no_host() -> None:
    for wildcard in ("*", "0.0.0.0", "[::]"):
        pod = parse_pod(f"name=a,events=tcp://{wildcard}:5557")
        assert (pod.bind, replay(pod), pod.api) == (True, [None], None)
    pod = parse_pod("name=a,events=tcp://*:5557,api=http://10.0.0.7:8000")
    assert (pod.bind, replay(pod)) == (True, ["tcp://10.0.0.7:5558"])


def test_a_pod_that_connects_to_us_is_told_by_bind() -> None:
    pod = parse_pod("name=a,bind=true,events=tcp://192.0.2.1:5557")
    assert (pod.bind, events(pod), replay(pod), pod.api) == (
        True, ["tcp://192.0.2.1:5557"], [None], None,
    )  # fmt: skip
    pod = parse_pod("name=a,bind=true,host=10.0.0.7")
    assert (events(pod), replay(pod)) == (["tcp://*:5557"], ["tcp://10.0.0.7:5558"])


def test_ipv6_addresses_stand_in_brackets() -> None:
    pod = parse_pod("name=a,events=tcp://[::1]:5557,api=http://[fd00::1]:8000")
    assert (events(pod), replay(pod)) == (["tcp://[::1]:5557"], ["tcp://[::1]:5558"])
    assert pod.api == "http://[fd00::1]:8000"
    for host in ("fd00::7", "[fd00::7]"):
        pod = parse_pod(f"name=a,host={host}")
        assert (events(pod), pod.api) == (["tcp://[fd00::7]:5557"], "http://[fd00::7]:8000")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", r"--pod '': '' is not key=value"),
        ("events=tcp://h:1", r"--pod 'events=tcp://h:1': the name is missing \(add name="),
        ("name=a", r"pod a: events: nothing says where they are \(add events=… or host=…\)"),
        ("name=a,model=m", "nothing says where"),
        ("name=a,evnts=x", r"pod 'a': unknown key 'evnts' \(did you mean events\?\)"),
        ("name=a,zzz=x", r"unknown key 'zzz' \(known: api, bind, dp,"),
        ("name=a,host=h,host=i", "pod 'a': host is given twice"),
        ("name=a,name=b,host=h", "pod 'a': name is given twice"),
        ("name=a,host=", "pod 'a': host is empty"),
        ("name=a,host", "pod 'a': 'host' is not key=value"),
        ("name=a,host=h,", "pod 'a': '' is not key=value"),
        ("name=a b,host=h", r"'a b' is not a pod's name: .*expected pod-a or ns/pod-a"),
        ("name=a\x1b[31m,host=h", r"'a\\x1b\[31m' is not a pod's name"),
        ("name=a\u202eb,host=h", "is not a pod's name"),
        ("name=a/b/c,host=h", "a slash stands once"),
        ("name=/a,host=h", "a slash stands once"),
        ("name=" + "x" * 513 + ",host=h", "longer than 512"),
        ("name=a,host=h,dp=0", "pod a: dp: the number of DP ranks is 1 to 1024, not '0'"),
        ("name=a,host=h,dp=1025", "dp: .*not '1025'"),
        ("name=a,host=h,dp=two", "dp: .*not 'two'"),
        ("name=a,host=h,dp=-1", "dp: "),
        ("name=a,host=h,dp=²", "dp: "),
        ("name=a,host=h,engine=sglan", r"engine: 'sglan' is no engine \(did you mean sglang\?\)"),
        ("name=a,host=h,bind=yes", "bind: it is true or false, not 'yes'"),
        ("name=a,events=tcp://*:1,bind=false", r"bind: tcp://\*:1 can only be bound"),
        ("name=a,events=tcp://*:1|tcp://h:2", "events: either all of them are bound or none"),
        ("name=a,host=h,model=\x07", r"model: '\\x07' has control characters"),
        ("name=a,events=h:5557", "events: 'h:5557' is no endpoint; expected tcp://host:port"),
        ("name=a,events=tcp://h", "events: 'tcp://h' is no endpoint"),
        ("name=a,events=tcp://:5557", "events: the host is missing"),
        ("name=a,events=tcp://::1:5557", "is no endpoint"),
        ("name=a,events=tcp://[::1:5557", "is no endpoint"),
        ("name=a,events=tcp://[::g]:5557", r"'\[::g\]' is no IPv6 address"),
        ("name=a,events=tcp://999.1.1.1:5557", "'999.1.1.1' is no IPv4 address"),
        ("name=a,events=tcp://h_!:5557", "'h_!' is no host name"),
        ("name=a,events=tcp://h:0", "a port is a number from 1 to 65535, not '0'"),
        ("name=a,events=tcp://h:65536", "not '65536'"),
        ("name=a,events=tcp://h:*", r"not '\*'"),
        ("name=a,events=tcp://h:65535,dp=2,replay=none", "port 65535 plus rank 1 is over 65535"),
        ("name=a,events=http://h:5557", "events: the scheme 'http' is not possible here"),
        ("name=a,events=inproc://x", "the scheme 'inproc' is not possible here"),
        ("name=a,events=ipc://", "needs a path"),
        ("name=a,events=ipc:///" + "x" * 107, "at most 107 bytes"),
        ("name=a,events=ipc:///x,dp=2", "ipc endpoints have no ports to count ranks by"),
        ("name=a,events=tcp://h:1|tcp://h:2,dp=3", "events: 2 endpoints for dp=3 ranks"),
        ("name=a,events=tcp://h:1|tcp://h:2|", "is no endpoint"),
        ("name=a,host=h,dp=3,replay=tcp://h:1|tcp://h:2", "replay: 2 endpoints for 3 ranks"),
        ("name=a,host=h,replay=tcp://*:5558", "replay: the engine binds it"),
        ("name=a,api=ftp://h", "api: 'ftp://h' is no HTTP URL"),
        ("name=a,api=h:8000", "is no HTTP URL"),
        ("name=a,api=http://", "is no HTTP URL"),
        ("name=a,api=http://h:0", "api: a port is a number"),
        ("name=a,api=http://h:99999", "is no URL"),
        ("name=a,api=http://h:", "api: a port is a number"),
        ("name=a,api=http://[::1", "is no URL"),
        ("name=a,api=http://h:8000/?x=1", "more than a host, a port and a path"),
        ("name=a,api=http://h:8000/#", "more than a host, a port and a path"),
        ("name=a,api=http://me:pw@h:8000", "credentials; give the token in KVCTL_API_KEY"),
        ("name=a,api=http://h h", "characters that no address has"),
        ("name=a,host=h\x00", "is no host name"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told) as caught:
        parse_pod(text)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400
    assert caught.value.exit_code == 2


def test_a_password_in_a_url_is_not_repeated() -> None:
    with pytest.raises(UsageError) as caught:
        parse_pod("name=a,api=http://me:hunter2@h:8000")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("word", "name", "at"),
    [
        ("tcp://10.0.0.7:5557", "10.0.0.7", "tcp://10.0.0.7:5557"),
        ("10.0.0.7", "10.0.0.7", "tcp://10.0.0.7:5557"),
        ("pod-a.example.com", "pod-a.example.com", "tcp://pod-a.example.com:5557"),
        ("10.0.0.7:5560", "10.0.0.7:5560", "tcp://10.0.0.7:5560"),
        ("[::1]:5557", "::1", "tcp://[::1]:5557"),
        ("[::1]:5560", "[::1]:5560", "tcp://[::1]:5560"),
        ("::1", "::1", "tcp://[::1]:5557"),
        ("*:5557", "*:5557", "tcp://*:5557"),
        ("http://10.0.0.7:8000", "10.0.0.7", "tcp://10.0.0.7:5557"),
        ("ipc:///run/kv.sock", "kv.sock", "ipc:///run/kv.sock"),
    ],
)
def test_an_address_alone_is_a_pod(word: str, name: str, at: str) -> None:
    pod = pod_from_endpoint(word)
    assert (pod.name, events(pod)) == (name, [at])
    assert pod.bind is ("*" in word)


@pytest.mark.parametrize(
    "word", ["", "a b", "h:x", "tcp://h", "h:1:2", "http://", "http://h:8001", "udp://h:1", "\x1b"]
)
def test_what_is_no_address_is_refused(word: str) -> None:
    with pytest.raises(UsageError) as caught:
        pod_from_endpoint(word)
    assert str(caught.value).isprintable()


def test_an_address_is_told_from_a_name() -> None:
    for word in ("tcp://h:1", "h:5557", "10.0.0.7", "::1", "[::1]:1", "localhost", "*:5557"):
        assert is_address(word), word
    for word in ("pod-a", "ns/pod-a", "vllm-0", "a.b", ""):
        assert not is_address(word), word


@given(st.text(max_size=60))
def test_any_text_is_a_pod_or_a_usage_error(text: str) -> None:
    for parse in (parse_pod, pod_from_endpoint):
        for word in (text, f"name=a,{text}", f"name=a,events={text}", f"name=a,api=http://{text}"):
            try:
                assert parse(word).streams
            except UsageError as error:
                refusal = str(error)
            else:
                refusal = ""
            assert refusal.isprintable()


@given(
    st.integers(1, 65535), st.integers(1, 65535), st.integers(1, 1024), st.sampled_from(["h", "i"])
)
def test_no_two_streams_ever_share_an_address(first: int, second: int, dp: int, host: str) -> None:
    text = f"name=a,events=tcp://h:{first},replay=tcp://{host}:{second},api=none,dp={dp}"
    overlap = host == "h" and abs(first - second) < dp
    too_high = max(first, second) + dp - 1 > 65535
    try:
        pod = parse_pod(text)
    except UsageError:
        assert overlap or too_high
        return
    assert not overlap
    assert not too_high
    endpoints = events(pod) + replay(pod)
    assert len(set(endpoints)) == len(endpoints) == 2 * dp
