"""The checks of two nodes: `--listen` on one, `--connect` on the other. Over one connection they
tell each other what they are, compare clocks, and open ports for each other, as engines and PEs do.

The protocol is lines of JSON, at most 64 KiB long, each with a deadline: whoever connects gets
these facts and no more, and the listener ends after one peer.
"""

from __future__ import annotations

import json
import platform
import socket
import time
from typing import Any

from mori.doctor.answer import FAIL, OK, WARN, Answer

_LINE_BYTES = 1 << 16
_WAIT_S = 10.0
_PINGS = 21
_PORTS = 3
_CLOCK_S = 0.5
_PROTOCOL = 1


class PairError(Exception):
    """No pair; the message is for the user."""


class Line:
    """A connection that carries lines of JSON."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(_WAIT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = connection
        self._left = b""

    def say(self, **fields: Any) -> None:
        """One line."""
        self.socket.sendall(json.dumps(fields).encode() + b"\n")

    def hear(self) -> dict[str, Any]:
        """The next line; PairError for what is none, or does not come."""
        while b"\n" not in self._left:
            if len(self._left) > _LINE_BYTES:
                raise PairError("the other side says lines that are too long")
            try:
                data = self.socket.recv(4096)
            except TimeoutError:
                raise PairError(f"the other side says nothing for {_WAIT_S:.0f} s") from None
            if not data:
                raise PairError("the other side has closed the connection")
            self._left += data
        line, _, self._left = self._left.partition(b"\n")
        try:
            told = json.loads(line)
        except ValueError:
            told = None
        if not isinstance(told, dict):
            raise PairError("the other side is no `mori doctor`")
        return told


def facts() -> dict[str, Any]:
    """What the other node is told of this one."""
    from mori.info import _libraries

    libraries = _libraries()
    return {
        "doctor": _PROTOCOL,
        "host": platform.node(),
        "machine": platform.machine(),
        "versions": {name: one.get("version", "missing") for name, one in libraries.items()},
    }


def _plain(text: Any) -> str:
    """What the other node said, fit to be printed."""
    return "".join(c if c.isprintable() else "?" for c in str(text)[:80])


def _answer_pings(line: Line) -> None:
    for _ in range(_PINGS):
        line.hear()
        line.say(clock_s=time.time())


def _measure(line: Line) -> tuple[float, float]:
    """(round trip, how far the other clock is ahead), both of the fastest ping, in seconds."""
    best = (float("inf"), 0.0)
    for _ in range(_PINGS):
        before, start = time.time(), time.perf_counter()
        line.say(ping=True)
        other = float(line.hear()["clock_s"])
        trip = time.perf_counter() - start
        best = min(best, (trip, other - before - trip / 2))
    return best


def _offer_ports(line: Line, family: int, host: str) -> None:
    """Opens ports as engines do, on the address that this connection came by; the peer tries."""
    listeners = [socket.create_server((host, 0), family=family) for _ in range(_PORTS)]
    try:
        line.say(ports=[one.getsockname()[1] for one in listeners])
        line.hear()  # tried: the kernel has accepted, nobody needs to look
    finally:
        for one in listeners:
            one.close()


def _try_ports(line: Line, host: str) -> list[int]:
    """Ports of the other node that cannot be reached."""
    ports = [int(port) for port in line.hear()["ports"][:_PORTS]]
    closed = []
    for port in ports:
        try:
            socket.create_connection((host, port), 3.0).close()
        except OSError:
            closed.append(port)
    line.say(closed=closed)
    return closed


def _judge(
    own: dict[str, Any], other: dict[str, Any], trip_s: float, ahead_s: float
) -> list[Answer]:
    """What follows from facts and clocks."""
    found = [Answer("peer", OK, f"{_plain(other.get('host'))}, round trip {trip_s * 1e6:.0f} us")]
    differ = {
        name: (version, _plain(other.get("versions", {}).get(name)))
        for name, version in own["versions"].items()
        if other.get("versions", {}).get(name) != version
    }
    text = ", ".join(f"{name} {mine} and {theirs}" for name, (mine, theirs) in differ.items())
    fix = "the same release on all nodes: a group's PEs refuse another one"
    found.append(Answer("versions", FAIL, text, fix) if differ else Answer("versions", OK, "equal"))
    if other.get("machine") != own["machine"]:
        text = f"{own['machine']} and {_plain(other.get('machine'))}"
        found.append(Answer("machine", FAIL, text, "one kind of machine"))
    off = f"the other is {abs(ahead_s) * 1e3:.1f} ms {'ahead' if ahead_s > 0 else 'behind'}"
    if abs(ahead_s) > _CLOCK_S:
        fix = "NTP or chrony: logs cannot be compared; nothing else depends on it"
        found.append(Answer("clocks", WARN, off, fix))
    else:
        found.append(Answer("clocks", OK, off))
    return found


def _ports_answer(name: str, closed: list[int]) -> Answer:
    if not closed:
        return Answer(name, OK, f"{_PORTS} of {_PORTS} free ports reached")
    fix = (
        "open the ports in /proc/sys/net/ipv4/ip_local_port_range between the nodes, or give "
        "engines a fixed port; MORI_SOCKET_IFNAME chooses the interface"
    )
    return Answer(name, FAIL, f"{len(closed)} of {_PORTS} ports not reached: {closed}", fix)


def _talk(line: Line, first: bool) -> list[Answer]:
    """The whole conversation; `first` is who connected."""
    try:
        return _conversation(line, first)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise PairError("the other side says what no `mori doctor` says") from None


def _conversation(line: Line, first: bool) -> list[Answer]:
    """Facts, clocks, ports; roles change in the middle."""
    own = facts()
    line.say(**own)
    other = line.hear()
    if other.get("doctor") != _PROTOCOL:
        raise PairError("the other side is no `mori doctor` of this release")
    here, there = line.socket.getsockname()[0], line.socket.getpeername()[0]
    if first:
        trip, ahead = _measure(line)
        _answer_pings(line)
        outward = _try_ports(line, there)
        _offer_ports(line, line.socket.family, here)
        inward = line.hear()["closed_there"]
    else:
        _answer_pings(line)
        trip, ahead = _measure(line)
        _offer_ports(line, line.socket.family, here)
        inward = None
        outward = _try_ports(line, there)
        line.say(closed_there=outward)
    found = _judge(own, other, trip, ahead)
    found.append(_ports_answer("ports there", outward))
    if inward is not None:
        found.append(_ports_answer("ports here", [int(port) for port in inward]))
    return found


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdigit() or not 0 <= int(port) < 65536:
        raise PairError(f"{text!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


def listen(text: str, wait_s: float, ready: Any = None) -> list[Answer]:
    """Waits for one `--connect`; `ready` is told the port."""
    host, port = _address(text if ":" in text else f":{text}")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.create_server((host, port), family=family) as server:
            if ready is not None:
                ready(server.getsockname()[1])
            server.settimeout(wait_s)
            connection, _ = server.accept()
        with connection:
            return _talk(Line(connection), False)
    except TimeoutError:
        raise PairError(f"nobody has connected within {wait_s:g} s") from None
    except OSError as error:
        raise PairError(f"{text}: {error.strerror or error}") from None


def connect(text: str) -> list[Answer]:
    """Connects to a `--listen`."""
    host, port = _address(text)
    try:
        with socket.create_connection((host or "127.0.0.1", port), _WAIT_S) as connection:
            return _talk(Line(connection), True)
    except TimeoutError:
        reason = "no answer: a firewall drops it, or the address is another network's"
        raise PairError(f"{text}: {reason}") from None
    except ConnectionRefusedError:
        raise PairError(f"{text}: refused; run `mori doctor --listen {port}` there") from None
    except OSError as error:
        raise PairError(f"{text}: {error.strerror or error}") from None
