// Calls that make a file or the names in a folder durable; see calls.c.
#include "disk.h"

#include <fcntl.h>
#include <unistd.h>

static int64_t sync_file(struct handle *handle) {
    struct postern_disk *disk = handle->disk;
    struct file *file = handle->file;
    const char *name = handle->counted->name;
    enum postern_disk_fault fault = disk_fault(disk, POSTERN_DISK_SYNC, name);
    int error = disk_error(fault);
    switch (fault) {
    case POSTERN_DISK_LIE:
        if (file) file_promise(file);
        else disk_promise_names(disk, name);
        break;
    case POSTERN_DISK_SECRET_LIE: break;
    case POSTERN_DISK_STOP: disk_stop(disk); break;
    case POSTERN_DISK_NONE:
    case POSTERN_DISK_SHORT:
        if (file) file_sync(file);
        else disk_sync_names(disk, name);
        break;
    default:
        if (file) file_fail_sync(disk, file);
    }
    return disk_note(disk, POSTERN_DISK_SYNC, fault, error, handle->counted, 0, 0, 0);
}

int fsync(int descriptor) {
    struct handle *handle = handle_of(descriptor);
    if (!handle) return raw_fsync(descriptor);
    if (!disk_enter(handle)) return -1;
    return (int)disk_leave(handle->disk, sync_file(handle));
}

int fdatasync(int descriptor) { return handle_of(descriptor) ? fsync(descriptor) : raw_fdatasync(descriptor); }

int posix_fadvise(int descriptor, off_t offset, off_t length, int advice) {
    struct handle *handle = handle_of(descriptor);
    (void)offset, (void)length;
    if (!handle || !handle->file || advice != POSIX_FADV_DONTNEED || !disk_enter(handle)) return 0;
    file_evict(handle->file);
    return (int)disk_leave(handle->disk, 0);
}

int posix_fadvise64(int descriptor, off64_t offset, off64_t length, int advice) {
    return posix_fadvise(descriptor, offset, length, advice);
}
