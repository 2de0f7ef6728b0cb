#!/usr/bin/env python3
"""test.py: the page of `ebro check --html` in a headless Chromium: that of a report in which
everything happens, which INVENTED (tests/check/html.c) writes, and the CPU's own, from EBRO. Speaks
TAP."""

import os
import pathlib
import subprocess
import sys
import tempfile
import traceback

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "server" / "page"))
import browser  # noqa: E402
from looks import CONTRAST  # noqa: E402

SIZES = ((320, 568), (400, 800), (1400, 900))
SHOWN = "[...document.querySelectorAll('#results .row')].filter((e) => e.getClientRects().length)"
# Text of the page that a table does not scroll lies in the window.
OUTSIDE = """[...document.querySelectorAll("h1, h2, p, label, dd, .plot *")].filter((e) => {
    const r = e.getBoundingClientRect();
    return !e.closest(".scroll, .unseen") && r.width > 0 && (r.left < 0 || r.right > innerWidth);
}).map((e) => e.textContent.slice(0, 40))"""


def contrast(window):
    grounds = set()
    for scheme in ("light", "dark"):
        window.look(prefers_color_scheme=scheme)
        got = window.js(CONTRAST)
        assert got["seen"] > 100 and not got["faults"], (scheme, got["faults"][:5])
        grounds.add(window.js("getComputedStyle(document.body).backgroundColor"))
    assert len(grounds) == 2, grounds


def sizes(window):
    for size in SIZES:
        window.look(*size)
        wide = window.js("document.documentElement.scrollWidth > innerWidth")
        outside = window.js(OUTSIDE)
        assert not wide and not outside, (size, outside)
        small = window.js(
            "Math.min(...[...document.querySelectorAll('.plot text, td, th, small')]"
            ".map((e) => parseFloat(getComputedStyle(e).fontSize)))"
        )
        assert small >= 11, (size, small)
        # What is scrolled can be reached without a mouse.
        stuck = window.js(
            "[...document.querySelectorAll('.scroll')].filter((e) => e.tabIndex !== 0).length"
        )
        assert stuck == 0


def names(window):
    tree = window.call("Accessibility.getFullAXTree")["nodes"]
    seen = [n for n in tree if not n["ignored"]]
    shown = [(n["role"]["value"], n.get("name", {}).get("value", "")) for n in seen]
    for role in ("image", "radio", "region", "link", "heading"):
        here = [name for r, name in shown if r == role]
        assert here and all(here), (role, here[:5])
    assert ("group", "Show") in shown
    images = [name for role, name in shown if role == "image"]
    assert all(name.startswith("nearest to the budget: 1: ") for name in images), images
    # Tables stay tables for those who hear them: each cell in a row, with heads of both kinds.
    roles = {role for role, _ in shown}
    assert {"table", "row", "cell", "rowheader", "columnheader"} <= roles, roles
    assert window.js("document.documentElement.lang") == "en"


def filter_by_state(window):
    of = {}
    for state in ("all", "ok", "failed", "refused"):
        window.click(f"#show-{state}")
        of[state] = window.js(f"{SHOWN}.map((e) => e.className)")
        label = window.js(f"document.querySelector('#show-{state}').closest('label').textContent")
        assert f"({len(of[state])})" in label, (label, len(of[state]))
        if state != "all":
            assert set(of[state]) <= {f"row is-{state}"}, set(of[state])
            # A head without rows below it is left out.
            heads = window.js(
                "[...document.querySelectorAll('#results tbody')].filter("
                "(e) => e.getClientRects().length && ![...e.querySelectorAll('.row')]"
                ".some((r) => r.getClientRects().length)).length"
            )
            assert heads == 0, (state, heads)
    assert len(of["all"]) == len(of["ok"]) + len(of["failed"]) + len(of["refused"]) > 0
    window.click("#show-all")


def links(window):
    window.click(".matrix td a")
    goal = "document.querySelector('#results .row:target')"
    window.wait(f"{goal} !== null")
    window.wait(
        f"(() => {{ const r = {goal}.getBoundingClientRect();"
        "return r.top > -1 && r.top < innerHeight; })()"
    )


def nothing_runs(window):
    assert window.js("document.scripts.length + document.images.length") == 0
    assert window.js("document.querySelectorAll('link, iframe, object').length") == 0
    assert "<script>alert(1)</script>" in window.js("document.body.innerText")


def marks(window):
    """Marks lie in their strips, and nearer errors further right."""
    got = window.js(
        """[...document.querySelectorAll(".plot tbody svg.strip")].map((strip) => {
        const box = strip.getBoundingClientRect();
        return [...strip.querySelectorAll("circle, path")].every((m) => {
            const r = m.getBoundingClientRect();
            return r.left >= box.left - 1 && r.right <= box.right + 1 &&
                r.top >= box.top && r.bottom <= box.bottom;
        });
    })"""
    )
    assert got and all(got), got
    left = window.js(
        "[...document.querySelectorAll('.plot tbody .k0 circle[r=\"4\"]')]"
        ".map((e) => e.getBoundingClientRect().left)"
    )
    assert len(set(left)) > 3, left


def resumed(window):
    """Each pair of devices has a cell, which leads to its line."""
    rows = window.js("document.querySelectorAll('.resumed tbody tr').length")
    cells = window.js("document.querySelectorAll('.resumed tbody td a').length")
    assert rows > 0 and cells == rows * rows, (rows, cells)
    window.click(".resumed td a")
    goal = "document.querySelector('.model tr:target')"
    window.wait(f"{goal} !== null")
    window.wait(
        f"(() => {{ const r = {goal}.getBoundingClientRect();"
        "return r.top > -1 && r.top < innerHeight; })()"
    )


class Cases:
    def __init__(self, window):
        self.window = window
        self.n = self.failed = 0

    def try_one(self, page, name, work):
        """The page is opened anew, must say nothing, and may ask for nothing but itself."""
        self.n += 1
        window = self.window
        address = pathlib.Path(page).as_uri()
        try:
            window.look(prefers_color_scheme="light")
            window.open("about:blank")
            window.console.clear()
            window.requests.clear()
            window.open(address)
            work(window)
            window.js("0")  # what was said until now has arrived with the answer
            assert not window.console, window.console
            asked = {r[1].split("#")[0] for r in window.requests}
            assert asked == {address}, asked
        except Exception:  # whatever it is, the other cases are tried
            self.failed += 1
            print(f"not ok {self.n} - check page: {name}")
            for line in traceback.format_exc().splitlines():
                print("# " + line)
        else:
            print(f"ok {self.n} - check page: {name}", flush=True)


def main():
    path = browser.find()
    if not path:
        print("skipped: there is no Chromium that runs here")
        print("ok 1 # SKIP the page of a check in a browser\n1..1")
        return 0
    with tempfile.TemporaryDirectory(prefix="ebro-check-") as folder:
        invented, real = f"{folder}/invented.html", f"{folder}/cpu.html"
        subprocess.run([os.environ["INVENTED"], invented], check=True)
        command = [os.environ["EBRO"], "check", "-dev", "CPU", "-r", "2", "--html", real]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        window = browser.Browser(path)
        try:
            cases = Cases(window)
            for page, which in ((invented, "invented"), (real, "the CPU's")):
                for work in (contrast, sizes, names, filter_by_state, links, marks, resumed):
                    cases.try_one(page, f"{which}: {work.__name__.replace('_', ' ')}", work)
            cases.try_one(invented, "texts stay texts", nothing_runs)
        finally:
            window.close()
    print(f"1..{cases.n}")
    return 1 if cases.failed else 0


if __name__ == "__main__":
    sys.exit(main())
