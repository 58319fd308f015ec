# The last part of a batch script of `slimrl launch --slurm` (`commands/launch.py`). It starts Ray on every node of the
# job, and then runs the command on the first node. If SLURM requeues the job, the script starts from its first line.

set -euo pipefail

say() { printf 'slimrl launch: %s\n' "$*"; }

newest_checkpoint() { # prints the step of the newest checkpoint, or -1
  local path newest=-1
  for path in "$output_dir"/checkpoints/step_*; do
    if [[ ${path##*/step_} =~ ^[0-9]+$ ]] && ((BASH_REMATCH[0] > newest)); then newest=${BASH_REMATCH[0]}; fi
  done
  echo "$newest"
}

first_address() { # prints the address at which other nodes reach this node
  local found
  found=$(getent ahostsv4 "$SLURMD_NODENAME" | awk '$1 !~ /^127\./ {print $1; exit}') || true
  if [[ -z $found ]]; then found=$(hostname -I | awk '{print $1}'); fi
  echo "$found"
}

# A job step that shares its nodes with the other steps of this job. An array, because `&` would run a function in an
# extra shell.
step=(srun --overlap --cpu-bind=none)

start_ray() { # arguments: number of nodes, an option that selects them, options of `ray start`
  local num=$1 which=$2
  shift 2
  # Nodes may have different numbers of CPUs, so each node expands this text itself.
  # shellcheck disable=SC2016
  "${step[@]}" --nodes="$num" --ntasks="$num" "$which" bash -c 'exec ray start --num-cpus="$SLURM_CPUS_ON_NODE" "$@"' ray \
    --num-gpus="$gpus_per_node" --disable-usage-stats --block "$@" &
  ray_pids=("$!" "${ray_pids[@]}") # the head last, because `end` stops them in this order
}

count_nodes() { # waits until $1 nodes are in the cluster
  exec python3 - "$1" "$head_ip" "$port" "$START_TIMEOUT_S" <<'PYTHON'
import socket
import sys
import time

wanted, host, port, timeout_s = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
deadline = time.monotonic() + timeout_s
alive = 0
# Wait for the port first, because ray.init waits for minutes if nothing answers.
while time.monotonic() < deadline:
    try:
        socket.create_connection((host, port), timeout=5).close()
        break
    except OSError:
        time.sleep(0.2)
else:
    sys.exit(f"Ray's head did not answer at {host}:{port} within {timeout_s:.0f} s")
import ray

ray.init(address="auto", log_to_driver=False, logging_level="error")
while time.monotonic() < deadline:
    alive = sum(node["Alive"] for node in ray.nodes())
    if alive >= wanted:
        sys.exit(0)
    time.sleep(1)
sys.exit(f"{alive} of {wanted} nodes had joined Ray after {timeout_s:.0f} s")
PYTHON
}

wait_for_nodes() { # waits until $1 nodes are in the cluster, all that were started
  count_nodes "$1" &
  run_pid=$!
  local pid
  while kill -0 "$run_pid" 2> /dev/null; do
    for pid in "${ray_pids[@]}"; do
      kill -0 "$pid" 2> /dev/null || fail "Ray ended on a node before all had joined; its lines are above."
    done
    sleep 1
  done
  wait "$run_pid" || fail "Ray did not start on all nodes."
  run_pid=''
}

# shellcheck disable=SC2317,SC2329  # a trap calls it
end() { # stops the run and Ray; SLURM then stops all other processes
  local status=$? pid
  trap - EXIT
  trap '' TERM USR1
  if [[ -n $run_pid ]]; then stop "$run_pid" "$run_signal" 10; fi
  for pid in "${ray_pids[@]}"; do stop "$pid" TERM 10; done
  # After a failure, keep Ray's logs.
  if ((status == 0)); then
    "${step[@]}" --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" rm -rf -- "$temp_dir" || true
  fi
  if [[ -n $requeue ]] && ! scontrol requeue "$SLURM_JOB_ID"; then
    say "SLURM did not take the job back: submit this script again." >&2
    status=1
  fi
  exit "$status"
}

# shellcheck disable=SC2317,SC2329  # `end` and a trap call it
stop() { # stops process $1 with signal $2, and after $3 seconds with SIGKILL
  local pid=$1 signal=$2 seconds=$3
  kill -s "$signal" "$pid" 2> /dev/null || return 0
  while kill -0 "$pid" 2> /dev/null; do
    if ((seconds-- <= 0)); then kill -s KILL "$pid" 2> /dev/null || true; fi
    sleep 1
  done
}

fail() {
  say "$*" >&2
  exit 1
}

run_pid='' run_signal=TERM ray_pids=() time_is_up='' requeue=''
trap end EXIT
trap 'exit 143' TERM
trap 'fail "the time is up, and the run had not begun: raise --time."' USR1

# The port depends on the job, so that two Ray clusters on a shared machine do not collide. Clients need the token.
head_ip=${RAY_HEAD_IP:-$(first_address)}
port=$((20000 + SLURM_JOB_ID % 10000))
RAY_AUTH_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export RAY_AUTH_TOKEN RAY_AUTH_MODE=token RAY_ADDRESS=$head_ip:$port
export RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S=0 # the default is 30 s, and SLURM waits no longer
temp_dir=/tmp/ray-$SLURM_JOB_ID

say "job $SLURM_JOB_ID, start ${SLURM_RESTART_COUNT:-0}: Ray on $SLURM_JOB_NUM_NODES node(s), its head on" \
  "$SLURMD_NODENAME ($RAY_ADDRESS)"
start_ray 1 --nodelist="$SLURMD_NODENAME" --head --node-ip-address="$head_ip" --port="$port" \
  --include-dashboard=false --temp-dir="$temp_dir"
wait_for_nodes 1 # start the head first, because a node without a head soon gives up
if ((SLURM_JOB_NUM_NODES > 1)); then
  start_ray $((SLURM_JOB_NUM_NODES - 1)) --exclude="$SLURMD_NODENAME" --address="$RAY_ADDRESS"
  wait_for_nodes "$SLURM_JOB_NUM_NODES"
fi

if [[ -d $output_dir ]]; then command+=(--resume); fi # without a checkpoint, the run starts at step 0
before=$(newest_checkpoint)
say "running ${command[*]}"
set -m # otherwise a background job would ignore SIGINT, the signal that ends the run
"${command[@]}" &
run_pid=$! run_signal=INT
set +m
trap 'time_is_up=yes; stop "$run_pid" INT 60 &' USR1
status=0
while :; do # a signal ends `wait`, even if the run continues
  wait "$run_pid" && status=0 || status=$?
  kill -0 "$run_pid" 2> /dev/null || break
done
trap '' USR1
run_pid=''

if ((status == 0)); then
  say "done"
elif [[ -n $time_is_up ]] && (($(newest_checkpoint) > before)); then
  say "the time is up: back into the queue, to go on from step $(newest_checkpoint)"
  requeue=yes status=0
elif [[ -n $time_is_up ]]; then
  fail "the time is up, and no checkpoint was written in it: raise --time, or lower ckpt.interval_steps."
else
  say "the run ended with status $status. Submit this script again to go on from the last checkpoint." >&2
fi
exit "$status"
