"""Exchanges with servers that misbehave: bounded in time and size, each fault in its own words."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import zmq
from engine_server import EngineServer

from kvctl.engine import EngineClient, EngineError, NotAnEngine, Unreachable
from kvctl.engine.transport import MAX_BODY, Transport
from kvctl.errors import UsageError

TLS = Path(__file__).parent / "tls"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
Scripted = Callable[[Callable[[socket.socket], None]], str]


def ask(url: str, *, timeout: float = 10.0, method: str = "POST") -> bytes:
    transport = Transport("pod-a", url, api_key=None, verify=True)
    return transport.exchange(method, "/sleep", timeout=timeout).body


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def test_a_refused_connection_says_so_and_sent_nothing() -> None:
    port = free_port()
    with pytest.raises(Unreachable, match=rf"127\.0\.0\.1:{port} refuses the conn") as caught:
        ask(f"http://127.0.0.1:{port}")
    assert caught.value.sent is False
    assert caught.value.exit_code == 1


def test_a_host_without_an_address_says_so() -> None:
    with pytest.raises(Unreachable, match=r"no address is known for nowhere\.invalid") as caught:
        ask("http://nowhere.invalid:8000")
    assert caught.value.sent is False


def test_a_host_that_takes_no_connection_runs_into_the_timeout() -> None:
    # A listener whose queue is full: the kernel leaves further connections unanswered.
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        try:
            for one in waiting:
                one.setblocking(False)
                one.connect_ex(listener.getsockname())
            with pytest.raises(Unreachable, match=r"no connection to .* within 0\.5 s") as caught:
                ask(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=0.5)
        finally:
            for one in waiting:
                one.close()
    assert caught.value.sent is False


def test_an_engine_that_dies_before_it_answers_may_have_done_it(scripted: Scripted) -> None:
    url = scripted(lambda connection: None)
    with pytest.raises(
        Unreachable, match=r"closed the connection.*may have taken effect"
    ) as caught:
        ask(url)
    assert caught.value.sent is True
    with pytest.raises(Unreachable, match=r"\(the engine may have died\)$"):
        ask(url, method="GET")


@pytest.mark.parametrize(
    "answer",
    [
        HEAD + b"Content-Length: 20\r\n\r\n{}",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
    ],
)
def test_an_answer_that_is_cut_is_no_answer(scripted: Scripted, answer: bytes) -> None:
    url = scripted(lambda connection: connection.sendall(answer))
    with pytest.raises(EngineError) as caught:
        ask(url)
    assert caught.value.sent is True


def dribble(piece: bytes, start: bytes = b"") -> Callable[[socket.socket], None]:
    """A script that sends ``piece`` ten times a second for as long as anyone listens."""

    def script(connection: socket.socket) -> None:
        connection.sendall(start)
        until = time.monotonic() + 60
        while time.monotonic() < until:
            connection.sendall(piece)
            time.sleep(0.1)

    return script


@pytest.mark.parametrize(
    "script",
    [
        dribble(b"X-More: 1\r\n", HEAD),
        dribble(b"H"),
        dribble(b"HTTP/1.1 100 Continue\r\n\r\n"),
        dribble(b" ", HEAD + b"Content-Length: 1000000\r\n\r\n"),
        dribble(b" ", HEAD + b"\r\n"),
        dribble(b"1\r\n \r\n", HEAD + b"Transfer-Encoding: chunked\r\n\r\n"),
    ],
    ids=["headers", "status", "continue", "length", "close", "chunked"],
)
def test_an_answer_without_end_ends_at_the_deadline(
    scripted: Scripted, script: Callable[[socket.socket], None]
) -> None:
    with pytest.raises(Unreachable, match=r"within 0\.8 s") as caught:
        ask(scripted(script), timeout=0.8)
    assert caught.value.sent is True


def flood(start: bytes, piece: bytes) -> Callable[[socket.socket], None]:
    def script(connection: socket.socket) -> None:
        connection.sendall(start)
        while True:
            connection.sendall(piece)

    return script


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (b"Content-Length: 1073741824\r\n\r\n", b" " * 1_000_000),
        (b"Transfer-Encoding: chunked\r\n\r\n", b"f4240\r\n" + b" " * 1_000_000 + b"\r\n"),
        (b"\r\n", b" " * 1_000_000),
    ],
    ids=["length", "chunked", "close"],
)
def test_a_huge_answer_is_left_unread(scripted: Scripted, start: bytes, piece: bytes) -> None:
    with pytest.raises(NotAnEngine, match=f"more than {MAX_BODY} bytes"):
        ask(scripted(flood(HEAD + start, piece)), timeout=60)


def test_endless_headers_are_left_unread(scripted: Scripted) -> None:
    with pytest.raises(EngineError):
        ask(scripted(flood(HEAD, b"X-More: 1\r\n" * 1000)), timeout=60)


def test_an_answer_that_is_as_large_as_allowed_is_read(scripted: Scripted) -> None:
    def script(connection: socket.socket) -> None:
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % MAX_BODY)
        connection.sendall(b"x" * MAX_BODY)

    assert len(ask(scripted(script), timeout=60)) == MAX_BODY


@pytest.mark.parametrize("greeting", [b"SSH-2.0-OpenSSH_9.6\r\n", b"\xff\x00\n", b"\x00" * 70_000])
def test_a_port_that_speaks_something_else_is_no_engine(
    scripted: Scripted, greeting: bytes
) -> None:
    def script(connection: socket.socket) -> None:
        connection.sendall(greeting)
        time.sleep(0.2)  # closing with the request unread would reset the connection

    script.at_once = True  # type: ignore[attr-defined]
    with pytest.raises(NotAnEngine, match="does not speak HTTP"):
        ask(scripted(script))


def test_a_zmq_port_is_told_from_an_api() -> None:
    with zmq.Context() as context, context.socket(zmq.PUB) as publisher:
        port = publisher.bind_to_random_port("tcp://127.0.0.1")
        with pytest.raises(EngineError, match="port of the engine's API"):
            ask(f"http://127.0.0.1:{port}", method="GET", timeout=1)


def test_a_plain_port_asked_for_tls_says_so(engine: EngineServer) -> None:
    with pytest.raises(NotAnEngine, match=r"does not speak TLS \(try http://\)") as caught:
        ask(engine.url.replace("http", "https"))
    assert caught.value.sent is False


def tls_engine(engine: EngineServer) -> str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
    engine.wrap(context)
    return engine.url.replace("http", "https")


def test_a_certificate_is_verified_unless_told_otherwise(engine: EngineServer) -> None:
    url = tls_engine(engine)
    with pytest.raises(Unreachable, match=r"certificate .* is not trusted") as caught:
        EngineClient("pod-a", url).health()
    assert caught.value.sent is False
    assert engine.seen == []
    assert EngineClient("pod-a", url, verify=TLS / "cert.pem").health() is True
    assert EngineClient("pod-a", url, verify=False).health() is True


def test_a_ca_bundle_that_is_missing_is_named(engine: EngineServer) -> None:
    url = tls_engine(engine)
    with pytest.raises(UsageError, match=r"invalid path: .*missing\.pem"):
        EngineClient("pod-a", url, verify=TLS / "missing.pem").health()


def test_a_proxy_of_the_environment_is_not_asked_for_a_loopback_address(
    engine: EngineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert EngineClient("pod-a", engine.url).health() is True
    assert EngineClient("pod-a", f"http://localhost:{engine.port}").health() is True


def test_a_proxy_of_the_environment_is_used_for_other_hosts(
    engine: EngineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", engine.url)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert EngineClient("pod-a", "http://pod-a.invalid:8000").health() is True
    assert engine.calls == ["GET /health"]


def test_a_local_port_is_called_and_the_address_behind_it_named(
    engine: EngineServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    named = "http://192.0.2.1:8000"
    assert EngineClient("pod-a", named, via=engine.url).health() is True
    assert engine.calls == ["GET /health"]
    nobody = EngineClient("pod-a", named, via=f"http://127.0.0.1:{free_port()}")
    with pytest.raises(Unreachable, match=r"192\.0\.2\.1:8000 refuses the connection"):
        nobody.health()


@pytest.mark.parametrize("url", ["http://", "gopher://h:1", "no url"])
def test_what_is_no_url_is_a_usage_error(url: str) -> None:
    with pytest.raises(UsageError, match="not an HTTP URL"):
        ask(url)


def test_one_client_serves_several_threads(engine: EngineServer) -> None:
    client, answers = EngineClient("pod-a", engine.url), []
    threads = [threading.Thread(target=lambda: answers.append(client.models())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert answers == [["tiny", "ad1"]] * 8
