#!/usr/bin/env bash
# Sets up everything that building and running needs, on a Debian 12 or 13 machine as root:
# system packages, a virtual environment in build/venv, the libraries in build/release, and the
# package with them inside installed into that environment, so that build/venv/bin/mori runs as it
# is. What is there already is left alone; with nothing to do it takes a second or two.
#
#   python/setup_env.sh [--tests] [--torch]      run it, or
#   source python/setup_env.sh                   and call the functions:
#     mori_setup_env [--tests] [--torch]         all of it; --tests adds pytest, ruff and ml_dtypes,
#                                                --torch torch for the tests that use it
#     mori_make_venv [--tests] [--torch]         only the virtual environment
#     mori_make_triton                           each Triton that mori.ir.triton knows, in a folder
#                                                of its own below build/triton
#
# MORI_PYTHON chooses the interpreter; else the first python3 of at least 3.11 is taken.

mori_root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
mori_venv="$mori_root/build/venv"
mori_release="$mori_root/build/release"

mori_say() { printf 'setup: %s\n' "$*"; }
mori_fail() { printf 'setup: %s\n' "$*" >&2; return 1; }

# Runs a command quietly; shows what it printed when it fails.
mori_quietly() {
  mkdir -p "$mori_root/build"
  local log="$mori_root/build/setup.log"
  if ! "$@" >"$log" 2>&1; then
    tail -n 40 "$log" >&2
    mori_fail "failed: $*"
  fi
}

mori_python_fits() {
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

mori_find_python() {
  local candidate
  for candidate in ${MORI_PYTHON:-} python3 /usr/bin/python3 python3.13 python3.12 python3.11; do
    if mori_python_fits "$candidate"; then
      command -v "$candidate"
      return 0
    fi
  done
  return 1
}

# A virtual environment with pip in it, also where the interpreter comes without ensurepip.
mori_create_venv() {
  local python="$1" wheel
  rm -rf "$mori_venv"
  if "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    mori_quietly timeout 300 "$python" -m venv "$mori_venv"
    return
  fi
  mori_quietly timeout 300 "$python" -m venv --without-pip "$mori_venv" || return 1
  # Debian's python3-venv brings pip as a wheel, which can install itself.
  for wheel in /usr/share/python-wheels/pip-*.whl; do
    [ -e "$wheel" ] || continue
    mori_quietly timeout 300 env PYTHONPATH="$wheel" "$mori_venv/bin/python" -m pip install \
      --no-index --no-deps "$wheel"
    return
  done
  mori_fail "$python has no ensurepip, and there is no pip wheel below /usr/share/python-wheels"
}

mori_make_venv() {
  local python packages=("meson>=1.2" "ninja>=1.11" "cffi>=1.15" "numpy>=1.24") option
  for option in "$@"; do
    case "$option" in
      --tests) packages+=("pytest>=7.2" "ruff>=0.6" "ml_dtypes>=0.4" "openmpi>=5" "mpi4py>=4.1"
        "auditwheel>=6.1" "matplotlib>=3.6") ;;
      --torch) packages+=("torch==2.13.0") ;;
      *) mori_fail "unknown option $option (--tests, --torch)"; return 1 ;;
    esac
  done
  if ! mori_python_fits "$mori_venv/bin/python"; then
    python="$(mori_find_python)" ||
      { mori_fail "no Python of at least 3.11 here; set MORI_PYTHON"; return 1; }
    mori_say "making build/venv with $python"
    mori_create_venv "$python" || return 1
  fi
  # One line for each requirement that was ever met, so that options may come and go.
  local requirement met="$mori_venv/.mori-requirements" missing=()
  touch "$met"
  for requirement in "${packages[@]}"; do
    grep -qxF "$requirement" "$met" || missing+=("$requirement")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  mori_say "installing Python packages: ${missing[*]}"
  mori_quietly timeout 1200 "$mori_venv/bin/python" -m pip install --disable-pip-version-check \
    "${missing[@]}" || return 1
  printf '%s\n' "${missing[@]}" >>"$met"
}

# Apart from the virtual environment, which can hold only one. Without what they depend on: kernels
# are compiled, not launched.
mori_make_triton() {
  local version folder
  for version in 3.6.0 3.8.0; do
    folder="$mori_root/build/triton/$version"
    [ -e "$folder/.mori-complete" ] && continue
    mori_say "installing Triton $version into build/triton"
    rm -rf "$folder"
    mori_quietly timeout 600 "$mori_venv/bin/python" -m pip install --disable-pip-version-check \
      --no-deps --no-compile --target "$folder" "triton==$version" || return 1
    touch "$folder/.mori-complete"
  done
}

# Files that the ninja targets of the libraries make, whatever their versions are, and the device
# bitcode that is installed with them.
mori_library_targets() {
  "$mori_venv/bin/ninja" -C "$mori_release" -t targets all |
    sed -n -e 's|^\(subprojects/libmori-[a-z]*/libmori-[a-z]*\.so[.0-9]*\): cp*_LINKER.*|\1|p' \
      -e 's|^\(subprojects/.*/libmori_shmem_device-[^:]*\): CUSTOM_COMMAND.*|\1|p'
}

mori_build_release() {
  local ninja="$mori_venv/bin/ninja" targets
  # Meson looks for it again whenever it configures anew, also when ninja starts that.
  local NINJA="$ninja"
  export NINJA
  if [ ! -e "$mori_release/build.ninja" ]; then
    mori_say "configuring build/release"
    rm -rf "$mori_release"
    mori_quietly timeout 600 "$mori_venv/bin/meson" setup \
      "$mori_release" "$mori_root" --buildtype=release --prefix=/usr --libdir=lib \
      -Dshmem=enabled -Dep=enabled -Dio=enabled -Dtests=disabled || return 1
  fi
  # Configures anew where a meson.build has changed: names carry versions.
  mori_quietly timeout 600 "$ninja" -C "$mori_release" build.ninja || return 1
  targets="$(mori_library_targets)"
  [ -n "$targets" ] || { mori_fail "build/release builds no library"; return 1; }
  # Only the libraries: tests/run.sh, which shares this folder, builds the rest.
  if ! "$ninja" -C "$mori_release" -n $targets 2>/dev/null | grep -q 'no work to do'; then
    mori_say "building the libraries in build/release"
    mori_quietly timeout 1800 "$ninja" -C "$mori_release" $targets || return 1
  fi
}

# Digest of all that the installed package is made of.
mori_package_digest() {
  (cd "$mori_root" && {
    find python/src capi/include -type f ! -name '*.pyc' ! -name '_cdef_*' ! -path '*/lib/*' -print0
    find python/build_cdef.py python/build_backend.py pyproject.toml README.md LICENSE -print0
    find build/release -name 'libmori-*.so.*.*' -type f ! -name "*.symbols" -print0
    find build/release -name 'libmori_shmem_device-*' -type f -print0
  } 2>/dev/null | sort -z | xargs -0 sha256sum | sha256sum)
}

mori_install_package() {
  local digest stamp="$mori_venv/.mori-package" stage="$mori_root/build/stage"
  digest="$(mori_package_digest)"
  [ "$(cat "$stamp" 2>/dev/null)" != "$digest" ] || return 0
  mori_say "installing the package into build/venv"
  rm -rf "$stage"
  mori_quietly timeout 120 "$mori_venv/bin/meson" install -C "$mori_release" --no-rebuild \
    --destdir "$stage" || return 1
  # Not as a configuration setting: older releases of pip do not hand it on.
  mori_quietly env MORI_BUILD_LIBRARY_DIR="$stage/usr/lib" timeout 300 \
    "$mori_venv/bin/python" -m pip install --disable-pip-version-check --no-deps \
    --no-build-isolation --force-reinstall "$mori_root" || return 1
  printf '%s' "$digest" >"$stamp"
}

mori_setup_all() {
  # Asks for the network only when a package is missing.
  bash "$mori_root/tests/packages.sh" build >"$mori_root/build/packages.log" 2>&1 ||
    { tail -n 20 "$mori_root/build/packages.log" >&2; mori_fail "system packages"; return 1; }
  mori_make_venv "$@" && mori_build_release && mori_install_package
}

mori_setup_env() {
  mkdir -p "$mori_root/build"
  # Two runs at once would step on each other: the second waits for the first.
  local status=0 lock
  exec {lock}>"$mori_root/build/.setup.lock"
  if flock -w 1800 "$lock"; then
    mori_setup_all "$@" || status=1
  else
    mori_fail "another set-up has held build/.setup.lock for half an hour" || status=1
  fi
  exec {lock}>&-
  return $status
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  set -uo pipefail
  mori_setup_env "$@"
fi
