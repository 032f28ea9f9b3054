#!/usr/bin/env bash
# Builds and runs all tests, or those of the named suites; sets up what they need on a fresh
# Debian 12 or 13 machine as root. Everything it makes lies under build/. The suites, their time
# budgets and what they depend on are in tests/runner/suites.py.
#
# usage: bash tests/run.sh [SUITE ...]        bash tests/run.sh --list
# MORI_TEST_PATIENCE=3 stretches the budgets threefold, for a machine that is busy otherwise.
set -uo pipefail
cd "$(dirname "$0")/.."
mkdir -p build/logs
source python/setup_env.sh

set_up() {
  bash tests/packages.sh all && mori_make_venv --tests
}
if ! set_up >build/logs/set-up.log 2>&1; then
  tail -n 40 build/logs/set-up.log
  echo "set-up failed; its log is build/logs/set-up.log"
  echo "0 passed, 1 failed"
  exit 1
fi
echo "set-up: $SECONDS s"
exec build/venv/bin/python -B -u tests/runner "$@"
