// The bare commit: how long the disk takes for as many bytes as the gateway writes for each of its commits.
//
// usage: commit FILE BYTES SECONDS
//
// Overwrites a log that was filled with zeros and synced before, from its beginning to its end and from there again, as a log
// that is reused after each checkpoint: BYTES in one write, then fdatasync. A commit that has to be on the disk cannot be
// faster, and one after the other is what a single writer does. The log is removed at the end. Prints one JSON object.
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { logSize = 4 << 20, commitsCapacity = 1 << 22 };

static uint32_t microseconds[commitsCapacity];
static const char *path;

static void fail(const char *what) {
    fprintf(stderr, "commit: %s: %s: %s\n", path, what, strerror(errno));
    unlink(path);
    exit(1);
}

static int64_t nowUs(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000) + time.tv_nsec / 1000;
}

static void commit(int file, const char *bytes, size_t size, off_t offset) {
    ssize_t count = pwrite(file, bytes, size, offset);
    if (count != (ssize_t)size) fail("pwrite");
    if (fdatasync(file) != 0) fail("fdatasync");
}

static int ascending(const void *a, const void *b) {
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return (left > right) - (left < right);
}

int main(int argc, char **argv) {
    long size = argc == 4 ? atol(argv[2]) : 0, seconds = argc == 4 ? atol(argv[3]) : 0;
    if (size <= 0 || size > logSize || seconds <= 0) {
        fprintf(stderr, "usage: commit FILE BYTES SECONDS, with at most %d bytes\n", logSize);
        return 64;
    }
    path = argv[1];
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0) fail("open");
    char *bytes = calloc(1, logSize);
    if (!bytes) fail("memory");
    commit(file, bytes, logSize, 0);
    memset(bytes, 'x', (size_t)size);

    size_t count = 0;
    off_t offset = 0;
    for (int64_t begun = nowUs(), end = begun + seconds * 1000000; begun < end && count < commitsCapacity;) {
        if (offset + size > logSize) offset = 0;
        commit(file, bytes, (size_t)size, offset);
        offset += size;
        int64_t now = nowUs();
        microseconds[count++] = (uint32_t)(now - begun);
        begun = now;
    }
    close(file);
    unlink(path);
    qsort(microseconds, count, sizeof *microseconds, ascending);
    printf("{\"commits\":%zu,\"p50Ms\":%.3f,\"p99Ms\":%.3f,\"p999Ms\":%.3f,\"maxMs\":%.3f}\n", count,
        microseconds[count / 2] / 1e3, microseconds[count * 99 / 100] / 1e3, microseconds[count * 999 / 1000] / 1e3,
        microseconds[count - 1] / 1e3);
    free(bytes);
    return 0;
}
