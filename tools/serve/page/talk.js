// talk.js: the conversation: its turns, what is sent of them, and how they look. Asks no server.

import { el, rate, reuseText, sentence, tokens } from "./dom.js";
import { adviceFor } from "./server.js";

const limitText =
    "Cut off here: the most tokens of a reply, or the context's end, was reached.";

// One message and the reply to it.
class Turn {
    constructor(text) {
        this.user = text;
        this.element = el("li");
        const asked = el("article", "user");
        asked.append(el("h2", "unseen", "You"), el("p", "text", text));
        this.element.append(asked);
        this.clear();
    }

    // Without a reply, and waiting for one.
    clear() {
        this.content = "";
        this.reasoning = "";
        this.calls = [];
        this.finish = this.usage = this.ebro = this.error = null;
        this.stopped = false;
        this.answer?.remove();
        this.answer = el("article", "model");
        this.text = document.createTextNode("");
        this.contentBox = el("p", "text");
        this.contentBox.append(this.text);
        this.foot = el("footer");
        this.answer.append(el("h2", "unseen", "Model"), this.contentBox, this.foot);
        this.element.append(this.answer);
        this.thinking = null;
    }

    get hasReply() {
        return this.content !== "" || this.calls.length > 0;
    }

    takeReasoning(text) {
        if (!this.thinking) {
            const box = el("details", "thinking");
            const thought = document.createTextNode("");
            const body = el("p", "text");
            body.append(thought);
            box.append(el("summary", "", "Thinking"), body);
            this.contentBox.before(box);
            this.thinking = { box, thought };
        }
        this.reasoning += text;
        this.thinking.thought.appendData(text);
    }

    takeCall(delta) {
        let call = this.calls[delta.index];
        if (!call) {
            const box = el("div", "call"), head = el("p", "", "Calls a tool: ");
            const name = el("code"), body = el("pre");
            head.append(name);
            box.append(head, body);
            this.foot.before(box);
            call = this.calls[delta.index] = { name, body };
        }
        if (delta.function?.name) call.name.append(delta.function.name);
        if (delta.function?.arguments) call.body.append(delta.function.arguments);
    }

    take(chunk) {
        if (chunk.usage) this.usage = chunk.usage;
        if (chunk.ebro) this.ebro = chunk.ebro;
        const choice = chunk.choices?.[0];
        if (!choice) return;
        const delta = choice.delta ?? {};
        if (delta.reasoning_content) this.takeReasoning(delta.reasoning_content);
        if (delta.content) {
            this.content += delta.content;
            this.text.appendData(delta.content);
        }
        for (const call of delta.tool_calls ?? []) this.takeCall(call);
        if (choice.finish_reason) this.finish = choice.finish_reason;
    }

    facts() {
        if (!this.usage) return [];
        const { usage, ebro } = this;
        const prompt = usage.prompt_tokens;
        const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
        const speed = ebro?.decode_tokens_per_second;
        const facts = [tokens(usage.completion_tokens) + (speed ? ` at ${rate(speed)}` : "")];
        facts.push("prompt: " + reuseText(prompt, cached));
        // That a new message is new needs no reason.
        if (ebro?.miss && (cached === 0 || cached < ebro.matched_tokens)) facts.push(ebro.miss);
        return facts;
    }

    // What is said under a reply that has ended.
    showEnd() {
        this.foot.replaceChildren();
        const note = (text, className) => this.foot.append(el("p", className, text));
        const error = this.error;
        if (error) note(`${sentence(error.message)} ${adviceFor(error)}`.trim(), "error");
        else if (this.stopped) note("Stopped.", "note");
        else if (this.finish === "length") note(limitText, "note");
        else if (!this.hasReply) note("The model answered nothing.", "note");
        const facts = this.facts();
        if (facts.length) note(facts.join(" · "), "facts");
        const thought = this.usage?.completion_tokens_details?.reasoning_tokens;
        if (this.thinking && thought)
            this.thinking.box.firstChild.textContent = `Thought for ${tokens(thought)}`;
    }

    // What was never answered is no part of the conversation once another message follows.
    leaveOut() {
        this.element.classList.add("left-out");
        this.foot.append(el("p", "note", "Left out of what follows."));
    }

    // For those who hear the page.
    spoken() {
        const end = [...this.foot.querySelectorAll(".error, .note")].map((p) => p.textContent);
        const calls = this.calls.map((c) => `Calls the tool ${c.name.textContent}.`);
        return [this.content, ...calls, ...end].join("\n").trim();
    }

    // A reply without text is none that could be sent on.
    messages() {
        const reply = { role: "assistant", content: this.content };
        if (this.reasoning) reply.reasoning_content = this.reasoning;
        return [{ role: "user", content: this.user }, reply];
    }
}

export class Talk {
    // again() is called when the last turn shall have another reply.
    constructor(list, again) {
        this.list = list;
        this.turns = [];
        this.button = el("button", "again", "Regenerate");
        this.button.type = "button";
        this.button.addEventListener("click", again);
    }

    get last() {
        return this.turns[this.turns.length - 1];
    }

    add(text) {
        this.button.remove();
        if (this.last && !this.last.content) this.last.leaveOut();
        const turn = new Turn(text);
        this.turns.push(turn);
        this.list.append(turn.element);
        return turn;
    }

    // The last turn's reply is over.
    end() {
        this.last.showEnd();
        this.button.textContent = this.last.hasReply ? "Regenerate" : "Try again";
        this.last.foot.append(this.button);
    }

    clear() {
        this.turns = [];
        this.list.replaceChildren();
    }

    // For a request whose reply is the last turn's.
    messages(system) {
        const sent = system ? [{ role: "system", content: system }] : [];
        for (const turn of this.turns.slice(0, -1))
            if (turn.content) sent.push(...turn.messages());
        sent.push({ role: "user", content: this.last.user });
        return sent;
    }

    // What a reload can begin from.
    stored() {
        return this.turns.filter((t) => t.content).map((t) => [t.user, t.content, t.reasoning]);
    }

    restore(stored) {
        for (const [user, content, reasoning] of stored) {
            const turn = this.add(user);
            turn.take({ choices: [{ delta: { content, reasoning_content: reasoning } }] });
        }
        if (this.last) this.end();
    }
}
