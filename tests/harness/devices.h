/* devices.h: runs a group of tests on every device that computes, so that a new backend is tested
 * by being there. Devices of the null backend compute nothing and are left out. The CPU must always
 * be there; EBRO_TEST_DEVICE, a device's name, limits all to that one, EBRO_TEST_BACKEND to the
 * devices of one backend (a machine that has none skips, and says so), EBRO_TEST_FILTER to the
 * tests whose name fits a pattern ("norm*"). Where there is no such device or test the program
 * says so and fails. */
#ifndef EB_TEST_DEVICES_H
#define EB_TEST_DEVICES_H

#include <stdbool.h>

#include "ebro/backend.h"
#include "tests/harness/test.h"

/* Runs the group, an array of struct CMUnitTest, once for each of these devices, as "NAME on
 * DEVICE". Returns the exit code of the program. */
#define test_on_devices(name, tests, setup, teardown) \
    test_group_on_devices((name), (tests), sizeof(tests) / sizeof((tests)[0]), (setup), (teardown))
int test_group_on_devices(const char *name, const struct CMUnitTest *tests, size_t n_tests,
                          CMFixtureFunction setup, CMFixtureFunction teardown);

/* The same for groups of whole models with many shapes or long texts: where all those devices are
 * imitated by a processor they are skipped, which says so, unless EBRO_TEST_FULL is set or a device
 * is named. */
#define test_on_fast_devices(name, tests, setup, teardown)                                   \
    test_group_on_fast_devices((name), (tests), sizeof(tests) / sizeof((tests)[0]), (setup), \
                               (teardown))
int test_group_on_fast_devices(const char *name, const struct CMUnitTest *tests, size_t n_tests,
                               CMFixtureFunction setup, CMFixtureFunction teardown);

/* The device that the running group is for. */
const char *test_device(void);

/* Whether a processor imitates that device: it computes hundreds of times slower than a real one.
 */
bool test_device_is_emulated(void);

/* Skips the running test, saying why, where that device lacks a capability (EBRO_CAP_*) of this
 * name. For the start of a test, which leaves here without cleaning up. */
#define test_device_needs(cap) test_device_needs_named((cap), #cap)
void test_device_needs_named(uint64_t cap, const char *name);

#endif
