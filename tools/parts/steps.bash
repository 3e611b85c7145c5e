# Runs the steps of a check; bash scripts source this file in the root of the tree. Each step is run, timed and counted,
# and after a failed step the next one still runs. If the output of a step has a line "N passed, N failed, N skipped", the
# last such line is counted; any other step counts as one.
#
#   steps_choose TIERS [NAME...]    selects the steps of these tiers, or only the named steps
#   steps_list                      lists the following steps instead of running them
#   step TIER NAME COMMAND...       runs a step, if it is selected
#   step_skipped TIER NAME WHY      reports that a step cannot run here, if it is selected
#   steps_end                       prints times and the sum, and fails if a step failed

steps_tiers=
steps_names=()
steps_known=()
steps_times=()
steps_failed=0
steps_listing=no
steps_logs=
steps_summary='^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$'

steps_choose() {
  steps_tiers=" $1 "
  shift
  steps_names=("$@")
  steps_logs=$(mktemp -d)
  trap 'rm -rf "$steps_logs"' EXIT
}

steps_list() { steps_listing=yes; }

step_chosen() {
  local tier=$1 name=$2
  steps_known+=("$name")
  if [[ ${#steps_names[@]} -gt 0 ]]; then
    [[ " ${steps_names[*]} " == *" $name "* ]] || return 1
  else
    [[ $steps_tiers == *" $tier "* ]] || return 1
  fi
  [[ $steps_listing == no ]] || { printf '%-6s %s\n' "$tier" "$name"; return 1; }
}

step_log() { printf '%s/%03d' "$steps_logs" "${#steps_times[@]}"; }

step_note() {
  local seconds=$1 verdict=$2
  shift 2
  steps_times+=("$(printf '%5d s  %-7s  %s' "$seconds" "$verdict" "$*")")
}

step() {
  step_chosen "$1" "$2" || return 0
  local name=$2 begun=$SECONDS verdict=ok log sum='1 passed, 0 failed, 0 skipped'
  shift 2
  log=$(step_log)
  echo "== $name"
  if ! "$@" </dev/null 2>&1 | tee "$log"; then
    verdict=FAILED
    steps_failed=1
    sum='0 passed, 1 failed, 0 skipped'
  fi
  local counted
  counted=$(grep -E "$steps_summary" "$log" | tail -n 1 || true)
  # A failure that the step's own count does not show is counted too.
  [[ -n $counted && ($verdict == ok || $counted != *" 0 failed"*) ]] || echo "$sum" >>"$log"
  step_note $((SECONDS - begun)) "$verdict" "$name"
}

step_skipped() {
  step_chosen "$1" "$2" || return 0
  echo "== $2"
  echo "skipped: $3"
  echo '0 passed, 0 failed, 1 skipped' >"$(step_log)"
  step_note 0 skipped "$2: $3"
}

steps_end() {
  local name
  for name in "${steps_names[@]}"; do
    [[ " ${steps_known[*]} " != *" $name "* ]] || continue
    echo "unknown step '$name': --list shows the names" >&2
    echo '0 passed, 1 failed, 0 skipped' >"$(step_log)"
    step_note 0 FAILED "$name: unknown step"
    steps_failed=1
  done
  [[ $steps_listing == no ]] || return "$steps_failed"
  echo
  printf '%s\n' "${steps_times[@]}"
  printf '%5d s  in all\n\n' "$SECONDS"
  tools/summarise-tests "$steps_logs"/* || steps_failed=1
  return "$steps_failed"
}
