#!/usr/bin/env bash
# Actors of Ray, on a cluster of this machine alone: ranks are killed, and Ray starts them again. With PyTorch, also as a process
# group. Usage: ray.bash TROUPE MANY_HOSTS
set -euo pipefail
# shellcheck source=tests/clusters/members.bash
. "$(dirname "$0")/members.bash"

here=$(realpath "$(dirname "$0")")
module=$(realpath "$(dirname "$troupe")/../python")
python=${TROUPE_RAY:-${XDG_CACHE_HOME:-$HOME/.cache}/troupe/ray}/bin/python
[[ -x $python ]] || python=python3
for package in ray numpy; do
  "$python" -c "import $package" 2>/dev/null || { echo "skipped: $python has no package '$package'"; exit 77; }
done
PYTHONPATH=$module:$here/../../python/examples/training
why=$(PYTHONPATH=$PYTHONPATH "$python" -c 'import troupe' 2>&1) || { echo "skipped: $module cannot be imported: ${why##*$'\n'}"; exit 77; }
what=()
torch=${TROUPE_TORCH:-${XDG_CACHE_HOME:-$HOME/.cache}/troupe/torch-2.15.0}
if packages=$(compgen -G "$torch/lib/python3*/site-packages"); then
  LD_LIBRARY_PATH=$(find "$torch" -path '*/nvidia/*/lib' -printf '%p:')${CUDA_HOME:-/usr/local/cuda}/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  export LD_LIBRARY_PATH
  ! PYTHONPATH=$packages "$python" -c 'import torch' 2>/dev/null || { PYTHONPATH+=:$packages; what=(ddp); }
fi
[[ ${#what[@]} -gt 0 ]] || echo "without the process group of PyTorch, which is not installed for $python"

export PYTHONPATH PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 RAY_USAGE_STATS_ENABLED=0 TROUPE_LOG=off
status=0
timeout 500 "$python" "$here/ray_losses.py" "${what[@]}" >"$work/said" 2>&1 || status=$?
[[ $status -eq 0 ]] || { cat "$work/said"; fail "ray_losses.py ended with $status"; }
grep -E '^([[:alpha:]]+: [0-9.]+ s after|[0-9]+ ranks have done|all weights)' "$work/said"
grep -q '^all weights are those of an undisturbed run$' "$work/said" || fail "the weights were not compared"
