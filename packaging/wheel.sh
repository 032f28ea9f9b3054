#!/usr/bin/env bash
# Builds the wheel and the sdist: mori-VERSION-py3-none-manylinux_2_34_x86_64.whl holds the Python
# package, the three libraries and the device bitcode, and needs numpy and cffi.
#
# usage: bash packaging/wheel.sh [--from BUILD] [--output FOLDER]
#   --from    takes the objects of that finished build and links them as a wheel needs it; without
#             it packaging/build.sh compiles them with hardening flags
#   --output  default build/dist
set -uo pipefail
source "$(dirname "$0")/build.sh"

platform=manylinux_2_34_x86_64
from='' output="$mori_root/build/dist"
while [ $# -gt 0 ]; do
  case "$1" in
    --from) from=$(cd "$2" && pwd) || exit 2 ;;
    --output) output=$(realpath -m "$2") ;;
    *) echo "usage: bash packaging/wheel.sh [--from BUILD] [--output FOLDER]" >&2; exit 2 ;;
  esac
  shift 2
done

# The libraries as the wheel carries them, and the bitcode as a build installs it.
stage() {
  local build=$1 folder=$2
  rm -rf "$folder" "$folder.install"
  NINJA="$mori_venv/bin/ninja" mori_quietly timeout 300 "$mori_venv/bin/python" \
    "$mori_root/packaging/relink.py" "$build" "$folder" || return 1
  mori_quietly timeout 120 "$mori_venv/bin/meson" install -C "$build" --no-rebuild --tags runtime \
    --destdir "$folder.install" || return 1
  local bitcode
  bitcode=$(find "$folder.install" -type d -path '*/mori/bitcode')
  [ -z "$bitcode" ] || { mkdir -p "$folder/mori" && cp -r "$bitcode" "$folder/mori/"; }
}

wheels() {
  mkdir -p "$output" && rm -f "$output"/mori-*.whl "$output"/mori-*.tar.gz
  cd "$mori_root/python" || return 1
  MORI_BUILD_LIBRARY_DIR="$1" MORI_BUILD_PLATFORM=$platform "$mori_venv/bin/python" -c '
import sys, build_backend
print(build_backend.build_wheel(sys.argv[1]))
print(build_backend.build_sdist(sys.argv[1]))' "$output"
}

if [ -z "$from" ]; then
  bash "$mori_root/tests/packages.sh" build && mori_make_venv && mori_build_for_packages || exit 1
  from=$mori_package_build
else
  mori_make_venv || exit 1
fi
stage "$from" "$mori_root/build/wheel" && wheels "$mori_root/build/wheel"
