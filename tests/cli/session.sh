#!/usr/bin/env bash
# session.sh: --session of `ebro run` and `ebro chat`: what was read before is not read again, and no
# file is lost or half written.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
facts='Remember: the code for Mira is 4821. The code for Tom is 1938. What is the code for Tom?'

# says WANT: the last command went well and said exactly that.
says() { [ $rc -eq 0 ] && [ "$(cat "$out")" = "$1" ]; }

# ---- text

run run -p "The whale is" -n 8 --session "$work/text"
first=$(cat "$out")
[ $rc -eq 0 ] && [ -s "$work/text" ] && [ "$(wc -l <"$err")" -eq 1 ]
result $? "a session that begins"
# the same in one run; a word with its blank is read alike wherever it stands
run run -p "The whale is$first and the" -n 9
whole=$(cat "$out")
run run -p " and the" -n 9 --session "$work/text"
says "$whole" && grep -q "^session $work/text: 11 of 14 tokens reused$" "$err"
result $? "a text goes on where it ended"
cp "$work/text" "$work/kept"

# without a prompt: eight tokens and nine more are what seventeen are
run run -p "The whale is" -n 17
whole=$(cat "$out")
run run -p "The whale is" -n 8 --session "$work/on"
first=$(cat "$out")
run run -n 9 --session "$work/on"
[ $rc -eq 0 ] && [ "$first$(cat "$out")" = "$whole" ] &&
    grep -q "^session $work/on: 11 of 12 tokens reused$" "$err"
result $? "a text goes on without a prompt"
stop=${whole:${#first}:12}
run run -p "The whale is" -n 17 --stop "$stop" --session "$work/ended"
cut=$(cat "$out")
run run -n 2 --session "$work/ended"
[ $rc -eq 0 ] && [ "$cut" = "$first" ] && grep -q "^session $work/ended: 0 of .* come to its end" "$err"
result $? "and where a stop text ended it"
fails "nothing to go on from" 1 "the prompt is empty" run --session "$work/none"

# ---- chat

run run --chat -p "$facts" --session "$work/talk"
says 1938
result $? "a chat that begins"
run run --chat -p "What is the code for Mira?" --session "$work/talk"
says 4821 && grep -q "^session $work/talk: [0-9]* of [0-9]* tokens reused$" "$err" &&
    ! grep -q ": 0 of " "$err"
result $? "a chat goes on"
with "What is the code for Tom?
/save $work/talk.json
" chat --session "$work/talk"
says 1938 && grep -q "^(session $work/talk: 4 messages, " "$err" && ! grep -q 'read again:' "$err" &&
    [ "$(grep -c '"role"' "$work/talk.json")" -eq 6 ]
result $? "and in ebro chat, with its messages"
with "What is the code for Mira?
" chat --session "$work/talk" -ctk f16
says 4821 && grep -q 'its latent cache in f32, this engine has f16: converted and rounded' "$err" && ! grep -q 'read again:' "$err"
result $? "in a cache of another type, which a warning says"
with "/undo
What is the code for Tom?
" chat --session "$work/talk"
says 1938
result $? "undo in a session"
EBRO_SESSION=$work/talk run run --chat -p "What is the code for Mira?"
says 4821 && grep -q '^session ' "$err"
result $? "EBRO_SESSION"
with "/system Answer briefly.
What is the code for Tom?
" chat --session "$work/new"
[ $rc -eq 0 ] && [ -s "$work/new" ]
result $? "ebro chat makes the file"
run run --chat --system "Answer in a word." -p "Hello" --session "$work/new"
[ $rc -eq 0 ] && grep -q 'begins otherwise than the stored one (--system or --think' "$err"
result $? "another system message: all is read again, and a line says so"

# kept NAME MESSAGES COMMANDS: these commands and the end leave so many messages in the file.
kept() {
    with "$facts
/save $work/before.json
" chat --session "$work/kept-$n"
    with "$3
" chat --session "$work/kept-$n"
    with "/save $work/after.json
" chat --session "$work/kept-$n"
    [ $rc -eq 0 ] && [ "$(grep -c '"role"' "$work/after.json")" -eq "$2" ]
    result $? "$1"
}
kept "/clear is kept" 0 "/clear"
kept "/undo is kept" 0 "/undo"
kept "/system is kept" 3 "/system Answer briefly."
kept "/load is kept" 2 "/clear
/load $work/before.json"

# ---- what is refused

fails "no name" 1 "--session needs the name of a file" chat --session ""
fails "a folder that is not there" 1 "cannot write .*absent/x: .*No such file" chat --session \
    "$work/absent/x"
fails "a file as folder" 1 "is no folder" run -p x --session "$work/text/x"

cp "$work/talk" "$work/good"
fails "a chat as text" 1 "holds a chat: go on with --chat" run -p x --session "$work/talk"
fails "a text as chat" 1 "holds plain text: go on without --chat" run --chat -p x \
    --session "$work/text"
fails "a folder" 1 "is a folder" run -p x --session "$work"
fails "a chat without a message" 1 "the prompt is empty" run --chat --session "$work/talk"
fails "a context that is too small" 1 "tokens, the context has 20 (-c sets" run --chat -p x -c 20 \
    --session "$work/talk"
head -c 5000 "$work/good" >"$work/short"
fails "a file cut short" 1 "is no session, or a damaged one (KDA states: the stream ends" run --chat -p x --session "$work/short"
{ cat "$work/good"; echo; } >"$work/long"
fails "a file with more behind it" 1 "bytes behind it" run --chat -p x --session "$work/long"
cp -rL "$demo" "$work/model"
weights=$work/model/model.safetensors
head -c 4096 /dev/zero | dd of="$weights" bs=1 seek=$(($(wc -c <"$weights") - 4096)) conv=notrunc 2>/dev/null
fails "another model" 2 "cannot be gone on from: made by another model" run --chat -p x \
    --session "$work/talk" -m "$work/model"
fails "too little memory" 4 "memory 1 (MiB) is too little: .* needs 1769472 (1.7 MiB)" chat --memory 1
echo "a text" >"$work/no"
fails "a file of another kind" 1 "no stored sequence of Ebro" run --chat -p x --session "$work/no"
: >"$work/empty"
fails "an empty file" 1 "no stored sequence of Ebro" run --chat -p x --session "$work/empty"
ln -s "$work/absent" "$work/link"
fails "a link that leads nowhere" 1 "No such file" run -p x --session "$work/link"
[ "$(cat "$work/no")" = "a text" ] && [ ! -s "$work/empty" ] && cmp -s "$work/talk" "$work/good" &&
    cmp -s "$work/text" "$work/kept"
result $? "none of them was changed"

# ---- a disk that is full: the old file stays, and the reply was given

rc=0
(
    ulimit -f 1000
    exec "$EBRO" run --chat -p "What is the code for Tom?" --session "$work/talk" >"$out" 2>"$err" \
        </dev/null
) || rc=$?
[ $rc -eq 1 ] && [ "$(cat "$out")" = 1938 ] && grep -q "^ebro: .*talk: writing: File too large" "$err" &&
    cmp -s "$work/talk" "$work/good" && ! compgen -G "$work/.ebro-*" >/dev/null
result $? "a full disk leaves the old file"
rc=0
(
    ulimit -f 1000
    printf '%s\n' "What is the code for Tom?" |
        "$EBRO" chat --session "$work/talk" >"$out" 2>"$err"
) || rc=$?
[ $rc -eq 1 ] && [ "$(cat "$out")" = 1938 ] && cmp -s "$work/talk" "$work/good"
result $? "and ebro chat ends with 1"
finish
