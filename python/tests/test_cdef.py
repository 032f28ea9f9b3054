"""The generated declarations say what a C compiler makes of the headers."""

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from mori._ffi import constant, ffi, header_version

ROOT = Path(__file__).resolve().parents[2]
HEADERS = ROOT / "capi" / "include"


@pytest.fixture(scope="module")
def build_cdef():
    spec = importlib.util.spec_from_file_location("build_cdef", ROOT / "python/build_cdef.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def structs():
    return [name for name in ffi.list_types()[0] if ffi.typeof(name).kind == "struct"]


def is_opaque(name):
    try:
        ffi.sizeof(name)
    except ffi.error:
        return True
    return False


def with_fields():
    return [name for name in structs() if not is_opaque(name)]


def enumerators(build_cdef):
    text = re.sub(r"/\*.*?\*/", "", build_cdef.declarations(HEADERS), flags=re.DOTALL)
    bodies = re.findall(r"\benum\s*{([^}]*)}", text)
    return [name for body in bodies for name in re.findall(r"\bMORI_\w+", body)]


@pytest.fixture(scope="module")
def compiled(build_cdef, tmp_path_factory):
    """Name -> value, as a C compiler sees them."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "a C compiler is needed to check the layouts"
    lines = []
    for name in with_fields():
        lines.append(f'P("sizeof {name}", sizeof({name}));')
        for field, _ in ffi.typeof(name).fields:
            lines.append(f'P("{name}.{field}", offsetof({name}, {field}));')
    lines += [f'P("{name}", {name});' for name in enumerators(build_cdef)]
    folder = tmp_path_factory.mktemp("layout")
    source = folder / "layout.c"
    source.write_text(
        "#include <mori.h>\n#include <stddef.h>\n#include <stdio.h>\n"
        '#define P(name, value) printf("%s=%lld\\n", name, (long long)(value))\n'
        "int main(void) {\n" + "\n".join(lines) + "\nreturn 0;\n}\n"
    )
    program = folder / "layout"
    command = [compiler, "-std=c11", f"-I{HEADERS}", str(source), "-o", str(program)]
    subprocess.run(command, check=True, timeout=60)
    out = subprocess.run([program], check=True, timeout=10, capture_output=True, text=True).stdout
    return {name: int(value) for name, value in (line.split("=") for line in out.splitlines())}


def test_layout_of_each_struct(compiled):
    checked = 0
    for name in with_fields():
        assert ffi.sizeof(name) == compiled[f"sizeof {name}"], name
        for field, _ in ffi.typeof(name).fields:
            assert ffi.offsetof(name, field) == compiled[f"{name}.{field}"], f"{name}.{field}"
            checked += 1
    assert checked > 100


def test_value_of_each_enumerator(compiled, build_cdef):
    names = enumerators(build_cdef)
    assert "MORI_E_TIMEOUT" in names
    assert "MORI_EP_F8_E4M3FNUZ" in names
    for name in names:
        assert constant(name) == compiled[name], name


def test_handles_are_opaque():
    assert set(filter(is_opaque, structs())) == {
        "mori_ep",
        "mori_io",
        "mori_io_session",
        "mori_io_transfer",
        "mori_shmem",
        "mori_shmem_lease",
        "mori_shmem_team",
    }


def test_macros_outside_the_blocks_are_there():
    assert constant("MORI_SHMEM_UNIQUE_ID_BYTES") == 128
    for name in ("shmem", "ep", "io"):
        text = (HEADERS / f"mori/{name}.h").read_text()
        expected = tuple(
            int(re.search(rf"#define MORI_{name.upper()}_VERSION_{part} (\d+)", text)[1])
            for part in ("MAJOR", "MINOR", "PATCH")
        )
        assert header_version(name) == expected


def test_every_exported_function_is_declared():
    """Against the version scripts: the names that the libraries export."""
    from mori._ffi import load

    for name in ("shmem", "ep", "io"):
        script = (ROOT / f"capi/maps/mori-{name}.map").read_text()
        exported = set(re.findall(rf"\bmori_{name}_\w+(?=;)", script))
        assert exported
        assert exported <= set(dir(load(name).lib))


def test_every_function_has_a_raw_counterpart():
    import importlib

    for name in ("shmem", "ep", "io"):
        script = (ROOT / f"capi/maps/mori-{name}.map").read_text()
        module = importlib.import_module(f"mori._raw.{name}")
        missing = [
            function
            for function in re.findall(rf"\bmori_{name}_\w+(?=;)", script)
            if not callable(getattr(module, function, None))
        ]
        assert missing == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("/* cdef: begin */\nint f(void);\n", "exactly one of each"),
        ("/* cdef: end */\n/* cdef: begin */\n", "stands before"),
        ("#include <mori/a.h>\n/* cdef: begin */\n/* cdef: end */\n", "include each other"),
    ],
)
def test_bad_header_is_refused(build_cdef, tmp_path, text, message):
    (tmp_path / "mori").mkdir()
    (tmp_path / "mori/a.h").write_text(text)
    with pytest.raises(build_cdef.HeaderError, match=message):
        build_cdef.declarations(tmp_path)


def test_no_header_is_an_error(build_cdef, tmp_path):
    with pytest.raises(build_cdef.HeaderError, match="no header with a cdef block"):
        build_cdef.declarations(tmp_path)


def test_headers_come_after_what_they_include(build_cdef):
    text = build_cdef.declarations(HEADERS)
    order = re.findall(r"^/\* mori/(\w+)\.h \*/", text, re.MULTILINE)
    assert order.index("base") < order.index("shmem") < order.index("ep")
    assert order.index("shmem_device") < order.index("shmem")
    assert order.index("base") < order.index("io_types") < order.index("io")
