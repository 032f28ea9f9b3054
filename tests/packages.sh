#!/usr/bin/env bash
# Installs the Debian packages that building (`build`) or testing (`all`, the default) needs, or
# those to make and try packages (`debian`), or those of the emulated machines with RDMA devices
# (`rdma`, which the suite of that name asks for). Asks for root and the network only when something
# is missing. Where a tool has a package per version, the first that is installed is taken, else the
# first that this Debian has.
# usage: bash tests/packages.sh [build|all|debian|rdma]
set -uo pipefail

build="g++ pkgconf libfmt-dev libsodium-dev python3-venv"
tests="meson ninja-build cmake git doctest-dev binutils clang-format-19 clang-tidy-19
  clang-19|clang-20|clang-21 libclang-rt-19-dev|libclang-rt-20-dev|libclang-rt-21-dev
  clang-22|clang-21 lld-22|lld-21 llvm-22|llvm-21 luajit ruby abigail-tools iproute2
  util-linux ucx-utils libibverbs-dev"
debian="dpkg-dev debhelper dh-python fakeroot lintian python3 python3-cffi debootstrap"
rdma="qemu-system-x86 busybox-static kmod cpio xz-utils iproute2 libibverbs1 ibverbs-providers"
case "${1:-all}" in
  build) wanted=$build ;;
  all) wanted="$build $tests" ;;
  debian) wanted="$build $debian" ;;
  rdma) wanted=$rdma ;;
  *) echo "usage: bash tests/packages.sh [build|all|debian|rdma]" >&2; exit 2 ;;
esac

is_installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }
is_known() { apt-cache policy "$1" 2>/dev/null | grep -q 'Candidate: [0-9]'; }
choose() { # prints the one of a|b|c to install; nothing when one is installed
  local name
  for name in ${1//|/ }; do is_installed "$name" && return; done
  for name in ${1//|/ }; do is_known "$name" && { echo "$name"; return; }; done
  echo "${1%%|*}"
}

if ! command -v dpkg-query >/dev/null; then
  echo "no dpkg here: taking it that these are installed: $wanted"
  exit 0
fi
missing=()
for choice in $wanted; do [ -z "$(choose "$choice")" ] || missing+=("$choice"); done
[ ${#missing[@]} -gt 0 ] || exit 0
if [ "$(id -u)" != 0 ]; then
  echo "missing packages: ${missing[*]}; install them, or run this as root" >&2
  exit 1
fi

install() {
  local choice names=()
  for choice in "${missing[@]}"; do names+=("$(choose "$choice")"); done
  DEBIAN_FRONTEND=noninteractive timeout 900 apt-get install -q -y --no-install-recommends \
    "${names[@]}"
}
# A fresh machine has no package lists, an old one has stale ones: then refresh and try again.
install || { timeout 300 apt-get -q update && install; }
