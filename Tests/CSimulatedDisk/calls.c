// The functions of the C library that concern files, in place of its own: the program's and every library's calls come
// here, since the linker lets the executable's definitions win. Whatever is not on a simulated disk goes on to the kernel.
// Here: descriptors, and what opens and closes them. bytes.c, sizes.c, syncs.c, and paths.c hold the others.
#include "disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { DESCRIPTORS = 1 << 16 };
static _Atomic(struct handle *) handles[DESCRIPTORS];

struct handle *handle_of(int descriptor) {
    if (descriptor < 0 || descriptor >= DESCRIPTORS) return NULL;
    return atomic_load_explicit(&handles[descriptor], memory_order_acquire);
}

bool disk_enter(struct handle *handle) {
    pthread_mutex_lock(&handle->disk->lock);
    if (handle->life == handle->disk->life && !handle->disk->has_stopped) return true;
    pthread_mutex_unlock(&handle->disk->lock);
    errno = EIO;
    return false;
}

int64_t disk_leave(struct postern_disk *disk, int64_t result) {
    int error = errno;
    pthread_mutex_unlock(&disk->lock);
    errno = error;
    return result;
}

int disk_error(enum postern_disk_fault fault) {
    switch (fault) {
    case POSTERN_DISK_NO_SPACE: return ENOSPC;
    case POSTERN_DISK_IO_ERROR:
    case POSTERN_DISK_STOP: return EIO;
    default: return 0;
    }
}

// MARK: Locks

/// SQLite's locks belong to a process and never conflict within it. Only one process uses a simulated disk, so the kernel
/// would refuse none but a write lock through a descriptor that is read-only.
static int control(int descriptor, int command, void *argument) {
    struct handle *handle = handle_of(descriptor);
    struct flock *lock = argument;
    if (!handle || (command != F_SETLK && command != F_GETLK)) return raw_fcntl(descriptor, command, argument);
    if (command == F_GETLK) {
        lock->l_type = F_UNLCK;
    } else if (lock->l_type == F_WRLCK && handle->is_read_only) {
        errno = EBADF;
        return -1;
    }
    return 0;
}

#define CONTROL(command) \
    va_list list; \
    va_start(list, command); \
    void *argument = va_arg(list, void *); \
    va_end(list); \
    return control(descriptor, command, argument);

int fcntl(int descriptor, int command, ...) { CONTROL(command) }
int fcntl64(int descriptor, int command, ...) { CONTROL(command) }

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

static void remember(int descriptor, struct postern_disk *disk, struct file *file, const char *name,
                     int flags) {
    struct handle *handle = calloc(1, sizeof *handle);
    *handle = (struct handle){.disk = disk, .life = disk->life, .file = file, .counted = disk_counted(disk, name),
                              .is_read_only = (flags & O_ACCMODE) == O_RDONLY};
    atomic_store_explicit(&handles[descriptor], handle, memory_order_release);
}

/// With the lock held.
static int open_on(struct postern_disk *disk, const char *path, const char *name, int flags, mode_t mode) {
    struct file *file = names_find(&disk->names, name);
    struct counted *counted = disk_counted(disk, name);
    enum postern_disk_fault fault = disk_fault(disk, POSTERN_DISK_OPEN, name);
    if (fault == POSTERN_DISK_STOP) disk_stop(disk);
    int error = disk_error(fault);
    if (fault == POSTERN_DISK_NO_SPACE && (file || !(flags & O_CREAT))) error = 0;
    if (error) return (int)disk_note(disk, POSTERN_DISK_OPEN, fault, error, counted, 0, 0, -1);
    int descriptor = raw_open(path, flags, mode);
    struct stat status;
    if (descriptor < 0 || descriptor >= DESCRIPTORS || fstat(descriptor, &status) != 0) return descriptor;
    if (S_ISDIR(status.st_mode)) {
        remember(descriptor, disk, NULL, name, flags);
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
    remember(descriptor, disk, file, name, flags);
    return descriptor;
}

static int open_file(const char *path, int flags, mode_t mode) {
    const char *name;
    struct postern_disk *disk = disk_of_path(path, &name);
    if (!disk) return raw_open(path, flags, mode);
    return (int)disk_leave(disk, open_on(disk, path, name, flags, mode));
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
