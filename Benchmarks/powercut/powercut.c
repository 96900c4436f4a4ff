// A disk that loses power: a FUSE file system with one file, `disk`, in memory. A loop device makes a block device of
// the file, and any file system may be on it.
//
// usage: powercut MIB MOUNTPOINT          runs in the foreground until it is unmounted
//
// The disk has a volatile write cache. A write goes to the cache. A flush, which the loop device sends as fsync, makes
// all writes before it durable. The extended attribute `user.power` of the file is the switch:
//   off   The power is lost: writes and flushes fail with EIO from now on.
//   on    The power is back: what was not flushed is gone.
//   torn  As `on`, but each block of 4096 bytes that was not flushed has survived with a chance of one half. The
//         attribute `user.seed` seeds the choice.
#define FUSE_USE_VERSION 31
#include <errno.h>
#include <fuse.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { blockSize = 4096 };

static size_t size;
static char *cache, *durable;
// The blocks in which both differ: whether each is listed, and the list.
static unsigned char *isDirty;
static size_t *dirty, dirtyCount;
static int isPowerless;
static uint64_t randomState = 1;

// xorshift64*, its upper bits.
static uint64_t drawn(void) {
    randomState ^= randomState >> 12;
    randomState ^= randomState << 25;
    randomState ^= randomState >> 27;
    return randomState * 0x2545F4914F6CDD1Du >> 33;
}

static void *zeros(size_t count) {
    void *bytes = mmap(NULL, count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (bytes == MAP_FAILED) {
        perror("powercut");
        exit(1);
    }
    return bytes;
}

static void flushBlocks(void) {
    for (size_t index = 0; index < dirtyCount; ++index) {
        size_t offset = dirty[index] * blockSize;
        memcpy(durable + offset, cache + offset, blockSize);
        isDirty[dirty[index]] = 0;
    }
    dirtyCount = 0;
}

static void powerOn(int isTorn) {
    for (size_t index = 0; index < dirtyCount; ++index) {
        size_t offset = dirty[index] * blockSize;
        if (isTorn && drawn() % 2) memcpy(durable + offset, cache + offset, blockSize);
        else memcpy(cache + offset, durable + offset, blockSize);
        isDirty[dirty[index]] = 0;
    }
    dirtyCount = 0;
    isPowerless = 0;
}

static int isDisk(const char *path) { return strcmp(path, "/disk") == 0; }

static int getAttributes(const char *path, struct stat *status, struct fuse_file_info *file) {
    (void)file;
    memset(status, 0, sizeof *status);
    if (strcmp(path, "/") == 0) {
        status->st_mode = S_IFDIR | 0700;
        status->st_nlink = 2;
    } else if (isDisk(path)) {
        status->st_mode = S_IFREG | 0600;
        status->st_nlink = 1;
        status->st_size = (off_t)size;
    } else return -ENOENT;
    return 0;
}

static int openDisk(const char *path, struct fuse_file_info *file) {
    if (!isDisk(path)) return -ENOENT;
    // The kernel keeps no pages of the file, so that every write arrives here before it is done.
    file->direct_io = 1;
    return 0;
}

static int readDisk(const char *path, char *bytes, size_t count, off_t offset, struct fuse_file_info *file) {
    (void)path, (void)file;
    if (offset < 0 || (size_t)offset >= size) return 0;
    if (count > size - (size_t)offset) count = size - (size_t)offset;
    memcpy(bytes, cache + offset, count);
    return (int)count;
}

static int writeDisk(const char *path, const char *bytes, size_t count, off_t offset, struct fuse_file_info *file) {
    (void)path, (void)file;
    if (isPowerless) return -EIO;
    if (offset < 0 || (size_t)offset > size || count > size - (size_t)offset) return -ENOSPC;
    if (count == 0) return 0;
    memcpy(cache + offset, bytes, count);
    for (size_t block = (size_t)offset / blockSize; block <= ((size_t)offset + count - 1) / blockSize; ++block) {
        if (isDirty[block]) continue;
        isDirty[block] = 1;
        dirty[dirtyCount++] = block;
    }
    return (int)count;
}

static int syncDisk(const char *path, int onlyData, struct fuse_file_info *file) {
    (void)path, (void)onlyData, (void)file;
    if (isPowerless) return -EIO;
    flushBlocks();
    return 0;
}

static int setAttribute(const char *path, const char *name, const char *value, size_t length, int flags) {
    (void)flags;
    if (!isDisk(path)) return -ENOENT;
    char text[32] = {0};
    if (length >= sizeof text) return -EINVAL;
    memcpy(text, value, length);
    if (strcmp(name, "user.seed") == 0) randomState = strtoull(text, NULL, 10) * 2 + 1;
    else if (strcmp(name, "user.power") != 0) return -ENOTSUP;
    else if (strcmp(text, "off") == 0) isPowerless = 1;
    else if (strcmp(text, "on") == 0) powerOn(0);
    else if (strcmp(text, "torn") == 0) powerOn(1);
    else return -EINVAL;
    return 0;
}

static const struct fuse_operations operations = {
    .getattr = getAttributes,
    .open = openDisk,
    .read = readDisk,
    .write = writeDisk,
    .fsync = syncDisk,
    .setxattr = setAttribute,
};

int main(int count, char **arguments) {
    size_t mebibytes = count == 3 ? strtoull(arguments[1], NULL, 10) : 0;
    if (!mebibytes) {
        fprintf(stderr, "usage: powercut MIB MOUNTPOINT\n");
        return 64;
    }
    size = mebibytes << 20;
    cache = zeros(size);
    durable = zeros(size);
    isDirty = zeros(size / blockSize);
    dirty = zeros(size / blockSize * sizeof *dirty);
    // In the foreground, and on one thread: requests are handled one after the other.
    char *options[] = {arguments[0], "-f", "-s", "-o", "fsname=powercut", arguments[2], NULL};
    return fuse_main(6, options, &operations, NULL);
}
