#!/usr/bin/env bash
# vendors.sh [--sum] [--mesa TREE] [--program FILE] [GPU...]: makes every Vulkan kernel with the compilers
# of AMD's and NVIDIA's open drivers, without such hardware, and prints what they say: registers,
# spills, shared memory, occupancy, matrix instructions. --sum: one line for each GPU.
#
# Mesa's RADV pretends a GPU itself up to Mesa 25 (RADV_FORCE_FAMILY), later ones and NVK through the
# libraries of the package mesa-drm-shim. TREE is the root of an unpacked Mesa (tools/lavapipe.sh --make
# leaves one with 26.1 in ~/.cache/ebro/lavapipe/root); without it the machine's own is taken. What this
# Mesa lacks is said. FILE is ebro_vkcheck (build/ebro_vkcheck, built where it is missing).
#
# Exit codes: 0, all is well; 1, a kernel does not compile or puts registers into memory; 77, nothing
# could be checked.
set -euo pipefail
home=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$home/tools/setup.sh"

# name: driver, families for RADV_FORCE_FAMILY (their names differ between versions), numbers for the
# shim. The order is that of the output.
gpus=(gcn5 rdna2 rdna3 rdna3.5 rdna4 ampere)
declare -A driver=([gcn5]=radeon [rdna2]=radeon [rdna3]=radeon [rdna3.5]=radeon [rdna4]=radeon [ampere]=nouveau)
declare -A families=([gcn5]="vega20 vega10" [rdna2]=navi21 [rdna3]="navi31 gfx1100" [rdna3.5]="gfx1151 strix1" [rdna4]=gfx1201)
declare -A numbers=([gcn5]=vega20 [rdna2]=navi21 [rdna3]=navi31 [rdna3.5]=strix1 [rdna4]=gfx1201 [ampere]=172)

usage() {
    echo "usage: tools/vendors.sh [--sum] [--mesa TREE] [--program FILE] [GPU...]; GPUs: ${gpus[*]}" >&2
    exit 1
}

sum=() mesa="" program="" chosen=()
while [ $# -gt 0 ]; do
    case $1 in
        --sum) sum=(--sum) ;;
        --mesa) mesa=$(cd "${2:?a folder is missing}" && pwd) && shift ;;
        --program) program=$(realpath "${2:?a file is missing}") && shift ;;
        *) if [ -n "${driver[$1]-}" ]; then chosen+=("$1"); else usage; fi ;;
    esac
    shift
done
if [ ${#chosen[@]} -eq 0 ]; then chosen=("${gpus[@]}"); fi

if [ -z "$program" ]; then
    program=$home/build/ebro_vkcheck
    if [ ! -x "$program" ]; then
        (cd "$home" && configure build -DEBRO_TESTS=ON && cmake --build build --target ebro_vkcheck) >&2
    fi
fi

lib=$mesa/usr/lib/$(uname -m)-linux-gnu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_RUNTIME_DIR=$work MESA_SHADER_CACHE_DIR=$work

# run DRIVER PRELOAD: the check, into $work/out and $work/err. A tree with a C library of its own runs
# through its own loader.
run() {
    local loader preload=()
    loader=$(echo "$lib"/ld-linux-*.so.*)
    if [ -n "$mesa" ] && [ -x "$loader" ]; then
        if [ -n "$2" ]; then preload=(--preload "$2"); fi
        "$loader" --library-path "$lib:/usr/lib/$(uname -m)-linux-gnu" "${preload[@]}" "$program" \
            --driver "$1" "${sum[@]}" >"$work/out" 2>"$work/err"
    else
        if [ -n "$2" ]; then preload=("LD_PRELOAD=$2"); fi
        if [ -n "$mesa" ]; then preload+=("LD_LIBRARY_PATH=$lib"); fi
        env "${preload[@]}" "$program" --driver "$1" "${sum[@]}" >"$work/out" 2>"$work/err"
    fi
}

# attempt GPU FILE PRELOAD: 0, checked and well; 1, checked and not, or crashed; 2, no such device.
attempt() {
    local rc=0
    run "$2" "$3" || rc=$?
    if grep -q 'Unknown family' "$work/err"; then return 2; fi
    if [ ! -s "$work/out" ] && [ "$rc" -lt 128 ]; then return 2; fi
    if [ "$rc" -ge 128 ]; then echo "$1: the driver's compiler crashed (exit code $rc)"; fi
    sed "s/^Null hardware (\(.*\)), driver/\1, driver/" "$work/out"
    if [ "$rc" -ne 0 ]; then
        grep -v '^vulkan: ' "$work/err" | sort | uniq -c | sort -rn | head -n 20
        return 1
    fi
}

# check GPU: as attempt, by each way there is.
check() {
    local file=$lib/libvulkan_${driver[$1]}.so shim rc=2 family
    if [ ! -e "$file" ]; then
        echo "skipped: $1: $file is not there"
        return 2
    fi
    for family in ${families[$1]-}; do
        rc=0
        RADV_FORCE_FAMILY=$family attempt "$1" "$file" "" || rc=$?
        if [ "$rc" -ne 2 ]; then return "$rc"; fi
    done
    shim=amdgpu
    if [ "${driver[$1]}" = nouveau ]; then shim=nouveau; fi
    shim=$lib/lib${shim}_noop_drm_shim.so
    if [ ! -e "$shim" ]; then
        echo "skipped: $1: this Mesa does not pretend one itself, and $shim (Debian's mesa-drm-shim) is not there"
        return 2
    fi
    rc=0
    AMDGPU_GPU_ID=${numbers[$1]} NOUVEAU_CHIPSET=${numbers[$1]} attempt "$1" "$file" "$shim" || rc=$?
    if [ "$rc" -eq 2 ]; then
        echo "skipped: $1: this Mesa does not pretend one: $(tail -n 1 "$work/err")"
    fi
    return "$rc"
}

checked=0 bad=0
for gpu in "${chosen[@]}"; do
    rc=0
    check "$gpu" || rc=$?
    case $rc in
        0) checked=$((checked + 1)) ;;
        1) checked=$((checked + 1)) bad=$((bad + 1)) ;;
    esac
done
echo "$checked of ${#chosen[@]} GPUs checked, $bad with failures"
if [ "$checked" -eq 0 ]; then exit 77; fi
[ "$bad" -eq 0 ]
