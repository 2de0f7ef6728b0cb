/* interrupt.h: ctrl-C as a flag. */
#ifndef EB_INTERRUPT_H
#define EB_INTERRUPT_H

#include <signal.h>
#include <stdbool.h>

/* Becomes 1 at ctrl-C; whoever has answered it sets it back to 0. */
extern volatile sig_atomic_t eb_interrupted;

/* From here on ctrl-C sets the flag instead of ending the program; with `once` the second one ends
 * it. A read that waits then returns with EINTR. */
void eb_interrupt_catch(bool once);

#endif
