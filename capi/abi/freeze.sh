#!/usr/bin/env bash
# Freezes a release for the tests of all later ones: writes capi/abi/VERSION/ with the C headers,
# the exported symbols, the ABI as abidw records it, and libmori-ep and the C client moe_layer as
# stripped binaries. tests/abi/frozen_test.py runs those against today's libraries. Done once per
# release; what is frozen never changes (docs/versioning.md).
# usage: bash capi/abi/freeze.sh VERSION BUILD_FOLDER      (Meson from $MESON or PATH)
set -euo pipefail
version=${1:?usage: freeze.sh VERSION BUILD_FOLDER}
build=${2:?usage: freeze.sh VERSION BUILD_FOLDER}
capi=$(cd "$(dirname "$0")/.." && pwd)
target=$capi/abi/$version
if [ -e "$target" ]; then
  echo "$target exists; a release is frozen once" >&2
  exit 1
fi
for name in shmem ep io; do
  echo "mori-$name $(python3 -B "$capi/abi/read_version.py" "$capi" "$name")"
done

# Installed files carry no RPATH of the build tree.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
DESTDIR=$work "${MESON:-meson}" install -C "$build" --no-rebuild --quiet --tags runtime,devel
libraries=$(dirname "$(find "$work" -name libmori-ep.so.0)")

partial=$work/frozen
mkdir -p "$partial"
cp -r "$capi/include" "$partial/include"
rm -f "$partial/include/.clang-format"
cp -r "$capi/abi/symbols" "$partial/symbols"
cp "$capi/abi/layout.txt" "$partial/layout.txt"
for name in shmem ep io; do
  abidw --headers-dir "$capi/include" --no-corpus-path --no-comp-dir-path --no-show-locs \
    --drop-private-types --out-file "$partial/mori-$name.abi" "$libraries/libmori-$name.so.0"
done
mkdir "$partial/examples"
cp "$capi/examples/moe_layer.c" "$partial/examples/moe_layer.c"
cc -std=c11 -O2 -I"$partial/include" "$partial/examples/moe_layer.c" -o "$partial/moe_layer" \
  -L"$libraries" -Wl,-rpath-link,"$libraries" -lmori-ep -lmori-shmem -pthread
cp -L "$libraries/libmori-ep.so.0" "$partial/libmori-ep.so.0"
strip --strip-all "$partial/moe_layer"
strip --strip-unneeded "$partial/libmori-ep.so.0"
mv "$partial" "$target"
du -sh "$target"
