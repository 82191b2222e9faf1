#!/bin/bash -l
#PBS -N austen
#PBS -A abc123
#PBS -l select=2
#PBS -l walltime=04:00:00
#PBS -j oe
#PBS -r y

# 2 nodes of Perlmutter (GPU nodes), 4 ranks on each: 8 ranks. Submit it from anywhere:
#   qsub '/scratch/me/my job.sh'
# It checks the deck, trains until the run is complete or the time is over, and in
# the latter case queues itself again; pleat continues from the newest checkpoint.
# expert x expert_tensor = 4: inside a node of 4 ranks
# context x tensor = 2: inside a node of 4 ranks

program=/opt/pleat/bin/pleat
deck=deck.toml
run=runs/austen   # the folder of the run
settings=(
  optimizer.lr=1e-3
  'data.path=["a b", "it'\''s"]'
)
script='/scratch/me/my job.sh'   # this file, to queue it again
cd /scratch/me || exit 2

module load PrgEnv-gnu cudatoolkit craype-accel-nvidia80 cray-hdf5-parallel || exit 2
export OMP_NUM_THREADS=16
export OMP_PLACES=cores
export OMP_PROC_BIND=close
export MPICH_GPU_SUPPORT_ENABLED=1
export MPICH_OFI_NIC_POLICY=GPU

say() { echo "pleat batch: $(date '+%Y-%m-%d %H:%M:%S') $*"; }
newest() { cat -- "$run/checkpoints/LATEST" 2>/dev/null; }
steps() { sed -n '/^\[run\]$/,/^\[/s/^steps = //p' "$run/deck.toml" 2>/dev/null; }

# Found out now rather than when the job has to be queued again.
if [[ ! -r $script ]]; then
  say "$script is not readable here: save this script under that name and submit it again"
  exit 2
fi

# shellcheck disable=SC2016
launch=(mpiexec -n 8 -ppn 4
        bash -c 'devices=(3 2 1 0); export CUDA_VISIBLE_DEVICES=${devices[${MPI_LOCALRANKID:-${PALS_LOCAL_RANKID:-$OMPI_COMM_WORLD_LOCAL_RANK}}]}; exec "$@"' one-gpu-each)
# shellcheck disable=SC2016
launch_one=(mpiexec -n 1 -ppn 1
        bash -c 'devices=(3 2 1 0); export CUDA_VISIBLE_DEVICES=${devices[${MPI_LOCALRANKID:-${PALS_LOCAL_RANKID:-$OMPI_COMM_WORLD_LOCAL_RANK}}]}; exec "$@"' one-gpu-each)

"${launch_one[@]}" "$program" check "$deck" --ranks 8 ${settings[@]+"${settings[@]}"}
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
  say "PBS ends this job: not queued again; '$after' is where it would continue"
  exit 75
fi
say "stopped after $after: queued again"
qsub "$script" || { say "qsub failed"; exit 75; }
