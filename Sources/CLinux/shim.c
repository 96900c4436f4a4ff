#define _GNU_SOURCE
#include "shim.h"

#include <fcntl.h>
#include <malloc.h>
#include <sys/prctl.h>

int postern_forbid_dumps(void) {
    return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

int postern_fallocate(int descriptor, off_t offset, off_t size) {
    return fallocate(descriptor, 0, offset, size);
}

void postern_unmap_large_blocks(void) {
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 256 << 10);
    mallopt(M_TRIM_THRESHOLD, 1 << 20);
#endif
}
