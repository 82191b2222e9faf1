#!/bin/bash -l
#SBATCH --job-name=austen
#SBATCH --account=abc123
#SBATCH --partition=prod
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=12
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --signal=USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=austen-%j.log

# 2 nodes of Aurora, 12 ranks on each: 24 ranks. Submit it from anywhere:
#   sbatch '/scratch/me/my job.sh'
# It checks the deck, trains until the run is complete or the time is over, and in
# the latter case queues itself again; pleat continues from the newest checkpoint.
# expert x expert_tensor = 4: inside a node of 12 ranks
# context x tensor = 2: inside a node of 12 ranks

program=/opt/pleat/bin/pleat
deck=deck.toml
run=runs/austen   # the folder of the run
settings=(
  optimizer.lr=1e-3
  'data.path=["a b", "it'\''s"]'
)
cd /scratch/me || exit 2

module load hdf5 || exit 2
export OMP_NUM_THREADS=8
export OMP_PLACES=cores
export OMP_PROC_BIND=close
export MPIR_CVAR_ENABLE_GPU=1
export ONEAPI_DEVICE_SELECTOR=level_zero:gpu

say() { echo "pleat batch: $(date '+%Y-%m-%d %H:%M:%S') $*"; }
newest() { cat -- "$run/checkpoints/LATEST" 2>/dev/null; }
steps() { sed -n '/^\[run\]$/,/^\[/s/^steps = //p' "$run/deck.toml" 2>/dev/null; }

launch=(srun --nodes=2 --ntasks=24 --ntasks-per-node=12 --cpus-per-task=8
        --distribution=block:block --kill-on-bad-exit=0 --wait=60
        gpu_tile_compact.sh)
launch_one=(srun --nodes=1 --ntasks=1 --ntasks-per-node=1 --cpus-per-task=8
        --distribution=block:block --kill-on-bad-exit=0 --wait=60
        gpu_tile_compact.sh)

"${launch_one[@]}" "$program" check "$deck" --ranks 24 ${settings[@]+"${settings[@]}"}
code=$?
if ((code != 0)); then
  say "the deck does not fit this job (exit code $code): nothing was started"
  exit "$code"
fi

# The job's time less 120 s to leave it in order, less what is already over.
settings+=("run.wall_limit=$((14280 - SECONDS))")

before=$(newest)

# Signals reach the ranks without this shell, which only has to outlive them.
trap ':' USR1 TERM HUP
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

# After scancel or at the time limit the job is no longer running: it stays ended.
state=$(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%T)
if [[ $state != RUNNING ]]; then
  say "Slurm ends this job ($state): not queued again; '$after' is where it would continue"
  exit 75
fi
say "stopped after $after: queued again"
scontrol requeue "$SLURM_JOB_ID" || { say "scontrol requeue failed"; exit 75; }
