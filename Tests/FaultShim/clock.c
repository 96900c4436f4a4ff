// A wrong clock, for tests: preloaded into a process (`LD_PRELOAD`), this moves the time of day by CLOCK_OFFSET seconds.
// The other clocks stay as they are. Built by `make torture-cluster`.
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long offset;

__attribute__((constructor)) static void begin(void) {
    const char *seconds = getenv("CLOCK_OFFSET");
    if (seconds) offset = atol(seconds);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    long result = syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += offset;
    return (int)result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec time;
    if (clock_gettime(CLOCK_REALTIME, &time) != 0) return -1;
    now->tv_sec = time.tv_sec;
    now->tv_usec = time.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *result) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (result) *result = now.tv_sec;
    return now.tv_sec;
}
