"""on_program.py: the page before the program, with its demo model."""

import os
import re
import signal
import subprocess
import urllib.error
import urllib.request

import mock
from rig import IDLE

QUESTION = "Remember: the code for Mira is 4821. What is the code for Mira?"
REUSED = re.compile(r"prompt: ([\d,]+) of ([\d,]+) tokens reused; ([\d,]+) new")


class Server:
    """The program, on a port of its own, which it keeps when it is started again."""

    def __init__(self, program, *options):
        self.program, self.options, self.port = program, options, 0
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("EBRO")}
        self.start()

    def start(self):
        command = [self.program, "serve", "--port", str(self.port), *self.options]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, env=self.environment, text=True
        )
        line = self.process.stdout.readline()
        found = re.match(r"listening on (http://127\.0\.0\.1:(\d+))", line)
        assert found, f"`ebro serve` says: {line!r}"
        self.address, self.port = found.group(1) + "/", int(found.group(2))

    def stop(self):
        """Its exit code."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def get(address):
    """Status, headers and body."""
    try:
        with urllib.request.urlopen(address, timeout=30) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def reused(rig):
    """Of the last reply's prompt: reused, all, new."""
    found = REUSED.search(rig.text(rig.foot))
    assert found, rig.text(rig.foot)
    return [int(n.replace(",", "")) for n in found.groups()]


def files(rig):
    total = 0
    for name in os.listdir(mock.PAGE):
        path = "" if name == "index.html" else name
        status, headers, body = get(rig.address + path)
        with open(os.path.join(mock.PAGE, name), "rb") as file:
            assert body == file.read(), f"{name} is another one"
        assert status == 200 and headers["Content-Security-Policy"] == mock.policy(), name
        assert headers["X-Content-Type-Options"] == "nosniff", name
        kind = mock.TYPES[name.split(".")[1]] + "; charset=utf-8"
        assert headers["Content-Type"] == kind, (name, headers["Content-Type"])
        total += len(body)
    assert 0 < total < 40000, total
    assert get(rig.address + "page.jsx")[0] == 404


def a_turn(rig):
    rig.shows("#about", "ebro-demo · CPU")
    rig.js(
        """(() => {
        window.grown = 0;
        new MutationObserver((changes) => {
            const running = document.getElementById("send").textContent === "Stop";
            if (running) window.grown += changes.length;
        }).observe(document.getElementById("turns"), { characterData: true, subtree: true });
    })()"""
    )
    assert rig.ask(QUESTION) == "4821", rig.text(rig.reply)
    assert rig.js("window.grown") >= 2, "the reply did not grow"
    foot = rig.text(rig.foot)
    assert re.search(r"\d+ tokens at [\d,.]+ tokens/s", foot), foot
    cached, prompt, new = reused(rig)
    assert cached + new == prompt


def a_second_turn(rig):
    rig.ask(QUESTION)
    _, before, _ = reused(rig)
    assert rig.ask("What is the code for Mira?") == "4821", rig.text(rig.reply)
    cached, prompt, new = reused(rig)
    # All of the first prompt, and its reply but for the token that ended it.
    assert cached > before and new < 45, (before, cached, prompt, new)
    rig.shows("#reuse", f"{cached} of {prompt} tokens reused; {new} new")
    rig.shows("#reason", "All that was seen before was reused.")
    assert rig.js("Number(document.querySelector('#kept dd').textContent)") > 0
    # The same request again: what a reply would change is not known, so its prompt is reused.
    rig.window.click("button.again")
    rig.wait(f"{IDLE} && document.querySelector('button.again') !== null")
    assert rig.text(rig.reply) == "4821"
    assert reused(rig)[0] >= cached


def stop_a_prompt(rig):
    rig.shows("#slots", "8 idle")
    rig.send("All of the words that follow are to be read. " * 500)
    rig.shows("#slots", "reads: ")
    rig.window.key("Escape")
    rig.wait(IDLE, 10)
    rig.shows(rig.foot, "Stopped.")
    rig.shows("#slots", "8 idle", 60)  # after a step, which sanitizers make a long one
    assert rig.ask(QUESTION) == "4821"


def too_long(rig):
    rig.ask("All of the words that follow are to be read. " * 1200)
    rig.shows(rig.foot, "Start a new chat, or start the server with a larger --ctx.")
    assert "8192" in rig.text(rig.foot).replace(",", ""), rig.text(rig.foot)
    assert rig.ask(QUESTION) == "4821"


def a_reload(rig):
    rig.ask(QUESTION)
    rig.open()
    assert rig.text(rig.reply) == "4821"
    assert rig.ask("What is the code for Mira?") == "4821"
    assert reused(rig)[0] > 0
    rig.window.click("#new")
    rig.open()
    assert rig.js("document.querySelectorAll('#turns > li').length") == 0


def an_end(rig, server):
    rig.ask(QUESTION)
    assert server.stop() == 0
    try:
        rig.ask("What is the code for Mira?")
        rig.shows(rig.foot, "The server does not answer. See whether `ebro serve` still runs")
        rig.shows("#memory-note", "The server does not answer.")
        assert rig.js("document.getElementById('memory').classList.contains('stale')")
    finally:
        server.start()
    rig.window.click("button.again")
    rig.wait("document.querySelector('button.again')?.textContent === 'Regenerate'", 60)
    assert rig.text(rig.reply) == "4821"
    rig.wait("!document.getElementById('memory').classList.contains('stale')")


def the_key(rig):
    rig.shows("#ask-key", "wants an API key")
    rig.wait("document.activeElement.id === 'key'")
    rig.window.type("geöffnet")
    rig.window.key("Enter")
    rig.shows("#ask-key", "The server refuses this key")
    rig.wait("document.activeElement.id === 'key'")
    rig.window.type(" open-sesame ")
    rig.window.key("Enter")
    rig.shows("#about", "ebro-demo")
    assert rig.ask(QUESTION) == "4821"


def many_at_once(rig):
    """The page's own reply stands among others, and is seen to."""
    rig.js(
        """(() => {
        const body = { messages: [{ role: "user", content: "Count." }], ignore_eos: true,
            max_tokens: 3000, n: 3, stream: true };
        window.others = new AbortController();
        fetch("/v1/chat/completions", { method: "POST", body: JSON.stringify(body),
            headers: { "Content-Type": "application/json" }, signal: window.others.signal })
            .catch(() => { });
    })()"""
    )
    rig.wait("document.querySelectorAll('#slots .decode').length === 3")
    assert rig.ask(QUESTION) == "4821"
    assert rig.text("#legend dd") != "0 bytes"
    rig.js("window.others.abort()")
    rig.shows("#slots", "8 idle")


def run(rig, program):
    refused, away = "status of 401", "net::ERR_CONNECTION_"
    server = Server(program)
    rig.address = server.address
    try:
        rig.case("program: its files, as they are in the source", files)
        rig.case("program: a turn", a_turn)
        rig.case("program: a second turn reuses the first", a_second_turn)
        rig.case("program: others at the same time", many_at_once)
        rig.case("program: stop while the prompt is read", stop_a_prompt)
        rig.case("program: a message that is too long", too_long, said=["status of 400"])
        rig.case("program: a reload", a_reload)
        rig.case("program: it ends and comes back", lambda r: an_end(r, server), said=[away])
    finally:
        code = server.stop()
    assert code == 0, f"`ebro serve` ended with {code}"
    server = Server(program, "--api-key", "open-sesame")
    rig.address = server.address
    try:
        rig.case("program: a key", the_key, said=[refused])
    finally:
        server.stop()
