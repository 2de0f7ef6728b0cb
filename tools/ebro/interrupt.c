/* interrupt.c: see interrupt.h. */
#include "interrupt.h"

#include <string.h>

volatile sig_atomic_t eb_interrupted;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    eb_interrupted = 1;
}

void eb_interrupt_catch(bool once) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_interrupt;
    action.sa_flags = once ? (int)SA_RESETHAND : 0;
    sigaction(SIGINT, &action, NULL);
}
