// Faults in the file system, for tests: preloaded into a process (`LD_PRELOAD`), this kills, delays or fails the calls
// that change files below one folder. Built by the tests that need it, and by `make torture`.
//
// FILE_FAULTS holds `name=value` pairs separated by commas:
//   folder=PATH   only files below it; required
//   kill=N        SIGKILL before the N-th call that changes a file
//   seed=N        for the random faults below; each takes a chance in 10 000
//   delay=N       microseconds before each call
//   enospc=N eio=N short=N   of writes
//   sync=N        fsync fails with EIO and the data stay dirty
//   lie=N         fsync does nothing and reports success
//   lose=1        a fsync that fails takes back what was written since the last one, as a kernel does that drops pages
//                 which it could not write; only while all of it fits into 4096 writes
//   folders=FILE  append the path of each folder that is synced to FILE
//   stall=N       a call waits until the file of `while` is gone
//   while=FILE    random faults only while this file exists
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static char folder[4096];
static char whileFile[4096];
static char foldersFile[4096];
static long killAt, delay, stall, enospc, eio, shortWrites, failedSyncs, lies, loses;
static _Atomic uint64_t randomState = 0x9E3779B97F4A7C15u;
static _Atomic long changes;

static long number(const char *settings, const char *name) {
    char key[32];
    snprintf(key, sizeof key, "%s=", name);
    const char *found = strstr(settings, key);
    return found ? atol(found + strlen(key)) : 0;
}

static void text(const char *settings, const char *name, char *into, size_t size) {
    char key[32];
    snprintf(key, sizeof key, "%s=", name);
    const char *found = strstr(settings, key);
    if (!found) return;
    found += strlen(key);
    size_t length = strcspn(found, ",");
    if (length >= size) length = size - 1;
    memcpy(into, found, length);
    into[length] = 0;
}

__attribute__((constructor)) static void begin(void) {
    const char *settings = getenv("FILE_FAULTS");
    if (!settings) return;
    text(settings, "folder", folder, sizeof folder);
    text(settings, "while", whileFile, sizeof whileFile);
    text(settings, "folders", foldersFile, sizeof foldersFile);
    loses = number(settings, "lose");
    killAt = number(settings, "kill");
    delay = number(settings, "delay");
    stall = number(settings, "stall");
    enospc = number(settings, "enospc");
    eio = number(settings, "eio");
    shortWrites = number(settings, "short");
    failedSyncs = number(settings, "sync");
    lies = number(settings, "lie");
    randomState ^= (uint64_t)number(settings, "seed") * 0xD1342543DE82EF95u;
}

// xorshift64*: the same faults for the same seed and the same order of calls.
static int happens(long chance) {
    if (chance <= 0) return 0;
    if (whileFile[0] && syscall(SYS_faccessat, AT_FDCWD, whileFile, F_OK) != 0) return 0;
    uint64_t old = randomState, next;
    do {
        next = old;
        next ^= next >> 12;
        next ^= next << 25;
        next ^= next >> 27;
    } while (!atomic_compare_exchange_weak(&randomState, &old, next));
    return (long)((next * 0x2545F4914F6CDD1Du) >> 33) % 10000 < chance;
}

static int isBelow(const char *path) { return folder[0] && path && strncmp(path, folder, strlen(folder)) == 0; }

// Writes the path of an open file, which a zero byte ends, and returns its length; 0 if there is none.
static ssize_t pathOf(int file, char path[4096]) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, 4095);
    if (length < 0) length = 0;
    path[length] = 0;
    return length;
}

static int isOfFolder(int file) {
    char path[4096];
    return folder[0] && pathOf(file, path) && isBelow(path);
}

// Before each call that changes a file.
static void change(void) {
    if (atomic_fetch_add(&changes, 1) + 1 == killAt) {
        syscall(SYS_kill, getpid(), SIGKILL);
        for (;;) pause();
    }
    if (delay) usleep(delay);
    while (whileFile[0] && happens(stall)) usleep(10000);
}

#define REAL(name) static __typeof__(name) *real; if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

static int failsToWrite(size_t *size) {
    change();
    if (happens(enospc)) { errno = ENOSPC; return 1; }
    if (happens(eio)) { errno = EIO; return 1; }
    if (*size > 1 && happens(shortWrites)) *size /= 2;
    return 0;
}

// What a write since the last sync wrote over.
struct Former {
    dev_t device;
    ino_t inode;
    off_t offset, fileSize;
    size_t size, kept;
    char *bytes;
};
static struct Former formers[4096];
static int formerCount;
static pthread_mutex_t formerLock = PTHREAD_MUTEX_INITIALIZER;

static void remember(int file, size_t size, off_t offset) {
    struct stat status;
    if (!loses || fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) return;
    pthread_mutex_lock(&formerLock);
    if (formerCount < (int)(sizeof formers / sizeof *formers)) {
        struct Former *former = &formers[formerCount];
        *former = (struct Former){status.st_dev, status.st_ino, offset, status.st_size, size, 0, malloc(size)};
        ssize_t count = former->bytes ? syscall(SYS_pread64, file, former->bytes, size, offset) : -1;
        former->kept = count > 0 ? count : 0;
        if (former->bytes) ++formerCount;
    }
    pthread_mutex_unlock(&formerLock);
}

// Forgets what a file was before its latest writes, or restores it, the latest write first.
static void forget(int file, int restores) {
    struct stat status;
    if (!loses || fstat(file, &status) != 0) return;
    pthread_mutex_lock(&formerLock);
    int left = 0;
    for (int index = formerCount - 1; index >= 0; --index) {
        struct Former former = formers[index];
        if (former.device != status.st_dev || former.inode != status.st_ino) continue;
        if (restores) {
            syscall(SYS_pwrite64, file, former.bytes, former.kept, former.offset);
            if (fstat(file, &status) == 0 && status.st_size > former.fileSize)
                syscall(SYS_ftruncate, file, former.fileSize);
        }
        free(former.bytes);
        formers[index].bytes = NULL;
    }
    for (int index = 0; index < formerCount; ++index)
        if (formers[index].bytes) formers[left++] = formers[index];
    formerCount = left;
    pthread_mutex_unlock(&formerLock);
}

ssize_t write(int file, const void *bytes, size_t size) {
    REAL(write);
    if (isOfFolder(file) && failsToWrite(&size)) return -1;
    return real(file, bytes, size);
}

ssize_t pwrite(int file, const void *bytes, size_t size, off_t offset) {
    REAL(pwrite);
    if (isOfFolder(file)) {
        if (failsToWrite(&size)) return -1;
        remember(file, size, offset);
    }
    return real(file, bytes, size, offset);
}

static void noteFolder(int file) {
    struct stat status;
    if (!foldersFile[0] || fstat(file, &status) != 0 || !S_ISDIR(status.st_mode)) return;
    char path[4096];
    ssize_t length = pathOf(file, path);
    if (!length) return;
    path[length++] = '\n';
    int list = syscall(SYS_openat, AT_FDCWD, foldersFile, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (list < 0) return;
    syscall(SYS_write, list, path, length);
    syscall(SYS_close, list);
}

static int failsToSync(int file, int *result) {
    if (!isOfFolder(file)) return 0;
    change();
    noteFolder(file);
    if (happens(failedSyncs)) {
        forget(file, 1);
        errno = EIO;
        *result = -1;
        return 1;
    }
    if (happens(lies)) { *result = 0; return 1; }
    forget(file, 0);
    return 0;
}

int fsync(int file) {
    REAL(fsync);
    int result;
    return failsToSync(file, &result) ? result : real(file);
}

int fdatasync(int file) {
    REAL(fdatasync);
    int result;
    return failsToSync(file, &result) ? result : real(file);
}

int ftruncate(int file, off_t size) {
    REAL(ftruncate);
    if (isOfFolder(file)) {
        change();
        forget(file, 0);
    }
    return real(file, size);
}

int truncate(const char *path, off_t size) {
    REAL(truncate);
    if (isBelow(path)) change();
    return real(path, size);
}

int fallocate(int file, int mode, off_t offset, off_t size) {
    REAL(fallocate);
    if (isOfFolder(file)) {
        change();
        if (happens(enospc)) { errno = ENOSPC; return -1; }
    }
    return real(file, mode, offset, size);
}

int rename(const char *from, const char *to) {
    REAL(rename);
    if (isBelow(from) || isBelow(to)) change();
    return real(from, to);
}

int unlink(const char *path) {
    REAL(unlink);
    if (isBelow(path)) change();
    return real(path);
}

int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    if (isBelow(path)) change();
    return real(path, mode);
}

static mode_t modeOf(int flags, va_list arguments) {
    return flags & (O_CREAT | O_TMPFILE) ? (mode_t)va_arg(arguments, int) : 0;
}

int open(const char *path, int flags, ...) {
    REAL(open);
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = modeOf(flags, arguments);
    va_end(arguments);
    if (flags & (O_CREAT | O_TRUNC) && isBelow(path)) change();
    return real(path, flags, mode);
}

// Where `off_t` has 64 bits, these are the same functions.
ssize_t pwrite64(int, const void *, size_t, off64_t) __attribute__((alias("pwrite")));
int ftruncate64(int, off64_t) __attribute__((alias("ftruncate")));
int fallocate64(int, int, off64_t, off64_t) __attribute__((alias("fallocate")));
int open64(const char *, int, ...) __attribute__((alias("open")));
_Static_assert(sizeof(off_t) == 8, "off_t has 64 bits");
