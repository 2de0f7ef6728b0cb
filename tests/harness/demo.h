/* demo.h: the demo model and its golden results in memory, as the program holds them. */
#ifndef EB_TEST_DEMO_H
#define EB_TEST_DEMO_H

#include "tests/harness/test.h"

enum { TEST_DEMO_FILES = 5 };

struct test_demo {
    ebro_file files[TEST_DEMO_FILES];
    void *golden;
    size_t golden_bytes;
};

void test_demo_open(struct test_demo *d);
void test_demo_close(struct test_demo *d);

#endif
