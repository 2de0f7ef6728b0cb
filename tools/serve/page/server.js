// server.js: asks the server, and says in words what went wrong. Touches nothing of the page.

import { SseParser } from "./sse.js";
import { recall, keep } from "./store.js";

export class ServerError extends Error {
    // status 0: there was no answer at all.
    constructor(status, message, code = "", retryAfter = 0) {
        super(message);
        this.status = status;
        this.code = code;
        this.retryAfter = retryAfter;
    }
}

let key = recall("key", "");
export const hasKey = () => key !== "";
export function setKey(text) {
    key = text;
    keep("key", text);
}

async function ask(path, options = {}) {
    const headers = { ...options.headers };
    // A key of other characters could not be sent; without one the server refuses as well.
    if (/^[\x21-\x7e]+$/.test(key)) headers.Authorization = "Bearer " + key;
    let response;
    try {
        response = await fetch(path, { ...options, headers, cache: "no-store" });
    } catch (error) {
        if (error.name === "AbortError") throw error;
        throw new ServerError(0, "The server does not answer.");
    }
    if (response.ok) return response;
    let said = {};
    try {
        said = (await response.json()).error ?? {};
    } catch {
        // Not the server's own words: the status has to do.
    }
    throw new ServerError(
        response.status, said.message || `The server answered with status ${response.status}.`,
        said.code || "", Number(response.headers.get("Retry-After")) || 0);
}

export async function getJson(path, signal) {
    return (await ask(path, { signal })).json();
}

// take(chunk) is called for each chunk of the reply, as it comes.
export async function streamChat(body, signal, take) {
    const response = await ask("/v1/chat/completions", {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify(body),
        signal,
    });
    const reader = response.body.getReader();
    let done = false;
    const parser = new SseParser((data) => {
        if (data === "[DONE]") done = true;
        if (done) return;
        const chunk = JSON.parse(data);
        if (chunk.error) throw new ServerError(500, chunk.error.message, chunk.error.code || "");
        take(chunk);
    });
    try {
        for (let piece; (piece = await readPiece(reader)); ) parser.push(piece);
    } finally {
        reader.cancel().catch(() => {}); // it may be broken already
    }
    if (!done) throw new ServerError(0, "The reply broke off before its end.");
}

// undefined at the end.
async function readPiece(reader) {
    try {
        return (await reader.read()).value;
    } catch (error) {
        if (error.name === "AbortError") throw error;
        throw new ServerError(0, "The connection to the server was lost.");
    }
}

// What can be done about an error, in a sentence; "" where the message says it all.
export function adviceFor(error) {
    if (error.code === "context_length_exceeded")
        return "Start a new chat, or start the server with a larger --ctx.";
    switch (error.status) {
        case 0:
            return "See whether `ebro serve` still runs, then try again.";
        case 401:
            return "Enter the key that the server was started with, then try again.";
        case 403:
            return "Open this page at the address that the server names when it starts.";
        case 413:
            return "Send a shorter message, or start a new chat.";
        case 429:
            return error.retryAfter > 0
                ? `Others are being answered. Try again in ${error.retryAfter} s.`
                : "Others are being answered. Try again in a moment.";
        case 503:
            return "Start the server again, then try again.";
        default:
            return error.status >= 500 ? "Try again; the server's log says more." : "";
    }
}
