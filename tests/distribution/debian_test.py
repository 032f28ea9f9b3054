#!/usr/bin/env python3
"""The Debian packages as a user meets them. Built twice from what a finished build has compiled,
in two folders, the bytes must agree; lintian must have nothing to say; in a fresh root io is
installed alone and a C program built on it, then the rest, then each library is upgraded while the
others stay.

usage: debian_test.py BUILD_FOLDER
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from root import CommandError, Root, make_base

ROOT = pathlib.Path(__file__).resolve().parents[2]
BASE = ROOT / "build/debian/base"
LIBRARIES = ("shmem", "ep", "io")
PACKAGES = {
    *(f"libmori-{name}0" for name in LIBRARIES),
    *(f"libmori-{name}-dev" for name in LIBRARIES),
    *("libmori-shmem0-device", "libmori-common-dev", "python3-mori", "mori-tools"),
}
# What a communication library must not pull in.
UNWANTED = re.compile(r"libmori-(shmem|ep)|cuda|nvidia|rocm|hip|openmpi|mpich|torch|python")


def run(*command, timeout=900):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=timeout)
    if done.returncode:
        raise CommandError(f"{command[0]}: {(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def field(package, name):
    return run("dpkg-deb", "-f", package, name).strip()


def by_name(folder):
    """Name -> file of each package; debug symbols aside."""
    files = {path.name.split("_")[0]: path for path in folder.glob("*.deb")}
    return {name: path for name, path in files.items() if not name.endswith("-dbgsym")}


def check_reproducible(objects, first, folder):
    run("bash", ROOT / "packaging/debian.sh", "--from", objects, "--output", folder)
    names = sorted(path.name for path in first.glob("*.deb"))
    assert names == sorted(path.name for path in folder.glob("*.deb")), names
    for name in names:
        assert (first / name).read_bytes() == (folder / name).read_bytes(), f"{name} differs"


def check_lintian(folder):
    (changes,) = folder.glob("*.changes")
    done = subprocess.run(
        ["lintian", "--allow-root", "--fail-on", "error,warning", str(changes)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def check_fields(folder):
    found = by_name(folder)
    assert set(found) == PACKAGES, sorted(found)
    capi = ROOT / "capi"
    for name in LIBRARIES:
        version = run(sys.executable, capi / "abi/read_version.py", capi, name).strip()
        assert field(found[f"libmori-{name}0"], "Version") == version
        assert field(found[f"libmori-{name}-dev"], "Version") == version
    io = field(found["libmori-io0"], "Depends")
    assert set(re.findall(r"[\w.+-]+(?= \()", io)) == {"libc6", "libgcc-s1", "libstdc++6"}, io
    assert field(found["libmori-io0"], "Recommends") == "libibverbs1"
    # By its symbols ep needs no newer shmem than the first.
    assert "libmori-shmem0 (>= 0.1.0)" in field(found["libmori-ep0"], "Depends")


def fill(root, folder):
    """Puts packages and programs where the root's commands find them."""
    for path in folder.glob("*.deb"):
        shutil.copy(path, root.path / "srv/packages")
    shutil.copy(ROOT / "capi/examples/kv_transfer.c", root.path / "srv")
    shutil.copy(ROOT / "capi/examples/moe_layer.c", root.path / "srv")
    (root.path / "srv/tests/ffi").mkdir(parents=True)
    shutil.copy(ROOT / "tests/ffi/readme_examples.py", root.path / "srv/tests/ffi")
    shutil.copy(ROOT / "README.md", root.path / "srv")
    root.run("apt-get -q update")


def check_io_alone(root, found):
    before = set(root.installed())
    root.install(found["libmori-io0"].name)
    new = set(root.installed()) - before
    assert "libmori-io0" in new
    pulled = [name for name in new if UNWANTED.search(name)]
    assert not pulled, pulled
    loaded = root.run("ldd /usr/lib/*/libmori-io.so.0")
    assert "not found" not in loaded, loaded


def check_c_program(root, found):
    root.install(
        found["libmori-io-dev"].name,
        found["libmori-common-dev"].name,
        *("gcc", "libc6-dev", "pkgconf"),
    )
    root.run("cd /srv && cc -std=c11 kv_transfer.c -o kv $(pkg-config --cflags --libs mori-io)")
    said = root.run("/srv/kv", timeout=60)
    assert "OK" in said, said
    assert "libmori-shmem0" not in root.installed()


def check_all(root, found):
    names = ("libmori-shmem0", "libmori-ep0", "libmori-shmem-dev", "libmori-ep-dev")
    more = ("libmori-shmem0-device", "python3-mori", "mori-tools")
    root.install(*(found[name].name for name in (*names, *more)))
    report = json.loads(root.run("cd / && mori info --json"))
    assert all(one["loaded"] for one in report["libraries"].values()), report["libraries"]
    said = root.run("python3 /srv/tests/ffi/readme_examples.py python", timeout=120)
    assert said.count("ok - ") >= 2, said
    assert "not ok" not in said, said
    assert root.run("man -w mori 2>/dev/null || ls /usr/share/man/man1/mori.1.gz")
    bitcode = root.run("""python3 -c 'import mori.ir; print(mori.ir.find_bitcode("sm_90"))'""")
    assert "/mori/bitcode/libmori_shmem_device-sm_90.bc" in bitcode, bitcode
    root.run(
        "cd /srv && cc -std=c11 moe_layer.c -o moe $(pkg-config --cflags --libs mori-ep) -pthread"
    )
    assert root.run("/srv/moe", timeout=120).endswith("moe_layer: OK\n")


def newer(package, folder):
    """The same package with a later version, as a fixed release of that library would be."""
    content = folder / "content"
    shutil.rmtree(content, ignore_errors=True)
    run("dpkg-deb", "-R", package, content)
    control = content / "DEBIAN/control"
    text = control.read_text()
    version = re.search(r"^Version: (.*)$", text, re.M)[1]
    control.write_text(text.replace(f"Version: {version}", f"Version: {version}+fix1"))
    made = folder / package.name.replace(version, f"{version}+fix1")
    run("dpkg-deb", "--root-owner-group", "-b", content, made)
    return made


def check_upgrades(root, found, folder):
    root.run("apt-get -q remove -y libmori-shmem-dev libmori-ep-dev libmori-io-dev")
    for name in LIBRARIES:
        before = root.installed()
        package = newer(found[f"libmori-{name}0"], folder)
        shutil.copy(package, root.path / "srv/packages")
        root.install(package.name)
        after = root.installed()
        changed = {one for one in after if after[one] != before.get(one)}
        assert changed == {f"libmori-{name}0"}, changed
        assert set(before) == set(after)
        assert root.run("/srv/moe", timeout=120).endswith("moe_layer: OK\n")
        assert "OK" in root.run("/srv/kv", timeout=60)


def check_removal(root):
    """io stays usable when the others go, and says in Python what is missing."""
    root.run("apt-get -q remove -y libmori-shmem0 libmori-ep0")
    left = root.installed()
    assert "libmori-io0" in left
    assert "python3-mori" in left
    assert "mori-tools" not in left
    assert "OK" in root.run("/srv/kv", timeout=60)
    program = "import mori.io; print(mori.io.IOEngine.__name__)\ntry:\n import mori.shmem\n"
    program += "except ImportError as e: print(e)"
    said = root.run(f"python3 -c '{program}'")
    assert said.startswith("IOEngine\n"), said
    assert "libmori-shmem could not be loaded" in said, said


def main(objects):
    good = True
    with tempfile.TemporaryDirectory(prefix="mori-debian-test-") as name:
        work = pathlib.Path(name)
        packages = work / "packages"
        run("bash", ROOT / "packaging/debian.sh", "--from", objects, "--output", packages)
        found = by_name(packages)
        make_base(BASE)
        root = Root(BASE, work / "root")
        fill(root, packages)
        steps = [
            ("built twice, the same bytes", check_reproducible, objects, packages, work / "again"),
            ("lintian", check_lintian, packages),
            ("names, versions, dependencies", check_fields, packages),
            ("io alone", check_io_alone, root, found),
            ("a C program by pkg-config", check_c_program, root, found),
            ("all of them", check_all, root, found),
            ("each library upgraded alone", check_upgrades, root, found, work),
            ("io without the others", check_removal, root),
        ]
        for title, check, *arguments in steps:
            try:
                check(*arguments)
            except (AssertionError, CommandError, OSError, subprocess.TimeoutExpired) as fault:
                good = False
                print(f"not ok - debian: {title}\n  {fault}", flush=True)
            else:
                print(f"ok - debian: {title}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
