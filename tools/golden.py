#!/usr/bin/env python3
"""golden.py: writes model/demo/golden.bin, by which `ebro check` judges the demo model on a device:
what of tests/golden a program can carry. --check compares instead, and is a test. GOLDEN names the
folder of the golden results, EBRO the program, which tells the experts of each token: float64 and
f32 choose the same ones, or its logits were not those of tests/golden (tests/engine/golden.c).

The file, all numbers little-endian, nothing padded:
  "EBGOLD1\\n"; u32 prompts, vocabulary, stride, MoE layers, experts of a token
  for each prompt:
    char name[16], answer[16] ("": nothing to recall); u32 tokens, rows, continued, shift, with experts or 0
    u16 ids[tokens]; u16 best[continued], second[continued]; f32 margin[continued]
    for each row, those of the last tokens: f32 first, step;
        u16 logit[n]: columns (row + shift) % stride + i * stride, first + step * logit
    with experts: u16 for each MoE layer and token: four bits for each expert, the best lowest
"""

import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
TARGET = ROOT / "model/demo/golden.bin"
JUDGED = ("short", "chat")  # prompts whose logits are kept
ANSWERED = ("think", "long")  # and whose continuations alone
STRIDE = 32  # columns, in each row from another one on
ROWS = 4


def load(path):
    """The tensors of a safetensors file, flat, and their shapes."""
    data = pathlib.Path(path).read_bytes()
    (n,) = struct.unpack_from("<Q", data)
    out = {}
    for name, t in json.loads(data[8 : 8 + n]).items():
        if name != "__metadata__" and t["dtype"] in ("F32", "I32"):
            begin, end = t["data_offsets"]
            form = f"<{(end - begin) // 4}{'f' if t['dtype'] == 'F32' else 'i'}"
            out[name] = (struct.unpack_from(form, data, 8 + n + begin), t["shape"])
    return out


def experts_of(ids, folder):
    """[MoE layers][tokens], each four bits for each expert."""
    prompt, chosen = f"{folder}/ids.json", f"{folder}/experts"
    pathlib.Path(prompt).write_text(json.dumps(ids))
    command = [os.environ["EBRO"], "logits", "-dev", "CPU", "--ids", prompt]
    command += ["--out", f"{folder}/logits", "--save-experts", chosen]
    subprocess.run(command, check=True, capture_output=True)
    flat, (layers, tokens, k) = load(chosen)["experts"]
    assert tokens == len(ids) and k == 4 and max(flat) < 16
    words = [sum(flat[i + j] << (4 * j) for j in range(k)) for i in range(0, len(flat), k)]
    return layers, k, words


def row_bytes(start, logits):
    part = logits[start % STRIDE :: STRIDE]
    first, step = min(part), (max(part) - min(part)) / 65535
    # As the reader will have them.
    first, step = struct.unpack("<2f", struct.pack("<2f", first, step))
    codes = [min(65535, max(0, round((x - first) / step))) for x in part]
    return struct.pack("<2f", first, step) + struct.pack(f"<{len(codes)}H", *codes)


def prompt_bytes(golden, number, shift, entry, folder):
    """One prompt; its rows; the vocabulary; MoE layers and experts of a token, or None."""
    ids = golden[f"p{number}.input_ids"][0]
    flat, (rows, vocab) = golden[f"p{number}.logits_last8"]
    best, top = golden[f"p{number}.greedy_ids"][0], golden[f"p{number}.greedy_top2_ids"][0]
    rows_kept = ROWS if entry["prompt"] in JUDGED else 0
    layers, k, experts = experts_of(list(ids), folder) if rows_kept else (None, None, [])
    out = struct.pack("<16s16s5I", entry["prompt"].encode(),
                      (entry["expected_answer"] or "").encode(), len(ids), rows_kept, len(best),
                      shift, 1 if experts else 0)
    out += struct.pack(f"<{len(ids)}H", *ids)
    out += struct.pack(f"<{len(best)}H", *best) + struct.pack(f"<{len(best)}H", *top[1::2])
    out += struct.pack(f"<{len(best)}f", *golden[f"p{number}.greedy_margin"][0])
    for i in range(rows_kept):
        at = (rows - rows_kept + i) * vocab
        out += row_bytes(i + shift, flat[at : at + vocab])
    return out + struct.pack(f"<{len(experts)}H", *experts), rows_kept, vocab, layers, k


def make():
    folder = pathlib.Path(os.environ.get("GOLDEN", ROOT / "tests/golden"))
    golden = load(folder / "kimi-k3-tiny.safetensors")
    prompts = json.loads((folder / "kimi-k3-tiny.prompts.json").read_text())
    kept = [(i, p) for i, p in enumerate(prompts) if p["prompt"] in JUDGED + ANSWERED]
    body, head, shift = b"", None, 0
    with tempfile.TemporaryDirectory(prefix="ebro-golden-") as scratch:
        for number, entry in kept:
            part, rows, vocab, layers, k = prompt_bytes(golden, number, shift, entry, scratch)
            body += part
            shift += rows
            head = head or (vocab, STRIDE, layers, k)
    return b"EBGOLD1\n" + struct.pack("<5I", len(kept), *head) + body


def main():
    made = make()
    if sys.argv[1:] != ["--check"]:
        TARGET.write_bytes(made)
        return 0
    same = TARGET.exists() and TARGET.read_bytes() == made
    print(f"{'ok' if same else 'not ok'} 1 - model/demo/golden.bin is what tests/golden makes\n1..1")
    if not same:
        print("# run tools/golden.py with EBRO naming the program")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
