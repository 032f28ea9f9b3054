"""The rows of a benchmark as a picture, by matplotlib where it is installed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FORMATS = ("svg", "png")


class PlotError(Exception):
    """No picture can be made; the message says why."""


@dataclass(frozen=True)
class Panel:
    """One of the two halves: fields that are drawn over x, and what they are called."""

    label: str
    lines: tuple[tuple[str, str], ...]
    logarithmic: bool = False


@dataclass(frozen=True)
class Picture:
    """x: field and label; group: the field that makes a line each, with what it is called."""

    x: tuple[str, str]
    panels: tuple[Panel, Panel]
    group: tuple[str, str] | None = None


def _pyplot() -> Any:
    try:
        import matplotlib as library
    except ImportError as error:
        raise PlotError(
            f"--plot needs matplotlib, which is not installed: {error} (pip install matplotlib)"
        ) from None
    library.use("agg")
    from matplotlib import pyplot

    return pyplot


def refuse_what_cannot_be(path: Path) -> None:
    """PlotError before anything was measured."""
    if path.suffix.lower().lstrip(".") not in _FORMATS:
        raise PlotError(f"--plot {path}: a name that ends in .svg or .png")
    _pyplot()


def _draw(axes: Any, rows: list[dict[str, Any]], picture: Picture, panel: Panel) -> None:
    x, label = picture.x
    key, name = picture.group or ("", "")
    groups = sorted({row[key] for row in rows}) if key else [None]
    for group in groups:
        mine = [row for row in rows if group is None or row[key] == group]
        for field, title in panel.lines:
            of = " ".join(filter(None, (title, f"{name} {group}" if key else "")))
            values = [row[field] for row in mine]
            axes.plot([row[x] for row in mine], values, marker="o", ms=3, label=of)
    axes.set_xscale("log", base=2)
    axes.set_xlabel(label)
    axes.set_ylabel(panel.label)
    if panel.logarithmic:
        axes.set_yscale("log")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)


def write(rows: list[dict[str, Any]], title: str, path: Path, picture: Picture) -> None:
    """Both panels of the picture, as SVG or PNG by the file's name."""
    pyplot = _pyplot()
    figure, halves = pyplot.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for axes, panel in zip(halves, picture.panels, strict=True):
        _draw(axes, rows, picture, panel)
    figure.suptitle(title)
    try:
        figure.savefig(path, format=path.suffix.lower().lstrip("."))
    except OSError as error:
        raise PlotError(f"cannot write {path}: {error.strerror}") from None
    finally:
        pyplot.close(figure)
