#!/usr/bin/env bash
# Batch jobs under Slurm, whose daemons run on this machine for the time of this script, with the controller in the job: three
# processes of one world; and four, one of which is lost and one leaves. Usage: slurm.bash TROUPE MANY_HOSTS
set -euo pipefail
# shellcheck source=tests/clusters/members.bash
. "$(dirname "$0")/members.bash"
clusters_need slurmctld slurmd munged sbatch srun sinfo
[[ $(id -u) -eq 0 ]] || { echo "skipped: slurmd needs root"; exit 77; }

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

mkdir -m 700 "$work/munge"
mkdir "$work/state" "$work/spool"
(umask 077 && head -c 128 /dev/urandom >"$work/munge/key")
munged --foreground --force --key-file="$work/munge/key" --socket="$work/munge/socket" --pid-file="$work/munge/pid" \
  --log-file="$work/munge/log" --seed-file="$work/munge/seed" >/dev/null 2>&1 &
started+=($!)
host=$(hostname -s)
cat >"$work/slurm.conf" <<CONF
ClusterName=troupe
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket
CredType=cred/munge
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
MpiDefault=none
ReturnToService=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc)
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
export SLURM_CONF=$work/slurm.conf
await() { # what, command...
  local what=$1 i
  shift
  for ((i = 0; i < 300; i++)); do
    if "$@" >/dev/null 2>&1; then return; fi
    sleep 0.1
  done
  cat "$work"/*-log >&2 || true
  fail "$what has not come within 30 s"
}
await "munge's socket" test -S "$work/munge/socket"
slurmctld -D -f "$SLURM_CONF" >"$work/slurmctld-log" 2>&1 &
started+=($!)
slurmd -D -f "$SLURM_CONF" >"$work/slurmd-log" 2>&1 &
started+=($!)
is_idle() { sinfo -h -o %T | grep idle; }
await "Slurm's node" is_idle

# The batch file of docs/clusters.md, with this job's program.
cat >"$work/job" <<JOB
#!/bin/bash
export TROUPE_JOIN_TOKEN=\$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
$troupe controller -n \$SLURM_NTASKS --suspicion 30s >control &
until grep -q TROUPE_CONTROL control; do sleep 0.1; done
export \$(cat control)
srun --overcommit ${member[*]}
status=\$?
wait
exit \$status
JOB
cd "$work"
timeout 120 sbatch --wait --overcommit --ntasks=3 --output="$work/said" job ||
  { cat "$work/said" "$work"/*-log || true; fail "the batch job failed"; }
check_members 3 "$work/said"

make_token
cat >"$work/job" <<JOB
#!/bin/bash
$troupe controller -n \$SLURM_NTASKS --policy shrink --suspicion 30s >control-2 &
until grep -q TROUPE_CONTROL control-2; do sleep 0.1; done
export \$(cat control-2)
srun --overcommit ${long_member[*]} # ends with the status of the lost process
wait %1
JOB
timeout 120 sbatch --wait --overcommit --ntasks=4 --output="$work/survived" job &
job=$!
started+=("$job")
await_lines 1 TROUPE_CONTROL "$work/control-2"
export "$(cat "$work/control-2")"
lose_and_drain "$work/survived"
wait "$job" || { status=$?; cat "$work/survived"; scancel --full --signal=KILL --user=root || true; fail "the batch job ended with $status"; }
check_survivors "$work/survived"
