// The system calls themselves, for what is not on a simulated disk. A sanitizer learns from them which threads meet.
#include "disk.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

int __interceptor_open(const char *, int, ...) __attribute__((weak));
int __interceptor_close(int) __attribute__((weak));
ssize_t __interceptor_read(int, void *, size_t) __attribute__((weak));
ssize_t __interceptor_write(int, const void *, size_t) __attribute__((weak));
ssize_t __interceptor_pread(int, void *, size_t, off_t) __attribute__((weak));
ssize_t __interceptor_pwrite(int, const void *, size_t, off_t) __attribute__((weak));
int __interceptor_unlink(const char *) __attribute__((weak));
int __interceptor_fcntl(int, int, ...) __attribute__((weak));

int raw_open(const char *path, int flags, mode_t mode) {
    if (__interceptor_open) return __interceptor_open(path, flags, mode);
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int raw_close(int descriptor) {
    if (__interceptor_close) return __interceptor_close(descriptor);
    return (int)syscall(SYS_close, descriptor);
}

ssize_t raw_read(int descriptor, void *bytes, size_t length) {
    if (__interceptor_read) return __interceptor_read(descriptor, bytes, length);
    return syscall(SYS_read, descriptor, bytes, length);
}

ssize_t raw_write(int descriptor, const void *bytes, size_t length) {
    if (__interceptor_write) return __interceptor_write(descriptor, bytes, length);
    return syscall(SYS_write, descriptor, bytes, length);
}

ssize_t raw_pread(int descriptor, void *bytes, size_t length, off_t offset) {
    if (__interceptor_pread) return __interceptor_pread(descriptor, bytes, length, offset);
    return syscall(SYS_pread64, descriptor, bytes, length, offset);
}

ssize_t raw_pwrite(int descriptor, const void *bytes, size_t length, off_t offset) {
    if (__interceptor_pwrite) return __interceptor_pwrite(descriptor, bytes, length, offset);
    return syscall(SYS_pwrite64, descriptor, bytes, length, offset);
}

int raw_unlink(const char *path) {
    if (__interceptor_unlink) return __interceptor_unlink(path);
    return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

int raw_fcntl(int descriptor, int command, void *argument) {
    if (__interceptor_fcntl) return __interceptor_fcntl(descriptor, command, argument);
    return (int)syscall(SYS_fcntl, descriptor, command, argument);
}

int raw_ftruncate(int descriptor, off_t size) { return (int)syscall(SYS_ftruncate, descriptor, size); }
int raw_rename(const char *from, const char *to) { return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0); }
int raw_mkdir(const char *path, mode_t mode) { return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode); }
int raw_stat(const char *path, struct stat *status) { return fstatat(AT_FDCWD, path, status, 0); }
int raw_fsync(int descriptor) { return (int)syscall(SYS_fsync, descriptor); }
int raw_fdatasync(int descriptor) { return (int)syscall(SYS_fdatasync, descriptor); }

int raw_fallocate(int descriptor, int mode, off_t offset, off_t length) {
    return (int)syscall(SYS_fallocate, descriptor, mode, offset, length);
}
