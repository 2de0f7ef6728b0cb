#!/usr/bin/env python3
"""test.py: the page of `ebro serve` in a headless Chromium: first before mock.py, which says what a
server says seldom, then before the program that EBRO names. Speaks TAP."""

import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import browser  # noqa: E402
import on_mock  # noqa: E402
import on_program  # noqa: E402
from rig import Rig  # noqa: E402


def main():
    path = browser.find()
    if not path:
        print("skipped: there is no Chromium that runs here")
        print("ok 1 # SKIP the page in a browser\n1..1")
        return 0
    window = browser.Browser(path)
    try:
        rig = Rig(window)
        on_mock.run(rig)
        if os.environ.get("EBRO"):
            on_program.run(rig, os.environ["EBRO"])
        else:
            rig.skip("there is no program with a server", "the page before the program")
    finally:
        window.close()
    print(f"1..{rig.cases}")
    return 1 if rig.failed else 0


if __name__ == "__main__":
    sys.exit(main())
