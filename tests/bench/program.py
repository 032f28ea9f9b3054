"""Runs one of the benchmarks' programs and reads the "NAME VALUE" lines that it prints."""

import subprocess

from metric import BenchmarkError

LIMIT_S = 200  # of one program


def run_with_notes(command, environment=None, limit_s=LIMIT_S):
    """What the program printed, and what it said on standard error though it ended well."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=limit_s, env=environment
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BenchmarkError(f"{command[0]}: {error}") from error
    if done.returncode != 0:
        raise BenchmarkError(f"{command[0]}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout, done.stderr


def run_program(command, environment=None):
    return run_with_notes(command, environment)[0]


def parse_samples(text):
    """NAME VALUE lines; pairs, as a name may come once a round."""
    for line in text.splitlines():
        name, value = line.split()
        yield name, float(value)
