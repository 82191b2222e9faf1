#!/bin/bash
# flux: --job-name=austen
# flux: --bank=abc123
# flux: --nodes=2
# flux: --exclusive
# flux: --time-limit=14400s
# flux: --signal=SIGUSR1@120s
# flux: --output=austen-{{id}}.log

# 2 nodes of a cluster of eight H100 a node, 8 ranks on each: 16 ranks. Submit it from anywhere:
#   flux batch '/scratch/me/my job.sh'
# It checks the deck, trains until the run is complete or the time is over, and in
# the latter case queues itself again; pleat continues from the newest checkpoint.
# expert x expert_tensor = 4: inside a node of 8 ranks
# context x tensor = 2: inside a node of 8 ranks

program=/opt/pleat/bin/pleat
deck=deck.toml
run=runs/austen   # the folder of the run
settings=(
  optimizer.lr=1e-3
  'data.path=["a b", "it'\''s"]'
)
script='/scratch/me/my job.sh'   # this file, to queue it again
cd /scratch/me || exit 2

export OMP_NUM_THREADS=12
export OMP_PLACES=cores
export OMP_PROC_BIND=close

say() { echo "pleat batch: $(date '+%Y-%m-%d %H:%M:%S') $*"; }
newest() { cat -- "$run/checkpoints/LATEST" 2>/dev/null; }
steps() { sed -n '/^\[run\]$/,/^\[/s/^steps = //p' "$run/deck.toml" 2>/dev/null; }

# Found out now rather than when the job has to be queued again.
if [[ ! -r $script ]]; then
  say "$script is not readable here: save this script under that name and submit it again"
  exit 2
fi

# shellcheck disable=SC2016
launch=(flux run --nodes=2 --ntasks=16 --cores-per-task=12 --gpus-per-task=1
        -o cpu-affinity=per-task
        bash -c 'devices=(0 1 2 3 4 5 6 7); export CUDA_VISIBLE_DEVICES=${devices[$FLUX_TASK_LOCAL_ID]}; exec "$@"' one-gpu-each)
# shellcheck disable=SC2016
launch_one=(flux run --nodes=1 --ntasks=1 --cores-per-task=12 --gpus-per-task=1
        -o cpu-affinity=per-task
        bash -c 'devices=(0 1 2 3 4 5 6 7); export CUDA_VISIBLE_DEVICES=${devices[$FLUX_TASK_LOCAL_ID]}; exec "$@"' one-gpu-each)

"${launch_one[@]}" "$program" check "$deck" --ranks 16 ${settings[@]+"${settings[@]}"}
code=$?
if ((code != 0)); then
  say "the deck does not fit this job (exit code $code): nothing was started"
  exit "$code"
fi

# The job's time less 120 s to leave it in order, less what is already over.
settings+=("run.wall_limit=$((14280 - SECONDS))")

before=$(newest)

# Signals reach the ranks without this shell, which only has to outlive them.
ended=
trap ':' USR1
trap 'ended=yes' TERM HUP
"${launch[@]}" "$program" train "$deck" ${settings[@]+"${settings[@]}"}
code=$?

if ((code == 0)); then
  wanted=$(steps)
  saved=0
  [[ $(newest) =~ ^step_([0-9]+) ]] && saved=$((10#${BASH_REMATCH[1]}))
  if [[ -z $wanted ]] || ((saved < wanted)); then
    say "the launcher returned 0, but only $saved of ${wanted:-?} steps are saved: taken for" \
        "a stop"
    code=75
  fi
fi
case $code in
  0) say "the run is complete"; exit 0 ;;
  75) ;;
  *) say "pleat ended with exit code $code: not queued again"; exit "$code" ;;
esac
if [[ -e $run/STOPPED ]]; then
  say "the file STOP has ended the run for now: not queued again"
  exit 75
fi
after=$(newest)
if [[ $after == "$before" ]]; then
  say "no step since ${before:-the start} was saved, so another job would not get further" \
      "either: not queued again"
  exit 75
fi

if [[ -n $ended ]]; then
  say "Flux ends this job: not queued again; '$after' is where it would continue"
  exit 75
fi
say "stopped after $after: queued again"
flux --parent batch "$script" || { say "flux batch failed"; exit 75; }
