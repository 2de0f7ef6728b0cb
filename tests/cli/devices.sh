#!/usr/bin/env bash
# devices.sh: every device that computes gives the text that the CPU gives, on the demo model; and what
# `ebro devices` says where Vulkan has no driver, or a broken one.
only=${EBRO_TEST_DEVICE-} # lib.sh unsets it
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# text DEVICE: what it generates, greedily, from two prompts; rc is 0 where both went well.
text() {
    local options=(--device "$1" -ctk f32 --temp 0 --cache-dir "$work/cache")
    run run "${options[@]}" --chat -p "$recall"
    [ $rc -eq 0 ] || return
    cp "$out" "$work/text"
    run run "${options[@]}" -p "The whale is" -n 24
    cat "$out" >>"$work/text"
}

run devices --json
devices=$(sed -n 's/.*"name": "\([^"]*\)".*/\1/p' "$out")
text CPU
[ $rc -eq 0 ] && grep -q 7406 "$work/text"
result $? "the CPU recalls a fact and goes on with a story"
mv "$work/text" "$work/want"
for device in $devices; do
    case $device in
        CPU | Null*) continue ;;
    esac
    # A backend that grows is spared like this in every test.
    if [ "${only:-$device}" != "$device" ]; then
        skip "$device: EBRO_TEST_DEVICE is $only"
        continue
    fi
    text "$device"
    [ $rc -eq 0 ] && cmp -s "$work/text" "$work/want"
    result $? "$device gives the same text"
done

# ---- drivers that are not there, or broken

# says_why NAME SETTING...: with these variables `ebro devices` lists the CPU alone, and says why.
says_why() {
    local name=$1 options
    shift
    for options in "" --json; do
        rc=0
        # shellcheck disable=SC2086
        env "$@" "$EBRO" devices $options >"$out" 2>"$err" </dev/null || rc=$?
        [ $rc -eq 0 ] && grep -q CPU "$out" && ! grep -q Vulkan "$out" &&
            grep -q 'ebro_vulkan.so finds no device: vulkan: ' "$err"
        result $? "devices${options:+ $options} with $name"
    done
    rc=0
    env "$@" "$EBRO" run --device Vulkan0 -p x >"$out" 2>"$err" </dev/null || rc=$?
    [ $rc -eq 3 ] && [ ! -s "$out" ] && grep -q 'no device "Vulkan0": ebro_vulkan.so finds no device' "$err"
    result $? "3: --device Vulkan0 with $name"
}

if [ -e "$(dirname "$EBRO")/ebro_vulkan.so" ]; then
    : >"$work/empty.json"
    echo '{"file_format_version": "1.0.0", "ICD": {"library_path": "/nonexistent/libdriver.so", "api_version": "1.3.0"}}' \
        >"$work/missing.json"
    mkdir "$work/loader"
    : >"$work/loader/libvulkan.so.1"
    for file in /nonexistent "$work/empty.json" "$work/missing.json"; do
        says_why "the driver file ${file##*/}" VK_DRIVER_FILES="$file" VK_ICD_FILENAMES="$file"
    done
    says_why "a broken loader" LD_LIBRARY_PATH="$work/loader"
else
    skip "there is no Vulkan backend whose drivers could be missing"
fi
finish
