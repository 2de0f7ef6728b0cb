/* sim_generate.c: writes traces of four kinds of load, in the form that sim_trace.c reads. Random,
 * and the same for the same seed. */
#include <errno.h>
#include <stdlib.h>

#include "sim.h"

struct talk {
    uint64_t number, turn;
    uint64_t n_tokens, before_last; /* now; before the last turn */
};

struct generator {
    const struct eb_sim_load *load;
    FILE *f;
    uint64_t random, n_talks;
    struct talk *talks;
};

static uint64_t draw(struct generator *g, uint64_t below) {
    g->random += 0x9e3779b97f4a7c15u;
    uint64_t z = g->random;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % below;
}

/* Half of the mean to one and a half. */
static uint64_t length(struct generator *g, uint64_t mean) {
    uint64_t n = mean - mean / 2 + draw(g, mean + 1);
    return n > 0 ? n : 1;
}

static int one_off(struct generator *g, uint64_t i) {
    return fprintf(g->f, "{\"parts\": [[\"one-%llu\", %llu]], \"generate\": %llu}\n",
                   (unsigned long long)i,
                   (unsigned long long)length(g, g->load->system + g->load->user),
                   (unsigned long long)length(g, g->load->reply));
}

static int shared_system(struct generator *g, uint64_t i) {
    return fprintf(g->f,
                   "{\"parts\": [[\"system-%llu\", %llu], [\"own-%llu\", %llu]], \"generate\": "
                   "%llu}\n",
                   (unsigned long long)draw(g, g->load->n_sessions),
                   (unsigned long long)g->load->system, (unsigned long long)i,
                   (unsigned long long)length(g, g->load->user),
                   (unsigned long long)length(g, g->load->reply));
}

/* A turn of a conversation that all begin with one system prompt. */
static int turn(struct generator *g, struct talk *t, uint64_t user, uint64_t cut) {
    uint64_t reply = length(g, g->load->reply);
    uint64_t system = t->turn == 0 ? g->load->system : 0;
    int n = fprintf(g->f, "{\"session\": \"talk-%llu\", ", (unsigned long long)t->number);
    if (n >= 0 && cut > 0) n = fprintf(g->f, "\"cut\": %llu, ", (unsigned long long)cut);
    if (n >= 0) n = fprintf(g->f, "\"parts\": [");
    if (n >= 0 && system > 0) n = fprintf(g->f, "[\"system\", %llu], ", (unsigned long long)system);
    if (n >= 0)
        n = fprintf(g->f, "[\"user-%llu-%llu\", %llu]], \"generate\": %llu}\n",
                    (unsigned long long)t->number, (unsigned long long)t->turn,
                    (unsigned long long)user, (unsigned long long)reply);
    if (cut > 0) t->n_tokens = cut;
    t->before_last = t->n_tokens;
    t->n_tokens += system + user + reply;
    t->turn++;
    return n;
}

static struct talk *pick_talk(struct generator *g) {
    struct talk *t = &g->talks[draw(g, g->load->n_sessions)];
    if (t->number == 0 || t->turn >= g->load->n_turns) *t = (struct talk){.number = ++g->n_talks};
    return t;
}

static int multi_turn(struct generator *g) {
    return turn(g, pick_talk(g), length(g, g->load->user), 0);
}

/* What tools answer differs a lot in length, and one step in eight is taken back and tried again.
 */
static int agentic(struct generator *g) {
    struct talk *t = pick_talk(g);
    uint64_t user = length(g, g->load->user);
    if (draw(g, 4) == 0) user *= 4;
    uint64_t cut = t->turn > 1 && draw(g, 8) == 0 ? t->before_last : 0;
    return turn(g, t, user, cut);
}

static int request(struct generator *g, uint64_t i) {
    switch (g->load->kind) {
        case EB_SIM_MULTI_TURN:
            return multi_turn(g);
        case EB_SIM_AGENTIC:
            return agentic(g);
        case EB_SIM_SHARED_SYSTEM:
            return shared_system(g, i);
        case EB_SIM_ONE_OFF:
            break;
    }
    return one_off(g, i);
}

bool eb_sim_generate(const struct eb_sim_load *load, FILE *f) {
    struct generator g = {.load = load, .f = f, .random = load->seed};
    g.talks = calloc((size_t)load->n_sessions, sizeof *g.talks);
    if (!g.talks) {
        errno = ENOMEM;
        return false;
    }
    bool ok = true;
    for (uint64_t i = 0; i < load->n_requests && ok; i++) ok = request(&g, i) >= 0;
    free(g.talks);
    return ok;
}
