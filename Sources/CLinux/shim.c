#define _GNU_SOURCE
#include "shim.h"

#include <fcntl.h>
#include <sys/prctl.h>

int postern_forbid_dumps(void) {
    return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

int postern_fallocate(int descriptor, off_t offset, off_t size) {
    return fallocate(descriptor, 0, offset, size);
}
