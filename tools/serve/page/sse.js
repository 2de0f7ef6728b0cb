// sse.js: cuts a stream of bytes into server-sent events, whatever pieces it comes in. Knows
// nothing of what is in them.

export class SseParser {
    // take(data, type) is called for each event that is complete.
    constructor(take) {
        this.take = take;
        this.decoder = new TextDecoder(); // holds back characters that are not whole, drops a BOM
        this.line = "";
        this.data = [];
        this.type = "";
        this.afterCr = false;
    }

    push(bytes) {
        let text = this.decoder.decode(bytes, { stream: true });
        if (!text) return;
        // "\r\n" is one end of a line even where the two come apart.
        if (this.afterCr && text[0] === "\n") text = text.slice(1);
        this.afterCr = text ? text.endsWith("\r") : false;
        const lines = (this.line + text).split(/\r\n|\n|\r/);
        this.line = lines.pop();
        for (const line of lines) this.#endLine(line);
    }

    #endLine(line) {
        if (line === "") return this.#dispatch();
        const colon = line.indexOf(":");
        if (colon === 0) return; // a comment
        const name = colon < 0 ? line : line.slice(0, colon);
        let value = colon < 0 ? "" : line.slice(colon + 1);
        if (value[0] === " ") value = value.slice(1);
        if (name === "data") this.data.push(value);
        else if (name === "event") this.type = value;
    }

    #dispatch() {
        const { data, type } = this;
        this.data = [];
        this.type = "";
        if (data.length) this.take(data.join("\n"), type || "message");
    }
}
