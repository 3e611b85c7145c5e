# The demo, told to end by a signal, prints what it has so far: sh interrupted_demo.sh TROUPE SIGNAL STATUS
set -eu
out=$(mktemp)
trap 'rm -f "$out"' EXIT
"$1" demo --backend mock --ranks 2 --requests 100000000 >"$out" 2>&1 &
demo=$!
tries=0
until grep -q "one request alone" "$out"; do # printed once signals are noted
  tries=$((tries + 1))
  if [ $tries -gt 1200 ]; then
    echo "the demo did not begin within a minute:" && cat "$out" && kill -KILL $demo && exit 1
  fi
  sleep 0.05
done
kill -"$2" $demo
status=0
wait $demo || status=$?
cat "$out"
[ $status -eq "$3" ] || { echo "exit status $status instead of $3"; exit 1; }
grep -q "ended early by SIG$2: the summary so far" "$out"
grep -Eq "^answered ([0-9]+)/\1, wrong 0, lost 0, doubled 0$" "$out"
