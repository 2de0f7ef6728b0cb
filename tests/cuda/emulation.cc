/* emulation.cc: the SIMT emulation that proves the kernels (tests/simt) is itself right: a right
 * kernel is right in every order of threads; a missing barrier gives something else in one of them;
 * a barrier or a wave operation that not all come to ends the launch and names them. */
#include <stdlib.h>

#include "shaders/cuda_hip/wave.cuh"

#include <setjmp.h>
#include <stdarg.h>

extern "C" {
#include <cmocka.h>
}

enum { THREADS = 4 * EB_WAVE };

struct test_args {
    unsigned *out; /* [THREADS] */
};

/* ---- kernels ---------------------------------------------------------------------------- */

/* Each thread writes what the one opposite it has. */
EB_KERNEL(reverse, test_args, THREADS) {
    EB_SHARED(unsigned, x, [THREADS]);
    x[thread_id()] = thread_id() + 1;
    sync_block();
    A.out[thread_id()] = x[n_threads() - 1 - thread_id()];
}

EB_KERNEL(reverse_without_barrier, test_args, THREADS) {
    EB_SHARED(unsigned, x, [THREADS]);
    x[thread_id()] = thread_id() + 1;
    A.out[thread_id()] = x[n_threads() - 1 - thread_id()];
}

/* The operation of a wave keeps nothing apart from other waves. */
EB_KERNEL(reverse_behind_a_wave, test_args, THREADS) {
    EB_SHARED(unsigned, x, [THREADS]);
    x[thread_id()] = thread_id() + 1;
    sync_wave();
    A.out[thread_id()] = x[n_threads() - 1 - thread_id()];
}

/* Two rounds through the same memory: the second may begin only when the first was read. */
template <bool BARRIER>
static EB_DEVICE void rounds(const test_args &a, unsigned *x) {
    unsigned v = thread_id() + 1;
    for (unsigned r = 0; r < 2; r++) {
        x[thread_id()] = v;
        sync_block();
        v = x[(thread_id() + 1) % n_threads()] + r;
        if (BARRIER) sync_block();
    }
    a.out[thread_id()] = v;
}

EB_KERNEL(two_rounds, test_args, THREADS) {
    EB_SHARED(unsigned, x, [THREADS]);
    rounds<true>(A, x);
}

EB_KERNEL(two_rounds_without_barrier, test_args, THREADS) {
    EB_SHARED(unsigned, x, [THREADS]);
    rounds<false>(A, x);
}

EB_KERNEL(some_end_before_a_barrier, test_args, THREADS) {
    if (thread_id() >= THREADS / 2) return;
    sync_block();
    A.out[thread_id()] = 1;
}

EB_KERNEL(half_a_wave_shuffles, test_args, THREADS) {
    unsigned v = thread_id();
    if (lane_id() < EB_WAVE / 2) v = shuffle_xor(v, 1u);
    A.out[thread_id()] = v;
}

EB_KERNEL(two_operations_meet, test_args, THREADS) {
    unsigned v = thread_id();
    if (lane_id() % 2 == 0)
        v = shuffle_xor(v, 1u);
    else
        v = shuffle_up(v, 1u);
    A.out[thread_id()] = v;
}

EB_KERNEL(a_barrier_meets_a_shuffle, test_args, THREADS) {
    unsigned v = thread_id();
    if (lane_id() == 3)
        sync_block();
    else
        v = shuffle_xor(v, 1u);
    A.out[thread_id()] = v;
}

/* Every operation of a wave, against what it says. */
EB_KERNEL(operations, test_args, THREADS) {
    unsigned lane = lane_id(), wrong = 0;
    wrong += shuffle_xor(lane, 5u) != (lane ^ 5u);
    wrong += shuffle(lane, 7u) != 7u;
    wrong += shuffle_up(lane, 3u) != (lane >= 3 ? lane - 3 : lane);
    wrong += wave_ballot(lane % 3 == 0) != wave_ballot(lane == 0 || lane % 3 == 0);
    wrong += (wave_ballot(lane % 3 == 0) >> lane & 1) != (lane % 3 == 0);
    wrong += wave_sum(1.0f) != (float)EB_WAVE;
    wrong += wave_max((float)lane) != (float)(EB_WAVE - 1);
    A.out[thread_id()] = wrong;
}

/* ---- tests ------------------------------------------------------------------------------ */

static const char *const orders[] = {"forward", "backward", "mixed", "alone"};
static unsigned out[THREADS];
static char text[256];

static bool run(const char *kernel, const char *order) {
    const test_args args = {out};
    const simt::kernel *k = simt::find_kernel(kernel);
    assert_non_null(k);
    setenv("EBRO_SIMT_ORDER", order, 1);
    memset(out, 0x5a, sizeof out);
    text[0] = '\0';
    return simt::launch(k, &args, 1, THREADS, 0, text, sizeof text);
}

static bool is_reversed() {
    for (unsigned i = 0; i < THREADS; i++)
        if (out[i] != THREADS - i) return false;
    return true;
}

static bool is_two_rounds() {
    for (unsigned i = 0; i < THREADS; i++)
        if (out[i] != (i + 2) % THREADS + 1 + 1) return false;
    return true;
}

static void right_kernels_are_right_in_every_order(void **) {
    for (const char *order : orders) {
        for (int i = 0; i < 20; i++) {
            assert_true(run("reverse", order));
            assert_true(is_reversed());
            assert_true(run("two_rounds", order));
            assert_true(is_two_rounds());
            assert_true(run("operations", order));
            for (unsigned v : out) assert_int_equal(v, 0);
        }
    }
}

/* How many of the orders show that a kernel is wrong. */
static int n_wrong(const char *kernel, bool (*is_right)()) {
    int n = 0;
    for (const char *order : orders) n += !run(kernel, order) || !is_right();
    return n;
}

static void a_missing_barrier_shows(void **) {
    assert_int_equal(n_wrong("reverse_without_barrier", is_reversed), 4);
    assert_int_equal(n_wrong("reverse_behind_a_wave", is_reversed), 1);
    assert_in_range(n_wrong("two_rounds_without_barrier", is_two_rounds), 1, 4);
}

static void fails_with(const char *kernel, const char *part) {
    for (const char *order : orders) {
        assert_false(run(kernel, order));
        if (strstr(text, part) == nullptr || strstr(text, kernel) != text)
            fail_msg("%s, %s: %s", kernel, order, text);
    }
}

static void divergence_is_named(void **) {
    fails_with("some_end_before_a_barrier", "waits in sync_block(), but thread");
    fails_with("half_a_wave_shuffles", "waits for its wave in shuffle_xor, but thread");
    fails_with("two_operations_meet", "is in shuffle_");
    fails_with("a_barrier_meets_a_shuffle", "thread 3 is in sync_block()");
}

static void launches_are_whole_waves(void **) {
    const test_args args = {out};
    assert_false(
        simt::launch(simt::find_kernel("reverse"), &args, 1, EB_WAVE + 1, 0, text, sizeof text));
    assert_non_null(strstr(text, "threads of a block in waves of"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_kernels_are_right_in_every_order),
        cmocka_unit_test(a_missing_barrier_shows),
        cmocka_unit_test(divergence_is_named),
        cmocka_unit_test(launches_are_whole_waves),
    };
    return cmocka_run_group_tests_name("cuda/emulation", tests, nullptr, nullptr);
}
