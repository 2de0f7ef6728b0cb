// memory.js: the picture of the memory: what GET /slots says, drawn. Changes nothing there.

import { at, bytes, count, el, reuseText, sentence, tokens } from "./dom.js";

// The parts of the budget, in the order of the bar.
const parts = [
    { name: "live-pages", field: "live_page_bytes", label: "Pages in use" },
    { name: "live-states", field: "live_state_bytes", label: "States in use" },
    { name: "kept-pages", field: "kept_page_bytes", label: "Pages kept" },
    { name: "kept-states", field: "kept_state_bytes", label: "States kept" },
    { name: "free", field: null, label: "Free" },
];

for (const part of parts) {
    part.segment = at("bar").appendChild(el("span", part.name));
    const key = el("dt", "", part.label);
    key.prepend(el("i", part.name));
    part.figure = el("dd", "", "–");
    at("legend").append(key, part.figure);
}

// Text that is the same is left alone: a selection in it stays.
function setText(element, text) {
    if (element.textContent !== text) element.textContent = text;
}

function drawBudget(memory) {
    const held = parts.reduce((sum, p) => sum + (p.field ? memory[p.field] : 0), 0);
    const budget = Math.max(memory.budget_bytes, held);
    for (const part of parts) {
        const n = part.field ? memory[part.field] : budget - held;
        part.segment.style.flexGrow = budget ? n / budget : 0;
        part.segment.hidden = n === 0;
        setText(part.figure, bytes(n));
    }
    const sum = `${bytes(held)} of ${bytes(budget)}`;
    setText(at("memory-sum"), sum);
    const each = parts.map((p) => `${p.label.toLowerCase()} ${p.figure.textContent}`).join(", ");
    at("bar").setAttribute("aria-label", `Memory held: ${sum}; ${each}`);
}

function drawLast(last) {
    at("reuse-bar").hidden = !last;
    if (!last) {
        setText(at("reuse"), "None yet.");
        setText(at("reason"), "");
        return;
    }
    const share = last.prompt_tokens ? last.cached_tokens / last.prompt_tokens : 0;
    at("reuse-bar").firstElementChild.style.width = `${100 * share}%`;
    setText(at("reuse"), reuseText(last.prompt_tokens, last.cached_tokens));
    setText(at("reason"), last.miss ? sentence(last.miss) : "");
}

function slotText(slot) {
    if (slot.state === "prompt")
        return `reads: ${count(slot.tokens - slot.pending)} of ${tokens(slot.tokens)}`;
    return `writes: ${tokens(slot.tokens)}`;
}

function drawSlots(slots, waiting) {
    const lines = slots.filter((s) => s.state !== "idle").map((s) => [s.state, slotText(s)]);
    const idle = slots.length - lines.length;
    if (waiting) lines.push(["waiting", `${count(waiting)} waiting for room`]);
    if (idle) lines.push(["idle", `${count(idle)} idle`]);
    const list = at("slots");
    while (list.children.length > lines.length) list.lastChild.remove();
    while (list.children.length < lines.length) list.append(el("li"));
    lines.forEach(([state, text], i) => {
        list.children[i].className = state;
        setText(list.children[i], text);
    });
}

function drawKept(memory) {
    const rows = [["Snapshots", count(memory.snapshots)], ["Evictions", count(memory.evictions)]];
    const host = `${bytes(memory.host_bytes)} of ${bytes(memory.host_budget_bytes)}`;
    if (memory.host_budget_bytes > 0) rows.push(["On the host", host]);
    const list = at("kept");
    if (list.children.length !== 2 * rows.length) {
        list.replaceChildren();
        for (const [name] of rows) list.append(el("dt", "", name), el("dd"));
    }
    rows.forEach(([, figure], i) => setText(list.children[2 * i + 1], figure));
}

const notes = {
    draining: "The server is about to end. It takes no new messages.",
    failed: "The device was lost. Start the server again.",
};

export function drawMemory(slots) {
    drawBudget(slots.memory);
    drawLast(slots.last);
    drawSlots(slots.slots, slots.waiting);
    drawKept(slots.memory);
    setText(at("memory-note"), notes[slots.status] ?? "");
    at("memory").classList.remove("stale");
}

// The last picture stays, marked as old.
export function drawNoMemory(message) {
    setText(at("memory-note"), message);
    at("memory").classList.add("stale");
}
