/*
 * event.h - between event.c and pressure.c: an event whose waiter sleeps in poll rather than on the futex. Private to this folder.
 */
#ifndef STRATA_PLATFORM_LINUX_EVENT_H
#define STRATA_PLATFORM_LINUX_EVENT_H

#include "platform/platform.h"

/* Says that the waiter is about to poll. False when the event is woken already: it is taken then, and there is nothing to wait for. */
bool linux_event_poll_begin(struct platform_event *event);
/* After the poll; true when the event was woken meanwhile. It is taken. */
bool linux_event_poll_end(struct platform_event *event);

/* Ends the poll of pressure.c, if there is one. Callable from any thread and signal handler; keeps errno. */
void linux_pressure_wake(void);

#endif
