"""Which crate may include what, and which folder of a crate which other: docs and README files draw
these arrows, this file enforces them over the #include lines."""

import re
from pathlib import PurePosixPath

import tree

# Crate -> crates whose headers it may include, besides its own and the C headers.
ALLOWED = {
    "capi": (),
    "subprojects/mori-base": (),
    "subprojects/mori-device": ("subprojects/mori-base",),
    "subprojects/mori-link": ("subprojects/mori-base",),
    "libmori-shmem": ("subprojects/mori-base", "subprojects/mori-device", "subprojects/mori-link"),
    "libmori-ep": ("subprojects/mori-base", "subprojects/mori-device"),
    "libmori-io": ("subprojects/mori-base", "subprojects/mori-device", "subprojects/mori-link"),
}
# What ep may see of shmem: its device header; its C++ wrapper and tests also shmem's wrapper.
EP_SEES = re.compile(r"mori/device_api/")
EP_WRAPPER_SEES = re.compile(r"mori/(shmem\.hpp|cpp/)")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)
LAYERS = re.compile(r"[Ll]ayers, bottom-up: ([\w, ]+)")


def providers():
    """Include path below an include folder -> crate."""
    found = {}
    for path in tree.files():
        crate = tree.crate_of(path)
        if crate and path.suffix in tree.HEADER_SUFFIXES:
            parts = path.relative_to(crate).parts
            if parts[0] == "include":
                found["/".join(parts[1:])] = crate
    return found


def layers_of(crate):
    """Folders of the crate's src/ from the lowest up: in the order in which its meson.build first
    names them, or as a comment there says ("Layers, bottom-up: ...")."""
    build = PurePosixPath(crate) / "meson.build"
    if build not in tree.files():
        return []
    text = tree.text(build)
    comments = " ".join(re.findall(r"^# ?(.*)$", text, re.M))
    if match := LAYERS.search(comments):
        return [name.strip() for name in match[1].split(",")]
    return list(dict.fromkeys(re.findall(r"'src/(\w+)/", text)))


def check_crates():
    where = providers()
    for path in tree.c_files():
        crate = tree.crate_of(path)
        if not crate:
            continue
        public = "include" in path.parts or "tests" in path.parts or path.suffix == ".cppm"
        for _, name in INCLUDE.findall(tree.text(path)):
            if not name.startswith("mori"):
                continue
            target = where.get(name)
            ep_may = EP_SEES.match(name) or (public and EP_WRAPPER_SEES.match(name))
            if target is None:
                yield f"{path}: no crate has <{name}>"
            elif target not in (crate, "capi", *ALLOWED[crate]) and not (
                crate == "libmori-ep" and target == "libmori-shmem" and ep_may
            ):
                yield f"{path}: {crate} may not include <{name}> of {target}"


def check_consumers():
    """Programs that stand for users: C ones see the C headers alone."""
    where = providers()
    for path in tree.c_files():
        if not path.is_relative_to("tests/ffi") and not path.is_relative_to("capi/examples"):
            continue
        for _, name in INCLUDE.findall(tree.text(path)):
            if name.startswith("mori") and where.get(name) != "capi":
                yield f"{path}: a C consumer may include C headers only, not <{name}>"


def check_layers():
    for crate in tree.CRATES[1:]:
        sources = {path for path in tree.c_files() if path.is_relative_to(f"{crate}/src")}
        folders = {
            path.relative_to(f"{crate}/src").parts[0]
            for path in sources
            if len(path.relative_to(f"{crate}/src").parts) > 1
        }
        if not folders:
            continue
        order = layers_of(crate)
        if missing := sorted(folders - set(order)):
            yield f"{crate}/meson.build: names no place among the layers for {', '.join(missing)}"
            continue
        for path in sorted(sources):
            yield from check_layer(crate, path, order)


def check_layer(crate, path, order):
    base = PurePosixPath(crate) / "src"
    own = path.relative_to(base).parts
    for _, name in INCLUDE.findall(tree.text(path)):
        for folder in (path.parent, base):
            target = PurePosixPath(re.sub(r"[^/]+/\.\./", "", str(folder / name)))
            if target not in tree.files():
                continue
            layer = target.relative_to(base).parts[0] if target.is_relative_to(base) else None
            if layer in order and len(own) > 1 and order.index(layer) > order.index(own[0]):
                yield f"{path}: layer {own[0]} may not include {name} of the higher layer {layer}"
            break


CHECKS = {
    "arrows between crates": check_crates,
    "consumers see C headers only": check_consumers,
    "layers inside crates": check_layers,
}
