/* selftest.h: what ebro_device_open_tested keeps of its results, so that a device is tested once
 * and not at each start. Testing is selftest.c's job. */
#ifndef EB_CHECK_SELFTEST_H
#define EB_CHECK_SELFTEST_H

#include "device/device.h"

enum { EB_AVOID_BYTES = 2048 }; /* of a list of variants to avoid */

/* What a test of this device found wrong before: names of variants, maybe none. False: there is no
 * result, or none that holds for this device, its driver, its module, this library and what was
 * taken away by the options that it is open with. */
bool eb_selftest_recall(const struct ebro_device *d, const ebro_device_options *o,
                        char found[EB_AVOID_BYTES]);

/* Keeps that result. Where it cannot, a warning says so and the next start tests again. */
void eb_selftest_keep(const struct ebro_device *d, const ebro_device_options *o, const char *found);

#endif
