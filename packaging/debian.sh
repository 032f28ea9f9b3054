#!/usr/bin/env bash
# Builds the Debian packages: libmori-shmem0, libmori-ep0 and libmori-io0, a -dev of each and
# libmori-common-dev, the device bitcode, python3-mori and mori-tools.
#
# usage: bash packaging/debian.sh [--from BUILD] [--output FOLDER]
#   --from    packs what that finished build has compiled, with the flags that it had; without it
#             everything is compiled, with Debian's hardening flags and more
#   --output  default build/debian/packages
# MORI_DEVICE_OBJECTS=FOLDER: see packaging/device_objects.sh.
set -uo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
from='' output="$root/build/debian/packages"
while [ $# -gt 0 ]; do
  case "$1" in
    --from) from=$(cd "$2" && pwd) || exit 2 ;;
    --output) output=$(realpath -m "$2") ;;
    *) echo "usage: bash packaging/debian.sh [--from BUILD] [--output FOLDER]" >&2; exit 2 ;;
  esac
  shift 2
done
bash "$root/tests/packages.sh" debian || exit 1

# The source package's tree: what is tracked, and the folder debian at its top.
version=$(sed -n '1s/^mori (\(.*\)).*/\1/p' "$root/packaging/debian/changelog")
work=$(mktemp -d "${TMPDIR:-/tmp}/mori-debian-XXXXXX")
trap 'rm -rf "$work"' EXIT
tree="$work/mori-$version"
mkdir -p "$tree" "$output"
(cd "$root" && git ls-files -z | tar -c --null --files-from=- --ignore-failed-read 2>/dev/null) |
  tar -x -C "$tree"
mv "$tree/packaging/debian" "$tree/debian"

cd "$tree" || exit 1
log="$output/build.log"
check=()
if [ -n "$from" ]; then
  # What the rules hand to Meson must be the one that configured that build.
  MESON=$(command -v "$root/build/venv/bin/meson" || command -v meson)
  export MORI_PREBUILT=$from MESON
  check=(-d)
fi
# Debian's own tools before whatever else is installed.
if ! PATH="/usr/bin:/bin:/usr/sbin:/sbin:$PATH" timeout 3600 dpkg-buildpackage -b -us -uc \
  "${check[@]}" >"$log" 2>&1; then
  tail -n 40 "$log" >&2
  echo "debian.sh: failed; its log is $log" >&2
  exit 1
fi
rm -f "$output"/*.deb "$output"/*.changes "$output"/*.buildinfo
mv "$work"/*.deb "$work"/*.changes "$work"/*.buildinfo "$output/"
(cd "$output" && ls -- *.deb)
