"""rig.py: what the cases share: TAP, what people do with the page, and what must be true after
each."""

import json
import os
import traceback

SEND = "document.getElementById('send').textContent"
BUSY = f"{SEND} === 'Stop'"
IDLE = f"{SEND} === 'Send'"
FILTER = os.environ.get("EBRO_TEST_FILTER", "")


def text_of(selector):
    return f"(document.querySelector({json.dumps(selector)})?.textContent ?? '')"


class Rig:
    def __init__(self, window):
        self.window = window
        self.cases = self.failed = 0
        self.address = None  # of the server that the page is from
        self.reply = "#turns > li:last-child .model > .text"
        self.foot = "#turns > li:last-child footer"

    def case(self, name, work, said=()):
        """Runs work(self) on a page that was opened anew. Then the console must say nothing but
        lines that hold one of `said`, each of which must be there, and nothing but the server may
        have been asked."""
        if FILTER not in name:
            return
        self.cases += 1
        try:
            self.fresh()
            work(self)
            self.check_console(said)
        except Exception:  # whatever it is, the other cases are tried
            self.failed += 1
            print(f"not ok {self.cases} - page: {name}")
            for line in traceback.format_exc().splitlines() + [
                str(c) for c in self.window.console[-8:]
            ]:
                print("# " + line)
        else:
            print(f"ok {self.cases} - page: {name}", flush=True)

    def skip(self, why, what):
        self.cases += 1
        print(f"skipped: {why}\nok {self.cases} # SKIP {what}")

    def fresh(self):
        self.window.look(prefers_color_scheme="light", prefers_reduced_motion="no-preference")
        self.open()
        self.window.js("sessionStorage.clear()")
        self.window.console.clear()
        self.window.requests.clear()
        self.open()

    def open(self):
        self.window.open("about:blank")
        self.window.open(self.address)
        # The modules have run once the page knows which way to go.
        self.window.wait("document.getElementById('send').disabled")

    def check_console(self, said):
        window = self.window
        window.js("0")  # what was said until now has arrived with the answer
        for part in said:
            assert any(
                part in line[1] for line in window.console
            ), f"the console does not say: {part}"
        rest = [c for c in window.console if not any(part in c[1] for part in said)]
        assert not rest, f"the console says {rest}"
        strange = [
            r for r in window.requests if not r[1].startswith((self.address, "about:", "data:"))
        ]
        assert not strange, f"requests to others: {strange}"

    # ---- what people do

    def write(self, text):
        self.window.js("document.getElementById('message').focus()")
        self.window.type(text)

    def send(self, text):
        self.write(text)
        self.window.key("Enter")

    def ask(self, text):
        """Sends, waits for the end, and returns the reply."""
        turns = self.js("document.querySelectorAll('#turns > li').length")
        self.send(text)
        self.wait(f"document.querySelectorAll('#turns > li').length === {turns + 1}")
        self.wait(IDLE, 60)
        return self.text(self.reply)

    # ---- what they see

    def js(self, expression):
        return self.window.js(expression)

    def wait(self, expression, seconds=30):
        return self.window.wait(expression, seconds)

    def text(self, selector):
        return self.window.js(text_of(selector))

    def shows(self, selector, part, seconds=30):
        """Waits until it is shown: text of something that has a place on the page."""
        return self.wait(
            f"{text_of(selector)}.includes({json.dumps(part)}) && "
            f"document.querySelector({json.dumps(selector)}).getClientRects().length > 0",
            seconds,
        )
