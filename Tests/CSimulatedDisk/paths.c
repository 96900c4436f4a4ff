// Calls by path: what is there, and other names for it; see calls.c.
#include "disk.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static int64_t delete_name(struct postern_disk *disk, const char *path, const char *name) {
    struct counted *counted = disk_counted(disk, name);
    enum postern_disk_fault fault = disk_fault(disk, POSTERN_DISK_DELETE, name);
    int error = disk_error(fault);
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
    return (int)disk_leave(disk, delete_name(disk, path, name));
}

static int64_t rename_on(struct postern_disk *disk, const char *path, const char *from, const char *to) {
    const char *name = to + (from - path);
    struct counted *counted = disk_counted(disk, name);
    enum postern_disk_fault fault = disk_fault(disk, POSTERN_DISK_RENAME, name);
    int error = disk_error(fault);
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
    return (int)disk_leave(disk, rename_on(disk, from, name, to));
}

int mkdir(const char *path, mode_t mode) {
    const char *name;
    struct postern_disk *disk = disk_of_path(path, &name);
    if (!disk) return raw_mkdir(path, mode);
    enum postern_disk_fault fault = disk_fault(disk, POSTERN_DISK_MAKE_FOLDER, name);
    int error = disk_error(fault);
    if (fault == POSTERN_DISK_STOP) disk_stop(disk);
    if (!error && raw_mkdir(path, mode) != 0) return (int)disk_leave(disk, -1);
    if (!error) {
        struct file *folder = file_new(disk);
        folder->is_folder = true;
        disk_name(disk, name, "", folder);
    }
    return (int)disk_leave(
        disk, disk_note(disk, POSTERN_DISK_MAKE_FOLDER, fault, error, disk_counted(disk, name), 0, 0, 0));
}

/// The real file has the right size. Only an error is one of the disk.
static int status_on(struct postern_disk *disk, const char *path, const char *name, struct stat *status) {
    enum postern_disk_fault fault = disk_fault(disk, POSTERN_DISK_STATUS, name);
    int error = disk_error(fault);
    if (fault == POSTERN_DISK_STOP) disk_stop(disk);
    if (error) return (int)disk_note(disk, POSTERN_DISK_STATUS, fault, error, disk_counted(disk, name), 0, 0, -1);
    return raw_stat(path, status);
}

int stat(const char *restrict path, struct stat *restrict status) {
    const char *name;
    struct postern_disk *disk = disk_of_path(path, &name);
    return disk ? (int)disk_leave(disk, status_on(disk, path, name, status)) : raw_stat(path, status);
}

int stat64(const char *restrict path, struct stat64 *restrict status) { return stat(path, (struct stat *)status); }
