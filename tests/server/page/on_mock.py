"""on_mock.py: the page before a server that says what real ones say seldom."""

import json
import time

import looks
import mock
from rig import BUSY, IDLE

# Cut at every two places, the parser must hear the same as of the whole, which was read by hand.
STREAM = (
    "\ufeffdata: one\n\n: a comment\ndata:two\r\ndata: 2\r\n\r\nevent: x\rdata:  three\r\r"
    "id: 7\nnothing\ndata\n\nevent: lost\n\ndata: €😀é\n\n\n"
    'data: {"a":"b: c"}\n\ndata: cut off\n'
)
HEARD = [
    ["one", "message"],
    ["two\n2", "message"],
    [" three", "x"],
    ["", "message"],
    ["€😀é", "message"],
    ['{"a":"b: c"}', "message"],
]
CUTS = """(async () => {
    const { SseParser } = await import("/sse.js");
    const bytes = new TextEncoder().encode(STREAM), right = JSON.stringify(HEARD);
    const hear = (cuts) => {
        const heard = [], parser = new SseParser((data, type) => heard.push([data, type]));
        let from = 0;
        for (const to of [...cuts, bytes.length]) parser.push(bytes.slice(from, (from = to)));
        return JSON.stringify(heard);
    };
    let tried = 0;
    const all = [...bytes.keys()];
    const ways = [all];
    for (const i of all) for (const j of all) if (i <= j) ways.push([i, j]);
    for (const way of ways) {
        tried++;
        if (hear(way) !== right) return `cut at ${way}: ${hear(way)}`;
    }
    return tried;
})()"""


def sse_for_every_cut(rig):
    tried = rig.js(CUTS.replace("STREAM", json.dumps(STREAM)).replace("HEARD", json.dumps(HEARD)))
    n = len(STREAM.encode())
    assert tried == 1 + n * (n + 1) // 2, tried


def a_policy_that_holds(rig):
    """What must never happen is tried, so that its absence elsewhere says something."""
    rig.js(
        """(() => {
        const script = document.createElement("script");
        try { script.textContent = "window.ran = 1"; } catch { }
        document.body.append(script);
        const image = document.createElement("div");
        try { image.innerHTML = "<img src=x onerror='window.ran = 1'>"; } catch { }
        document.body.append(image);
    })()"""
    )
    assert rig.js("fetch('http://127.0.0.1:9/').then(() => 1, () => 0)") == 0
    assert rig.js("window.ran ?? 0") == 0 and rig.js("document.querySelectorAll('img').length") == 0
    # Asked or not: nothing went out, which is what the list of requests is looked at for.
    rig.window.requests[:] = [r for r in rig.window.requests if ":9/" not in r[1]]


def a_stream_that_grows(rig):
    rig.send("slow")
    lengths = []
    for _ in range(400):
        lengths.append(len(rig.text(rig.reply)))
        if len(set(lengths)) > 6:
            break
        time.sleep(0.02)
    assert len(set(lengths)) > 6 and lengths == sorted(lengths), lengths
    assert rig.js(BUSY)
    assert rig.js("document.getElementById('talk').getAttribute('aria-busy')") == "true"
    assert rig.text("#said") == "", "a reply was announced before its end"
    # The end stays in sight.
    rig.wait(
        "(() => { const t = document.getElementById('talk');"
        "return t.scrollHeight - t.scrollTop - t.clientHeight < 48; })()"
    )
    rig.window.key("Escape")
    rig.wait(IDLE)


def stop_and_regenerate(rig, server):
    rig.send("slow")
    rig.wait("document.querySelector('#turns .model > .text')?.textContent.length > 20")
    gone = server.gone
    rig.window.key("Escape")
    rig.wait(IDLE, 15)
    rig.shows(rig.foot, "Stopped.")
    assert rig.text(rig.reply).startswith("word0 word1 ")
    end = time.monotonic() + 10
    while server.gone == gone and time.monotonic() < end:
        time.sleep(0.05)
    assert server.gone == gone + 1, "the server was not told"
    rig.window.click("button.again")
    rig.wait(BUSY)
    rig.wait("document.querySelector('#turns .model > .text')?.textContent.length > 20")
    rig.window.click("#send")
    rig.wait(IDLE, 15)
    assert rig.js("document.querySelectorAll('#turns > li').length") == 1
    for body in server.asked[-2:]:
        assert body["messages"] == [{"role": "user", "content": "slow"}], body
    # What was written until then is part of the conversation.
    so_far = rig.text(rig.reply)
    rig.ask("and now")
    assert [m["content"] for m in server.asked[-1]["messages"]] == ["slow", so_far, "and now"]


def regenerate_the_last(rig, server):
    assert rig.ask("a") == "4821" and rig.ask("b") == "4821"
    before = server.asked[-1]["messages"]
    rig.window.click("button.again")
    rig.wait(f"{IDLE} && document.querySelector('button.again') !== null")
    assert server.asked[-1]["messages"] == before and len(before) == 3
    assert rig.js("document.querySelectorAll('#turns > li').length") == 2
    assert rig.js("document.querySelectorAll('button.again').length") == 1
    assert rig.text(rig.reply) == "4821"


def html_that_stays_text(rig):
    reply = rig.ask("html")
    assert reply == "".join(mock.WORDS["html"]) and "<img src=x onerror=" in reply, reply
    assert rig.js("document.querySelectorAll('#turns img, #turns script').length") == 0
    assert rig.js("document.title") == "Ebro"
    shown = f"getComputedStyle(document.querySelector({json.dumps(rig.reply)}))"
    assert rig.js(f"{shown}.whiteSpace") == "pre-wrap"
    rig.ask("<b>bold</b>")
    assert rig.text("#turns > li:last-child .user .text") == "<b>bold</b>"


def thinking(rig, server):
    assert rig.ask("think") == "4821"
    assert rig.text(".thinking summary") == "Thought for 3 tokens"
    assert rig.text(".thinking .text") == "The code was said before."
    assert not rig.js("document.querySelector('.thinking').open")
    rig.window.click(".thinking summary")
    rig.shows(".thinking .text", "was said")
    rig.ask("next")
    assert server.asked[-1]["messages"][1] == {
        "role": "assistant",
        "content": "4821",
        "reasoning_content": "The code was said before.",
    }


def tool_calls(rig):
    rig.ask("tool")
    rig.shows(".call", "weather")
    assert rig.text(".call pre") == '{"city": "Zaragoza"}'


def figures(rig):
    rig.shows("#about", "mock-model · CPU · context 8,192")
    rig.ask("a")
    rig.shows(rig.foot, "4 tokens at 128 tokens/s")
    rig.shows(rig.foot, "no earlier prompt began like this one")
    rig.ask("b")
    rig.shows(rig.foot, "prompt: 1 of 41 tokens reused; 40 new")
    rig.shows("#reuse", "1 of 41 tokens reused; 40 new")


def the_picture(rig, server):
    rig.shows("#memory-sum", "268 MiB of 512 MiB")
    assert "pages in use 48 MiB" in rig.js(
        "document.getElementById('bar').getAttribute('aria-label')"
    )
    rig.js("new Promise((done) => setTimeout(done, 600))")  # the bar moves to its place
    widths = rig.js(
        "[...document.querySelectorAll('#bar span')].map((s) => s.getBoundingClientRect().width)"
    )
    whole, right = sum(widths), [48, 80, 96, 44, 244]
    for width, part in zip(widths, right):
        assert abs(width / whole - part / 512) < 0.02, (widths, right)
    rows = rig.js("[...document.querySelectorAll('#slots li')].map((l) => l.textContent)")
    assert rows == [
        "writes: 57 tokens",
        "reads: 4,015 of 6,063 tokens",
        "3 waiting for room",
        "6 idle",
    ], rows
    assert rig.text("#kept") == "Snapshots11Evictions1,029On the host16 MiB of 64 MiB", rig.text(
        "#kept"
    )
    # It moves by itself, and tells why not more was reused.
    server.last = {
        "prompt_tokens": 6063,
        "matched_tokens": 6050,
        "cached_tokens": 6023,
        "miss": "the nearest snapshot lies before the end of what is shared",
    }
    rig.shows("#reuse", "6,023 of 6,063 tokens reused; 40 new")
    rig.shows("#reason", "The nearest snapshot lies before the end of what is shared.")
    server.last = None


def another_server(rig, server):
    rig.shows("#about", "mock-model")
    server.status, server.model = "draining", "next-model"
    try:
        rig.shows("#about", "next-model", 10)
        rig.shows("#memory-note", "The server is about to end.")
    finally:
        server.status, server.model = "ok", "mock-model"
    rig.shows("#about", "mock-model", 10)
    rig.wait("document.getElementById('memory-note').textContent === ''")


def polls_only_while_seen(rig):
    def looks_in(seconds):
        rig.window.requests.clear()
        rig.js(f"new Promise((done) => setTimeout(done, {1000 * seconds}))")
        return looks()

    def looks():
        rig.js("0")  # what was asked until now is known with its answer
        return sum(r[1].endswith("/slots") for r in rig.window.requests)

    def comes(n):
        end = time.monotonic() + 30
        while looks() < n and time.monotonic() < end:
            time.sleep(0.1)
        return looks() >= n

    assert looks_in(3.5) <= 5 and comes(3)
    hide = (
        "Object.defineProperty(document, 'hidden', {{ value: {}, configurable: true }});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    rig.js(hide.format("true"))
    assert looks_in(3) <= 1
    rig.js(hide.format("false"))
    rig.window.requests.clear()
    assert comes(2)


def breaks_off(rig, server):
    rig.send("break")
    rig.shows(rig.reply, "half a ")
    server.seen.set()
    rig.wait(IDLE)
    rig.shows(rig.foot, "The connection to the server was lost.")
    rig.shows(rig.foot, "try again")
    rig.shows("button.again", "Regenerate")
    rig.ask("a")
    sent = [m["content"] for m in server.asked[-1]["messages"]]
    assert sent == ["break", "half a ", "a"], sent


def errors(rig, server):
    for message, says, advice in (
        ("full", "The queue is full: 64 replies wait.", "Try again in 3 s."),
        ("context", "The prompt has 9,000 tokens, and the context 8,192.", "Start a new chat"),
        ("drain", "The server is about to end.", "Start the server again"),
        ("fault", "No memory on the host.", "log says more"),
        ("end", "The reply broke off before its end.", "try again"),
    ):
        rig.ask(message)
        rig.shows(rig.foot, says)
        rig.shows(rig.foot, advice)
        rig.shows("button.again", "Regenerate" if message == "end" else "Try again")
    rig.ask("a")
    sent = [m["content"] for m in server.asked[-1]["messages"]]
    assert sent == ["end", "half a ", "a"], sent
    assert rig.js("document.querySelectorAll('.left-out').length") == 4
    rig.ask("late")
    rig.shows(rig.foot, "The device was lost.")
    assert rig.text(rig.reply) == "half a "
    rig.ask("nothing")
    rig.shows(rig.foot, "The model answered nothing.")
    rig.ask("long")
    rig.shows(rig.foot, "Cut off here")


def the_key(rig, server):
    server.key = "sesame"
    try:
        rig.open()
        rig.shows("#ask-key", "wants an API key")
        rig.wait("document.activeElement.id === 'key'")
        rig.window.type("wrong")
        rig.window.key("Enter")
        rig.shows("#ask-key", "The server refuses this key")
        rig.ask("a")
        rig.shows(rig.foot, "Enter the key")
        rig.js("document.getElementById('key').focus()")
        rig.window.type("sesame")
        rig.window.key("Enter")
        rig.wait("document.querySelector('button.again')?.textContent === 'Regenerate'")
        assert rig.text(rig.reply) == "4821"
        assert rig.js("document.getElementById('ask-key').hidden")
        rig.open()
        rig.shows("#memory-sum", "MiB")
        assert rig.text(rig.reply) == "4821"
    finally:
        server.key = None


def settings(rig, server):
    rig.ask("a")
    plain = server.asked[-1]
    assert set(plain) == {"messages", "stream", "stream_options"} and plain["stream"] is True, plain
    rig.window.click("#open-settings")
    rig.wait("document.activeElement.id === 'temperature'")
    rig.window.type("0.7")
    for field, value in (("max-tokens", "64"), ("system", "Be brief.")):
        rig.js(f"document.getElementById('{field}').focus()")
        rig.window.type(value)
    rig.js(
        "(() => { const t = document.getElementById('thinking'); t.focus(); t.value = 'on';"
        "t.dispatchEvent(new Event('change')); })()"
    )
    rig.window.key("Escape")
    rig.wait("!document.getElementById('settings').open")
    rig.open()
    rig.ask("b")
    body = server.asked[-1]
    assert body["temperature"] == 0.7 and body["max_tokens"] == 64, body
    assert body["chat_template_kwargs"] == {"thinking": True}, body
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}, body
    assert [m["content"] for m in body["messages"][1:]] == ["a", "4821", "b"], body
    # What is no temperature is said to be none, and not sent.
    rig.window.click("#open-settings")
    rig.js("document.getElementById('temperature').select()")
    rig.window.type("9")
    rig.window.click("#close-settings")
    assert rig.js("document.getElementById('settings').open")
    assert not rig.js("document.getElementById('temperature').checkValidity()")
    rig.window.key("Escape")
    rig.wait("!document.getElementById('settings').open")
    rig.ask("c")
    assert server.asked[-1]["temperature"] == 0.7


def keys(rig, server):
    rig.window.key("Enter")
    rig.send("   ")
    assert rig.js("document.querySelectorAll('#turns > li').length") == 0
    rig.js("document.getElementById('message').value = ''")
    rig.write("one")
    rig.window.key("Enter", shift=True)
    rig.window.type("two")
    assert rig.js("document.getElementById('message').value") == "one\ntwo"
    rig.window.key("Enter")
    rig.wait(f"document.querySelectorAll('#turns > li').length === 1 && {IDLE}")
    assert server.asked[-1]["messages"][0]["content"] == "one\ntwo"
    # Enter during a reply sends nothing, and what was typed stays.
    rig.send("slow")
    rig.wait(BUSY)
    rig.send("later")
    assert rig.js("document.getElementById('message').value") == "later"
    rig.window.key("Escape")
    rig.wait(IDLE)
    assert rig.js("document.querySelectorAll('#turns > li').length") == 2
    assert not [b for b in server.asked if b["messages"][-1]["content"] == "later"]
    # Round the page with Tab: everything that can be used is reached, and seen to be.
    rig.js("document.activeElement.blur()")
    seen = []
    for _ in range(12):
        rig.window.key("Tab")
        seen.append(
            rig.js(
                "document.activeElement.id || document.activeElement.className"
                " || document.activeElement.tagName"
            )
        )
        if rig.js("document.activeElement !== document.body"):
            assert rig.js("getComputedStyle(document.activeElement).outlineStyle") == "solid", seen
    order = [s for s in seen if s != "BODY"]
    right = ["new", "open-settings", "talk", "again", "message", "send", "SUMMARY"]
    start = order.index("new")
    assert (order[start:] + order[:start])[: len(right)] == right, order


def a_new_chat(rig, server):
    rig.send("slow")
    rig.wait("document.querySelector('#turns .model > .text')?.textContent.length > 20")
    rig.window.click("#new")
    assert rig.js(f"{IDLE} && document.querySelectorAll('#turns > li').length") == 0
    rig.shows("#empty", "Ask something.")
    rig.window.click("#example")
    rig.wait("document.activeElement.id === 'message'")
    rig.window.key("Enter")
    rig.wait(f"document.querySelector('button.again') !== null && {IDLE}")
    assert rig.text(rig.reply) == "4821"
    assert len(server.asked[-1]["messages"]) == 1


def announcements(rig):
    rig.js(
        """(() => {
        window.spoken = [];
        new MutationObserver((changes) => {
            for (const c of changes)
                for (const n of c.addedNodes) window.spoken.push(n.textContent);
        }).observe(document.getElementById("said"), { childList: true });
    })()"""
    )
    rig.ask("a")
    rig.ask("tool")
    rig.wait("window.spoken.length === 2")
    assert rig.js("window.spoken") == ["4821", "Calls the tool weather."]
    # Not there to be read a second time by those who walk the page.
    rig.wait("document.getElementById('said').textContent === ''", 10)


def run(rig):
    server = mock.Mock().start()
    server.pace = 0.02
    rig.address = server.address
    status = "the server responded with a status of "
    try:
        rig.case("events of a stream, cut at every two places", sse_for_every_cut)
        rig.case(
            "the policy forbids scripts, HTML and others",
            a_policy_that_holds,
            said=["'TrustedScript'", "'TrustedHTML'", "connect-src", "Refused to connect"],
        )
        rig.case("a reply grows as it comes", a_stream_that_grows)
        rig.case("stop, and regenerate what was stopped", lambda r: stop_and_regenerate(r, server))
        rig.case("regenerate the last reply", lambda r: regenerate_the_last(r, server))
        rig.case("HTML of a model stays text", html_that_stays_text)
        rig.case("thinking is folded away, and sent on", lambda r: thinking(r, server))
        rig.case("calls of tools are shown as text", tool_calls)
        rig.case("figures of a reply", figures)
        rig.case("the picture of the memory", lambda r: the_picture(r, server))
        rig.case("another server in its place", lambda r: another_server(r, server))
        rig.case("the server is looked at only while the page is", polls_only_while_seen)
        rig.case(
            "errors say what to do, and end no chat",
            lambda r: errors(r, server),
            said=[status + number for number in ("429", "400", "503", "500")],
        )
        rig.case(
            "a reply that breaks off",
            lambda r: breaks_off(r, server),
            said=["ERR_INCOMPLETE_CHUNKED_ENCODING"],
        )
        rig.case(
            "a key is asked for, used and kept", lambda r: the_key(r, server), said=[status + "401"]
        )
        rig.case("settings are sent, checked and kept", lambda r: settings(r, server))
        rig.case("keys", lambda r: keys(r, server))
        rig.case("a new chat ends the old one", lambda r: a_new_chat(r, server))
        rig.case("finished replies are announced, once", announcements)
        looks.run(rig)
    finally:
        server.shutdown()
        server.server_close()
