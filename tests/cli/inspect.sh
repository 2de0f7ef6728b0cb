#!/usr/bin/env bash
# inspect.sh: `ebro inspect`: the demo model, and Kimi-Linear-48B as a file of holes: its headers are
# there, its 98 GB of weights are not.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

run inspect
[ $rc -eq 0 ] && [ ! -s "$err" ] && grep -q '^kimi-k3: 9 layers' "$out" &&
    grep -Eq '^  KDA +1-3, 5-7$' "$out" && grep -Eq '^  routed experts +768 ' "$out" &&
    grep -Eq '^  total +[0-9.]+ MiB' "$out" && grep -Eq '^  bf16 +3456 ' "$out"
result $? "the demo model"
cp "$out" "$work/first"
run inspect "$demo"
[ $rc -eq 0 ] && diff "$work/first" "$out" >/dev/null
result $? "the same as a folder"
run inspect --tensors
[ $rc -eq 0 ] && [ "$(grep -c '\.safetensors$' "$out")" -eq 1002 ] &&
    grep -q "^language_model.model.norm.weight	\[256\]	bf16	512	model.safetensors$" "$out"
result $? "every tensor"
run inspect --ctx 64 -ctk f16
[ $rc -eq 0 ] && grep -Eq '^  latent cache +216.0 KiB  f16, 3456 bytes a token$' "$out"
result $? "a context of its own, and a cache type"

fails "no such folder" 2 "absent" inspect "$work/absent"
fails "two folders" 1 '"y"' inspect x y
fails "a context that the model cannot have" 1 "made for 8192" inspect --ctx 8193
fails "no such device" 3 "Warp7" inspect -dev Warp7

if ! command -v python3 >/dev/null; then
    for what in "48B: sizes" "48B: JSON" "48B: within 400 MB"; do skip "no Python here ($what)"; done
    finish
fi

# numbers of the published config.json
mkdir "$work/48b"
python3 - "$work/48b" <<'PY'
import base64, json, os, struct, sys
folder = sys.argv[1]
with open(folder + "/tiktoken.model", "w") as f:
    for i in range(163584): # every byte, then as many other strings as it takes
        token = bytes([i]) if i < 256 else bytes([i >> 16, i >> 8 & 255, i & 255])
        f.write("%s %d\n" % (base64.b64encode(token).decode(), i))
mla = [4, 8, 12, 16, 20, 24, 27]
config = dict(
    architectures=["KimiLinearForCausalLM"], vocab_size=163840, hidden_size=2304,
    intermediate_size=9216, num_hidden_layers=27, num_attention_heads=32, num_key_value_heads=32,
    hidden_act="silu", rms_norm_eps=1e-5, kv_lora_rank=512, q_lora_rank=None, qk_nope_head_dim=128,
    qk_rope_head_dim=64, v_head_dim=128, mla_use_nope=True, num_experts=256,
    num_experts_per_token=8, num_shared_experts=1, moe_intermediate_size=1024,
    routed_scaling_factor=2.446, moe_renormalize=True, moe_router_activation_func="sigmoid",
    first_k_dense_replace=1, moe_layer_freq=1, num_expert_group=1, topk_group=1,
    bos_token_id=163584, eos_token_id=163586, tie_word_embeddings=False, model_max_length=1048576,
    linear_attn_config=dict(full_attn_layers=mla, kda_layers=[l for l in range(1, 28) if l not in mla],
                            head_dim=128, num_heads=32, short_conv_kernel_size=4))
json.dump(config, open(folder + "/config.json", "w"))
shapes = {}
def add(name, *shape): shapes[name + ".weight"] = shape
add("model.embed_tokens", 163840, 2304)
add("model.norm", 2304)
add("lm_head", 163840, 2304)
for l in range(27):
    p = "model.layers.%d." % l
    a = p + "self_attn."
    add(p + "input_layernorm", 2304)
    add(p + "post_attention_layernorm", 2304)
    if l + 1 in mla:
        add(a + "q_proj", 32 * 192, 2304)
        add(a + "kv_a_proj_with_mqa", 576, 2304)
        add(a + "kv_a_layernorm", 512)
        add(a + "kv_b_proj", 32 * 256, 512)
        add(a + "o_proj", 2304, 4096)
    else:
        for x in "qkv":
            add(a + x + "_proj", 4096, 2304)
            add(a + x + "_conv1d", 4096, 1, 4)
        for x in "fg":
            add(a + x + "_a_proj", 128, 2304)
            add(a + x + "_b_proj", 4096, 128)
        add(a + "b_proj", 32, 2304)
        add(a + "o_norm", 128)
        add(a + "o_proj", 2304, 4096)
        shapes[a + "A_log"] = (1, 1, 32, 1)
        shapes[a + "dt_bias"] = (4096,)
    ffns = [(p + "mlp.", 9216, ("gate_proj", "up_proj", "down_proj"))]
    if l > 0:
        moe = p + "block_sparse_moe."
        add(moe + "gate", 256, 2304)
        shapes[moe + "gate.e_score_correction_bias"] = (256,)
        ffns = [(moe + "shared_experts.", 1024, ("gate_proj", "up_proj", "down_proj"))]
        ffns += [(moe + "experts.%d." % e, 1024, ("w1", "w3", "w2")) for e in range(256)]
    for stem, inner, names in ffns:
        add(stem + names[0], inner, 2304)
        add(stem + names[1], inner, 2304)
        add(stem + names[2], 2304, inner)
header, at = {}, 0
for name in sorted(shapes):
    n = 2
    for d in shapes[name]: n *= d
    header[name] = dict(dtype="BF16", shape=list(shapes[name]), data_offsets=[at, at + n])
    at += n
text = json.dumps(header).encode()
text += b" " * (-len(text) % 64 + 56)
with open(folder + "/model.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text)
    try:
        f.truncate(8 + len(text) + at)
    except OSError:
        os.remove(folder + "/model.safetensors")
PY
if [ ! -e "$work/48b/model.safetensors" ]; then
    for what in "48B: sizes" "48B: JSON" "48B: within 400 MB"; do skip "no file of 98 GB can be made here ($what)"; done
    finish
fi
run inspect "$work/48b" --ctx 131072 -ctk f16
[ $rc -eq 0 ] && grep -q '^parameters: 49.12 B, active per token: 3.11 B; weights: 91.5 GiB$' "$out" &&
    grep -Eq '^  KDA +1-3, 5-7, 9-11, 13-15, 17-19, 21-23, 25-26$' "$out" &&
    grep -Eq '^  recurrent state +40.0 MiB ' "$out" &&
    grep -Eq '^  latent cache +1008.0 MiB  f16, 8064 bytes a token$' "$out"
result $? "48B: sizes"
run inspect "$work/48b" --ctx 4096 --json
[ $rc -eq 0 ] && python3 - "$out" <<'PY' 2>"$err"
import json, sys
x = json.load(open(sys.argv[1]))
m = x["memory"]
assert x["n_layers"] == 27 and len(x["layers"]) == 27
assert sum(l["mixer"] == "KDA" for l in x["layers"]) == 20
assert m["state_bytes"] == m["n_states"] * 40 * 2**20
assert m["window_bytes"] == m["n_states"] * 20 * 3 * 3 * 4096 * 4
assert [c["cache_token_bytes"] for c in x["memory_by_cache_dtype"]] == [16128, 8064, 8064]
assert m["total_bytes"] == sum(m[k] for k in (
    "weights_in_place", "weights_copied", "state_bytes", "window_bytes", "cache_bytes",
    "rounding_bytes", "workspace_bytes", "other_bytes"))
assert sum(p["parameters"] for p in x["parts"].values()) == x["parameters"]
PY
result $? "48B: JSON"
# 98 GB of holes, of which none is read; sanitizers want more memory for themselves alone
if (ulimit -d 400000 && "$EBRO" --version >"$out" 2>"$err"); then
    (ulimit -d 400000 && "$EBRO" inspect "$work/48b" >"$out" 2>"$err")
    result $? "48B: within 400 MB"
else
    skip "memory cannot be bounded here (48B: within 400 MB)"
fi

finish
