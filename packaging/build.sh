#!/usr/bin/env bash
# Builds the libraries as packages carry them, in build/package: optimised, without assertions,
# with the hardening flags below. Sourced by the scripts beside it, or run.
#
# usage: bash packaging/build.sh
# MORI_DEVICE_OBJECTS=FOLDER takes the GPU code from another build instead of compiling it:
# hardening does not concern that. packaging/device_objects.sh collects such a folder.

mori_root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
source "$mori_root/python/setup_env.sh"

mori_package_build="$mori_root/build/package"
mori_hardening=(-g1 -O3 -fstack-protector-strong -fstack-clash-protection -fcf-protection
  -Wformat -Werror=format-security -D_FORTIFY_SOURCE=2 "-ffile-prefix-map=$mori_root=.")

# Names of the targets that make the shared libraries of a build folder.
mori_shared_libraries() {
  "$mori_venv/bin/ninja" -C "$1" -t targets all |
    sed -n 's|^\(subprojects/libmori-[a-z]*/libmori-[a-z]*\.so\.[.0-9]*\): cp*_LINKER.*|\1|p'
}

mori_build_for_packages() {
  local flags="${mori_hardening[*]}" folder="$mori_package_build" jobs="${MORI_BUILD_JOBS:-}"
  local NINJA="$mori_venv/bin/ninja" options=()
  export NINJA
  if [ ! -e "$folder/build.ninja" ]; then
    [ -z "${MORI_DEVICE_OBJECTS:-}" ] || options+=("-Ddevice_objects=$MORI_DEVICE_OBJECTS")
    mori_say "configuring build/package"
    CFLAGS="$flags" CXXFLAGS="$flags" LDFLAGS="-Wl,-z,relro,-z,now" mori_quietly timeout 600 \
      "$mori_venv/bin/meson" setup "$folder" "$mori_root" --buildtype=plain --prefix=/usr \
      --libdir=lib -Db_ndebug=true -Dshmem=enabled -Dep=enabled -Dio=enabled -Dtests=disabled \
      -Dconsumers=disabled -Dmodules=disabled "${options[@]}" || return 1
  fi
  mori_say "building the libraries in build/package"
  mori_quietly timeout 3600 "$NINJA" -C "$folder" ${jobs:+-j"$jobs"}
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  set -uo pipefail
  bash "$mori_root/tests/packages.sh" build && mori_make_venv && mori_build_for_packages
fi
