#!/usr/bin/env bash
# Installs the Debian packages that building (`build`) or testing (`all`, the default) needs.
# Asks for root only when something is missing, and the network only then. Where a versioned tool
# has several names, the first one that this Debian has is taken.
# usage: bash tests/packages.sh [build|all]
set -euo pipefail

build="g++ pkg-config cmake ninja-build python3 python3-venv git libfmt-dev libsodium-dev"
checks="meson doctest-dev binutils clang-format-19|clang-format clang-tidy-19|clang-tidy
  clang-19|clang-20|clang-21 libclang-rt-19-dev|libclang-rt-20-dev|libclang-rt-21-dev
  clang-22|clang-21|clang-20 lld-22|lld-21|lld-20 llvm-22|llvm-21|llvm-20
  luajit abigail-tools iproute2 util-linux"

case "${1:-all}" in
  build) wanted=$build ;;
  all) wanted="$build $checks" ;;
  *) echo "usage: bash tests/packages.sh [build|all]" >&2; exit 2 ;;
esac

installed() { dpkg-query -W -f='${db:Status-Abbrev}' "$1" 2>/dev/null | grep -q '^ii'; }

missing=()
for choice in $wanted; do
  found=no
  for name in ${choice//|/ }; do
    if installed "$name"; then found=yes; break; fi
  done
  [ $found = yes ] || missing+=("$choice")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" != 0 ]; then
  echo "missing packages: ${missing[*]}; install them, or run this as root" >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
names=()
for choice in "${missing[@]}"; do
  name=
  for candidate in ${choice//|/ }; do
    if apt-cache policy "$candidate" | grep -q 'Candidate: [0-9]'; then name=$candidate; break; fi
  done
  if [ -z "$name" ]; then echo "no package for: $choice" >&2; exit 1; fi
  names+=("$name")
done
apt-get install -q -y --no-install-recommends "${names[@]}"
