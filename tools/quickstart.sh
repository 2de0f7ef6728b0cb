#!/usr/bin/env bash
# quickstart.sh: from a fresh Debian 12 or Ubuntu 24.04 (or newer) to an answer. Installs what is
# missing, builds in build/, and asks the demo model to recall a fact.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. tools/setup.sh
forget_settings

if [ $# -gt 0 ]; then
    echo "usage: tools/quickstart.sh (no options): installs, builds, runs a chat on the demo model" >&2
    exit 1
fi

need gcc libc6-dev cmake ninja-build pkg-config libpcre2-dev libjansson-dev libxxhash-dev libedit-dev \
    libmicrohttpd-dev glslc libvulkan-dev

# CUDA's kernels for the GPUs of this machine alone: for all there are, nvcc takes minutes.
generations=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d '. ' | sort -u | paste -sd ';') ||
    generations=
case $generations in
    '' | *[!0-9\;]*) generations=80 ;;
esac

say "building in build/"
configure build -DEBRO_TESTS=OFF "-DEBRO_CUDA_ARCHS=$generations" >build.log 2>&1 || { cat build.log >&2; die "configuring failed"; }
rm -f build.log
cmake --build build --parallel "$(jobs)"

question='Remember: the code for Mira is 4821. The code for Tom is 1938. The code for Lena is 7406. What is the code for Lena?'
say "build/ebro devices"
build/ebro devices
say "build/ebro run --chat -p \"$question\" --temp 0"
answer=$(build/ebro run --chat -p "$question" --temp 0) || die "the program failed"
printf '%s\n' "$answer"

[ "$answer" = 7406 ] || die "the model answered \"$answer\" and not 7406"
say "right: the demo model recalled 7406. Next: build/ebro run --help"
