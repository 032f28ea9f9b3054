#!/usr/bin/env bash
# Compares the libraries with their peers on this machine and prints one line a metric, then a
# table. For the host benchmarks it sets up what is missing (as root, on Debian) and builds without
# tests below build/bench; for the GPU benchmarks it needs nvcc, python3 and the libraries as they
# were built before (--build FOLDER; default: build/stage or build/release), installs nothing, and
# compiles its programs into build/bench-gpu. compare.py says what the lines mean, README.md
# how to add one. A goal that is not reached is no failure, a benchmark that cannot run is one.
#
# usage: bash tests/bench/compare.sh NAME ... [OPTION ...]
#        NAME: shmem-host, shmem-net, ep-host, io-shm, io-tcp, io-peers, shmem-gpu, ep-gpu,
#              ir-gpu, all
#        options: --help
set -euo pipefail
[ $# -gt 0 ] || { sed -n '/^# usage: /,/^#        options/s/^# //p' "$0" >&2; exit 2; }
here="$(cd "$(dirname "$0")" && pwd)"
root="$(cd "$here/../.." && pwd)"
folder=$root/build/bench
log=$root/build/bench.log
needs_host=no
needs_peers=no
for word in "$@"; do
  case $word in shmem-host | shmem-net | ep-host | io-* | all) needs_host=yes ;; esac
  case $word in io-peers) needs_peers=yes ;; esac
  case $word in --compile-only) needs_host=no; break ;; esac
done
if [ $needs_host = no ]; then
  exec "${MORI_PYTHON:-python3}" -B "$here/compare.py" "$@"
fi

cd "$root"
source python/setup_env.sh
mkdir -p build
set_up() {
  bash tests/packages.sh build && mori_make_venv || return 1
  local missing=()
  command -v ucx_perftest >/dev/null || missing+=(ucx-utils)
  command -v fi_pingpong >/dev/null || missing+=(libfabric-bin)
  if [ ${#missing[@]} -gt 0 ]; then
    timeout 300 apt-get install -q -y --no-install-recommends "${missing[@]}" ||
      { timeout 300 apt-get -q update &&
        timeout 300 apt-get install -q -y --no-install-recommends "${missing[@]}"; } || return 1
  fi
  if [ ! -e $folder/build.ninja ]; then
    NINJA="$mori_venv/bin/ninja" "$mori_venv/bin/meson" setup $folder --buildtype=release \
      -Dtests=disabled -Dmodules=disabled -Damd=disabled -Dnvidia=disabled || return 1
  fi
  # Only for who names it: hundreds of megabytes.
  if [ $needs_peers = yes ] && [ ! -e build/peers/.complete ]; then
    "$mori_venv/bin/python" -m venv build/peers &&
      timeout 900 build/peers/bin/python -m pip install -q --disable-pip-version-check --no-deps \
        nixl nixl-cu12 numpy && touch build/peers/.complete || return 1
  fi
  timeout 1800 "$mori_venv/bin/ninja" -C $folder tests/bench/shmem_host tests/bench/shmem_net \
    tests/bench/ep_host tests/bench/io_host
}
if ! set_up >$log 2>&1; then
  tail -n 30 $log >&2
  echo "set-up failed; its log is $log" >&2
  exit 1
fi
exec "$mori_venv/bin/python" -B tests/bench/compare.py --programs $folder/tests/bench "$@"
