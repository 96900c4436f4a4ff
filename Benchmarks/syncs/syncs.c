// A slower disk: preloaded into a process (`LD_PRELOAD`), this lets each fsync and fdatasync take SYNC_US microseconds at least.
//
// The real call comes first; what is left of the time, the thread sleeps, as it does while a disk works. So a sync that
// is slow by itself is not made slower, and the delay takes no CPU. Without the variable, nothing changes.
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static int (*realFsync)(int), (*realFdatasync)(int);
static long leastUs;

__attribute__((constructor)) static void begin(void) {
    realFsync = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    realFdatasync = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    const char *text = getenv("SYNC_US");
    leastUs = text ? atol(text) : 0;
}

static int slowly(int (*sync)(int), int file) {
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    int result = sync(file), error = errno;
    end.tv_sec += leastUs / 1000000;
    end.tv_nsec += leastUs % 1000000 * 1000;
    if (end.tv_nsec >= 1000000000) end.tv_sec += 1, end.tv_nsec -= 1000000000;
    prctl(PR_SET_TIMERSLACK, 1000UL);  // Of this thread: the kernel may be 50 µs late otherwise.
    while (leastUs > 0 && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR) {}
    errno = error;
    return result;
}

int fsync(int file) { return slowly(realFsync, file); }

int fdatasync(int file) { return slowly(realFdatasync, file); }
