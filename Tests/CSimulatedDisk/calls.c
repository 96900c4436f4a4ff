// The functions of the C library that concern files, in place of its own: the program's and every library's calls come
// here, since the linker lets the executable's definitions win. Whatever is not on a simulated disk goes on to the kernel.
#include "disk.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { DESCRIPTORS = 1 << 16 };
static _Atomic(struct handle *) handles[DESCRIPTORS];

struct handle *handle_of(int descriptor) {
    if (descriptor < 0 || descriptor >= DESCRIPTORS) return NULL;
    return atomic_load_explicit(&handles[descriptor], memory_order_acquire);
}

static int64_t failure(int error) {
    errno = error;
    return -1;
}

/// Locks the disk of a handle. Returns false, with `errno` set, if the handle's life is over.
static bool enter(struct handle *handle) {
    pthread_mutex_lock(&handle->disk->lock);
    if (handle->life == handle->disk->life && !handle->disk->has_stopped) return true;
    pthread_mutex_unlock(&handle->disk->lock);
    errno = EIO;
    return false;
}

static int64_t leave(struct postern_disk *disk, int64_t result) {
    int error = errno;
    pthread_mutex_unlock(&disk->lock);
    errno = error;
    return result;
}

/// What a fault that leaves no trace on the disk makes of a call; 0 if nothing.
static int error_of(enum postern_disk_fault fault) {
    switch (fault) {
    case POSTERN_DISK_NO_SPACE: return ENOSPC;
    case POSTERN_DISK_IO_ERROR:
    case POSTERN_DISK_STOP: return EIO;
    default: return 0;
    }
}

// MARK: Opening and closing

static bool is_index(const char *name) {
    size_t length = strlen(name);
    return length > 4 && strcmp(name + length - 4, "-shm") == 0;
}

/// What a file holds that something else put there, as a test that plants a file does.
static void adopt(struct file *file, int descriptor, struct postern_disk *disk, int64_t size) {
    if (file->is_mapped || size == 0) return;
    char *bytes = malloc((size_t)size);
    int64_t count = raw_pread(descriptor, bytes, (size_t)size, 0);
    if (count > 0) {
        file_allocate(disk, file, 0, count, BLOCK_WRITTEN);
        file_write(file, 0, bytes, count);
        file_sync(file);
    }
    free(bytes);
}

static void remember(int descriptor, struct postern_disk *disk, struct file *file, const char *name) {
    struct handle *handle = calloc(1, sizeof *handle);
    *handle = (struct handle){.disk = disk, .life = disk->life, .file = file, .counted = disk_counted(disk, name)};
    atomic_store_explicit(&handles[descriptor], handle, memory_order_release);
}

/// With the lock held.
static int open_on(struct postern_disk *disk, const char *path, const char *name, int flags, mode_t mode) {
    struct file *file = names_find(&disk->names, name);
    struct counted *counted = disk_counted(disk, name);
    enum postern_disk_fault fault = disk_fault(disk, POSTERN_DISK_OPEN, name);
    if (fault == POSTERN_DISK_STOP) disk_stop(disk);
    int error = error_of(fault);
    if (fault == POSTERN_DISK_NO_SPACE && (file || !(flags & O_CREAT))) error = 0;
    if (error) return (int)disk_note(disk, POSTERN_DISK_OPEN, fault, error, counted, 0, 0, -1);
    int descriptor = raw_open(path, flags, mode);
    struct stat status;
    if (descriptor < 0 || descriptor >= DESCRIPTORS || fstat(descriptor, &status) != 0) return descriptor;
    if (S_ISDIR(status.st_mode)) {
        remember(descriptor, disk, NULL, name);
        return descriptor;
    }
    if (!file) {
        file = file_new(disk);
        file->is_mapped = is_index(name);
        adopt(file, descriptor, disk, status.st_size);
        disk_name(disk, name, "", file);
        if (status.st_size > 0) names_set(&disk->durable, name, file);
        disk_note(disk, POSTERN_DISK_OPEN, POSTERN_DISK_NONE, 0, counted, flags, status.st_size, 0);
    } else if (flags & O_TRUNC && !file->is_mapped) {
        file_resize(disk, file, 0);
        disk_note(disk, POSTERN_DISK_TRUNCATE, POSTERN_DISK_NONE, 0, counted, 0, 0, 0);
    }
    remember(descriptor, disk, file, name);
    return descriptor;
}

static int open_file(const char *path, int flags, mode_t mode) {
    const char *name;
    struct postern_disk *disk = disk_of_path(path, &name);
    if (!disk) return raw_open(path, flags, mode);
    return (int)leave(disk, open_on(disk, path, name, flags, mode));
}

#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | __O_TMPFILE)) { \
        va_list list; \
        va_start(list, flags); \
        mode = va_arg(list, mode_t); \
        va_end(list); \
    }

int open(const char *path, int flags, ...) {
    MODE(flags)
    return open_file(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    MODE(flags)
    return open_file(path, flags, mode);
}

int close(int descriptor) {
    if (descriptor >= 0 && descriptor < DESCRIPTORS && handle_of(descriptor)) {
        free(atomic_exchange_explicit(&handles[descriptor], NULL, memory_order_acq_rel));
    }
    return raw_close(descriptor);
}

// MARK: Reading

static int64_t read_at(struct handle *handle, void *bytes, int64_t length, int64_t offset) {
    struct postern_disk *disk = handle->disk;
    struct file *file = handle->file;
    enum postern_disk_fault fault = disk_fault(disk, POSTERN_DISK_READ, handle->counted->name);
    if (fault == POSTERN_DISK_STOP) disk_stop(disk);
    int error = error_of(fault);
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
    if (!enter(handle)) return -1;
    return leave(handle->disk, read_at(handle, bytes, (int64_t)length, offset));
}

ssize_t pread64(int descriptor, void *bytes, size_t length, off64_t offset) {
    return pread(descriptor, bytes, length, offset);
}

ssize_t read(int descriptor, void *bytes, size_t length) {
    struct handle *handle = simulated(descriptor);
    if (!handle) return raw_read(descriptor, bytes, length);
    if (!enter(handle)) return -1;
    off_t offset = lseek(descriptor, 0, SEEK_CUR);
    int64_t count = read_at(handle, bytes, (int64_t)length, offset);
    if (count > 0) lseek(descriptor, offset + count, SEEK_SET);
    return leave(handle->disk, count);
}

// MARK: Writing

static int64_t write_at(struct handle *handle, int descriptor, const void *bytes, int64_t length, int64_t offset) {
    struct postern_disk *disk = handle->disk;
    struct file *file = handle->file;
    enum postern_disk_fault fault = disk_fault(disk, POSTERN_DISK_WRITE, handle->counted->name);
    int error = error_of(fault);
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
    if (!enter(handle)) return -1;
    return leave(handle->disk, write_at(handle, descriptor, bytes, (int64_t)length, offset));
}

ssize_t pwrite64(int descriptor, const void *bytes, size_t length, off64_t offset) {
    return pwrite(descriptor, bytes, length, offset);
}

ssize_t write(int descriptor, const void *bytes, size_t length) {
    struct handle *handle = handle_of(descriptor);
    if (!handle || !handle->file) return raw_write(descriptor, bytes, length);
    if (!enter(handle)) return -1;
    off_t offset = lseek(descriptor, 0, SEEK_CUR);
    int64_t count = write_at(handle, descriptor, bytes, (int64_t)length, offset);
    if (count > 0) lseek(descriptor, offset + count, SEEK_SET);
    return leave(handle->disk, count);
}

// MARK: Sizes

static int64_t resize(struct postern_disk *disk, struct file *file, const char *name, int descriptor, int64_t size) {
    struct counted *counted = disk_counted(disk, name);
    enum postern_disk_fault fault = disk_fault(disk, POSTERN_DISK_TRUNCATE, name);
    int error = error_of(fault);
    if (fault == POSTERN_DISK_STOP) disk_stop(disk);
    if (!error && !file->is_mapped) file_resize(disk, file, size);
    if (!error && raw_ftruncate(descriptor, size) != 0) error = errno;
    return disk_note(disk, POSTERN_DISK_TRUNCATE, fault, error, counted, size, 0, 0);
}

int ftruncate(int descriptor, off_t size) {
    struct handle *handle = handle_of(descriptor);
    if (!handle || !handle->file) return raw_ftruncate(descriptor, size);
    if (!enter(handle)) return -1;
    return (int)leave(
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
    int error = error_of(fault);
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
    if (mode != 0) return (int)failure(EOPNOTSUPP);
    if (!enter(handle)) return -1;
    return (int)leave(handle->disk, allocate(handle, descriptor, offset, length));
}

int fallocate64(int descriptor, int mode, off64_t offset, off64_t length) {
    return fallocate(descriptor, mode, offset, length);
}

// MARK: Syncs

static int64_t sync_file(struct handle *handle) {
    struct postern_disk *disk = handle->disk;
    struct file *file = handle->file;
    const char *name = handle->counted->name;
    enum postern_disk_fault fault = disk_fault(disk, POSTERN_DISK_SYNC, name);
    int error = error_of(fault);
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
    if (!enter(handle)) return -1;
    return (int)leave(handle->disk, sync_file(handle));
}

int fdatasync(int descriptor) { return handle_of(descriptor) ? fsync(descriptor) : raw_fdatasync(descriptor); }

int posix_fadvise(int descriptor, off_t offset, off_t length, int advice) {
    struct handle *handle = handle_of(descriptor);
    (void)offset, (void)length;
    if (!handle || !handle->file || advice != POSIX_FADV_DONTNEED || !enter(handle)) return 0;
    file_evict(handle->file);
    return (int)leave(handle->disk, 0);
}

int posix_fadvise64(int descriptor, off64_t offset, off64_t length, int advice) {
    return posix_fadvise(descriptor, offset, length, advice);
}

// MARK: Names

static int64_t delete_name(struct postern_disk *disk, const char *path, const char *name) {
    struct counted *counted = disk_counted(disk, name);
    enum postern_disk_fault fault = disk_fault(disk, POSTERN_DISK_DELETE, name);
    int error = error_of(fault);
    if (fault == POSTERN_DISK_STOP) disk_stop(disk);
    if (!error && raw_unlink(path) != 0) return -1;
    struct file *file = names_find(&disk->names, name);
    if (!error && file) {
        disk_name(disk, name, "", NULL);
        file_release(disk, file);
    }
    return disk_note(disk, POSTERN_DISK_DELETE, fault, error, counted, 0, 0, 0);
}

int unlink(const char *path) {
    const char *name;
    struct postern_disk *disk = disk_of_path(path, &name);
    if (!disk) return raw_unlink(path);
    return (int)leave(disk, delete_name(disk, path, name));
}

static int64_t rename_on(struct postern_disk *disk, const char *path, const char *from, const char *to) {
    const char *name = to + (from - path);
    struct counted *counted = disk_counted(disk, name);
    enum postern_disk_fault fault = disk_fault(disk, POSTERN_DISK_RENAME, name);
    int error = error_of(fault);
    if (fault == POSTERN_DISK_STOP) disk_stop(disk);
    if (!error && raw_rename(path, to) != 0) return -1;
    struct file *file = names_find(&disk->names, from);
    if (!error && file) disk_name(disk, name, from, file);
    return disk_note(disk, POSTERN_DISK_RENAME, fault, error, counted, 0, 0, 0);
}

int rename(const char *from, const char *to) {
    const char *name;
    struct postern_disk *disk = disk_of_path(from, &name);
    if (!disk) return raw_rename(from, to);
    return (int)leave(disk, rename_on(disk, from, name, to));
}

int mkdir(const char *path, mode_t mode) {
    const char *name;
    struct postern_disk *disk = disk_of_path(path, &name);
    if (!disk) return raw_mkdir(path, mode);
    enum postern_disk_fault fault = disk_fault(disk, POSTERN_DISK_MAKE_FOLDER, name);
    int error = error_of(fault);
    if (fault == POSTERN_DISK_STOP) disk_stop(disk);
    if (!error && raw_mkdir(path, mode) != 0) return (int)leave(disk, -1);
    if (!error) {
        struct file *folder = file_new(disk);
        folder->is_folder = true;
        disk_name(disk, name, "", folder);
    }
    return (int)leave(
        disk, disk_note(disk, POSTERN_DISK_MAKE_FOLDER, fault, error, disk_counted(disk, name), 0, 0, 0));
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
    return (int)leave(disk, 0);
}

int statvfs64(const char *restrict path, struct statvfs64 *restrict status) {
    return statvfs(path, (struct statvfs *)status);
}

/// A disk like any other: ext4.
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
    return (int)leave(disk, 0);
}

int statfs64(const char *path, struct statfs64 *status) { return statfs(path, (struct statfs *)status); }
