// Calls that read and write bytes; see calls.c.
#include "disk.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

// MARK: Reading

static int64_t read_at(struct handle *handle, void *bytes, int64_t length, int64_t offset) {
    struct postern_disk *disk = handle->disk;
    struct file *file = handle->file;
    enum postern_disk_fault fault = disk_fault(disk, POSTERN_DISK_READ, handle->counted->name);
    if (fault == POSTERN_DISK_STOP) disk_stop(disk);
    int error = disk_error(fault);
    if (error) return disk_note(disk, POSTERN_DISK_READ, fault, error, handle->counted, offset, length, -1);
    // The kernel may drop a clean block at any time.
    if (file->is_stale && disk_below(disk, 32) == 0) file_evict(file);
    int64_t count = file->cache.size - offset < length ? file->cache.size - offset : length;
    if (count < 0) count = 0;
    if (fault == POSTERN_DISK_SHORT && count > 1) count = 1 + disk_below(disk, count - 1);
    if (count > 0) memcpy(bytes, file->cache.bytes + offset, (size_t)count);
    return disk_note(disk, POSTERN_DISK_READ, fault, 0, handle->counted, offset, length, count);
}

/// Whether the bytes of a descriptor are on a simulated disk. A folder's and those of a log's index are not.
static struct handle *simulated(int descriptor) {
    struct handle *handle = handle_of(descriptor);
    return handle && handle->file && !handle->file->is_mapped ? handle : NULL;
}

ssize_t pread(int descriptor, void *bytes, size_t length, off_t offset) {
    struct handle *handle = simulated(descriptor);
    if (!handle) return raw_pread(descriptor, bytes, length, offset);
    if (!disk_enter(handle)) return -1;
    return disk_leave(handle->disk, read_at(handle, bytes, (int64_t)length, offset));
}

ssize_t pread64(int descriptor, void *bytes, size_t length, off64_t offset) {
    return pread(descriptor, bytes, length, offset);
}

ssize_t read(int descriptor, void *bytes, size_t length) {
    struct handle *handle = simulated(descriptor);
    if (!handle) return raw_read(descriptor, bytes, length);
    if (!disk_enter(handle)) return -1;
    off_t offset = lseek(descriptor, 0, SEEK_CUR);
    int64_t count = read_at(handle, bytes, (int64_t)length, offset);
    if (count > 0) lseek(descriptor, offset + count, SEEK_SET);
    return disk_leave(handle->disk, count);
}

// MARK: Writing

static int64_t write_at(struct handle *handle, int descriptor, const void *bytes, int64_t length, int64_t offset) {
    struct postern_disk *disk = handle->disk;
    struct file *file = handle->file;
    enum postern_disk_fault fault = disk_fault(disk, POSTERN_DISK_WRITE, handle->counted->name);
    int error = disk_error(fault);
    int64_t count = length;
    if (fault == POSTERN_DISK_SHORT && length > 1) count = 1 + disk_below(disk, length - 1);
    // A part may be written before the fault.
    if (error) count = disk_below(disk, 2) == 0 ? 0 : disk_below(disk, length / SECTOR + 1) * SECTOR;
    int64_t room = file_allocate(disk, file, offset, count, BLOCK_WRITTEN);
    if (room < count) count = room;
    if (count == 0 && length > 0 && !error) error = ENOSPC;
    int64_t former = file->cache.size;
    if (count > 0 && !file->is_mapped) file_write(file, offset, bytes, count);
    if (count > 0 && file->is_mapped) raw_pwrite(descriptor, bytes, (size_t)count, offset);
    if (!file->is_mapped && file->cache.size > former) raw_ftruncate(descriptor, file->cache.size);
    if (fault == POSTERN_DISK_STOP) disk_stop(disk);
    return disk_note(disk, POSTERN_DISK_WRITE, fault, error, handle->counted, offset, length, count);
}

ssize_t pwrite(int descriptor, const void *bytes, size_t length, off_t offset) {
    struct handle *handle = handle_of(descriptor);
    if (!handle || !handle->file) return raw_pwrite(descriptor, bytes, length, offset);
    if (!disk_enter(handle)) return -1;
    return disk_leave(handle->disk, write_at(handle, descriptor, bytes, (int64_t)length, offset));
}

ssize_t pwrite64(int descriptor, const void *bytes, size_t length, off64_t offset) {
    return pwrite(descriptor, bytes, length, offset);
}

ssize_t write(int descriptor, const void *bytes, size_t length) {
    struct handle *handle = handle_of(descriptor);
    if (!handle || !handle->file) return raw_write(descriptor, bytes, length);
    if (!disk_enter(handle)) return -1;
    off_t offset = lseek(descriptor, 0, SEEK_CUR);
    int64_t count = write_at(handle, descriptor, bytes, (int64_t)length, offset);
    if (count > 0) lseek(descriptor, offset + count, SEEK_SET);
    return disk_leave(handle->disk, count);
}
