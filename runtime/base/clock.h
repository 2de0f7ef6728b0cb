/* clock.h: time that passes. */
#ifndef EB_CLOCK_H
#define EB_CLOCK_H

/* Seconds since some fixed moment; never goes back. */
double eb_clock_seconds(void);

#endif
