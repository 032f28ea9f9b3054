"""What a benchmark says: a metric compares medians of two samples, and its outcome is printed as a
line, as a row of a table, or as a record of a JSON file. The benchmarks list their metrics;
compare.py prints them.
"""

import dataclasses
import statistics


class BenchmarkError(Exception):
    """A benchmark could not run."""


class UnavailableError(BenchmarkError):
    """This machine lacks what the benchmark is about; the text says what."""


@dataclasses.dataclass(frozen=True)
class Metric:
    name: str
    ours: str  # name of a sample
    peers: tuple = ()  # names of samples; the fastest of them is the peer
    goal: float | None = None
    less_is_better: bool = False
    unit: float = 1.0  # samples are divided by it
    limit: float | None = None  # peer is this number instead
    optional: bool = False  # peers may be missing; where ours is missing there is no outcome


def nanoseconds(name, ours, *peers, goal=None):
    return Metric(name, ours, peers, goal, less_is_better=True)


def bandwidth(name, ours, *peers, goal=None):
    return Metric(name, ours, peers, goal, unit=1e9)


@dataclasses.dataclass(frozen=True)
class Outcome:
    metric: Metric
    ours: float
    peer: float | None
    ratio: float | None  # of speeds: above 1 ours is faster

    @property
    def reached(self):
        """Whether the goal is; None where there is none, or nothing to compare with."""
        if self.metric.goal is None or self.ratio is None:
            return None
        return self.ratio >= self.metric.goal


def judge(metric, samples):
    """The outcome; the peer is the one whose median is best. None for an optional metric that was
    not measured."""
    missing = [name for name in (metric.ours, *metric.peers) if name not in samples]
    if missing and not metric.optional:
        raise BenchmarkError(f"{metric.name}: there is no sample {missing[0]}")
    if metric.ours not in samples:
        return None

    def median(name):
        return statistics.median(samples[name]) / metric.unit

    ours = median(metric.ours)
    best = min if metric.less_is_better else max
    peers = [median(name) for name in metric.peers if name in samples]
    peer = best(peers) if peers else metric.limit
    ratio = None
    if peer is not None:
        ratio = peer / ours if metric.less_is_better else ours / peer
    return Outcome(metric, ours, peer, ratio)


# --- Printing -------------------------------------------------------------------------------------


def _number(value, style):
    return "-" if value is None else format(value, style)


def _cells(outcome):
    return (
        _number(outcome.ours, ".4g"),
        _number(outcome.peer, ".4g"),
        _number(outcome.ratio, ".2f"),
        _number(outcome.metric.goal, ".2f"),
    )


def line(outcome):
    ours, peer, ratio, goal = _cells(outcome)
    word = "ok" if outcome.reached or outcome.metric.goal is None else "short"
    if outcome.metric.goal is not None and outcome.ratio is None:
        word = "unknown"
    return f"metric={outcome.metric.name} ours={ours} peer={peer} ratio={ratio} goal={goal} {word}"


def table(outcomes):
    """Lines of a Markdown table."""
    yield "| metric | ours | peer | ratio | goal | met |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for outcome in outcomes:
        met = {None: "-", True: "yes", False: "no"}[outcome.reached]
        yield f"| {' | '.join((outcome.metric.name, *_cells(outcome), met))} |"


def record(outcome):
    """For a JSON file."""
    return {
        "metric": outcome.metric.name,
        "ours": outcome.ours,
        "peer": outcome.peer,
        "ratio": outcome.ratio,
        "goal": outcome.metric.goal,
        "reached": outcome.reached,
    }
