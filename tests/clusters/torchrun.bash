#!/usr/bin/env bash
# Jobs under torchrun: three processes of one world; and, with PyTorch, a process group, of which a process is lost and all are
# started again by torchrun. Usage: torchrun.bash TROUPE MANY_HOSTS
set -euo pipefail
# shellcheck source=tests/clusters/members.bash
. "$(dirname "$0")/members.bash"
here=$(realpath "$(dirname "$0")")
torch=${TROUPE_TORCH:-${XDG_CACHE_HOME:-$HOME/.cache}/troupe/torch-2.15.0}
if [[ -x $torch/bin/torchrun ]]; then
  PATH=$torch/bin:$PATH
  LD_LIBRARY_PATH=$(find "$torch" -path '*/nvidia/*/lib' -printf '%p:')${CUDA_HOME:-/usr/local/cuda}/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  export LD_LIBRARY_PATH
fi
clusters_need torchrun

start_controller 3
timeout 120 torchrun --standalone --nproc-per-node 3 --no-python "${member[@]}" >"$work/said" 2>&1 ||
  { status=$?; cat "$work/said"; fail "torchrun ended with $status"; }
check_members 3 "$work/said"
await_controller

unset TROUPE_CONTROL TROUPE_JOIN_TOKEN # the process group has a controller of its own
export PYTHONPATH PYTHONDONTWRITEBYTECODE=1 TROUPE_LOG=off
PYTHONPATH=$(realpath "$(dirname "$troupe")/../python")
python=$(dirname "$(command -v torchrun)")/python
why=$("$python" -c 'import troupe.torch' 2>&1) || { echo "without a process group of PyTorch: ${why##*$'\n'}"; exit 0; }
TROUPE_TEST_STATE=$work/state.pt timeout 200 torchrun --standalone --nproc-per-node 3 --max-restarts 1 "$here/restarted.py" \
  >"$work/restarted" 2>&1 || { status=$?; cat "$work/restarted"; fail "torchrun ended with $status"; }
[[ $(grep -c 'has done 20 steps in attempt 1' "$work/restarted") == 3 ]] ||
  { cat "$work/restarted"; fail "not all processes have gone on"; }
echo "process 1 was killed, and all were started again and went on from their file"
