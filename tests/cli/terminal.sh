#!/usr/bin/env bash
# terminal.sh: the bar that shows how far a long prompt is: on a terminal alone, and gone afterwards.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# a prompt that takes seconds whatever the machine is: more of it until it does
prompt=$(printf 'once upon a time there was a whale in the sea and %.0s' $(seq 40))
for _ in 1 2 3 4 5; do
    begin=$(date +%s%N)
    run run -p "$prompt" -n 1 -ub 4 --strict -t 1
    [ $(($(date +%s%N) - begin)) -gt 2500000000 ] && break
    [ ${#prompt} -gt 16000 ] && break
    prompt="$prompt$prompt"
done
[ $rc -eq 0 ] && [ "$(wc -l <"$err")" -eq 1 ] && ! grep -q '\[#' "$err" && ! grep -q $'\r' "$err"
result $? "no bar where stderr is no terminal"

if ! python3 -c 'import pty' 2>/dev/null; then
    skip "no Python that can make a terminal (bar)"
    skip "no Python that can make a terminal (interrupt)"
    finish
fi
# drive HOW: the program with stderr on a terminal; its stdout and that terminal follow each other.
drive() {
    python3 - "$EBRO" "$prompt" "$1" >"$out" 2>"$err" <<'PY'
import os, pty, signal, subprocess, sys
ebro, prompt, how = sys.argv[1:4]
master, slave = pty.openpty()
p = subprocess.Popen([ebro, "run", "-p", prompt, "-n", "1", "-ub", "4", "--strict", "-t", "1"],
                     stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=slave)
os.close(slave)
text = b""
while True:
    try:
        more = os.read(master, 4096)
    except OSError:
        break
    if not more: break
    text += more
    if how == "interrupt" and b"%" in text:
        p.send_signal(signal.SIGINT)
        how = "interrupted"
p.stdout.read()
print(p.wait(), how)
# what a reader is left with: a carriage return starts a line anew
for line in text.decode().replace("\r\n", "\n").split("\n"):
    shown = ""
    for part in line.split("\r"):
        shown = part + shown[len(part):]
    print("|" + shown.rstrip())
print("bars", text.count(b"%"), text.count(b"evaluating tokens"))
PY
}
drive plain
grep -q '^0 plain$' "$out" && grep -q '^|prompt [0-9]* tokens at .*, CPU, cache f32$' "$out" &&
    ! grep -q '^|.*%' "$out" && grep -Eq '^bars [1-9][0-9]* [1-9]' "$out"
result $? "a bar on a terminal, and no trace of it afterwards"
drive interrupt
grep -q '^130 interrupted$' "$out" && grep -q '^|prompt .*, interrupted$' "$out" &&
    ! grep -q '^|.*%' "$out"
result $? "ctrl-C while it is shown"

finish
