#!/usr/bin/env bash
# Jobs under Open MPI's mpirun: three processes of one world; and four, one of which is lost and one leaves. Usage: open_mpi.bash TROUPE MANY_HOSTS
set -euo pipefail
# shellcheck source=tests/clusters/members.bash
. "$(dirname "$0")/members.bash"
clusters_need mpirun
mpirun --version | grep -q 'Open MPI' || { echo "skipped: mpirun is not Open MPI's"; exit 77; }

as_root=()
[[ $(id -u) -ne 0 ]] || as_root=(--allow-run-as-root)
start_controller 3
timeout 120 mpirun "${as_root[@]}" --oversubscribe -n 3 -x TROUPE_CONTROL -x TROUPE_JOIN_TOKEN "${member[@]}" \
  >"$work/said" 2>&1 || { status=$?; cat "$work/said"; fail "mpirun ended with $status"; }
check_members 3 "$work/said"
await_controller

start_controller 4 --policy shrink
timeout 120 mpirun "${as_root[@]}" --oversubscribe --enable-recovery -n 4 -x TROUPE_CONTROL -x TROUPE_JOIN_TOKEN \
  "${long_member[@]}" >"$work/survived" 2>&1 &
job=$!
started+=("$job")
lose_and_drain "$work/survived"
wait "$job" || true # its status is that of a process that was killed or has left
check_survivors "$work/survived"
await_controller
