#!/usr/bin/env bash
# A job under torchrun: three processes of one world. Usage: torchrun.bash TROUPE MANY_HOSTS
set -euo pipefail
# shellcheck source=tests/clusters/members.bash
. "$(dirname "$0")/members.bash"
clusters_need torchrun

start_controller 3
timeout 120 torchrun --standalone --nproc-per-node 3 --no-python "${member[@]}" >"$work/said" 2>&1 ||
  { cat "$work/said"; fail "torchrun ended with $?"; }
check_members 3 "$work/said"
await_controller
