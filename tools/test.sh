#!/usr/bin/env bash
# test.sh: installs what is missing, builds, tests. --all and --nightly run more: the list of stages at
# the end of this file says what. The last line is "N passed, M failed, K skipped", over all of it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. tools/setup.sh
forget_settings

case "$#:${1-}" in
    0:) level=0 ;;
    1:--all) level=1 ;;
    1:--nightly) level=2 ;;
    *)
        echo "usage: tools/test.sh [--all | --nightly]" >&2
        exit 1
        ;;
esac

passed=0 failed=0 skipped=0
# Kernels for all of NVIDIA's generations are compiled in the first build alone.
one_generation=-DEBRO_CUDA_ARCHS=80
failures=() minutes=()
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    failed=$((failed + 1))
    failures+=("$1")
}

# stage LEVELS NAME COMMAND...: runs it, with its time, at these levels: a range of numbers, "1-2".
stage() {
    local first=${1%-*} last=${1#*-} name=$2 start=$SECONDS took
    if [ "$level" -lt "$first" ] || [ "$level" -gt "$last" ]; then return 0; fi
    shift 2
    say "$name"
    "$@"
    took=$(awk -v s=$((SECONDS - start)) 'BEGIN { printf "%.1f", s / 60 }')
    minutes+=("$took minutes: $name")
    printf '== %s: %s minutes\n\n' "$name" "$took"
}

# build FOLDER LABEL [CMake options] [--target NAME...]
build() {
    local folder=$1 label=$2 options=()
    shift 2
    while [ $# -gt 0 ] && [ "$1" != --target ]; do
        options+=("$1")
        shift
    done
    if configure "$folder" -DEBRO_TESTS=ON -DEBRO_WERROR=ON "${options[@]}" >"$work/configure" 2>&1 &&
        cmake --build "$folder" --parallel "$(jobs)" "$@"; then
        return 0
    fi
    tail -n 40 "$work/configure"
    fail "$label: does not build"
    return 1
}

# Counts the cases of a verbose ctest log, where every program speaks TAP. A program that was not
# seen to end well, ran no case, or ran fewer than it had announced is a failure by itself, so that a
# crash can never pass for success. Prints "passed failed skipped", then one line per failure.
count_cases() {
    awk -v label="$2" '
        function note(text) { failed++; notes[++n_notes] = label ": " text }
        match($0, /^[0-9]+: /) {
            t = substr($0, 1, RLENGTH - 2)
            line = substr($0, RLENGTH + 1)
            if (line ~ /^1\.\.[0-9]+ *$/) plan[t] += substr(line, 4)
            else if (line ~ /^(not )?ok [0-9]+/) {
                if (line !~ /^not ok 0/) seen[t]++
                if (line ~ /# SKIP/) skipped++
                else if (line ~ /^ok/) passed++
                else { bad[t]++; note(name[t] ": " line) }
            }
        }
        /^ +Start +[0-9]+: / { t = $2; sub(/:$/, "", t); name[t] = $3; known[t] = 1 }
        / Test +#[0-9]+: / {
            match($0, /#[0-9]+:/)
            t = substr($0, RSTART + 1, RLENGTH - 2)
            rest = substr($0, RSTART + RLENGTH)
            ended[t] = 1
            if (rest !~ / Passed /) {
                if (!bad[t]) { bad[t]++; sub(/^ +/, "", rest); gsub(/\.\.\.+/, " ", rest); note(rest) }
            }
        }
        END {
            for (t in known) {
                if (!ended[t]) note(name[t] ": did not end")
                else if (seen[t] + 0 == 0 && !bad[t]) note(name[t] ": ran no test")
                else if (seen[t] + 0 < plan[t] + 0 && !bad[t])
                    note(name[t] ": ran " (seen[t] + 0) " of " plan[t] " tests")
                total++
            }
            if (total + 0 == 0) note("no test program ran")
            print passed + 0, failed + 0, skipped + 0
            for (i = 1; i <= n_notes; i++) print notes[i]
        }' "$1"
}

# What the programs that failed said: first each case that did, with what follows it (a sanitizer's
# report may be long), then their last lines, and how ctest ended.
show_failures() {
    local number
    for number in $(sed -nE 's/^ *[0-9]+\/[0-9]+ Test +#([0-9]+): .*\*\*\*.*/\1/p' "$1"); do
        { grep "^$number: " "$1" || true; } >"$work/said"
        { grep -E "^$number: (seed|not ok)" -A 4 "$work/said" || true; } | head -n 40
        tail -n 60 "$work/said"
    done
    tail -n 40 "$1"
}

# run_tests FOLDER LABEL [ctest options]
run_tests() {
    local log="$work/ctest" rc=0 p f s line
    set +e
    (cd "$1" && CMOCKA_MESSAGE_OUTPUT=TAP ctest -V --no-tests=error -j "$(jobs)" "${@:3}") 2>&1 | tee "$log" |
        grep --line-buffered -E '^ *[0-9]+/[0-9]+ Test +#'
    rc=${PIPESTATUS[0]}
    set -e
    count_cases "$log" "$2" >"$work/count"
    {
        read -r p f s
        while IFS= read -r line; do failures+=("$line"); done
    } <"$work/count"
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    # a test that is skipped says why on the line before
    awk 'match($0, /^[0-9]+: /) {
            t = substr($0, 1, RLENGTH - 2)
            line = substr($0, RLENGTH + 1)
            if (line ~ /^skipped: /) why[t] = substr(line, 9)
            else if (line ~ /# SKIP/) {
                sub(/.*# SKIP */, "", line)
                print "skipped: " line (why[t] ? ":" why[t] : "")
                why[t] = ""
            }
        }' "$log"
    if [ "$rc" -ne 0 ] && [ "$f" -eq 0 ]; then fail "$2: ctest ended with $rc"; fi
    if [ "$rc" -ne 0 ] || [ "$f" -ne 0 ]; then show_failures "$log" | sed 's/^/  | /'; fi
    printf '%s: %s passed, %s failed, %s skipped\n' "$2" "$p" "$f" "$s"
}

# All but the slower rungs of Vulkan, which come under the validation layer.
plain() { if build build gcc; then run_tests build gcc -E '_vulkan_'; fi; }

# Hides Vulkan's drivers from what it runs: they are not built with sanitizers, leak, and race.
without_vulkan() { VK_DRIVER_FILES=/nonexistent VK_ICD_FILENAMES=/nonexistent "$@"; }

# Everything without Vulkan's drivers; then the Vulkan backend's own code, without looking for leaks.
sanitized() {
    local asan=detect_stack_use_after_return=1
    if build build-san sanitizers -DCMAKE_C_COMPILER=gcc $one_generation -DEBRO_SANITIZE=address,undefined; then
        ASAN_OPTIONS=$asan UBSAN_OPTIONS=print_stacktrace=1 \
            without_vulkan run_tests build-san sanitizers -E '_vulkan|_simt64|^vulkan/(faults|large|limits|time)$'
        ASAN_OPTIONS=$asan:detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
            run_tests build-san "sanitizers, Vulkan" \
            -R '^(contract/(device|stream|graph)|opcheck/(general|moe)_vulkan|vulkan/(faults|large|limits|time))$'
    fi
}

# The Vulkan backend's plain rung, under the validation layer, which must have nothing to say.
validated() {
    local layer=VK_LAYER_KHRONOS_validation
    if [ ! -e build/ebro_vulkan.so ]; then
        echo "skipped: there is no Vulkan backend to validate"
        skipped=$((skipped + 1))
        return 0
    fi
    VK_INSTANCE_LAYERS=$layer run_tests build validation \
        -R '^(contract/(device|stream|graph)|vulkan/(faults|large|limits|time)|cli/devices|.*_vulkan_.*)$' \
        -E '^opcheck/(kda|kda_step|mla)_vulkan_small$|_vulkan_(narrow|wide)$'
    if grep -E 'VUID-|Validation (Error|Warning|Performance)|UNASSIGNED-' "$work/ctest" >"$work/said"; then
        sort "$work/said" | uniq | cut -c 1-400 | head -n 40
        fail "validation: the layer reports $(wc -l <"$work/said") messages"
    fi
}

# Modules with one known fault each: `ebro check` finds every one.
planted() {
    if build build-planted planted $one_generation -DEBRO_PLANT=all --target test_check_planted; then
        run_tests build-planted planted -R '^check/planted$'
    fi
}

with_clang() {
    if build build-clang clang -DCMAKE_C_COMPILER=clang $one_generation; then passed=$((passed + 1)); fi
}

# fuzz_one NAME SECONDS: leaves $work/NAME.log and .rc. No input may crash it, leak, or take 10 s. What
# it learns stays in build-fuzz/corpus, and an input that breaks it beside that.
fuzz_one() {
    local rc=0 name=${1#fuzz_} options=() corpora=("build-fuzz/corpus/$1")
    mkdir -p "build-fuzz/corpus/$1"
    if [ -e "tests/fuzz/$name.dict" ]; then options+=("-dict=tests/fuzz/$name.dict"); fi
    if [ -d "tests/fuzz/seeds/$name" ]; then corpora+=("tests/fuzz/seeds/$name"); fi
    without_vulkan "build-fuzz/tests/$1" -max_total_time="$2" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$PWD/build-fuzz/$1-" "${options[@]}" "${corpora[@]}" \
        >"$work/$1.log" 2>&1 || rc=$?
    echo "$rc" >"$work/$1.rc"
}

# Every fuzz program, tests/fuzz/NAME.c, for so many seconds, one on each core.
fuzz() {
    local source name running=0 targets=()
    for source in tests/fuzz/*.c; do targets+=("fuzz_$(basename "$source" .c)"); done
    build build-fuzz fuzz -DCMAKE_C_COMPILER=clang $one_generation -DEBRO_FUZZ=ON \
        -DEBRO_SANITIZE=fuzzer-no-link,address,undefined --target "${targets[@]}" || return 0
    for name in "${targets[@]}"; do
        if [ "$running" -ge "$(jobs)" ]; then
            wait -n || true
            running=$((running - 1))
        fi
        fuzz_one "$name" "$1" &
        running=$((running + 1))
    done
    wait
    for name in "${targets[@]}"; do
        if [ "$(cat "$work/$name.rc")" -eq 0 ]; then
            passed=$((passed + 1))
            printf '%s: %s inputs in %s s\n' "$name" \
                "$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/$name.log")" "$1"
        else
            tail -n 60 "$work/$name.log"
            fail "fuzz: $name"
        fi
    done
}

# Other versions format differently.
format() {
    if ! clang-format --version 2>/dev/null | grep -q 'version 14\.'; then
        echo "skipped: formatting is checked with clang-format 14 alone, which is not here"
        skipped=$((skipped + 1))
    elif find runtime backends model shaders/cuda_hip tests tools -regex '.*\.\(c\|h\|cc\|cu\|cuh\)' -print0 |
        xargs -0 clang-format --dry-run --Werror; then
        passed=$((passed + 1))
    else
        fail "format: run clang-format -i on the files named above"
    fi
}

# Random inputs are new in every run, so ten runs see ten times as much.
repeated() { if build build gcc; then run_tests build repeated -R opcheck --repeat until-fail:10; fi; }

# What imitated devices leave out elsewhere.
full() { if build build gcc; then EBRO_TEST_FULL=1 run_tests build "imitated devices" -R '_vulkan'; fi; }

# Products on matrix units, which the installed software Vulkan need not have: with one that does.
matrices() {
    local suite folder=build/lavapipe
    if [ ! -e build/ebro_vulkan.so ]; then
        echo "skipped: there is no Vulkan backend"
        skipped=$((skipped + 1))
        return 0
    elif ! tools/lavapipe.sh --make >"$work/lavapipe" 2>&1 ||
        ! tools/lavapipe.sh build/ebro devices >"$work/lavapipe" 2>&1 ||
        ! grep -q '^Vulkan0: llvmpipe' "$work/lavapipe"; then
        tail -n 5 "$work/lavapipe"
        echo "skipped: software Vulkan with cooperative matrices cannot be had, or not run, here"
        skipped=$((skipped + 1))
        return 0
    fi
    mkdir -p $folder
    # 0x11: EBRO_CAP_MATRIX and EBRO_CAP_F16
    for suite in general moe; do
        echo "add_test(opcheck/${suite}_vulkan_matrix \"$PWD/tools/lavapipe.sh\" \"$PWD/build/tests/test_opcheck_$suite\")"
        echo "set_tests_properties(opcheck/${suite}_vulkan_matrix PROPERTIES TIMEOUT 2700" \
            'ENVIRONMENT "EBRO_TEST_BACKEND=vulkan;EBRO_TEST_CAPS=0x11")'
    done >$folder/CTestTestfile.cmake
    run_tests $folder "matrix units"
}

# soak REQUESTS: so many to one server, for each of two models.
soak() { if build build gcc; then EBRO_TEST_SOAK=$1 run_tests build "soak" -R '^load/soak$'; fi; }

# The official OpenAI client for Python, of one version, before the server.
openai_client() {
    local folder=build/openai
    build build gcc --target ebro_program ebro_cpu || return 0
    mkdir -p $folder
    if ! { python3 -m venv $folder/venv && $folder/venv/bin/pip install -q --retries 1 --timeout 20 \
        --disable-pip-version-check openai==2.54.0; } >"$work/openai" 2>&1; then
        tail -n 3 "$work/openai"
        echo "skipped: no environment of Python with PyPI's openai can be made here"
        skipped=$((skipped + 1))
        return 0
    fi
    printf 'add_test(server/openai_client env "EBRO=%s" "%s" "%s")\n' "$PWD/build/ebro" \
        "$PWD/$folder/venv/bin/python" "$PWD/tests/server/openai_client.py" >$folder/CTestTestfile.cmake
    run_tests $folder "OpenAI client"
}

# threads [--target NAME... -- PATTERN]: under the thread sanitizer, all tests or those.
threads() {
    local targets=() pattern=.
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        targets+=("$1")
        shift
    done
    if [ $# -gt 1 ]; then pattern=$2; fi
    if build build-tsan tsan -DCMAKE_C_COMPILER=gcc $one_generation -DEBRO_SANITIZE=thread "${targets[@]}"; then
        TSAN_OPTIONS="halt_on_error=1 suppressions=$PWD/tests/tsan.supp" \
            without_vulkan run_tests build-tsan tsan -R "$pattern" -E '_vulkan|_simt|^cuda/'
    fi
}

# Other versions know other checks.
tidy() {
    if ! clang-tidy --version 2>/dev/null | grep -q 'version 14\.'; then
        echo "skipped: clang-tidy 14 is not here"
        skipped=$((skipped + 1))
        return 0
    fi
    configure build-clang -DCMAKE_C_COMPILER=clang >/dev/null
    # Assembler files are in the list of compilations too.
    if run-clang-tidy -p build-clang -quiet -j "$(jobs)" '\.c$' >"$work/tidy" 2>&1; then
        passed=$((passed + 1))
    else
        grep -A 3 -E '(warning|error): ' "$work/tidy" || tail -n 20 "$work/tidy"
        fail "clang-tidy"
    fi
}

# Every Vulkan kernel, by the compilers of drivers that can pretend their hardware.
vendors() {
    local rc=0
    tools/vendors.sh --sum >"$work/vendors" 2>&1 || rc=$?
    cat "$work/vendors"
    case $rc in
        0) passed=$((passed + 1)) ;;
        77) skipped=$((skipped + 1)) ;;
        *) fail "vendors: tools/vendors.sh ended with $rc" ;;
    esac
}

# package [--check]
package() {
    if [ $# -gt 0 ] && [ "$(id -u)" -ne 0 ]; then
        echo "skipped: the package is tried in bare systems by root alone"
        skipped=$((skipped + 1))
    elif tools/package.sh "$@" >"$work/package" 2>&1; then
        passed=$((passed + 1))
        grep '^== ' "$work/package"
    else
        tail -n 60 "$work/package"
        fail "package: tools/package.sh $*"
    fi
}

packages=(gcc g++ libc6-dev cmake ninja-build pkg-config libpcre2-dev libjansson-dev libxxhash-dev
    libedit-dev libmicrohttpd-dev libcmocka-dev curl glslc libvulkan-dev mesa-vulkan-drivers)
if [ $level -ge 1 ]; then
    packages+=(clang libclang-rt-dev clang-format vulkan-validationlayers python3 python3-venv)
    # Ubuntu has it as a snap alone: there server/page is skipped, unless one is installed.
    if grep -qs '^ID=debian' /etc/os-release; then packages+=(chromium); fi
fi
if [ $level -ge 2 ]; then packages+=(clang-tidy); fi
need "${packages[@]}"

# The stages. Levels: 0 plain, 1 --all, 2 --nightly. On two cores level 0 must stay within 10 minutes
# after the build, and level 1 within 60 with it; what does not fit begins at 2.
stage 0-2 "build and tests" plain
stage 1-2 "Vulkan under the validation layer" validated
stage 1-2 "build and tests with sanitizers" sanitized
stage 1-2 "formatting" format
stage 1-2 "build with Clang" with_clang
stage 1-2 "known faults that ebro check must find" planted
stage 1-2 "the OpenAI client before the server" openai_client
stage 1-1 "2,000 requests to one server" soak 2000
stage 2-2 "10,000 requests to one server" soak 10000
stage 1-1 "package" package
stage 1-1 "threads with the thread sanitizer" threads --target test_base_guard test_contract_device \
    test_contract_stream test_engine_cancel test_engine_embedding test_engine_engine \
    test_engine_threads test_load_soak test_load_strict -- \
    '^(base/guard|contract/(device|stream)|engine/(cancel|embedding|engine|threads)|load/(soak|strict))$'
stage 1-1 "fuzz runs of 20 seconds" fuzz 20
stage 2-2 "package, tried in bare systems" package --check
stage 2-2 "all tests of devices that a processor imitates" full
stage 2-2 "Vulkan kernels for AMD and NVIDIA, compiled without hardware" vendors
stage 2-2 "matrix units that a processor imitates" matrices
stage 2-2 "ten runs with new random inputs" repeated
stage 2-2 "build and tests with the thread sanitizer" threads
stage 2-2 "clang-tidy" tidy
stage 2-2 "fuzz runs of one hour" fuzz 3600

if [ ${#minutes[@]} -gt 1 ]; then printf '%s\n' "${minutes[@]}"; fi
if [ ${#failures[@]} -gt 0 ]; then printf 'FAILED %s\n' "${failures[@]}"; fi
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
