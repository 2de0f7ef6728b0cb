#!/usr/bin/env bash
# chat.sh: `ebro chat` through pipes, and on a terminal where Python can make one.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
facts='Remember: the code for Mira is 4821. The code for Tom is 1938. What is the code for Tom?'

# a reply without an end: its control tokens are forbidden
endless="4097=-1e9,4098=-1e9,4099=-1e9,4100=-1e9,4101=-1e9,4102=-1e9"

# chat TEXT ARGUMENTS...: the lines of TEXT; leaves rc, $out and $err.
chat() {
    local text=$1
    shift
    with "$text" chat "$@"
}

# answers NAME WANT: the last chat went well and said exactly that.
answers() {
    [ $rc -eq 0 ] && [ "$(cat "$out")" = "$2" ]
    result $? "$1"
}

chat "$facts
What is the code for Mira?
"
answers "a second question about the first message" $'1938\n4821'
[ ! -s "$err" ]
result $? "nothing is read again, and nothing else is said"

chat "$facts"
answers "a last line without its newline" 1938
chat ""
answers "no line at all" ""

chat "Remember: the code for Mira is 4821. \\
The code for Tom is 1938. \\
What is the code for Tom?
"
answers "a message of several lines" 1938

chat "$facts
/undo
/stats
$facts
/stats
"
answers "undo, and the same again" $'1938\n1938'
grep -q '^(0 messages, ' "$err" && grep -q '^(2 messages, ' "$err" && ! grep -q 'read again:' "$err" &&
    grep -qx '(the last message and the reply to it are taken back, 0 messages remain)' "$err"
result $? "undo and the same again: the last token alone is read again"
chat "$facts
What is the code for Mira?
/undo
What is the code for Tom?
/stats
"
answers "undo, and something else" $'1938\n4821\n1938'
grep -q '^([0-9]\{1,2\} of [0-9]* tokens are read again: a turn was taken back; the nearest snapshot' "$err" &&
    grep -q '^(since the start: [0-9]* tokens read, [0-9]\{1,2\} of them again; [0-9]* generated)' "$err"
result $? "reads little again, and says so"

chat "$facts
/undo
Hello
/stats
" --keep none
[ $rc -eq 0 ] && grep -q '^([0-9]* of [0-9]* tokens are read again: ' "$err" &&
    grep -q "^(of the last prompt's [0-9]* tokens 0 were already read)" "$err"
result $? "what nothing was kept of is read again"
chat "$facts
What is the code for Mira?
/stats
"
grep -q "^(of the last prompt's [0-9]* tokens [1-9][0-9]* were already read)" "$err"
result $? "the statistics count what the sequence kept"

chat "$facts
/regen
"
answers "another reply, greedy" $'1938\n1938'
chat "Tell me a story.
/regen
" --temp 1 --seed 3 -n 12 --logit-bias "$endless"
[ $rc -eq 0 ] && [ "$(sed -n 1p "$out")" != "$(sed -n 2p "$out")" ]
result $? "another reply is another draw"

chat "$facts
/clear
/stats
"
answers "clear" 1938
grep -q '^(0 messages, 0 of ' "$err" && grep -qx '(the conversation is forgotten)' "$err"
result $? "clear leaves nothing"

chat "/system Answer briefly.
$facts
/clear
/stats
/system
/stats
"
grep -q '^(1 message, ' "$err" && grep -q '^(0 messages' "$err"
result $? "clear keeps the system message, and an empty one removes it"
grep -qx '(the system message is set)' "$err" && grep -qx '(the system message is removed)' "$err" &&
    grep -qx '(the conversation is forgotten, the system message remains)' "$err"
result $? "and each says so"

chat "$facts
/undo 3
/clear now
/regen x
/stats all
/help me
/quit now
/stats
/undo$(printf '\t')
"
answers "an argument to a command that takes none" 1938
[ "$(grep -c '^(/[a-z]* takes no argument)$' "$err")" -eq 6 ] && grep -q '^(2 messages, ' "$err" &&
    ! grep -q '^  /undo' "$err" && grep -q '0 messages remain' "$err"
result $? "is told, and nothing is done; a blank is none"

chat "$facts
/save $work/talk.json
" --system "Answer briefly."
[ $rc -eq 0 ] && grep -q '"role": "system"' "$work/talk.json" &&
    grep -q '"content": "1938"' "$work/talk.json" && ! compgen -G "$work/.ebro-*" >/dev/null
result $? "save"
long=$work/$(printf 'x%.0s' $(seq 255))
chat "$facts
/save $long
"
[ $rc -eq 0 ] && grep -q '"content": "1938"' "$long" && ! compgen -G "$work/.ebro-*" >/dev/null
result $? "save under the longest name"
chat "/load $work/talk.json
What is the code for Mira?
/save $work/more.json
"
answers "load and go on" 4821
[ "$(grep -c '"role"' "$work/more.json")" -eq 5 ]
result $? "with all of what was said before"

# refuses NAME PART TEXT: loading this file says so, and the conversation goes on as it was.
refuses() {
    printf '%s' "$3" >"$work/bad.json"
    chat "$facts
/load $work/bad.json
What is the code for Mira?
"
    [ $rc -eq 0 ] && [ "$(cat "$out")" = $'1938\n4821' ] && grep -q "^ebro: .*bad.json.*$2" "$err"
    result $? "$1"
}
refuses "a file that is no JSON" "not valid JSON" '[{"role": '
refuses "a file that is no array" "array of messages" '{}'
refuses "an unknown role" 'message 1: its role ("tool") is none of' '[{"role": "tool", "content": "x"}]'
refuses "no role" "message 2: its role (missing)" '[{"role": "user", "content": "x"}, 5]'
refuses "a long role" 'message 1: its role ("x*\.\.\.) is' "[{\"role\": \"$(printf 'x%.0s' $(seq 99))\"}]"
refuses "no content" "message 1: its content" '[{"role": "user"}]'
refuses "a late system message" "message 2: a system" \
    '[{"role": "user", "content": "x"}, {"role": "system", "content": "x"}]'
chat "/load $work/absent
/save $work/absent/x
/save
/load
/help
/nonsense
/undo
/regen
"
[ $rc -eq 0 ] && [ ! -s "$out" ] && [ "$(grep -c '^ebro: cannot ' "$err")" -eq 2 ] &&
    grep -q 'no command /nonsense' "$err" && grep -q '^  /undo ' "$err" &&
    grep -q 'nothing to undo' "$err" && grep -q 'nothing to reply to' "$err"
result $? "commands that cannot be followed do no harm"
chat "/quit
$facts
"
answers "quit" ""
chat "//quit
"
[ $rc -eq 0 ] && [ -s "$out" ]
result $? "two slashes are a message"

chat "$facts
What is the code for Mira? $(printf 'and again %.0s' $(seq 60))
/undo
$facts
" -c 90
[ $rc -eq 0 ] && grep -q 'context full: with this message' "$err" &&
    [ "$(cat "$out")" = $'1938\n1938' ]
result $? "a message that does not fit is dropped, and the program lives"
chat "$facts
$facts $(printf 'and again %.0s' $(seq 600))
What is the code for Mira?
/stats
" --memory 4
answers "a message that memory is too small for is dropped, and the program lives" $'1938\n4821'
grep -q '^ebro: --memory 4 (MiB) is too little: .* needs [0-9]* bytes of cache .*[0-9] .*allowed' "$err" &&
    grep -q '^(the message is dropped; /undo or /clear makes room, and so does a larger --memory)' "$err" &&
    grep -q '^(4 messages, ' "$err" && grep -q '^(memory: [0-9.]* MiB for this .*; 4.0 MiB allowed)' "$err"
result $? "with the needed and the allowed bytes"
chat "$facts
" --system "Answer briefly." --memory 2
[ $rc -eq 0 ] && [ ! -s "$out" ] && grep -qx '(the message is dropped; what makes room is a larger --memory)' "$err"
result $? "where nothing can be taken back, no such advice"
chat "$facts" --system "Answer briefly." -c 20
[ $rc -eq 0 ] && grep -q '^(context full: .* are all: what makes room is a larger -c)' "$err"
result $? "nor where the context is full"
chat "Tell me a story.
/undo
$facts
/stats
" --memory 4 -n 400 --logit-bias "$endless"
[ $rc -eq 0 ] && [ "$(grep -c '^(the reply ends here; ' "$err")" -gt 0 ] && grep -q '^(2 messages, ' "$err" &&
    grep -q '^1938' "$out"
result $? "a reply that memory is too small for ends there, and the program lives"
chat "$facts
What is the code for Mira?
What is the code for Tom?
/stats
" --memory 5 --host-memory 20
[ $rc -eq 0 ] && grep -q '^(memory of the host: [1-9][0-9.]* MiB for copies .*; 20.0 MiB allowed; [1-9]' "$err"
result $? "the statistics know the host's memory"
chat "Tell me a story.
/stats
" -c 60 --logit-bias "$endless"
[ $rc -eq 0 ] && grep -q '^(context full' "$err" && grep -q '^(2 messages, 60 of 60' "$err"
result $? "a reply that fills the context is kept"

chat "$facts
What is the code for Mira?
/save $work/thought.json
" --think
answers "thinking goes to stderr, and later turns go on" $'1938\n4821'
grep -q Tom "$err" && ! grep -q again "$err" && grep -q '"reasoning_content": ".*Tom' "$work/thought.json"
result $? "and is kept"

printf 'a\377b\n' | "$EBRO" chat -n 3 >"$out" 2>"$err"
result $? "a message that is no UTF-8"
rc=0
printf 'x\000y\n' | "$EBRO" chat -n 3 >"$out" 2>"$err" || rc=$?
result $rc "a message with a NUL byte"

fails "an unknown option" 1 '"--prompt"' chat --prompt x
fails "a bad bias" 1 "is not ID=V" chat --logit-bias x
EBRO_LOGIT_BIAS=1=x fails "a bad bias in the environment" 1 '^ebro: EBRO_LOGIT_BIAS: "1=x" is' chat
fails "no such model" 2 absent chat -m "$work/absent"
if [ -w /dev/full ]; then
    rc=0
    printf '%s\n' "$facts" | "$EBRO" chat >/dev/full 2>"$err" || rc=$?
    [ $rc -eq 1 ] && grep -q 'cannot write to standard output' "$err"
    result $? "full device"
else
    skip "no /dev/full here"
fi

# ---- on a terminal

if ! python3 -c 'import pty' 2>/dev/null; then
    skip "no Python that can make a terminal (chat)"
    finish
fi
python3 - "$EBRO" "$facts" "$endless" >"$out" 2>"$err" <<'PY'
import os, pty, select, signal, sys, time
ebro, facts, endless = sys.argv[1:4]
os.environ["TERM"] = "xterm"
os.environ.pop("NO_COLOR", None)
os.environ["LC_ALL"] = "C.UTF-8"
# libedit never frees the name of a function that was added to it; the pipes above look for leaks
os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"

class Terminal:
    def __init__(self, *args):
        self.text = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execv(ebro, [ebro, *args])
    def read(self, seconds):
        if not select.select([self.fd], [], [], seconds)[0]:
            return False
        try:
            more = os.read(self.fd, 65536)
        except OSError:
            more = b""
        self.text += more
        return bool(more)
    def wait_for(self, what, seconds=60):
        end = time.time() + seconds
        while what not in self.text:
            if time.time() > end or not (self.read(1) or time.time() < end):
                sys.exit("no %r in %r" % (what, self.text))
        self.text = self.text[self.text.index(what) + len(what):]
    def until(self, what):
        while what not in self.text: self.read(1)
        return self.text[:self.text.index(what)]
    def send(self, what):
        os.write(self.fd, what)
    def end(self):
        end = time.time() + 60
        while self.read(1) or os.waitpid(self.pid, os.WNOHANG) == (0, 0):
            if time.time() > end: sys.exit("it does not end: %r" % self.text)

t = Terminal("chat", "--think")
t.wait_for(b"> ")
t.send(facts.encode() + b"\r")
t.wait_for(b"\x1b[2m")        # thinking is dim
t.wait_for(b"\x1b[0m")
t.wait_for(b"1938")
t.wait_for(b"> ")
t.send(b"half a line\x03")    # ctrl-C drops it
t.wait_for(b"^C")
t.wait_for(b"> ")
t.send(b"/stats\r")
t.wait_for(b"(2 messages")
t.wait_for(b"> ")
t.send(b"\x04")               # ctrl-D
pid, status = os.waitpid(t.pid, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
print("ok terminal")

t = Terminal("chat", "-ub", "1", "-c", "8000")
t.wait_for(b"> ")
t.send(facts.encode() + b"\r")
t.wait_for(b"1938")
t.wait_for(b"> ")
t.send(b"/stats\r")
t.wait_for(b"(2 messages, ")
before = t.until(b" of ")
t.wait_for(b"> ")
for i in range(40):           # a terminal's line has an end: a long message comes in parts
    t.send(b"one two three four five six seven eight nine ten " * 4 + b"\\\r")
    t.wait_for(b"... ")
t.send(b"end\r")
time.sleep(0.3)
t.send(b"\x03")
t.wait_for(b"the message is dropped")
t.wait_for(b"> ")
t.send(b"/stats\r")
t.wait_for(b"(2 messages, ")
assert t.until(b" of ") == before, before
t.wait_for(b"> ")
t.send(b"What is the code for Mira?\r")
t.wait_for(b"4821")
t.wait_for(b"> ")
t.send(b"/quit\r")
pid, status = os.waitpid(t.pid, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
print("ok dropped")

t = Terminal("chat", "--logit-bias", endless)
t.wait_for(b"> ")
t.send(b"Tell me a story.\r")
t.wait_for(b"\n")
while len(t.text) < 40: t.read(1)
t.send(b"\x03")               # stops the reply
t.wait_for(b"interrupted")
t.wait_for(b"> ")
t.send(b"/stats\r")
t.wait_for(b"(2 messages")    # what was said is kept
t.wait_for(b"> ")
t.send(b"/quit\r")
pid, status = os.waitpid(t.pid, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
print("ok interrupt")
PY
grep -q '^ok terminal' "$out"
result $? "a terminal: dim thinking, a dropped line, the end"
grep -q '^ok dropped' "$out"
result $? "a terminal: ctrl-C while a message is read leaves what was there before"
grep -q '^ok interrupt' "$out"
result $? "a terminal: ctrl-C stops a reply and keeps it"

finish
