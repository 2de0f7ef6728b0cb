// page.js: the page as a whole: keys and buttons, settings, one reply at a time, and a look at the
// server's memory once a second.

import { at, count } from "./dom.js";
import { drawMemory, drawNoMemory } from "./memory.js";
import { getJson, hasKey, setKey, streamChat } from "./server.js";
import { keep, recall } from "./store.js";
import { Talk } from "./talk.js";

const message = at("message"), send = at("send"), log = at("talk");
const talk = new Talk(at("turns"), () => again());
const unset = { temperature: "", maxTokens: "", thinking: "", system: "" };
const settings = { ...unset, ...recall("settings", {}) };
let model = null; // as /v1/models lists it; null: not known
let running = null; // the AbortController of the reply that is being written

// ---- one reply

function requestBody() {
    const body = {
        messages: talk.messages(settings.system),
        stream: true,
        stream_options: { include_usage: true },
    };
    if (settings.temperature !== "") body.temperature = Number(settings.temperature);
    if (settings.maxTokens !== "") body.max_tokens = Number(settings.maxTokens);
    if (settings.thinking !== "" && model?.ebro?.thinking !== false)
        body.chat_template_kwargs = { thinking: settings.thinking === "on" };
    return body;
}

function setRunning(controller) {
    running = controller;
    send.textContent = controller ? "Stop" : "Send";
    log.setAttribute("aria-busy", String(controller !== null));
    showState();
}

function showState() {
    at("empty").hidden = talk.turns.length > 0;
    send.disabled = !running && message.value.trim() === "";
}

// The end of the text stays in sight as it grows, unless somebody has scrolled up to read.
let atEnd = true;
function goToEnd() {
    log.scrollTop = log.scrollHeight;
}
log.addEventListener("scroll", () => {
    atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 48;
});
const sizes = new ResizeObserver((changes) => {
    if (atEnd && (running || changes.some((c) => c.target === log))) goToEnd();
});
sizes.observe(log);
sizes.observe(at("turns"));

let hush = 0;
function say(text) {
    clearTimeout(hush);
    at("said").textContent = text;
    // It has been taken by then; left there it would be read twice by those who walk the page.
    hush = setTimeout(() => at("said").replaceChildren(), 3000);
}

async function reply() {
    const turn = talk.last, controller = new AbortController();
    turn.answer.classList.add("running");
    setRunning(controller);
    try {
        await streamChat(requestBody(), controller.signal, (chunk) => turn.take(chunk));
    } catch (error) {
        if (error.name === "AbortError") turn.stopped = true;
        else turn.error = error;
        if (error.status === 401) askKey();
    }
    turn.answer.classList.remove("running");
    if (turn !== talk.last) return; // a new chat has begun
    talk.end();
    if (atEnd) goToEnd();
    setRunning(null);
    keep("talk", talk.stored());
    say(turn.spoken());
    look();
}

function ask() {
    const text = message.value.trim();
    if (running || text === "") return;
    message.value = "";
    fitMessage();
    talk.add(text);
    goToEnd();
    reply();
}

function again() {
    if (running || !talk.last) return;
    talk.button.remove();
    talk.last.clear();
    message.focus();
    reply();
}

function stop() {
    running?.abort();
}

function newChat() {
    stop();
    talk.clear();
    setRunning(null);
    keep("talk", []);
    message.focus();
}

// ---- the message

function fitMessage() {
    message.style.height = "auto";
    message.style.height = `${message.scrollHeight + 2}px`;
    showState();
}

message.addEventListener("input", fitMessage);
message.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey) return;
    // Enter that ends a composition, as of Chinese characters, sends nothing. (229: in Safari.)
    if (event.isComposing || event.keyCode === 229) return;
    event.preventDefault();
    ask();
});
document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !at("settings").open) stop();
});
send.addEventListener("click", () => {
    if (running) stop();
    else ask();
    message.focus();
});
at("new").addEventListener("click", newChat);
at("example").addEventListener("click", () => {
    message.value = at("example").textContent.replace(/\s+/g, " ");
    fitMessage();
    message.focus();
});

// ---- settings

const fields = [["temperature", "temperature"], ["max-tokens", "maxTokens"],
    ["thinking", "thinking"], ["system", "system"]];

function showSettings() {
    for (const [id, name] of fields) at(id).value = settings[name];
}

for (const [id, name] of fields) {
    at(id).addEventListener("change", () => {
        if (!at(id).reportValidity()) return;
        settings[name] = at(id).value;
        keep("settings", settings);
    });
}
at("open-settings").addEventListener("click", () => {
    showSettings();
    at("settings").showModal();
});
at("close-settings").addEventListener("click", () => {
    for (const [id] of fields) if (!at(id).reportValidity()) return;
    at("settings").close();
});

// ---- the key

function askKey() {
    if (!at("ask-key").hidden) return;
    at("ask-key").hidden = false;
    at("ask-key").firstElementChild.textContent =
        hasKey() ? "The server refuses this key" : "This server wants an API key";
    at("key").focus();
}

at("ask-key").addEventListener("submit", (event) => {
    event.preventDefault();
    setKey(at("key").value.trim());
    at("key").value = "";
    at("ask-key").hidden = true;
    message.focus();
    look();
    if (talk.last?.error?.status === 401) again();
});

// ---- what the server is, and its memory

function showModel() {
    const about = [model.id, model.ebro?.device?.name];
    if (model.ebro?.context) about.push(`context ${count(model.ebro.context)}`);
    at("about").textContent = about.filter(Boolean).join(" · ");
    at("about").title = model.ebro?.device?.description ?? "";
    for (const part of document.querySelectorAll(".thinks")) part.hidden = !model.ebro?.thinking;
}

let looking = null, timer = 0;

async function look() {
    clearTimeout(timer);
    if (looking || document.hidden || !at("ask-key").hidden) return;
    looking = new AbortController();
    let wait = 1000;
    try {
        if (!model) {
            model = (await getJson("/v1/models", looking.signal)).data[0];
            showModel();
        }
        const slots = await getJson("/slots", looking.signal);
        drawMemory(slots);
        if (slots.model !== model.id) model = null; // another server has come in its place
    } catch (error) {
        if (error.status === 401) askKey();
        drawNoMemory(error.message);
        if (!model) at("about").textContent = error.message;
        if (error.status === 0) model = null; // another one may stand there next
        wait = 3000;
    }
    looking = null;
    timer = setTimeout(look, wait);
}
document.addEventListener("visibilitychange", look);

// ---- begin

talk.restore(recall("talk", []));
const wide = matchMedia("(min-width: 60rem)");
at("memory").open = wide.matches;
wide.addEventListener("change", () => (at("memory").open = wide.matches));
showSettings();
fitMessage();
goToEnd();
look();
