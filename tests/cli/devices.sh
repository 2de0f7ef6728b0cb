#!/usr/bin/env bash
# devices.sh: every device that computes gives the text that the CPU gives, on the demo model.
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
    text "$device"
    [ $rc -eq 0 ] && cmp -s "$work/text" "$work/want"
    result $? "$device gives the same text"
done
finish
