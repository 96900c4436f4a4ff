#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

int postern_forbid_dumps(void) {
    return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

int postern_fallocate(int descriptor, off_t offset, off_t size) {
    int result;
    do result = fallocate(descriptor, 0, offset, size);
    while (result != 0 && errno == EINTR);
    return result;
}

void *postern_mmap(void *address, size_t length, int protection, int flags, int descriptor, off_t offset) {
    bool is_written = protection & PROT_WRITE && flags & MAP_SHARED;
    bool has_blocks = !is_written || postern_fallocate(descriptor, offset, (off_t)length) == 0;
    if (!has_blocks && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) return MAP_FAILED;
    void *const memory = mmap(address, length, protection, flags, descriptor, offset);
    // What would be SIGBUS on an access is EFAULT here.
    if (memory != MAP_FAILED && !has_blocks && madvise(memory, length, MADV_POPULATE_WRITE) != 0 && errno == EFAULT) {
        munmap(memory, length);
        errno = ENOSPC;
        return MAP_FAILED;
    }
    return memory;
}

int postern_ftruncate(int descriptor, off_t size) {
    static const char zeros[32 << 10];
    struct stat status;
    if (size != POSTERN_EMPTY_INDEX || fstat(descriptor, &status) != 0) return ftruncate(descriptor, size);
    for (off_t position = 0; position < status.st_size;) {
        const size_t rest = (size_t)(status.st_size - position);
        const ssize_t count = pwrite(descriptor, zeros, rest < sizeof zeros ? rest : sizeof zeros, position);
        if (count > 0) position += count;
        else if (count == 0 || errno != EINTR) return ftruncate(descriptor, size);
    }
    return 0;
}

void postern_unmap_large_blocks(void) {
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 256 << 10);
    mallopt(M_TRIM_THRESHOLD, 1 << 20);
#endif
}

size_t postern_heap_in_use(void) {
#ifdef __GLIBC__
    const struct mallinfo2 heap = mallinfo2();
    return heap.uordblks + heap.hblkhd;
#else
    return 0;
#endif
}

size_t postern_resident_memory(void) {
    FILE *const file = fopen("/proc/self/statm", "re");
    if (!file) return 0;
    long total, resident, shared;
    const int found = fscanf(file, "%ld %ld %ld", &total, &resident, &shared);
    fclose(file);
    return found == 3 && resident > shared ? (size_t)(resident - shared) * (size_t)sysconf(_SC_PAGESIZE) : 0;
}

void postern_release_free_pages(void) {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

static _Thread_local long failed_reads;

static ssize_t counted(ssize_t count) {
    if (count >= 0 || errno == EINTR) return count;
    failed_reads++;
    if (errno == EIO || errno == ENXIO || errno == ERANGE) errno = EREMOTEIO;
    return count;
}

ssize_t postern_read(int descriptor, void *bytes, size_t length) { return counted(read(descriptor, bytes, length)); }

ssize_t postern_pread(int descriptor, void *bytes, size_t length, off_t offset) {
    return counted(pread(descriptor, bytes, length, offset));
}

long postern_failed_reads(void) { return failed_reads; }
