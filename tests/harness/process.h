/* process.h: what a process holds of the machine, as the system tells it: for tests that nothing
 * grows. Linux alone. */
#ifndef EB_TEST_PROCESS_H
#define EB_TEST_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

/* Bytes of it in memory, its open files, its threads. `pid` 0: this process. Fails the test where
 * there is no such process. */
int64_t test_resident_bytes(int64_t pid);
uint32_t test_open_files(int64_t pid);
uint32_t test_threads(int64_t pid);

/* Processor time of all its threads so far, in seconds: on a busy machine steadier than a clock. */
double test_cpu_seconds(int64_t pid);

/* Whether the address or thread sanitizer watches this process: it is many times slower then, and
 * keeps freed memory on purpose. */
bool test_is_sanitized(void);

#endif
