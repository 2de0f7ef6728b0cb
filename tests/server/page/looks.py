"""looks.py: whether the page can be read: contrast, narrow windows, motion, and names for those who
hear it."""

# Every text that is shown, with its contrast to what lies behind it (WCAG 2.2, 1.4.3). Returns
# those below 4.5, which is what AA asks for text of usual size.
CONTRAST = """(() => {
    const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const part = (v) => linear(v / 255);
    const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
    const parse = (c) => c.match(/[\\d.]+/g).map(Number);
    const behind = (e) => {
        for (; e; e = e.parentElement) {
            const c = parse(getComputedStyle(e).backgroundColor);
            if (c.length === 3 || c[3] === 1) return c;
        }
        return [255, 255, 255];
    };
    const faults = [];
    let seen = 0;
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
        const e = walk.currentNode.parentElement;
        if (!walk.currentNode.data.trim() || !e.getClientRects().length || e.disabled) continue;
        if (e.closest(".unseen, noscript")) continue;
        seen++;
        const a = light(parse(getComputedStyle(e).color)), b = light(behind(e));
        const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (contrast < 4.5) faults.push([e.textContent.slice(0, 30), contrast]);
        for (let up = e; up; up = up.parentElement)
            if (getComputedStyle(up).opacity !== "1") faults.push([up.className, "faded"]);
    }
    return { seen, faults };
})()"""

# What a hand can use is no narrower than the window, and nothing must be scrolled sideways.
SIDEWAYS = """[...document.querySelectorAll("html, #talk, #memory, #settings")]
    .filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.id || e.tagName)"""
OUTSIDE = """[...document.querySelectorAll("button, textarea, input, summary")].filter((e) => {
    const r = e.getBoundingClientRect();
    return r.width > 0 && (r.left < 0 || r.right > innerWidth);
}).map((e) => e.id || e.textContent)"""


# Roles that need a name, and some of the elements that must be there.
NAMED = {
    "button",
    "textbox",
    "spinbutton",
    "combobox",
    "dialog",
    "region",
    "image",
    "DisclosureTriangle",
}
DIALOG = {("dialog", "Settings"), ("spinbutton", "Temperature"), ("textbox", "System message")}
PAGE = {
    ("textbox", "Message"),
    ("button", "Send"),
    ("button", "Regenerate"),
    ("button", "New chat"),
    ("button", "Settings"),
    ("region", "Conversation"),
    ("heading", "Ebro"),
    ("heading", "You"),
    ("heading", "Model"),
}


def fill(rig):
    for message in ("think", "context", "tool", "a" * 300, "full", "html"):
        rig.ask(message)
    rig.shows("#memory-sum", "MiB")


def contrast(rig):
    fill(rig)
    for scheme in ("light", "dark"):
        rig.window.look(prefers_color_scheme=scheme)
        for dialog in (False, True):
            if dialog:
                rig.window.click("#open-settings")
            got = rig.js(CONTRAST)
            assert got["seen"] > 30 and not got["faults"], (scheme, got)
            if dialog:
                rig.window.click("#close-settings")
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = rig.js(ground)
    rig.window.look(prefers_color_scheme="light")
    assert rig.js(ground) != dark


def narrow(rig):
    for size in ((320, 568), (320, 256), (568, 320), (1200, 800)):
        rig.window.look(*size)
        if size == (320, 568):
            fill(rig)
        assert rig.js("document.documentElement.scrollHeight <= innerHeight"), f"{size}: it scrolls"
        for selector in ("#open-settings", "#close-settings", "#memory summary", "#memory summary"):
            rig.window.click(selector)
            assert not rig.js(SIDEWAYS) and not rig.js(OUTSIDE), (
                size,
                rig.js(SIDEWAYS),
                rig.js(OUTSIDE),
            )


def motion(rig):
    rig.send("slow")
    moving = "getComputedStyle(document.querySelector('.running .text'), '::after').animationName"
    rig.wait("document.querySelector('.running .text') !== null")
    assert rig.js(moving) == "breathe"
    rig.window.look(prefers_reduced_motion="reduce")
    assert rig.js(moving) == "none"
    bar = "getComputedStyle(document.querySelector('#bar span'))"
    assert rig.js(f"{bar}.transitionProperty === 'none' || {bar}.transitionDuration === '0s'")
    rig.window.key("Escape")


def names(rig):
    fill(rig)
    rig.window.click("#open-settings")
    for inside in (True, False):
        tree = rig.window.call("Accessibility.getFullAXTree")["nodes"]
        seen = [n for n in tree if not n["ignored"]]
        shown = [(n["role"]["value"], n.get("name", {}).get("value", "")) for n in seen]
        assert not [s for s in shown if s[0] in NAMED and not s[1]], shown
        missing = (DIALOG if inside else PAGE) - set(shown)
        assert not missing, missing
        if inside:
            rig.window.click("#close-settings")
    assert rig.js("document.documentElement.lang") == "en"


def run(rig):
    said = ["status of 400", "status of 429"]
    rig.case("contrast, light and dark", contrast, said)
    rig.case("windows of 320 and of 568 pixels", narrow, said)
    rig.case("no motion where none is wanted", motion)
    rig.case("everything has a name", names, said)
