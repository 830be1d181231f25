#!/bin/bash
# sbatch examples/slurm.sh DATA RUN: 2 machines with 4 GPUs each; a requeued job continues where it was.
#SBATCH --job-name=somnet
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --signal=TERM@120
set -euo pipefail

data=$1
run=$2
export SOMNET_CACHE=${SOMNET_CACHE:-$PWD/cache}  # on storage that both machines see
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
resume=()
if [ -d "$run" ]; then resume=(--resume); fi

srun torchrun \
  --nnodes "$SLURM_NNODES" \
  --nproc-per-node 4 \
  --rdzv-id "$SLURM_JOB_ID" \
  --rdzv-backend c10d \
  --rdzv-endpoint "$head:29500" \
  --max-restarts 3 \
  -m somnet train "$data" --out "$run" "${resume[@]}"
