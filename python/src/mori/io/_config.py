"""Configurations of an engine and its backends: plain fields with MORI's names, order, defaults.

They are read when an engine or a backend is made; changing one later changes nothing. Environment
variables (MORI_IO_...) override what stands here; the library reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mori._enums import BackendType, PollCqMode
from mori._ffi import constant
from mori._raw import number
from mori._values import timeout_ns, value_of
from mori.errors import InvalidError
from mori.io._errors import InvalidSetupError

_PROGRESS = {n: constant(f"MORI_IO_PROGRESS_{n.upper()}") for n in ("thread", "caller")}
_SECURITY = {
    n: constant(f"MORI_IO_SECURITY_{n.upper()}") for n in ("default", "mac", "encrypt", "trusted")
}


@dataclass
class IOEngineConfig:
    """Where an engine listens, and how it behaves.

    host                 address to listen on and to tell peers; "": all, telling the first that is
                         not loopback or MORI_SOCKET_IFNAME's
    port                 0: one that is free; get_engine_desc() says which
    progress             "thread": one of the engine's own; "caller": whoever waits or calls
                         progress()
    security             "mac", "encrypt", "trusted" (bulk data bare; both sides must say so), or
                         "default": MORI_IO_SECURITY, else mac
    require_known_peers  only engines given to register_remote_engine may connect
    control_timeout_s    connecting, handshakes, back-pressure; None: MORI_IO_CP_TIMEOUT_MS, else 30
    peer_timeout_s       silence after which a peer counts as dead; None: MORI_IO_PEER_TIMEOUT_MS,
                         else 10
    spin_us              microseconds that progress polls before it sleeps
    transfer_count       transfers in flight at once, more wait; 0: 65536
    inbound_count        notifications kept; 0: 1048576
    """

    host: str = ""
    port: int = 0
    progress: str | int = "thread"
    security: str | int = "default"
    require_known_peers: bool = False
    control_timeout_s: float | None = None
    peer_timeout_s: float | None = None
    spin_us: int = 0
    transfer_count: int = 0
    inbound_count: int = 0

    def options(self) -> dict[str, Any]:
        """The fields of mori_io_options but key and host."""
        port = number(self.port, "port", "int32_t")
        if not 0 <= port <= 65535:
            raise InvalidError(f"port is {port}, expected 0 .. 65535")
        return {
            "port": port,
            "progress": value_of(self.progress, _PROGRESS, "progress"),
            "security": value_of(self.security, _SECURITY, "security"),
            "require_known_peers": int(bool(self.require_known_peers)),
            "control_timeout_ns": timeout_ns(self.control_timeout_s, "control_timeout_s"),
            "peer_timeout_ns": timeout_ns(self.peer_timeout_s, "peer_timeout_s"),
            "spin_ns": number(self.spin_us, "spin_us") * 1000,
            "transfer_count": self.transfer_count,
            "inbound_count": self.inbound_count,
        }


class BackendConfig:
    """Base of the backends' configurations."""

    def options(self) -> dict[str, Any]:
        """The fields of mori_io_backend_options."""
        return {}

    def _at_least(self, least: int, *names: str) -> None:
        """InvalidSetupError for a field below `least`."""
        for name in names:
            value = number(getattr(self, name), name, "int32_t")
            if value < least:
                raise InvalidSetupError(f"{name} is {value}, expected at least {least}")


@dataclass
class RdmaBackendConfig(BackendConfig):
    """RDMA by verbs. -1 and 0 where they are the default: the library chooses."""

    qp_per_transfer: int = 1
    post_batch_size: int = -1
    num_worker_threads: int = -1
    poll_cq_mode: PollCqMode = PollCqMode.POLLING
    enable_notification: bool = True
    notif_per_qp: int = 1024
    enable_transfer_chunking: bool = False
    chunk_bytes: int = 65536
    max_chunks_per_transfer: int = 64
    num_nics_per_transfer: int = 1
    max_send_wr: int = 0
    max_cqe_num: int = 0
    max_msg_sge: int = 0

    def options(self) -> dict[str, Any]:
        """The fields of mori_io_backend_options."""
        self._at_least(1, "qp_per_transfer", "notif_per_qp", "num_nics_per_transfer")
        self._at_least(-1, "post_batch_size", "num_worker_threads")
        self._at_least(0, "max_send_wr", "max_cqe_num", "max_msg_sge")
        if self.post_batch_size == 0:
            raise InvalidSetupError("post_batch_size is 0, expected -1 (automatic) or more than 0")
        if self.enable_transfer_chunking:
            self._at_least(4096, "chunk_bytes")
            self._at_least(1, "max_chunks_per_transfer")
        try:
            mode = PollCqMode(self.poll_cq_mode)
        except ValueError:
            raise InvalidSetupError(
                f"poll_cq_mode is {self.poll_cq_mode!r}, expected a PollCqMode"
            ) from None
        return {
            "queue_pair_count": self.qp_per_transfer,
            "post_batch_count": max(0, self.post_batch_size),
            "worker_count": max(0, self.num_worker_threads),
            "poll_mode": int(mode),
            "disable_notification": int(not self.enable_notification),
            "notification_count": self.notif_per_qp,
            "nic_count": self.num_nics_per_transfer,
            "enable_chunking": int(bool(self.enable_transfer_chunking)),
            "chunk_bytes": self.chunk_bytes if self.enable_transfer_chunking else 0,
            "max_chunk_count": self.max_chunks_per_transfer,
            "max_send_count": self.max_send_wr,
            "max_completion_count": self.max_cqe_num,
            "max_piece_count": self.max_msg_sge,
        }


@dataclass
class XgmiBackendConfig(BackendConfig):
    """Copies inside a node. The numbers are of GPU streams and events."""

    num_streams: int = 64
    num_events: int = 64

    def options(self) -> dict[str, Any]:
        """The fields of mori_io_backend_options."""
        self._at_least(1, "num_streams", "num_events")
        return {"stream_count": self.num_streams, "event_count": self.num_events}


@dataclass
class FabricBackendConfig(BackendConfig):
    """Accepted, and refused by create_backend with the reason."""

    num_streams: int = 64
    num_events: int = 64


@dataclass
class TcpBackendConfig(BackendConfig):
    """TCP.

    num_streams          connections per peer; 0: 2
    chunk_bytes          slice of a large transfer, 64 KiB .. 64 MiB; 0: 1 MiB
    staging_bytes        pinned memory for transfers of GPU memory; 0: 16 MiB
    enable_notification  False: transfers notify no peer
    """

    num_streams: int = 0
    chunk_bytes: int = 0
    staging_bytes: int = 0
    enable_notification: bool = True

    def options(self) -> dict[str, Any]:
        """The fields of mori_io_backend_options."""
        self._at_least(0, "num_streams")
        return {
            "stream_count": self.num_streams,
            "chunk_bytes": self.chunk_bytes,
            "staging_bytes": self.staging_bytes,
            "disable_notification": int(not self.enable_notification),
        }


_CONFIGS: dict[BackendType, type[BackendConfig]] = {
    BackendType.XGMI: XgmiBackendConfig,
    BackendType.RDMA: RdmaBackendConfig,
    BackendType.TCP: TcpBackendConfig,
    BackendType.FABRIC: FabricBackendConfig,
}


def backend_of(value: Any) -> BackendType:
    """A BackendType other than Unknown; InvalidError for anything else."""
    try:
        kind = BackendType(value)
    except ValueError:
        kind = BackendType.Unknown
    if kind is BackendType.Unknown:
        names = ", ".join(known.name for known in _CONFIGS)
        raise InvalidError(f"type is {value!r}, expected a BackendType of {names}")
    return kind


def backend_options(kind: BackendType, config: BackendConfig | None) -> dict[str, Any]:
    """What a backend is to be made with; InvalidSetupError for another one's configuration."""
    expected = _CONFIGS[kind]
    if config is None:
        return expected().options()
    if not isinstance(config, expected):
        raise InvalidSetupError(
            f"config is a {type(config).__name__}, expected a {expected.__name__} for {kind.name}"
        )
    return config.options()
