/* sim_plot.c: one small SVG: prompt tokens that were recomputed or refused against the budget, a
 * line for each policy. Readable on light and dark ground: its colours follow the reader's choice.
 */
#include <math.h>
#include <string.h>

#include "sim.h"

enum { WIDTH = 720, HEIGHT = 420, LEFT = 84, RIGHT = 150, TOP = 46, BOTTOM = 58, N_TICKS = 5 };

static const char head[] =
    "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" "
    "aria-label=\"Prompt tokens recomputed or refused, against the budget\">\n"
    "<style>\n"
    "svg { color-scheme: light dark; font: 13px sans-serif; }\n"
    "text { fill: #1b1f24; } .ground { fill: #ffffff; } .rule { stroke: #d5d9de; }\n"
    ".m { text-anchor: middle; } .e { text-anchor: end; }\n"
    ".line { fill: none; stroke-width: 2; }\n"
    ".refused { fill: none; stroke: #c21f2c; stroke-width: 2; }\n"
    ".line.p0 { stroke: #0b62b5; } circle.p0 { fill: #0b62b5; }\n"
    ".line.p1 { stroke: #b5480b; stroke-dasharray: 7 4; } circle.p1 { fill: #b5480b; }\n"
    "@media (prefers-color-scheme: dark) {\n"
    "  text { fill: #e6e9ed; } .ground { fill: #14171b; } .rule { stroke: #3a4047; }\n"
    "  .refused { stroke: #ff7b84; }\n"
    "  .line.p0 { stroke: #6bb3ff; } circle.p0 { fill: #6bb3ff; }\n"
    "  .line.p1 { stroke: #ff9d5c; } circle.p1 { fill: #ff9d5c; }\n"
    "}\n"
    "</style>\n"
    "<rect class=\"ground\" width=\"%d\" height=\"%d\"/>\n";

struct scale {
    double low, high; /* log2 of the budgets */
    double step, top; /* tokens a tick; of the highest */
    int n_ticks;      /* above 0 */
};

/* 1, 2 or 5 times a power of ten, so that N_TICKS of them reach the most. */
static double nice_step(double most) {
    double step = 1.0;
    if (most <= N_TICKS) return step;
    double power = pow(10.0, floor(log10(most / N_TICKS)));
    static const double factors[] = {1.0, 2.0, 5.0, 10.0};
    for (int i = 0; i < 4; i++) {
        step = factors[i] * power;
        if (step * N_TICKS >= most) break;
    }
    return step;
}

static struct scale make_scale(const struct eb_sim_table *t) {
    struct scale s = {.low = INFINITY, .high = -INFINITY};
    double most = 0.0;
    for (size_t i = 0; i < t->n_budgets * t->n_policies; i++) {
        double b = log2((double)t->rows[i].budget);
        s.low = fmin(s.low, b);
        s.high = fmax(s.high, b);
        most = fmax(most, (double)eb_sim_unsaved(&t->rows[i]));
    }
    if (s.high - s.low < 1e-9) {
        s.low -= 1.0;
        s.high += 1.0;
    }
    s.step = nice_step(most);
    s.n_ticks = (int)fmax(1.0, ceil(most / s.step));
    s.top = s.step * s.n_ticks;
    return s;
}

static double at_x(const struct scale *s, uint64_t budget) {
    return LEFT + (log2((double)budget) - s->low) / (s->high - s->low) * (WIDTH - LEFT - RIGHT);
}

static double at_y(const struct scale *s, double tokens) {
    return HEIGHT - BOTTOM - tokens / s->top * (HEIGHT - TOP - BOTTOM);
}

static void tokens_text(double tokens, char *out, size_t capacity) {
    if (tokens >= 1e9)
        snprintf(out, capacity, "%g G", tokens / 1e9);
    else if (tokens >= 1e6)
        snprintf(out, capacity, "%g M", tokens / 1e6);
    else if (tokens >= 1e3)
        snprintf(out, capacity, "%g k", tokens / 1e3);
    else
        snprintf(out, capacity, "%g", tokens);
}

static void draw_axes(FILE *f, const struct eb_sim_table *t, const struct scale *s) {
    for (int i = 0; i <= s->n_ticks; i++) {
        char text[32];
        double v = s->step * i;
        tokens_text(v, text, sizeof text);
        fprintf(f, "<path class=\"rule\" d=\"M%d %.1fH%d\"/>", LEFT, at_y(s, v), WIDTH - RIGHT);
        fprintf(f, "<text class=\"e\" x=\"%d\" y=\"%.1f\">%s</text>\n", LEFT - 8, at_y(s, v) + 4.5,
                text);
    }
    double last = -1e9;
    for (size_t b = 0; b < t->n_budgets; b++) {
        char text[32];
        double x = at_x(s, t->rows[b * t->n_policies].budget);
        fprintf(f, "<path class=\"rule\" d=\"M%.1f %dv5\"/>", x, HEIGHT - BOTTOM);
        if (fabs(x - last) < 60.0) continue; /* no room for its text */
        last = x;
        eb_sim_bytes(t->rows[b * t->n_policies].budget, text, sizeof text);
        fprintf(f, "<text class=\"m\" x=\"%.1f\" y=\"%d\">%s</text>\n", x, HEIGHT - BOTTOM + 20,
                text);
    }
    fprintf(f, "<text class=\"m\" x=\"%d\" y=\"%d\">budget (bytes, logarithmic)</text>\n",
            (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14);
    fprintf(f,
            "<text class=\"m\" transform=\"translate(20 %d) rotate(-90)\">prompt tokens recomputed "
            "or refused</text>\n",
            (TOP + HEIGHT - BOTTOM) / 2);
}

/* A cross over the point; a pointer on it shows how many (0: nothing). */
static void draw_refused(FILE *f, double x, double y, uint64_t n) {
    fprintf(f, "<path class=\"refused\" d=\"M%.1f %.1fl14 14m-14 0l14 -14\">", x - 7.0, y - 7.0);
    if (n > 0)
        fprintf(f, "<title>%llu request%s refused</title>", (unsigned long long)n,
                n == 1 ? "" : "s");
    fputs("</path>\n", f);
}

static void draw_policy(FILE *f, const struct eb_sim_table *t, const struct scale *s, size_t p) {
    fprintf(f, "<path class=\"line p%zu\" d=\"", p);
    for (size_t b = 0; b < t->n_budgets; b++) {
        const struct eb_sim_row *r = &t->rows[b * t->n_policies + p];
        fprintf(f, "%c%.1f %.1f", b == 0 ? 'M' : 'L', at_x(s, r->budget),
                at_y(s, (double)eb_sim_unsaved(r)));
    }
    fputs("\"/>\n", f);
    for (size_t b = 0; b < t->n_budgets; b++) {
        const struct eb_sim_row *r = &t->rows[b * t->n_policies + p];
        double x = at_x(s, r->budget), y = at_y(s, (double)eb_sim_unsaved(r));
        fprintf(f, "<circle class=\"p%zu\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"/>\n", p, x, y);
        if (r->result.n_refused > 0) draw_refused(f, x, y, r->result.n_refused);
    }
    int y = TOP + 16 + (int)p * 22;
    fprintf(f, "<path class=\"line p%zu\" d=\"M%d %dh28\"/>", p, WIDTH - RIGHT + 18, y - 4);
    fprintf(f, "<text x=\"%d\" y=\"%d\">%s</text>\n", WIDTH - RIGHT + 54, y, t->rows[p].policy);
}

/* What the cross means, where there is one. */
static void draw_refused_key(FILE *f, const struct eb_sim_table *t) {
    if (!eb_sim_any_refused(t)) return;
    int y = TOP + 16 + (int)t->n_policies * 22;
    draw_refused(f, WIDTH - RIGHT + 32, y - 4, 0);
    fprintf(f, "<text x=\"%d\" y=\"%d\">some refused</text>\n", WIDTH - RIGHT + 54, y);
}

/* The geometry may be a path: characters that mean something in XML are spelled out. */
static void put_text(FILE *f, const char *text) {
    for (; *text; text++) {
        switch (*text) {
            case '<':
                fputs("&lt;", f);
                break;
            case '>':
                fputs("&gt;", f);
                break;
            case '&':
                fputs("&amp;", f);
                break;
            default:
                if ((unsigned char)*text >= 0x20) fputc(*text, f);
        }
    }
}

bool eb_sim_write_svg(FILE *f, const void *table) {
    const struct eb_sim_table *t = table;
    struct scale s = make_scale(t);
    fprintf(f, head, WIDTH, HEIGHT, WIDTH, HEIGHT);
    fprintf(f, "<text x=\"%d\" y=\"26\">", LEFT);
    put_text(f, t->geometry);
    fprintf(f, ": %llu request%s, keeping %s</text>\n", (unsigned long long)t->n_requests,
            t->n_requests == 1 ? "" : "s", t->keep);
    draw_axes(f, t, &s);
    for (size_t p = 0; p < t->n_policies; p++) draw_policy(f, t, &s, p);
    draw_refused_key(f, t);
    fputs("</svg>\n", f);
    return !ferror(f);
}
