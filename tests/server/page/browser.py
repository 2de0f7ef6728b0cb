"""browser.py: drives a headless Chromium over its debugging pipe, with nothing but Python's own
library. Knows no page: what is tried stands in on_mock.py, looks.py and on_program.py."""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find():
    """The path of a Chromium that runs, or None. (Ubuntu's package of that name is a shell script
    that wants a snap, and fails.)"""
    for name in NAMES:
        path = shutil.which(name)
        if (
            path
            and subprocess.run(
                [path, "--version"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
            ).returncode
            == 0
        ):
            return path
    return None


def thrown_text(details):
    return details.get("exception", {}).get("description", details["text"])


class Browser:
    """One Chromium with one tab. Collects what the console says and what is requested."""

    def __init__(self, path):
        self.folder = tempfile.TemporaryDirectory(prefix="ebro-browser-")
        options = [
            "--headless=new",
            "--remote-debugging-pipe",
            "--user-data-dir=" + self.folder.name,
            "--no-first-run",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-extensions",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--no-proxy-server",
            "--window-size=1200,800",
        ]
        if os.getuid() == 0:
            options.append("--no-sandbox")
        to_read, self.to = os.pipe()
        self.back, back_write = os.pipe()
        # Chromium wants its ends as 3 and 4.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (to_read, back_write)]
        self.log = open(os.path.join(self.folder.name, "log"), "wb")

        def place():
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        self.process = subprocess.Popen(
            [path, *options, "about:blank"],
            preexec_fn=place,
            pass_fds=(3, 4),
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
        )
        for end in (to_read, back_write, *ends):
            os.close(end)
        self.number = 0
        self.rest = b""
        self.console = []  # (kind, text, address)
        self.requests = []
        self.session = None
        self.answers = {}
        target = self._wait_for_tab()
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Runtime", "Log", "Network", "Page"):
            self.call(domain + ".enable")

    def _wait_for_tab(self):
        for _ in range(100):
            for info in self.call("Target.getTargets")["targetInfos"]:
                if info["type"] == "page":
                    return info["targetId"]
            time.sleep(0.1)
        raise RuntimeError("the browser opened no tab")

    def close(self):
        try:
            self.call("Browser.close")
            self.process.wait(10)
        except (OSError, RuntimeError, subprocess.TimeoutExpired):
            pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        os.close(self.to)
        os.close(self.back)
        self.log.close()
        for _ in range(20):  # its last helpers may still write there
            try:
                self.folder.cleanup()
                return
            except OSError:
                time.sleep(0.1)

    # ---- the protocol: messages in JSON, each with a NUL behind it

    def _receive(self, deadline):
        while b"\0" not in self.rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.back], [], [], left)[0]:
                return None
            data = os.read(self.back, 1 << 16)
            if not data:
                raise RuntimeError("the browser is gone")
            self.rest += data
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def _note(self, event):
        name, about = event.get("method"), event.get("params", {})
        if name == "Runtime.consoleAPICalled":
            said = " ".join(str(a.get("value", a.get("description"))) for a in about["args"])
            self.console.append((about["type"], said, ""))
        elif name == "Runtime.exceptionThrown":
            self.console.append(("exception", thrown_text(about["exceptionDetails"]), ""))
        elif name == "Log.entryAdded":
            entry = about["entry"]
            kind = entry["source"] + "/" + entry["level"]
            self.console.append((kind, entry["text"], entry.get("url", "")))
        elif name == "Network.requestWillBeSent":
            self.requests.append((about["request"]["method"], about["request"]["url"]))

    def call(self, method, timeout=30, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + timeout
        while True:
            got = self._receive(deadline)
            if got is None:
                raise RuntimeError(f"the browser did not answer {method}")
            if got.get("id") == message["id"]:
                if "error" in got:
                    raise RuntimeError(f"{method}: {got['error']['message']}")
                return got["result"]
            self._note(got)

    # ---- what a test wants

    def open(self, address):
        self.call("Page.navigate", url=address)
        self.wait("document.readyState === 'complete'")

    def js(self, expression):
        """The value of an expression; promises are waited for."""
        options = {"returnByValue": True, "awaitPromise": True}
        got = self.call("Runtime.evaluate", expression=expression, **options)
        if "exceptionDetails" in got:
            raise RuntimeError(thrown_text(got["exceptionDetails"]))
        return got["result"].get("value")

    def wait(self, expression, seconds=30):
        """Until the expression is true; its value."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                value = self.js(expression)
            except RuntimeError as error:  # between two documents
                if "context" not in str(error):
                    raise
                value = None
            if value:
                return value
            time.sleep(0.05)
        raise AssertionError(f"not within {seconds} s: {expression}")

    def type(self, text):
        self.call("Input.insertText", text=text)

    def key(self, name, shift=False):
        codes = {"Enter": 13, "Escape": 27, "Tab": 9}
        about = {
            "key": name,
            "code": name,
            "windowsVirtualKeyCode": codes[name],
            "modifiers": 8 if shift else 0,
        }
        text = {"text": "\r"} if name == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **about, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def click(self, selector):
        """With the mouse, in the middle of what must be visible there."""
        x, y = self.js(
            f"""(() => {{
            const e = document.querySelector({json.dumps(selector)});
            e.scrollIntoView({{ block: "nearest", behavior: "instant" }});
            const r = e.getBoundingClientRect(), x = r.x + r.width / 2, y = r.y + r.height / 2;
            const hit = document.elementFromPoint(x, y);
            if (!e.contains(hit)) throw new Error("something lies over " + {json.dumps(selector)});
            return [x, y];
        }})()"""
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def look(self, width=1200, height=800, **media):
        """The window's size, and what the page is told of colours and motion."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        features = [{"name": k.replace("_", "-"), "value": v} for k, v in media.items()]
        self.call("Emulation.setEmulatedMedia", features=features)

    def picture(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
