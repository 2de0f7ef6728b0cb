/* states.h: a program's walks as states of an automaton, made as they are come to. A state is the
 * set of places where a walk may be: an instruction and a stack of calls. Stacks share their
 * frames, equal stacks and equal states are one, so that ambiguity costs what differs alone, and
 * a byte that was read from a state before costs a look into a table. */
#ifndef EB_STATES_H
#define EB_STATES_H

#include "program.h"

/* Bounds of one state, and of all that are kept at once. */
enum {
    EB_MAX_PLACES = 4096,
    EB_MAX_STATES = 1 << 16,
    EB_MAX_ALL_PLACES = 1 << 20,
    EB_MAX_FRAMES = 1 << 20
};

/* A state's number; negative: none. */
enum { EB_STATE_DEAD = -1, EB_STATE_UNKNOWN = -2, EB_STATE_FAILED = -3 };

struct eb_frame {
    uint32_t parent, pc; /* pc: the call that it returns to */
    uint32_t count;      /* REPEAT: times that are over */
    uint32_t depth;
};

struct eb_place {
    uint32_t pc, frame;
};

struct eb_state {
    uint32_t first, n; /* of places, in order */
};

struct eb_hash {
    uint32_t *slots; /* number + 1; 0: free */
    size_t room, n;
};

/* Places that a closure has been at: of this stamp alone. */
struct eb_seen {
    struct eb_place place;
    uint32_t stamp;
};

struct eb_states {
    const struct eb_program *p;
    struct eb_frame *frames; /* frames[0]: the bottom of every stack */
    struct eb_place *places;
    struct eb_state *states;
    int32_t *next; /* [n_states][n_classes] */
    uint32_t n_frames, n_places, n_states;
    size_t frames_room, places_room, states_room, next_room;
    struct eb_hash frame_hash, state_hash;
    /* What a step is made in. */
    struct eb_seen *seen;
    size_t seen_room, n_seen;
    uint32_t stamp;
    struct eb_place *todo;
    size_t todo_room, n_todo;
    int32_t failure; /* why the last result was EB_STATE_FAILED */
};

/* Zeroes *s; gives the state at the program's beginning. */
int32_t eb_states_begin(struct eb_states *s, const struct eb_program *p);
void eb_states_clear(struct eb_states *s);

/* The state after a byte; EB_STATE_DEAD: it may not come. EB_STATE_FAILED: out of memory, or
 * more ambiguous than what is bounded (s->failure); that is not kept, and can be tried again. */
static inline int32_t eb_states_byte(struct eb_states *s, int32_t state, int byte);
/* The same for a control token, which may be a stop token too. */
int32_t eb_states_control(struct eb_states *s, int32_t state, int32_t id, bool stop);
/* True where a stop token may come; *alone: and nothing else. */
bool eb_states_may_stop(const struct eb_states *s, int32_t state, bool *alone);

/* Forgets all states but one, whose new number it gives, where there are many; numbers that were
 * given before mean nothing then. Out of memory: nothing changes. */
int32_t eb_states_tidy(struct eb_states *s, int32_t state);

/* The same as eb_states_byte, where the table does not know. */
int32_t eb_states_step(struct eb_states *s, int32_t state, int byte);

static inline int32_t eb_states_byte(struct eb_states *s, int32_t state, int byte) {
    size_t at = (size_t)state * s->p->n_classes + s->p->class_of[byte];
    int32_t next = s->next[at];
    return next != EB_STATE_UNKNOWN ? next : eb_states_step(s, state, byte);
}

#endif
