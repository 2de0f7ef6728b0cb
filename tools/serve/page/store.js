// store.js: what outlives a reload, until the tab is closed. A browser that forbids it costs no
// more than that.

export function recall(name, otherwise) {
    try {
        const text = sessionStorage.getItem("ebro." + name);
        return text === null ? otherwise : JSON.parse(text);
    } catch {
        return otherwise;
    }
}

export function keep(name, value) {
    try {
        sessionStorage.setItem("ebro." + name, JSON.stringify(value));
    } catch {
        // Full, or forbidden.
    }
}
