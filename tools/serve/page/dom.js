// dom.js: making elements, and figures as people read them. All text enters the page as text.

export function el(tag, className, text) {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
}

export const at = (id) => document.getElementById(id);

export const count = (n) => Number(n).toLocaleString("en");
export const tokens = (n) => count(n) + (n === 1 ? " token" : " tokens");

export function bytes(n) {
    const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let unit = 0;
    while (n >= 1024 && unit < units.length - 1) {
        n /= 1024;
        unit++;
    }
    const digits = unit === 0 || n >= 100 ? 0 : n >= 10 ? 1 : 2;
    return n.toLocaleString("en", { maximumFractionDigits: digits }) + " " + units[unit];
}

export function rate(perSecond) {
    return count(perSecond >= 10 ? Math.round(perSecond) : perSecond.toFixed(1)) + " tokens/s";
}

// Texts of the server begin small and end without a stop.
export function sentence(text) {
    return text[0].toUpperCase() + text.slice(1) + (/[.!?…]$/.test(text) ? "" : ".");
}

// "6,023 of 6,063 tokens reused; 40 new"
export function reuseText(prompt, cached) {
    return `${count(cached)} of ${tokens(prompt)} reused; ${count(prompt - cached)} new`;
}
