#!/usr/bin/env bash
# Trains a Qwen model on the matching game with SLIME: GRPO in Megatron, tokens from SGLang, games from slimrl.
# See docs/slime.md. Runs on one machine with GPUs, inside SLIME's container, where slimrl is installed too.
#
#   scripts/run_matching.sh
#   DRY_RUN=1 scripts/run_matching.sh                 prints train.py's arguments, but for the model's own
#   NUM_GPUS=4 NUM_ROLLOUT=100 scripts/run_matching.sh --use-wandb --wandb-project matching
#
# What follows on the command line is passed on to SLIME's train.py, and counts for more than what stands here.

set -euo pipefail

# Before anything else: help needs neither Ray nor SLIME.
if [[ "${1:-}" == --help || "${1:-}" == -h ]]; then
    sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
    printf '\nVariables, with their defaults:\n'
    sed -nE 's/^([A-Z_]+)="(\$\(absolute ")?\$\{[A-Z_]+:-([^"]*)\}"(\)")?( *#.*)?$/  \1=\3\5/p' "$0"
    exit 0
fi

ROOT="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)"

# Ray's job runs where `ray start` ran, which may be anywhere: every path is made absolute here.
absolute() {
    realpath -m -s -- "$1"
}

SLIME_ROOT="$(absolute "${SLIME_ROOT:-$HOME/slime}")"            # a checkout of THUDM/slime
MEGATRON_ROOT="$(absolute "${MEGATRON_ROOT:-$HOME/Megatron-LM}")"
MODEL="${MODEL:-qwen3-4B-Instruct-2507}"           # a file in SLIME's scripts/models, without .sh
HF_CHECKPOINT="$(absolute "${HF_CHECKPOINT:-$HOME/Qwen3-4B-Instruct-2507}")"
REF_LOAD="$(absolute "${REF_LOAD:-${HF_CHECKPOINT}_torch_dist}")"   # the same weights, converted by SLIME's tools
SAVE_DIR="$(absolute "${SAVE_DIR:-$ROOT/outputs/matching_slime}")"
NUM_GAMES="${NUM_GAMES:-2000}"
NUM_EVAL_GAMES="${NUM_EVAL_GAMES:-100}"
NUM_PAPERS="${NUM_PAPERS:-8}"
# Games are made if the file is not there; what they are made of is in its name.
DATA="$(absolute "${DATA:-$ROOT/data/matching/v2_n${NUM_PAPERS}_${NUM_GAMES}_train.jsonl}")"
EVAL_DATA="$(absolute "${EVAL_DATA:-$ROOT/data/matching/v2_n${NUM_PAPERS}_${NUM_EVAL_GAMES}_test.jsonl}")"
NUM_GPUS="${NUM_GPUS:-8}"
TENSOR_PARALLEL="${TENSOR_PARALLEL:-2}"
NUM_ROLLOUT="${NUM_ROLLOUT:-300}"
CONFIG="$(absolute "${CONFIG:-$ROOT/configs/matching_config.yaml}")"
RAY_ADDRESS_HTTP="${RAY_ADDRESS_HTTP:-http://127.0.0.1:8265}"
DRY_RUN="${DRY_RUN:-0}"

fail() {
    echo "run_matching.sh: $1" >&2
    exit 2
}

check() {
    command -v ray >/dev/null || fail "there is no \`ray\`: start this in SLIME's container (docs/slime.md)."
    [[ -f "$SLIME_ROOT/train.py" ]] || fail "SLIME_ROOT=$SLIME_ROOT holds no train.py: set it to a checkout of THUDM/slime."
    [[ -f "$SLIME_ROOT/scripts/models/$MODEL.sh" ]] ||
        fail "MODEL=$MODEL: there is no $SLIME_ROOT/scripts/models/$MODEL.sh. Known: $(known_models)."
    [[ -d "$MEGATRON_ROOT" ]] || fail "MEGATRON_ROOT=$MEGATRON_ROOT does not exist."
    [[ -d "$HF_CHECKPOINT" ]] || fail "HF_CHECKPOINT=$HF_CHECKPOINT does not exist: \`hf download\` the model there."
    [[ -d "$REF_LOAD" ]] ||
        fail "REF_LOAD=$REF_LOAD does not exist: convert the model with SLIME's tools/convert_hf_to_torch_dist.py."
    [[ -f "$CONFIG" ]] || fail "CONFIG=$CONFIG does not exist."
    python3 -c "from slimrl_envs.slime import rollout, rows; rows.taskset_of('{}')" ||
        fail "slimrl and its game cannot be loaded by python3: install them into SLIME's environment (docs/slime.md)."
}

known_models() {
    (cd "$SLIME_ROOT/scripts/models" 2>/dev/null && printf '%s ' *.sh) || echo none
}

make_data() {
    local file=$1 num=$2 split=$3
    [[ -f "$file" ]] && return
    mkdir -p "$(dirname "$file")"
    python3 "$ROOT/scripts/generate_data.py" --num_games "$num" --n "$NUM_PAPERS" --split "$split" --output "$file"
}

CKPT_ARGS=(
    --hf-checkpoint "$HF_CHECKPOINT"
    --ref-load "$REF_LOAD"
    --load "$SAVE_DIR"
    --save "$SAVE_DIR"
    --save-interval 20
)

GAME_ARGS=(
    --custom-generate-function-path slimrl.integrations.slime.generate
    --custom-config-path "$CONFIG"
    --dynamic-sampling-filter-path slimrl.integrations.slime.filter.no_failed_game
    --prompt-data "$DATA"
    --input-key prompt
    --metadata-key game_state
    --rollout-shuffle
)

# A game is one sample; its response is all that follows the opening, what the partner says included.
ROLLOUT_ARGS=(
    --num-rollout "$NUM_ROLLOUT"
    --rollout-batch-size 32
    --n-samples-per-prompt 8
    --global-batch-size 256
    --rollout-max-response-len 4096
    --rollout-max-context-len 8192
    --rollout-temperature 1.0
    --rollout-top-p 1.0
    --balance-data
)

EVAL_ARGS=(
    --eval-interval 20
    --eval-prompt-data matching "$EVAL_DATA"
    --n-samples-per-eval-prompt 1
    --eval-max-response-len 4096
    --eval-top-p 1.0
)

PERF_ARGS=(
    --tensor-model-parallel-size "$TENSOR_PARALLEL"
    --sequence-parallel
    --pipeline-model-parallel-size 1
    --context-parallel-size 1
    --expert-model-parallel-size 1
    --expert-tensor-parallel-size 1
    --recompute-granularity full
    --recompute-method uniform
    --recompute-num-layers 1
    --use-dynamic-batch-size
    --max-tokens-per-gpu 9216
)

GRPO_ARGS=(
    --advantage-estimator grpo
    --entropy-coef 0.0
    --eps-clip 0.2
    --eps-clip-high 0.28
)

OPTIMIZER_ARGS=(
    --optimizer adam
    --lr 1e-6
    --lr-decay-style constant
    --weight-decay 0.1
    --adam-beta1 0.9
    --adam-beta2 0.98
)

SGLANG_ARGS=(
    --rollout-num-gpus-per-engine "$TENSOR_PARALLEL"
    --sglang-mem-fraction-static 0.7
)

MISC_ARGS=(
    --attention-dropout 0.0
    --hidden-dropout 0.0
    --accumulate-allreduce-grads-in-fp32
    --attention-softmax-in-fp32
    --attention-backend flash
)

ARGS=(
    --actor-num-nodes 1
    --actor-num-gpus-per-node "$NUM_GPUS"
    --colocate
    "${CKPT_ARGS[@]}"
    "${GAME_ARGS[@]}"
    "${ROLLOUT_ARGS[@]}"
    "${EVAL_ARGS[@]}"
    "${PERF_ARGS[@]}"
    "${GRPO_ARGS[@]}"
    "${OPTIMIZER_ARGS[@]}"
    "${SGLANG_ARGS[@]}"
    "${MISC_ARGS[@]}"
)

if [[ "$DRY_RUN" != 0 ]]; then
    printf '%q ' python3 "$SLIME_ROOT/train.py" "${ARGS[@]}" "$@"
    echo
    exit 0
fi

check
MODEL_ARGS=()
# shellcheck source=/dev/null
source "$SLIME_ROOT/scripts/models/$MODEL.sh"
make_data "$DATA" "$NUM_GAMES" train
make_data "$EVAL_DATA" "$NUM_EVAL_GAMES" test
mkdir -p "$SAVE_DIR"

if ! ray status >/dev/null 2>&1; then
    ray start --head --node-ip-address 127.0.0.1 --num-gpus "$NUM_GPUS" --disable-usage-stats
fi

# A partner's key is no part of this: it would stand in the job's description. Ray hands on the environment it starts in.
RUNTIME_ENV="{\"env_vars\": {\"PYTHONPATH\": \"$MEGATRON_ROOT\", \"CUDA_DEVICE_MAX_CONNECTIONS\": \"1\"}}"

exec ray job submit --address="$RAY_ADDRESS_HTTP" --runtime-env-json="$RUNTIME_ENV" \
    -- python3 "$SLIME_ROOT/train.py" "${MODEL_ARGS[@]}" "${ARGS[@]}" "$@"
