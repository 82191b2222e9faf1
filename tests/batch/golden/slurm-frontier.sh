#!/bin/bash -l
#SBATCH --job-name=austen
#SBATCH --account=abc123
#SBATCH --partition=batch
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=7
#SBATCH --time=04:00:00
#SBATCH --signal=USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=austen-%j.log

# 2 nodes of Frontier, 8 ranks on each: 16 ranks. Submit it from anywhere:
#   sbatch '/scratch/me/my job.sh'
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
cd /scratch/me || exit 2

module load PrgEnv-amd craype-accel-amd-gfx90a rocm cray-hdf5-parallel || exit 2
export OMP_NUM_THREADS=7
export OMP_PLACES=cores
export OMP_PROC_BIND=close
export MPICH_GPU_SUPPORT_ENABLED=1

say() { echo "pleat batch: $(date '+%Y-%m-%d %H:%M:%S') $*"; }
newest() { cat -- "$run/checkpoints/LATEST" 2>/dev/null; }
steps() { sed -n '/^\[run\]$/,/^\[/s/^steps = //p' "$run/deck.toml" 2>/dev/null; }

launch=(srun --nodes=2 --ntasks=16 --ntasks-per-node=8 --cpus-per-task=7
        --distribution=block:block --kill-on-bad-exit=0 --wait=60
        --gpus-per-task=1 --gpu-bind=closest)
launch_one=(srun --nodes=1 --ntasks=1 --ntasks-per-node=1 --cpus-per-task=7
        --distribution=block:block --kill-on-bad-exit=0 --wait=60
        --gpus-per-task=1 --gpu-bind=closest)

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
