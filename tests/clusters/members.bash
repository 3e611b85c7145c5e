# What the scripts of this folder share: a controller, and a program whose processes a cluster's launcher starts. To be
# sourced with TROUPE and PROGRAM in "$1" and "$2".
#
#   clusters_need COMMAND...  exits with 77, which means skipped, where one of them is not there
#   make_token                exports TROUPE_JOIN_TOKEN
#   start_controller SIZE ARGUMENT...
#                             also starts a controller, and exports TROUPE_CONTROL
#   await_controller          waits for its end, which must be a good one
#   member, long_member       what each process runs, as an array
#   check_members SIZE LOG    checks what the processes of `member` have said
#   lose_and_drain LOG        of four processes of `long_member` that shrink: kills one, and lets another one leave
#   check_survivors LOG       checks what the others have said

troupe=$(realpath "$1")
program=$(realpath "$2")
work=$(mktemp -d /tmp/troupe-clusters-XXXXXX)
started=()
# shellcheck disable=SC2034 # for the scripts
member=("$program" --backend gloo --steps 50 --elements 16)
# shellcheck disable=SC2034
long_member=("$program" --backend gloo --steps 800 --step-ms 20 --elements 16)

clean_up() {
  local pid
  for pid in "${started[@]}"; do
    kill "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true # it may still write into the folder
  done
  rm -rf "$work"
}
trap clean_up EXIT

fail() {
  echo "clusters: $*" >&2
  exit 1
}

clusters_need() {
  local name
  for name in "$@"; do
    command -v "$name" >/dev/null || { echo "skipped: there is no '$name'"; exit 77; }
  done
}

make_token() {
  TROUPE_JOIN_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
  export TROUPE_JOIN_TOKEN
}

start_controller() {
  make_token
  "$troupe" controller -n "$1" "${@:2}" --suspicion 30s >"$work/controller" 2>"$work/controller-log" &
  controller=$!
  started+=("$controller")
  local i
  for ((i = 0; i < 300; i++)); do
    grep -q '^TROUPE_CONTROL=' "$work/controller" && break
    kill -0 "$controller" 2>/dev/null || break
    sleep 0.1
  done
  grep -q '^TROUPE_CONTROL=' "$work/controller" || { cat "$work/controller-log" >&2; fail "the controller did not start"; }
  TROUPE_CONTROL=$(sed -n 's/^TROUPE_CONTROL=//p' "$work/controller")
  export TROUPE_CONTROL
}

await_controller() {
  local status=0
  wait "$controller" || status=$?
  [[ $status -eq 0 ]] || { cat "$work/controller-log" >&2; fail "the controller ended with $status"; }
}

check_members() {
  local size=$1 log=$2 rank
  cat "$log"
  for ((rank = 0; rank < size; rank++)); do
    grep -q "rank $rank of $size in epoch 1 has ended at step 50" "$log" || fail "rank $rank has not said that it is done"
  done
  [[ $(grep -c '50 steps, every weight is right' "$log") == "$size" ]] || fail "not all processes have right weights"
}

# await_lines COUNT TEXT LOG
await_lines() {
  local i
  for ((i = 0; i < 600; i++)); do
    if [[ $(grep -c "$2" "$3" 2>/dev/null) -ge $1 ]]; then return; fi
    sleep 0.1
  done
  cat "$3"
  fail "$1 lines '$2' have not come within 60 s"
}

lose_and_drain() {
  local log=$1 lost
  await_lines 4 'of 4 in epoch 1 begins' "$log"
  lost=$("$troupe" ctl status | awk '$2 == 1 { print $4 }') || { cat "$log"; fail "the world's state is not told"; }
  kill -9 "$lost"
  await_lines 3 'of 3 in epoch 2 begins' "$log"
  "$troupe" ctl leave 3 || { cat "$log"; fail "the process of place 3 cannot leave"; }
  await_lines 2 'of 2 in epoch 3 begins' "$log"
  echo "process $lost was killed, and the process of place 3 has left"
}

check_survivors() {
  [[ $(grep -c '800 steps, every weight is right' "$1") == 2 ]] || { cat "$1"; fail "not both processes that remain have right weights"; }
}
