/* spirv.c: see spirv.h. By the SPIR-V specification, section 3.52 (instructions); not its job:
 * whether a module is valid. */
#include "backends/vulkan/spirv.h"

#include <string.h>

/* The instructions, decorations and storage classes that matter. */
enum {
    OP_TYPE_BOOL = 20,
    OP_TYPE_INT = 21,
    OP_TYPE_FLOAT = 22,
    OP_TYPE_VECTOR = 23,
    OP_TYPE_ARRAY = 28,
    OP_TYPE_STRUCT = 30,
    OP_TYPE_POINTER = 32,
    OP_CONSTANT_TRUE = 41,
    OP_CONSTANT_FALSE = 42,
    OP_CONSTANT = 43,
    OP_SPEC_TRUE = 48,
    OP_SPEC_FALSE = 49,
    OP_SPEC = 50,
    OP_SPEC_OP = 52,
    OP_VARIABLE = 59,
    OP_DECORATE = 71,
    SPEC_ID = 1,
    WORKGROUP = 4,
    MAGIC = 0x07230203,
    HEADER = 5
};

/* vk_spirv_id.what */
enum { NOTHING, TYPE, POINTER, CONSTANT };

/* One module being read. */
struct reader {
    struct vk_spirv_id *ids;
    uint32_t bound;
    const uint32_t *values;
    uint32_t n_values;
    bool failed;
};

/* What an id is, where it is that; else the module is not understood. */
static uint64_t take(struct reader *r, uint32_t id, uint32_t what) {
    if (id < r->bound && r->ids[id].what == what) return r->ids[id].value;
    r->failed = true;
    return 0;
}

static void set(struct reader *r, uint32_t id, uint32_t what, uint64_t value) {
    if (id >= r->bound) {
        r->failed = true;
        return;
    }
    r->ids[id].what = what;
    r->ids[id].value = value;
}

/* A specialization constant: as given, or its default. */
static void set_spec(struct reader *r, uint32_t id, uint32_t value) {
    uint32_t spec = id < r->bound ? r->ids[id].spec : 0;
    set(r, id, CONSTANT, spec > 0 && spec <= r->n_values ? r->values[spec - 1] : value);
}

/* What lengths of arrays are made of. All is in 32 bits. False: another operation. */
static bool apply(uint32_t op, uint32_t a, uint32_t b, uint32_t c, uint32_t *out) {
    switch (op) {
        case 128: /* IAdd */
            *out = a + b;
            return true;
        case 130: /* ISub */
            *out = a - b;
            return true;
        case 132: /* IMul */
            *out = a * b;
            return true;
        case 134: /* UDiv */
            *out = b != 0 ? a / b : 0;
            return b != 0;
        case 137: /* UMod */
            *out = b != 0 ? a % b : 0;
            return b != 0;
        case 164: /* LogicalEqual */
        case 170: /* IEqual */
            *out = a == b;
            return true;
        case 165: /* LogicalNotEqual */
        case 171: /* INotEqual */
            *out = a != b;
            return true;
        case 166: /* LogicalOr */
            *out = a != 0 || b != 0;
            return true;
        case 167: /* LogicalAnd */
            *out = a != 0 && b != 0;
            return true;
        case 168: /* LogicalNot */
            *out = a == 0;
            return true;
        case 169: /* Select */
            *out = a != 0 ? b : c;
            return true;
        case 172: /* UGreaterThan */
            *out = a > b;
            return true;
        case 174: /* UGreaterThanEqual */
            *out = a >= b;
            return true;
        case 176: /* ULessThan */
            *out = a < b;
            return true;
        case 178: /* ULessThanEqual */
            *out = a <= b;
            return true;
        case 194: /* ShiftRightLogical */
            *out = b < 32 ? a >> b : 0;
            return true;
        case 196: /* ShiftLeftLogical */
            *out = b < 32 ? a << b : 0;
            return true;
        case 197: /* BitwiseOr */
            *out = a | b;
            return true;
        case 199: /* BitwiseAnd */
            *out = a & b;
            return true;
        default:
            return false;
    }
}

/* Words: type, result, operation, operands. What cannot be computed stays unknown; it only matters
 * where an array has that length. */
static void spec_op(struct reader *r, const uint32_t *w, uint32_t n) {
    uint32_t x[3] = {0}, result;
    if (n < 5 || n > 7) return;
    for (uint32_t i = 0; i < n - 4; i++) {
        uint32_t id = w[4 + i];
        if (id >= r->bound || r->ids[id].what != CONSTANT) return;
        x[i] = (uint32_t)r->ids[id].value;
    }
    if (apply(w[3], x[0], x[1], x[2], &result)) set(r, w[2], CONSTANT, result);
}

/* Types by their bytes. One of 0 bytes is no data: nothing that is shared has it. */
static void type(struct reader *r, const uint32_t *w, uint32_t n) {
    uint64_t bytes = 0;
    switch (w[0] & 0xffff) {
        case OP_TYPE_BOOL:
            set(r, w[1], TYPE, 4);
            return;
        case OP_TYPE_INT:
        case OP_TYPE_FLOAT:
            if (n >= 3) set(r, w[1], TYPE, w[2] / 8);
            return;
        case OP_TYPE_VECTOR:
            if (n >= 4) set(r, w[1], TYPE, take(r, w[2], TYPE) * w[3]);
            return;
        case OP_TYPE_ARRAY:
            /* Of other types too: only one of known length and elements is known itself. */
            if (n < 4 || w[2] >= r->bound || w[3] >= r->bound) return;
            if (r->ids[w[2]].what == TYPE && r->ids[w[3]].what == CONSTANT)
                set(r, w[1], TYPE, r->ids[w[2]].value * r->ids[w[3]].value);
            return;
        case OP_TYPE_STRUCT:
            for (uint32_t i = 2; i < n; i++) {
                if (w[i] >= r->bound || r->ids[w[i]].what != TYPE) return;
                bytes += r->ids[w[i]].value;
            }
            set(r, w[1], TYPE, bytes);
            return;
        case OP_TYPE_POINTER:
            if (n >= 4 && w[2] == WORKGROUP) set(r, w[1], POINTER, w[3]);
            return;
        default:
            return;
    }
}

static void instruction(struct reader *r, const uint32_t *w, uint32_t n, struct vk_spirv *out) {
    const uint32_t op = w[0] & 0xffff;
    if (n < 2) return;
    if (op == OP_DECORATE && n >= 4 && w[2] == SPEC_ID && w[1] < r->bound) {
        r->ids[w[1]].spec = w[3] + 1;
        if (w[3] >= out->n_constants) out->n_constants = w[3] + 1;
    } else if (op >= OP_TYPE_BOOL && op <= OP_TYPE_POINTER) {
        type(r, w, n);
    } else if (n >= 3 && (op == OP_CONSTANT_TRUE || op == OP_CONSTANT_FALSE)) {
        set(r, w[2], CONSTANT, op == OP_CONSTANT_TRUE);
    } else if (n >= 3 && (op == OP_SPEC_TRUE || op == OP_SPEC_FALSE)) {
        set_spec(r, w[2], op == OP_SPEC_TRUE);
    } else if (n == 4 && op == OP_CONSTANT) {
        set(r, w[2], CONSTANT, w[3]);
    } else if (n == 4 && op == OP_SPEC) {
        set_spec(r, w[2], w[3]);
    } else if (op == OP_SPEC_OP) {
        spec_op(r, w, n);
    } else if (op == OP_VARIABLE && n >= 4 && w[3] == WORKGROUP) {
        out->shared_bytes += take(r, (uint32_t)take(r, w[1], POINTER), TYPE);
    }
}

bool vk_spirv_read(const uint32_t *code, size_t n, const uint32_t *values, uint32_t n_values,
                   struct vk_spirv_id *ids, uint32_t n_ids, struct vk_spirv *out) {
    *out = (struct vk_spirv){0};
    if (n < HEADER || code[0] != MAGIC || code[3] > n_ids) return false;
    struct reader r = {.ids = ids, .bound = code[3], .values = values, .n_values = n_values};
    memset(ids, 0, code[3] * sizeof *ids);
    for (size_t at = HEADER; at < n && !r.failed;) {
        uint32_t words = code[at] >> 16;
        if (words == 0 || words > n - at) return false;
        instruction(&r, &code[at], words, out);
        at += words;
    }
    return !r.failed;
}
