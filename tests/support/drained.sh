# Sends SIGTERM to its launcher, which then drains, and ends at the launcher's SIGTERM.
trap 'echo drained; exit 0' TERM
kill -TERM $PPID
while :; do sleep 0.01; done
