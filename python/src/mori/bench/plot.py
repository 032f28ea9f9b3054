"""The table of `mori bench io` as a picture, by matplotlib where it is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class PlotError(Exception):
    """No picture can be made; the message says why."""


def _pyplot() -> Any:
    try:
        import matplotlib as library
    except ImportError as error:
        raise PlotError(
            f"--plot needs matplotlib, which is not installed: {error} (pip install matplotlib)"
        ) from None
    library.use("svg")
    from matplotlib import pyplot

    return pyplot


def refuse_without_library() -> None:
    """PlotError before anything was measured."""
    _pyplot()


def write(rows: list[dict[str, Any]], title: str, path: Path) -> None:
    """Bandwidth and latency over the message size, one line for each batch size."""
    pyplot = _pyplot()
    figure, (rate, latency) = pyplot.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for batch in sorted({row["batch_size"] for row in rows}):
        mine = [row for row in rows if row["batch_size"] == batch]
        sizes = [row["message_bytes"] for row in mine]
        label = f"batch {batch}"
        rate.plot(sizes, [row["avg_gb_per_s"] for row in mine], marker="o", ms=3, label=label)
        latency.plot(sizes, [row["avg_us"] for row in mine], marker="o", ms=3, label=label)
    for axes, what in ((rate, "bandwidth, GB/s"), (latency, "latency of a transfer, us")):
        axes.set_xscale("log", base=2)
        axes.set_xlabel("message, bytes")
        axes.set_ylabel(what)
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
    latency.set_yscale("log")
    figure.suptitle(title)
    try:
        figure.savefig(path, format="svg")
    except OSError as error:
        raise PlotError(f"cannot write {path}: {error.strerror}") from None
    finally:
        pyplot.close(figure)
