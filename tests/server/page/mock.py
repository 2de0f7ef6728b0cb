"""mock.py: a server that says what a real one says seldom, or never in time: slow streams, broken
ones, each error, a model that writes HTML. What it answers follows from the message; the page's
files are those of the source. `mock.py PORT` alone serves until it is ended."""

import http.server
import json
import os
import re
import sys
import threading
import time

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../tools/serve/page")
TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
MIB = 1 << 20


def policy():
    """The page's policy, as page.h has it."""
    with open(os.path.join(PAGE, "../page.h"), encoding="utf-8") as file:
        text = re.search(r"#define EB_PAGE_POLICY(.*?)\n\n", file.read(), re.S).group(1)
    return "".join(re.findall(r'"(.*?)"', text))


def error(status, message, code=None, kind="invalid_request_error"):
    return status, {"error": {"message": message, "type": kind, "param": None, "code": code}}


ERRORS = {
    "full": error(429, "the queue is full: 64 replies wait", "queue_full", "rate_limit_error"),
    "context": error(
        400, "the prompt has 9,000 tokens, and the context 8,192", "context_length_exceeded"
    ),
    "drain": error(503, "the server is about to end", None, "server_error"),
    "fault": error(500, "no memory on the host", None, "server_error"),
}


# What the model writes after these messages, piece by piece.
WORDS = {
    "slow": ["word%d " % i for i in range(200)],
    "html": [
        "<img src=x ",
        "onerror=\"document.title='broken'\">",
        "<script>1</script>\n  two  blanks",
    ],
    "long": ["A paragraph of some length, to see how lines break. " * 6 + "\n\n"] * 6,
    "nothing": [],
    "tool": [],
    "break": ["half a "],
    "end": ["half a "],
    "late": ["half a "],
}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body, kind="application/json", **headers):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def refused(self):
        if self.server.key and self.headers.get("Authorization") != "Bearer " + self.server.key:
            self.answer(*error(401, "this server wants a key", "invalid_api_key"))
            return True
        return False

    def do_GET(self):
        name = "index.html" if self.path == "/" else self.path[1:]
        if re.fullmatch(r"[a-z]+\.(html|css|js)", name) and os.path.exists(
            os.path.join(PAGE, name)
        ):
            with open(os.path.join(PAGE, name), "rb") as file:
                self.answer(
                    200,
                    file.read(),
                    TYPES[name.split(".")[1]] + "; charset=utf-8",
                    Content_Security_Policy=policy(),
                    X_Content_Type_Options="nosniff",
                )
        elif self.refused():
            return
        elif self.path == "/v1/models":
            self.answer(
                200,
                {
                    "object": "list",
                    "data": [
                        {
                            "id": self.server.model,
                            "object": "model",
                            "created": 1,
                            "owned_by": "ebro",
                            "ebro": {
                                "context": 8192,
                                "thinking": True,
                                "device": {"name": "CPU", "description": "a processor"},
                            },
                        }
                    ],
                },
            )
        elif self.path == "/slots":
            self.answer(200, self.server.slots())
        else:
            self.answer(*error(404, "no such route"))

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.refused():
            return
        self.server.asked.append(body)
        text = body["messages"][-1]["content"]
        if text in ERRORS:
            self.answer(*ERRORS[text], **({"Retry_After": "3"} if text == "full" else {}))
            return
        self.stream(text, body)

    # ---- a reply

    def send(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def event(self, chunk):
        self.send(b"data: " + json.dumps(chunk).encode() + b"\n\n")

    def delta(self, finish=None, **delta):
        self.event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    def stream(self, text, body):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            self.write(text, body)
        except (BrokenPipeError, ConnectionResetError):
            self.server.gone += 1
            self.close_connection = True

    def write(self, text, body):
        server = self.server
        self.delta(role="assistant", content="")
        prompt = 40 + sum(len(m["content"]) // 4 for m in body["messages"])
        if text == "think":
            for word in ("The code ", "was said ", "before."):
                self.delta(reasoning_content=word)
                time.sleep(0.05)
        if text == "tool":
            call = {
                "index": 0,
                "id": "call_1",
                "type": "function",
                "function": {"name": "weather", "arguments": ""},
            }
            self.delta(tool_calls=[call])
            for piece in ('{"city": ', '"Zaragoza"}'):
                self.delta(tool_calls=[{"index": 0, "function": {"arguments": piece}}])
        words = WORDS.get(text, ["4", "8", "21"])
        for word in words:
            self.delta(content=word)
            time.sleep(server.pace)
        if text == "break":
            server.seen.wait(30)  # a browser drops what it has not handed out by then
            self.close_connection = True  # without an end of the stream
            return
        if text == "end":
            self.send(b"")
            return
        if text == "late":
            self.event(
                {"error": {"message": "the device was lost", "type": "server_error", "code": None}}
            )
            self.send(b"")
            return
        self.delta("tool_calls" if text == "tool" else "length" if text == "long" else "stop")
        cached = prompt - 40 if len(body["messages"]) > 2 else 0
        miss = None if cached else "no earlier prompt began like this one"
        server.last = {
            "prompt_tokens": prompt,
            "matched_tokens": cached,
            "cached_tokens": cached,
            "miss": miss,
            "cache_bytes": 1,
            "queue_seconds": 0,
            "prompt_seconds": 0.1,
        }
        self.event(
            {
                "choices": [],
                "usage": {
                    "prompt_tokens": prompt,
                    "completion_tokens": len(words) + 1,
                    "total_tokens": prompt + len(words) + 1,
                    "prompt_tokens_details": {"cached_tokens": cached},
                    "completion_tokens_details": {"reasoning_tokens": 3 if text == "think" else 0},
                },
                "ebro": {
                    "decode_tokens_per_second": 128.4,
                    "prompt_tokens_per_second": 300.0,
                    "matched_tokens": cached,
                    "miss": miss,
                },
            }
        )
        self.send(b"data: [DONE]\n\n")
        self.send(b"")


class Mock(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port=0):
        super().__init__(("127.0.0.1", port), Handler)
        self.key = None
        self.pace = 0.05  # seconds between two pieces
        self.asked = []  # bodies of chat requests
        self.seen = threading.Event()  # the page shows the reply that is to break off
        self.gone = 0  # clients that left during a reply
        self.last = None
        self.status, self.model = "ok", "mock-model"
        self.address = f"http://127.0.0.1:{self.server_address[1]}/"

    def start(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def slots(self):
        states = [("decode", 57, 1), ("prompt", 6063, 2048)] + [("idle", 0, 0)] * 6
        return {
            "status": self.status,
            "model": self.model,
            "context": 8192,
            "waiting": 3,
            "running": 2,
            "slots": [
                {
                    "id": i,
                    "state": s,
                    "job": i,
                    "prompt_tokens": t,
                    "cached_tokens": 0,
                    "tokens": t,
                    "pending": p,
                    "miss": None,
                }
                for i, (s, t, p) in enumerate(states)
            ],
            "memory": {
                "budget_bytes": 512 * MIB,
                "taken_bytes": 300 * MIB,
                "peak_bytes": 310 * MIB,
                "live_page_bytes": 48 * MIB,
                "live_state_bytes": 80 * MIB,
                "kept_page_bytes": 96 * MIB,
                "kept_state_bytes": 44 * MIB + 321,
                "host_bytes": 16 * MIB,
                "host_budget_bytes": 64 * MIB,
                "snapshots": 11,
                "snapshots_kept": 40,
                "snapshots_refused": 0,
                "evictions": 1029,
                "copied_pages": 0,
                "host_saves": 0,
                "host_loads": 0,
            },
            "last": self.last,
        }


if __name__ == "__main__":
    Mock(int(sys.argv[1]) if len(sys.argv) > 1 else 8080).serve_forever()
