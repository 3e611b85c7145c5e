#!/bin/sh
# Usage: nvtx_heard.sh TROUPE LISTENER FOLDER. Checks that a profiler receives each launch of a demo as a named range.
set -eu
heard=$3/nvtx_heard.txt
rm -f "$heard"
NVTX_INJECTION64_PATH=$2 NVTX_LISTENER_FILE=$heard "$1" demo --backend mock --requests 200 >"$3/nvtx_demo.txt"
grep -qE '^[0-9]+ ([0-9]+ together: )?all_reduce of [0-9]+ [a-z0-9]+, [a-z_]+ \(world, request ' "$heard" ||
  { echo "no range is named like a request of the world:"; head -5 "$heard"; exit 1; }
grep -qE '\(lane .*, request [0-9]+\)$' "$heard" || { echo "no range names its lane:"; head -5 "$heard"; exit 1; }
awk '/^0 all_reduce/ { empty++ } END { exit empty > 0 }' "$heard" || { echo "a range has no bytes"; exit 1; }
grep -qx 'left open: 0' "$heard" || { echo "ranges were left open:"; tail -1 "$heard"; exit 1; }
