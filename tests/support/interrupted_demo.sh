# Usage: sh interrupted_demo.sh TROUPE SIGNAL STATUS. Checks that a demo that is ended by a signal still prints its summary.
set -eu
out=$(mktemp)
trap 'rm -f "$out"' EXIT
# play TROUPE SIGNAL STATUS [OPTION...]: runs the demo, sends it SIGNAL, and checks its exit status and its summary.
play() {
  troupe=$1 signal=$2 expected=$3
  shift 3
  : >"$out" # emptied here, because the loop below might otherwise read the output of the previous demo
  "$troupe" demo --backend mock --ranks 2 --requests 100000000 "$@" >"$out" 2>&1 &
  demo=$!
  tries=0
  until grep -q "one request alone" "$out"; do # printed after the signal handlers are installed
    tries=$((tries + 1))
    if [ $tries -gt 600 ] || ! kill -0 $demo; then
      echo "the demo $* did not begin within 30 s:"
      cat "$out"
      kill -KILL $demo || true
      exit 1
    fi
    sleep 0.05
  done
  kill -"$signal" $demo
  (sleep 25 >/dev/null 2>&1 && kill -ABRT $demo && echo "the demo $* did not end within 25 s of the signal") &
  watcher=$!
  status=0
  wait $demo || status=$?
  kill $watcher 2>/dev/null || true
  cat "$out"
  [ $status -eq "$expected" ] || { echo "exit status $status instead of $expected"; exit 1; }
  grep -q "ended early by SIG$signal: the summary so far" "$out"
  grep -Eq "^answered ([0-9]+)/\1, wrong 0, lost 0, doubled 0$" "$out"
}
play "$@"
# With a lead of 1, one rank refuses some requests, and the other rank's parts of them would wait indefinitely.
play "$@" --limits-lead 1 --limits-hang 60min --deadlines-operation 60min
