#!/usr/bin/env bash
# Sets up what is missing, then runs the demonstration: a mixture-of-experts layer on a real text,
# over 8 processes, every row compared with the layer computed in one process. See `demo.sh --help`.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup_env.sh"
mori_setup_env
exec "$mori_venv/bin/mori" demo "$@"
