"""Local ports into pods: over real WebSockets, as a kubelet speaks them, to real ports."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from kube_portforward import PortForwarding
from kube_server import TOKEN, KubeServer, pod_object, write_kubeconfig

from kvctl.errors import KvctlError
from kvctl.fleet import forwardfaults, forwardlink
from kvctl.fleet.forwards import Forwards
from kvctl.fleet.kubeconfig import load_cluster
from kvctl.fleet.pod import Pod, PodStream

TLS = Path(__file__).parents[1] / "engine" / "tls"
PATIENCE = 20.0

Serve = Callable[[Callable[[socket.socket], None]], int]


@pytest.fixture
def forwarding(server: KubeServer) -> PortForwarding:
    server.put(pod_object("pod-a"))
    return PortForwarding(server)


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def forwards(forwarding: PortForwarding, kubeconfig: Path, told: list[str]) -> Iterator[Forwards]:
    with Forwards(load_cluster(kubeconfig), told.append) as forwards:
        yield forwards


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start a TCP server, a thread per connection; returns its port."""
    with ExitStack() as stack:

        def start(talk: Callable[[socket.socket], None]) -> int:
            server = Talking(talk)
            stack.callback(server.close)
            return server.port

        yield start


class Talking:
    """A TCP server that lets a function talk to each connection, and closes it after that."""

    def __init__(self, talk: Callable[[socket.socket], None], port: int = 0) -> None:
        self._talk = talk
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listening = socket.create_server(("127.0.0.1", port), backlog=256)
        self.port = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self._open.add(connection)
            self._threads.append(threading.Thread(target=self._serve, args=(connection,)))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            self._talk(connection)
        self._open.discard(connection)

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()
        for each in tuple(self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()


def echo(connection: socket.socket) -> None:
    while data := connection.recv(65536):
        connection.sendall(data)


def pod(port: int, name: str = "prod/pod-a") -> Pod:
    return Pod(name, (), api=f"http://10.0.0.1:{port}")


def connect(reached: Pod) -> socket.socket:
    assert reached.api_via is not None
    local = int(reached.api_via.rpartition(":")[2])
    return socket.create_connection(("127.0.0.1", local), timeout=PATIENCE)


def read_all(connection: socket.socket) -> bytes:
    content = b""
    while data := connection.recv(65536):
        content += data
    return content


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def listening() -> set[str]:
    """The local addresses, as the system writes them, on which this process listens."""
    own = {
        str(each.readlink()).removeprefix("socket:[").removesuffix("]")
        for each in Path("/proc/self/fd").iterdir()
        if each.is_symlink()
    }
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    lines += [line.split() for line in Path("/proc/net/tcp6").read_text().splitlines()[1:]]
    return {line[1] for line in lines if line[3] == "0A" and line[9] in own}


def test_bytes_go_both_ways(forwards: Forwards, serve: Serve, told: list[str]) -> None:
    reached = forwards.reach(pod(serve(echo)))
    with connect(reached) as connection:
        connection.sendall(b"hello")
        assert connection.recv(100) == b"hello"
        connection.sendall(b"again")
        assert connection.recv(100) == b"again"
    assert told == []


def test_a_pod_keeps_its_own_addresses_and_gets_local_ones_beside_them(forwards: Forwards) -> None:
    streams = tuple(
        PodStream(rank, f"tcp://10.0.0.1:{5557 + rank}", f"tcp://[fd00::7]:{5600 + rank}")
        for rank in range(2)
    )
    told = Pod("prod/pod-a", streams, api="http://10.0.0.1:8000/base")
    reached = forwards.reach(told)
    assert (reached.api, [each.events for each in reached.streams]) == (
        "http://10.0.0.1:8000/base",
        ["tcp://10.0.0.1:5557", "tcp://10.0.0.1:5558"],
    )
    assert reached.is_forwarded
    assert not told.is_forwarded
    assert reached.api_via is not None
    assert reached.api_via.startswith("http://127.0.0.1:")
    assert reached.api_via.endswith("/base")
    local = {reached.api_via.removesuffix("/base").rpartition(":")[2]}
    for each in reached.streams:
        for via in (each.events_via, each.replay_via):
            assert via is not None
            assert via.startswith("tcp://127.0.0.1:")
            local.add(via.rpartition(":")[2])
    assert len(local) == 5
    assert forwards.reach(told) is reached


def test_only_this_host_can_reach_the_local_ports(forwards: Forwards, serve: Serve) -> None:
    before = listening()
    reached = forwards.reach(pod(serve(echo)))
    assert reached.api_via is not None
    port = int(reached.api_via.rpartition(":")[2])
    (address,) = {each for each in listening() - before if each.endswith(f":{port:04X}")}
    assert address == f"0100007F:{port:04X}"  # 127.0.0.1, as the kernel writes it


def test_ten_megabytes_arrive_as_they_were_sent(
    forwards: Forwards, serve: Serve, told: list[str]
) -> None:
    content = random.Random(1).randbytes(10_000_000)
    reached = forwards.reach(pod(serve(lambda connection: connection.sendall(content))))
    with connect(reached) as connection:
        received = read_all(connection)
    assert hashlib.sha256(received).digest() == hashlib.sha256(content).digest()
    assert told == []


def test_ten_megabytes_arrive_at_the_pod_and_come_back(forwards: Forwards, serve: Serve) -> None:
    """Both directions full at once: neither waits for the other."""
    content = random.Random(2).randbytes(10_000_000)
    with connect(forwards.reach(pod(serve(echo)))) as connection:
        sender = threading.Thread(target=connection.sendall, args=(content,))
        sender.start()
        received = bytearray()
        while len(received) < len(content):
            received += connection.recv(65536)
        sender.join()
    assert bytes(received) == content


def test_who_does_not_read_stops_the_sender(forwards: Forwards, serve: Serve) -> None:
    sent = [0]

    def flood(connection: socket.socket) -> None:
        while True:
            sent[0] += connection.send(bytes(65536))

    with connect(forwards.reach(pod(serve(flood)))) as connection:
        seen = -1
        while seen != sent[0]:
            seen = sent[0]
            time.sleep(0.5)
        assert 0 < seen < 32 * 1024 * 1024  # in the buffers of six sockets, and no further
        read = 0
        while read < seen:
            read += len(connection.recv(65536))
        wait_until(lambda: sent[0] > seen)  # it goes on


def test_a_pod_that_takes_nothing_stops_the_local_side(forwards: Forwards, serve: Serve) -> None:
    go_on = threading.Event()
    read = [0]

    def slow(connection: socket.socket) -> None:
        go_on.wait(PATIENCE)
        while data := connection.recv(65536):
            read[0] += len(data)

    with connect(forwards.reach(pod(serve(slow)))) as connection:
        connection.settimeout(1)
        sent = 0
        with suppress(TimeoutError):
            while sent < 64 * 1024 * 1024:
                sent += connection.send(bytes(65536))
        assert 0 < sent < 32 * 1024 * 1024
        go_on.set()
        wait_until(lambda: read[0] == sent)


def test_the_end_of_the_pod_is_the_end_of_the_connection(
    forwards: Forwards, forwarding: PortForwarding, serve: Serve
) -> None:
    with connect(
        forwards.reach(pod(serve(lambda connection: connection.sendall(b"bye"))))
    ) as connection:
        assert read_all(connection) == b"bye"
    wait_until(lambda: forwarding.open == 0)


def test_the_end_of_the_local_side_is_passed_on(
    forwards: Forwards, forwarding: PortForwarding, serve: Serve
) -> None:
    ended = threading.Event()

    def listen(connection: socket.socket) -> None:
        while connection.recv(65536):
            pass
        ended.set()

    connection = connect(forwards.reach(pod(serve(listen))))
    connection.sendall(b"x")
    connection.close()
    assert ended.wait(PATIENCE)
    wait_until(lambda: forwarding.open == 0)


def test_who_has_sent_all_still_gets_the_answer(forwards: Forwards, serve: Serve) -> None:
    def answer(connection: socket.socket) -> None:
        assert connection.recv(100) == b"question"
        for _ in range(4):
            time.sleep(forwardlink.LINGER_S / 3)
            connection.sendall(b"answer ")

    with connect(forwards.reach(pod(serve(answer)))) as connection:
        connection.sendall(b"question")
        connection.shutdown(socket.SHUT_WR)
        assert read_all(connection) == b"answer " * 4


def test_many_connections_at_once_are_kept_apart(
    forwards: Forwards, forwarding: PortForwarding, serve: Serve, told: list[str]
) -> None:
    reached = forwards.reach(pod(serve(echo)))
    together = threading.Barrier(100)

    def talk(number: int) -> bool:
        content = random.Random(number).randbytes(20_000)
        with connect(reached) as connection:
            connection.sendall(content)
            received = connection.recv(1)
            together.wait(PATIENCE)
            while len(received) < len(content):
                received += connection.recv(65536)
        return received == content

    with ThreadPoolExecutor(100) as workers:
        assert all(workers.map(talk, range(100)))
    assert forwarding.most == 100
    assert told == []


def test_nothing_is_left_open_after_many_connections(
    forwards: Forwards, forwarding: PortForwarding, serve: Serve
) -> None:
    reached = forwards.reach(pod(serve(echo)))

    def talk(times: int) -> None:
        for _ in range(times):
            with connect(reached) as connection:
                connection.sendall(b"x")
                assert connection.recv(1) == b"x"
        wait_until(lambda: forwarding.open == 0)

    talk(3)
    time.sleep(0.2)
    before = descriptors()
    talk(100)
    wait_until(lambda: descriptors() <= before)


def test_a_port_with_no_listener_is_told_of_once_and_reached_when_it_is_back(
    forwards: Forwards, serve: Serve, told: list[str]
) -> None:
    gone = Talking(echo)
    gone.close()
    reached = forwards.reach(pod(gone.port))
    for _ in range(4):
        with connect(reached) as connection:
            assert read_all(connection) == b""
    assert told == [
        f"pod prod/pod-a: nothing listens on its port {gone.port} "
        "(is the engine up, and this its port?)"
    ]
    back = Talking(echo, gone.port)
    try:
        with connect(reached) as connection:
            connection.sendall(b"x")
            assert connection.recv(1) == b"x"
    finally:
        back.close()


def test_the_ports_of_a_pod_that_is_down_are_one_line(forwards: Forwards, told: list[str]) -> None:
    ports = []
    for _ in range(2):
        gone = Talking(echo)
        gone.close()
        ports.append(gone.port)
    streams = (PodStream(0, f"tcp://10.0.0.1:{ports[1]}"),)
    reached = forwards.reach(Pod("prod/pod-a", streams, api=f"http://10.0.0.1:{ports[0]}"))
    events = reached.streams[0].events_via
    assert events is not None
    with (
        connect(reached) as one,
        socket.create_connection(
            ("127.0.0.1", int(events.rpartition(":")[2])), timeout=PATIENCE
        ) as other,
    ):
        assert read_all(one) + read_all(other) == b""
    forwards.close()  # what is known is told, before its time
    listed = ", ".join(map(str, sorted(ports)))
    assert told == [
        f"pod prod/pod-a: nothing listens on its ports {listed} "
        "(is the engine up, and are these its ports?)"
    ]


def test_tries_at_a_port_that_fails_become_rare(
    forwards: Forwards, forwarding: PortForwarding
) -> None:
    gone = Talking(echo)
    gone.close()
    reached = forwards.reach(pod(gone.port))
    end = time.monotonic() + 3
    while time.monotonic() < end:
        with connect(reached) as connection:
            read_all(connection)
    assert 3 <= len(forwarding.asked) <= 6


def test_a_replay_that_nobody_configured_may_be_missing(
    forwards: Forwards, told: list[str]
) -> None:
    gone = Talking(echo)
    gone.close()
    stream = PodStream(0, "tcp://10.0.0.1:1", f"tcp://10.0.0.1:{gone.port}")
    for assumed, lines in ((frozenset({"replay"}), 0), (frozenset(), 1)):
        reached = forwards.reach(Pod("prod/pod-a", (stream,), assumed=assumed))
        assert reached.streams[0].replay_via is not None
        local = int(reached.streams[0].replay_via.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", local), timeout=PATIENCE) as connection:
            assert read_all(connection) == b""
        time.sleep(forwardfaults.GATHER_S + 0.2)
        assert len(told) == lines
    assert "nothing listens on its port" in told[0]
    assert "does its --kv-events-config have a replay_endpoint there?" in told[0]


def test_a_kubelet_that_restarts_ends_the_connections_and_no_more(
    forwards: Forwards, forwarding: PortForwarding, serve: Serve, told: list[str]
) -> None:
    reached = forwards.reach(pod(serve(echo)))
    with connect(reached) as connection:
        connection.sendall(b"x")
        assert connection.recv(1) == b"x"
        forwarding.cut()
        assert connection.recv(1) == b""
    with connect(reached) as connection:
        connection.sendall(b"y")
        assert connection.recv(1) == b"y"
    assert told == []  # whoever reads the stream tells that it was cut


@pytest.mark.parametrize(
    ("status", "body", "line"),
    [
        (
            401, b'{"message": "Unauthorized"}',
            "pod prod/pod-a cannot be reached: {url} does not accept the credentials of kube "
            "context lab (renew them as for kubectl, or choose others with --kube-context)",
        ),
        (
            403, b'{"message": "no"}',
            "pod prod/pod-a cannot be reached: to forward ports in namespace prod of kube context "
            "lab is forbidden: no (a role must allow get and create of pods/portforward: kubectl "
            "auth can-i get pods --subresource=portforward -n prod)",
        ),
        (
            404, b'{"message": "pods \\"pod-a\\" not found"}',
            'pod prod/pod-a cannot be reached: {url} does not know it: pods "pod-a" not found '
            "(is it still there? kubectl get pod -n prod pod-a)",
        ),
        (
            500, b"error dialing backend",
            "pod prod/pod-a cannot be reached: {url} failed to forward its ports with 500: error "
            "dialing backend (is it running? kubectl get pod -n prod pod-a)",
        ),
        (
            200, b"<html>",
            "pod prod/pod-a cannot be reached: {url} does not take a WebSocket: it answered 200 "
            "(is there a proxy before the API server that lets none through?)",
        ),
        (
            302, b"",
            "pod prod/pod-a cannot be reached: {url} does not take a WebSocket: it answered 302 "
            "(is there a proxy before the API server that lets none through?)",
        ),
    ],
)  # fmt: skip
def test_a_refusal_is_one_line_that_names_pod_and_remedy(
    server: KubeServer, forwards: Forwards, forwarding: PortForwarding, told: list[str],
    status: int, body: bytes, line: str,
) -> None:  # fmt: skip
    forwarding.refuse_with = (status, body)
    reached = forwards.reach(pod(8000))
    for _ in range(2):
        with connect(reached) as connection:
            assert read_all(connection) == b""
    assert told == [line.format(url=server.url)]


def test_what_is_wrong_with_the_cluster_is_not_told_for_each_pod(
    server: KubeServer, forwards: Forwards, forwarding: PortForwarding, told: list[str]
) -> None:
    server.put(pod_object("pod-b"))
    forwarding.forbidden.add("prod")
    for name in ("prod/pod-a", "prod/pod-b"):
        with connect(forwards.reach(pod(8000, name))) as connection:
            assert read_all(connection) == b""
    assert len(told) == 1
    assert 'User "ops" cannot get resource "pods/portforward"' in told[0]
    server.remove("pod-a")
    server.remove("pod-b")
    forwarding.forbidden.clear()
    for name in ("prod/pod-a", "prod/pod-b"):
        with connect(forwards.reach(pod(8000, name))) as connection:
            assert read_all(connection) == b""
    assert [line.partition(" cannot")[0] for line in told[1:]] == [
        "pod prod/pod-a",
        "pod prod/pod-b",
    ]


def test_a_fault_that_goes_on_is_told_again_after_a_while(
    forwards: Forwards,
    forwarding: PortForwarding,
    told: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forwardfaults, "TELL_AGAIN_S", 0.5)
    forwarding.forbidden.add("prod")
    reached = forwards.reach(pod(8000))
    while len(told) < 2:
        with connect(reached) as connection:
            read_all(connection)
    assert told[0] == told[1]


def test_what_a_kubelet_says_is_told_in_one_line(
    forwards: Forwards, forwarding: PortForwarding, told: list[str]
) -> None:
    forwarding.say = "error forwarding port 8000:\n sandbox is\x1b[31m gone"
    with connect(forwards.reach(pod(8000))) as connection:
        assert read_all(connection) == b""
    assert told == [
        "pod prod/pod-a: its port 8000 is not forwarded: error forwarding port 8000: sandbox "
        "is\x1b[31m gone (does kubectl port-forward -n prod pod-a 8000 work?)"
    ]


def test_an_api_server_that_is_away_is_told_of(
    server: KubeServer, forwards: Forwards, told: list[str]
) -> None:
    server.close()
    with connect(forwards.reach(pod(8000))) as connection:
        assert read_all(connection) == b""
    assert len(told) == 1
    assert told[0].startswith(
        f"pod prod/pod-a cannot be reached: {server.url}, the API server of kube context lab, "
        "cannot be reached: "
    )
    assert "kubectl cluster-info" in told[0]


def test_what_is_no_api_server_is_told_of(tmp_path: Path, told: list[str], serve: Serve) -> None:
    def other(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"220 mail.example.org ESMTP\r\n")

    path = write_kubeconfig(tmp_path / "k", f"http://127.0.0.1:{serve(other)}")
    with (
        Forwards(load_cluster(path), told.append) as forwards,
        connect(forwards.reach(pod(8000))) as connection,
    ):
        assert read_all(connection) == b""
    assert len(told) == 1
    assert "broke the connection off" in told[0] or "does not take a WebSocket" in told[0]


@pytest.mark.parametrize("trusted", [True, False])
def test_the_api_server_is_reached_over_tls_as_for_the_lists(
    tmp_path: Path, told: list[str], serve: Serve, trusted: bool
) -> None:
    with KubeServer((TLS / "cert.pem", TLS / "key.pem")) as server:
        server.put(pod_object("pod-a"))
        PortForwarding(server)
        more = {"certificate-authority": str(TLS / "cert.pem")} if trusted else {}
        path = write_kubeconfig(tmp_path / "k", server.url, more=more)
        with (
            Forwards(load_cluster(path), told.append) as forwards,
            connect(forwards.reach(pod(serve(echo)))) as connection,
        ):
            if trusted:
                connection.sendall(b"x" * 100_000)
                assert connection.recv(1) == b"x"
            else:
                assert read_all(connection) == b""
    if trusted:
        assert told == []
    else:
        (line,) = told
        assert f"no TLS connection with {server.url}: " in line
        assert "does kube context lab name the right certificate authority?" in line


def test_the_credentials_are_asked_for_with_every_connection(
    forwards: Forwards, kubeconfig: Path, serve: Serve, told: list[str]
) -> None:
    """A token that expires is renewed by the hook that the Kubernetes client keeps for it."""
    cluster = load_cluster(kubeconfig)
    asked = []

    def renew(configuration: object) -> None:
        asked.append(1)
        configuration.api_key["authorization"] = f"Bearer {TOKEN}"  # type: ignore[attr-defined]

    cluster.client.configuration.api_key["authorization"] = "Bearer expired"
    cluster.client.configuration.refresh_api_key_hook = renew
    forwards.use(cluster)
    reached = forwards.reach(pod(serve(echo)))
    for _ in range(2):
        with connect(reached) as connection:
            connection.sendall(b"x")
            assert connection.recv(1) == b"x"
    assert len(asked) >= 2
    assert told == []


def test_a_pod_that_is_let_go_is_reached_no_more(
    forwards: Forwards, forwarding: PortForwarding, serve: Serve
) -> None:
    told = pod(serve(echo))
    reached = forwards.reach(told)
    with connect(reached) as connection:
        connection.sendall(b"x")
        assert connection.recv(1) == b"x"
        forwards.let_go(reached)
        with suppress(ConnectionResetError):
            assert connection.recv(1) == b""
    wait_until(lambda: forwarding.open == 0)
    with pytest.raises(ConnectionRefusedError):
        connect(reached)
    again = forwards.reach(told)
    with connect(again) as connection:
        connection.sendall(b"y")
        assert connection.recv(1) == b"y"


def test_only_the_pods_to_be_kept_are_kept(forwards: Forwards, serve: Serve) -> None:
    one, other = pod(serve(echo)), pod(serve(echo))
    kept, dropped = forwards.reach(one), forwards.reach(other)
    forwards.keep([one])
    assert forwards.reach(one) is kept
    wait_until(lambda: _refused(dropped))
    connect(kept).close()


def _refused(reached: Pod) -> bool:
    try:
        connect(reached).close()
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:  # it was in the queue of a listener that closed
        return False
    return False


def test_at_the_end_nothing_is_left(
    forwarding: PortForwarding, kubeconfig: Path, told: list[str], serve: Serve
) -> None:
    port = serve(echo)
    hung = Talking(lambda connection: time.sleep(0.5))
    before = descriptors()
    forwards = Forwards(load_cluster(kubeconfig), told.append)
    reached = forwards.reach(pod(port))
    open_ones = [connect(reached) for _ in range(10)] + [connect(forwards.reach(pod(hung.port)))]
    for each in open_ones:
        each.sendall(b"x")
    began = time.monotonic()
    forwards.close()
    forwards.close()
    assert time.monotonic() - began < 2.5
    wait_until(
        lambda: (
            not [
                each.name
                for each in threading.enumerate()
                if each.name.startswith(("kvctl", "asyncio"))
            ]
        )
    )
    with pytest.raises(ConnectionRefusedError):
        connect(reached)
    for each in open_ones:
        each.close()
    hung.close()
    wait_until(lambda: forwarding.open == 0)
    wait_until(lambda: descriptors() <= before)
    assert told == []


def test_the_end_does_not_wait_for_an_api_server_that_hangs(
    tmp_path: Path, told: list[str], serve: Serve
) -> None:
    hang = threading.Event()
    path = write_kubeconfig(
        tmp_path / "k", f"http://127.0.0.1:{serve(lambda connection: bool(hang.wait(PATIENCE)))}"
    )
    forwards = Forwards(load_cluster(path), told.append)
    with connect(forwards.reach(pod(8000))):
        time.sleep(0.2)
        began = time.monotonic()
        forwards.close()
        assert time.monotonic() - began < 1.5
    hang.set()


def test_too_many_open_files_are_told_of(
    forwards: Forwards, serve: Serve, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    port = serve(echo)
    reached = forwards.reach(pod(port))

    def none(*_arguments: object) -> socket.socket:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(socket, "socket", none)
        with pytest.raises(KvctlError, match=r"no local port: too many open files .*ulimit -n"):
            forwards.reach(pod(port, "prod/pod-b"))
    with connect(reached) as connection:
        connection.sendall(b"x")
        assert connection.recv(1) == b"x"
    assert told == []


def test_the_official_client_finds_what_it_expects_of_the_server(
    forwarding: PortForwarding, kubeconfig: Path, serve: Serve
) -> None:
    """So that server and client here are not of one mistaken mind."""
    from kubernetes.client import CoreV1Api
    from kubernetes.stream import portforward

    gone = Talking(echo)
    gone.close()
    ports = serve(echo), gone.port
    for port in ports:
        api = CoreV1Api(load_cluster(kubeconfig).client)
        forward = portforward(
            api.connect_get_namespaced_pod_portforward, "pod-a", "prod", ports=str(port)
        )
        with forward.socket(port)._socket as connection:
            connection.settimeout(PATIENCE)
            if port == gone.port:
                assert connection.recv(10) == b""
                assert "connection refused" in forward.error(port)
            else:
                connection.sendall(b"hello")
                assert connection.recv(10) == b"hello"
    wait_until(lambda: forwarding.open == 0)
