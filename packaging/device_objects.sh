#!/usr/bin/env bash
# Collects the GPU code of a finished build (code objects, bitcode and the sources of bitcode) in
# one folder, for the option device_objects of other builds: the same bytes, compiled once. The
# folder must lie outside the source tree, or Meson refuses it.
#
# usage: bash packaging/device_objects.sh BUILD FOLDER
set -euo pipefail
[ $# = 2 ] || { echo "usage: bash packaging/device_objects.sh BUILD FOLDER" >&2; exit 2; }
build=$1 folder=$2
mkdir -p "$folder"
find "$build/subprojects" -type f \( -name '*.hsaco' -o -name '*.cubin' -o -name '*.bc' -o \
  -name 'libmori_shmem_device-*.cpp' \) ! -path '*/tests/*' -exec cp -p {} "$folder/" \;
[ -n "$(find "$folder" -name '*.hsaco' -o -name '*.cubin')" ] ||
  { echo "device_objects.sh: no GPU code in $build" >&2; exit 1; }
