// Calls that change the size of a file or allocate space; see calls.c.
#include "disk.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

static int64_t resize(struct postern_disk *disk, struct file *file, const char *name, int descriptor, int64_t size) {
    struct counted *counted = disk_counted(disk, name);
    enum postern_disk_fault fault = disk_fault(disk, POSTERN_DISK_TRUNCATE, name);
    int error = disk_error(fault);
    if (fault == POSTERN_DISK_STOP) disk_stop(disk);
    if (!error && !file->is_mapped) file_resize(disk, file, size);
    // SQLite empties the index of a log by making it shorter; others can take its blocks then.
    if (!error && file->is_mapped) file_release(disk, file);
    if (!error && raw_ftruncate(descriptor, size) != 0) error = errno;
    return disk_note(disk, POSTERN_DISK_TRUNCATE, fault, error, counted, size, 0, 0);
}

int ftruncate(int descriptor, off_t size) {
    struct handle *handle = handle_of(descriptor);
    if (!handle || !handle->file) return raw_ftruncate(descriptor, size);
    if (!disk_enter(handle)) return -1;
    return (int)disk_leave(
        handle->disk, resize(handle->disk, handle->file, handle->counted->name, descriptor, size));
}

int ftruncate64(int descriptor, off64_t size) { return ftruncate(descriptor, size); }

int truncate(const char *path, off_t size) {
    int descriptor = open(path, O_WRONLY | O_CLOEXEC);
    if (descriptor < 0) return -1;
    int result = ftruncate(descriptor, size);
    int error = errno;
    close(descriptor);
    errno = error;
    return result;
}

int truncate64(const char *path, off64_t size) { return truncate(path, size); }

static int64_t allocate(struct handle *handle, int descriptor, int64_t offset, int64_t length) {
    struct postern_disk *disk = handle->disk;
    struct file *file = handle->file;
    enum postern_disk_fault fault = disk_fault(disk, POSTERN_DISK_ALLOCATE, handle->counted->name);
    int error = disk_error(fault);
    if (fault == POSTERN_DISK_STOP) disk_stop(disk);
    if (!error && file_allocate(disk, file, offset, length, BLOCK_ALLOCATED) < length) error = ENOSPC;
    int64_t size = file->is_mapped ? lseek(descriptor, 0, SEEK_END) : file->cache.size;
    if (!error && size < offset + length) {
        if (!file->is_mapped) file_resize(disk, file, offset + length);
        raw_ftruncate(descriptor, offset + length);
    }
    return disk_note(disk, POSTERN_DISK_ALLOCATE, fault, error, handle->counted, offset, length, 0);
}

int fallocate(int descriptor, int mode, off_t offset, off_t length) {
    struct handle *handle = handle_of(descriptor);
    if (!handle || !handle->file) return raw_fallocate(descriptor, mode, offset, length);
    if (mode != 0) {
        errno = EOPNOTSUPP;
        return -1;
    }
    if (!disk_enter(handle)) return -1;
    return (int)disk_leave(handle->disk, allocate(handle, descriptor, offset, length));
}

int fallocate64(int descriptor, int mode, off64_t offset, off64_t length) {
    return fallocate(descriptor, mode, offset, length);
}

// MARK: Room

static int64_t free_blocks(struct postern_disk *disk) {
    return disk->used < disk->capacity ? (disk->capacity - disk->used) / BLOCK : 0;
}

int statvfs(const char *restrict path, struct statvfs *restrict status) {
    static int (*original)(const char *, struct statvfs *);
    if (!original) original = (int (*)(const char *, struct statvfs *))dlsym(RTLD_NEXT, "statvfs");
    const char *name;
    struct postern_disk *disk = disk_of_path(path, &name);
    if (!disk) return original(path, status);
    *status = (struct statvfs){
        .f_bsize = BLOCK, .f_frsize = BLOCK, .f_blocks = (fsblkcnt_t)(disk->capacity / BLOCK),
        .f_bfree = (fsblkcnt_t)free_blocks(disk), .f_bavail = (fsblkcnt_t)free_blocks(disk),
    };
    return (int)disk_leave(disk, 0);
}

int statvfs64(const char *restrict path, struct statvfs64 *restrict status) {
    return statvfs(path, (struct statvfs *)status);
}

/// The same type as an ordinary disk: ext4.
int statfs(const char *path, struct statfs *status) {
    static int (*original)(const char *, struct statfs *);
    if (!original) original = (int (*)(const char *, struct statfs *))dlsym(RTLD_NEXT, "statfs");
    const char *name;
    struct postern_disk *disk = disk_of_path(path, &name);
    if (!disk) return original(path, status);
    *status = (struct statfs){
        .f_type = 0xEF53, .f_bsize = BLOCK, .f_blocks = (fsblkcnt_t)(disk->capacity / BLOCK),
        .f_bfree = (fsblkcnt_t)free_blocks(disk), .f_bavail = (fsblkcnt_t)free_blocks(disk),
    };
    return (int)disk_leave(disk, 0);
}

int statfs64(const char *path, struct statfs64 *status) { return statfs(path, (struct statfs *)status); }
