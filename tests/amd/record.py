#!/usr/bin/env python3
"""record.json says which code objects the suite amd-exec has executed in the emulator; the suite
writes it. Here is also the check, without an emulator, that the objects of a build are those.

usage: record.py BUILD_FOLDER
"""

import dataclasses
import datetime
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

from code_object import CodeObject

RECORD = pathlib.Path(__file__).resolve().parent / "record.json"
REFRESH = "TINYGRAD_TREE=<tree> bash tests/run.sh amd-exec"
EXECUTED = ("gfx942", "gfx950")  # the emulator does not know gfx90a
EMULATOR_FILES = ("test/mockgpu/amd/*.py", "test/amd/*.py", "tinygrad/**/*.py")


def outputs(build):
    """Everything that the build makes."""
    targets = json.loads((build / "meson-info/intro-targets.json").read_text())
    return sorted({pathlib.Path(name) for target in targets for name in target["filename"]})


def objects_of(build):
    """The code objects that are executed and recorded, without those that test the emulator or are
    for a real GPU.
    """
    return [
        path
        for path in outputs(build)
        if path.suffix == ".hsaco"
        and path.exists()
        and any(name in path.name for name in EXECUTED)
        and not path.name.startswith(("probe_kernels-", "gpu_test_kernels-"))
    ]


def kernels_not_run(objects, ran):
    names = {(entry["architecture"], name) for entry in ran for name in entry["kernels"]}
    for each in objects:
        for name in each.kernels:
            if (each.architecture, name) not in names:
                yield f"{each.architecture} {name}"


def emulator_of(tree):
    """A hash of the files that matter; the commit, of a checkout or as TINYGRAD_COMMIT says."""
    folder = pathlib.Path(tree)
    found = hashlib.sha256()
    for pattern in EMULATOR_FILES:
        for path in sorted(folder.glob(pattern)):
            found.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    command = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    known = os.environ.get("TINYGRAD_COMMIT", "unknown")
    if (folder / ".git").exists():
        known = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    return {"name": "tinygrad", "commit": known, "files_sha256": found.hexdigest()}


def merged(ran):
    """One entry per object: several tests may have run kernels of it."""
    entries = {}
    for entry in ran:
        mine = entries.setdefault((entry["name"], entry["sha256"]), {**entry, "kernels": {}})
        for name, facts in entry["kernels"].items():
            kernel = mine["kernels"].setdefault(name, {})
            for key, values in facts.items():
                kernel[key] = sorted({*kernel.get(key, []), *values})
    return [entries[key] for key in sorted(entries)]


def layout(record):
    """JSON with each list of numbers on one line."""
    text = json.dumps(record, indent=1, sort_keys=True)
    return re.sub(r"\[\s+([\d,\s]+?)\s+\]", lambda m: f"[{' '.join(m[1].split())}]", text) + "\n"


def write(ran, tree, path=RECORD):
    """Replaces the record unless nothing but the date would change."""
    new = {
        "date": datetime.date.today().isoformat(),
        "emulator": emulator_of(tree),
        "objects": merged(ran),
    }
    old = json.loads(path.read_text()) if path.exists() else {}
    if {**old, "date": new["date"]} == new:
        return False
    path.write_text(layout(new))
    print(f"{path.name} was written; commit it")
    return True


@dataclasses.dataclass
class Verdict:
    word: str  # ok, not ok, skip
    text: str


def judge(each, record):
    """Whether a code object is one that was executed."""
    entries = {e["name"]: e for e in record["objects"] if e["architecture"] == each.architecture}
    title = f"{each.name} was executed in the emulator"
    entry = entries.get(each.name)
    if entry is None:
        return Verdict("not ok", f"{title}: record.json has no such object; run: {REFRESH}")
    if entry["sha256"] == each.sha256:
        return Verdict("ok", f"{title} on {record['date']}")
    if entry["compiler"] != each.compiler:
        return Verdict(
            "skip",
            f"{title}: unknown, for it was compiled by {each.compiler}, the recorded one by "
            f"{entry['compiler']}, and other compilers give other bytes",
        )
    return Verdict(
        "not ok",
        f"{title}: no, its hash {each.sha256[:12]} is not the recorded {entry['sha256'][:12]}. "
        f"Kernels or flags have changed since; run: {REFRESH}  and commit tests/amd/record.json",
    )


def main(build):
    objects = [CodeObject.read(path) for path in objects_of(build)]
    if not objects:
        print("skip - record: no code objects for AMD GPUs were compiled")
        return 0
    record = json.loads(RECORD.read_text())
    verdicts = [judge(each, record) for each in objects]
    for verdict in verdicts:
        print(f"{verdict.word} - {verdict.text}")
    return 1 if any(verdict.word == "not ok" for verdict in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve()))
