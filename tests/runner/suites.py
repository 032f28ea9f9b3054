"""The suites of tests/run.sh: what each runs, what must come before it, how long it may take.

Budgets are wall-clock seconds on a machine of two cores with nothing in its compiler cache, other
suites running beside; a suite that overruns has failed. `load` says how many of the cores it fills:
a suite starts when its load fits beside those that run. The order of the list is the order in which
suites start where nothing else decides.
"""

import dataclasses
import pathlib
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
RELEASE = BUILD / "release"
MESON = str(BUILD / "venv/bin/meson")
PYTHON = sys.executable


@dataclasses.dataclass
class Suite:
    name: str
    budget_s: int
    commands: list  # run one after the other, from the root of the tree
    after: tuple = ()
    load: int = 1
    environment: dict = dataclasses.field(default_factory=dict)
    meson_log: pathlib.Path = None  # where `meson test` leaves the counts
    counted: bool = True  # False: a build; only its failure counts
    by_default: bool = True  # False: runs only when named


def setup(folder, *options):
    again = ["--reconfigure"] if (folder / "build.ninja").exists() else []
    return [MESON, "setup", *again, str(folder), str(ROOT), *options]


def ninja(folder):
    return ["ninja", "-C", str(folder), "-j2"]


def meson_test(folder, suite, *options):
    return [
        MESON,
        "test",
        "-C",
        str(folder),
        "--no-rebuild",
        "--print-errorlogs",
        "--logbase",
        suite,
        "--num-processes",
        "2",
        "--suite",
        suite,
        *options,
    ]


def of_release(name, budget_s, **more):
    """The Meson tests of one suite in the release build."""
    return Suite(
        name,
        budget_s,
        [meson_test(RELEASE, name)],
        after=("build",),
        meson_log=RELEASE / f"meson-logs/{name}.json",
        **more,
    )


def sanitized(name, sanitizers, environment):
    """The crates' unit tests under sanitizers, by clang: a second compiler for all sources."""
    folder = BUILD / name
    clang = next((c for c in ("19", "20", "21", "22") if shutil.which(f"clang++-{c}")), None)
    compilers = {"CC": f"clang-{clang}", "CXX": f"clang++-{clang}"} if clang else {}
    # Line numbers for reports. The checks left out triple the compile time, and what they find
    # ASan or the compiler's warnings find too.
    flags = "-g1 -fno-sanitize=null,vptr,object-size"
    options = [
        f"-Db_sanitize={sanitizers}",
        "-Db_lundef=false",
        "-Dbuildtype=plain",
        "-Doptimization=1",
        "-Db_ndebug=false",
        "-Dshmem=enabled",
        "-Dep=enabled",
        "-Dio=enabled",
        "-Dtests=enabled",
        "-Dconsumers=disabled",
        "-Dmodules=disabled",
        "-Damd=disabled",
        "-Dnvidia=disabled",
    ]
    # Without address randomisation: ThreadSanitizer's fixed shadow collides with it here and there.
    test = ["setarch", "-R", *meson_test(folder, "unit", "--timeout-multiplier", "4")]
    return Suite(
        name,
        600,
        [setup(folder, *options), ninja(folder), test],
        after=("build",),
        load=2,
        environment={"CFLAGS": flags, "CXXFLAGS": flags, **compilers, **environment},
        meson_log=folder / "meson-logs/unit.json",
    )


# The same folder and prefix as python/setup_env.sh, which installs the package from it. Kernels are
# compiled for all GPU architectures here, once for all suites.
RELEASE_OPTIONS = (
    "--buildtype=release",
    "--prefix=/usr",
    "--libdir=lib",
    "-Dshmem=enabled",
    "-Dep=enabled",
    "-Dio=enabled",
    "-Dtests=enabled",
    "-Dconsumers=enabled",
    "-Dmodules=enabled",
    "-Ddevice_checks=true",
)


def text_suites():
    """What needs no build, and the linter that needs one's list of commands."""
    checks = (
        "tests/tidy/run",
        "tests/tidy/faults_test.py",
        "tests/runner/runner_test.py",
        "tests/distribution/release_test.py",
    )
    commands = [
        [PYTHON, "-B", check, *(["--strict"] if check.endswith("run") else [])] for check in checks
    ]
    lint = [[PYTHON, "-B", "tests/tidy/clang_tidy.py", str(RELEASE)]]
    return [
        Suite("tidy", 60, commands),
        Suite("clang-tidy", 300, lint, after=("build",), load=2, by_default=False),
    ]


def release_suites():
    """The build that users get, and what is tested with it."""
    build = [setup(RELEASE, *RELEASE_OPTIONS), ninja(RELEASE)]
    python = [
        ["bash", "python/setup_env.sh", "--tests", "--torch"],
        [PYTHON, "-m", "pytest"],
        [PYTHON, "-B", "tests/ffi/readme_examples.py", "python"],
    ]
    programs = (RELEASE / "tests/gpu/gpu_test", RELEASE / "subprojects/libmori-ep/tests/ep_test")
    gpu = [[PYTHON, "-B", "tests/gpu/gpu_test.py", *map(str, programs)]]
    rdma = [PYTHON, "-B", "tests/rdma/rdma_test.py", str(RELEASE)]
    return [
        Suite("build", 600, build, load=2, counted=False),
        of_release("unit", 240),
        of_release("fuzz", 60),
        of_release("abi", 90),
        of_release("ffi", 90),
        of_release("modules", 60),
        of_release("multi", 360),
        of_release("bench", 180),
        Suite("gpu", 900, gpu, after=("build",), load=2),
        Suite("rdma", 360, [rdma], after=("build",), load=2),
        Suite("rdma-full", 1800, [[*rdma, "--full"]], after=("build",), load=2, by_default=False),
        Suite("python", 600, python, after=("build",)),
        # The package that it tests is the one that the suite before has installed.
        Suite("ir", 300, [[PYTHON, "-B", "tests/ir", str(RELEASE)]], after=("python",), load=2),
    ]


def build_suites():
    """The same sources built in other ways."""
    alone = [[PYTHON, "-B", "tests/alone.py", str(BUILD / "alone"), "/usr/bin/meson", MESON]]
    device = [[PYTHON, "-B", "tests/device_objects.py", str(RELEASE)]]
    amd = [
        [PYTHON, "-B", f"tests/amd/{check}.py", str(RELEASE)]
        for check in ("inspection_test", "record_test", "inspection", "record")
    ]
    amd_exec = [[PYTHON, "-B", "tests/amd/execution.py", str(RELEASE)]]
    asan = {
        "ASAN_OPTIONS": "detect_stack_use_after_return=1:strict_string_checks=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    }
    tsan = {"TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1"}
    return [
        sanitized("asan", "address,undefined", asan),
        sanitized("tsan", "thread", tsan),
        Suite("alone", 180, alone, after=("build",), load=2),
        Suite("device", 120, device, after=("build",)),
        Suite("amd", 120, amd, after=("device",)),
        Suite("amd-exec", 300, amd_exec, after=("device",), load=2),
    ]


def distribution_suites():
    """What users install, installed."""
    wheel = [[PYTHON, "-B", "tests/distribution/wheel_test.py", str(RELEASE)]]
    debian = [[PYTHON, "-B", "tests/distribution/debian_test.py", str(RELEASE)]]
    return [
        Suite("wheel", 180, wheel, after=("build",)),
        # Needs root and the packages of a compiler once more, for a root of its own.
        Suite("debian", 600, debian, after=("build",), by_default=False),
    ]


def all_suites():
    demo = Suite("demo", 240, [["bash", "python/demo.sh"]], after=("python",), load=2)
    return [*text_suites(), *release_suites(), *build_suites(), *distribution_suites(), demo]
