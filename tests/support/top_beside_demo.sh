# Usage: sh top_beside_demo.sh TROUPE FOLDER. Runs `troupe top` on the metrics of a running `troupe demo`.
set -eu
troupe=$1
said=$2/top_beside_demo.txt
mkdir -p "$2"
: >"$said" # the file must exist when it is first read, even if the demo has not begun
"$troupe" demo --backend mock --ranks 2 --clients 2 --requests 100000000 --metrics-address 127.0.0.1:0 --log info >"$said" 2>&1 &
demo=$!
trap 'kill "$demo" 2>/dev/null; wait "$demo" 2>/dev/null || true' EXIT
url=
while [ -z "$url" ]; do
  kill -0 "$demo" 2>/dev/null || { echo "the demo has ended:"; cat "$said"; exit 1; }
  url=$(sed -n 's|.*metrics at \(http://[0-9.:]*\)/metrics.*|\1|p' "$said" | head -n 1)
  [ -n "$url" ] || sleep 0.1 # until the demo has logged the address
done
"$troupe" top --once --interval 0.5 --url "$url" 2>"$said" || status=$?
cat "$said"
if grep -q 'apt-get install python3-rich' "$said"; then exit 77; fi
exit "${status:-0}"
