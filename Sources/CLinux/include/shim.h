#ifndef POSTERN_LINUX_SHIM_H
#define POSTERN_LINUX_SHIM_H

#include <sys/types.h>
#include <sys/vfs.h>

/// `prctl` is variadic. Afterwards the kernel writes no core dump of this process, in which payloads and secrets would be,
/// and no other process of the same user may trace it.
int postern_forbid_dumps(void);

/// Gives the memory of every block of 256 KiB or more back to the system when it is freed. Call it first.
///
/// By default glibc raises that limit to the size of the largest block that was freed (`man 3 mallopt`,
/// `M_MMAP_THRESHOLD`). Large bodies then lie in heaps among small blocks that keep their memory from being given back.
void postern_unmap_large_blocks(void);

/// The bytes of the heap that are in use (`man 3 mallinfo2`). Each arena is locked while its free blocks are counted.
size_t postern_heap_in_use(void);
/// The anonymous memory of this process that is resident, in bytes; 0 if /proc cannot be read.
size_t postern_resident_memory(void);
/// Gives all free pages of the heap back to the system. Each arena is locked meanwhile.
void postern_release_free_pages(void);

/// `fallocate` is declared for `_GNU_SOURCE` only. `posix_fallocate` would write into the file where the file system
/// cannot allocate.
int postern_fallocate(int descriptor, off_t offset, off_t size);

/// `mmap` for SQLite, which maps nothing for writing but the index of a write-ahead log. An access to a part of a mapped file
/// that has no block ends the process with SIGBUS if the disk is full, so this allocates the blocks before it maps the file,
/// and fails if there is no room. Where the file system cannot do that, such as ext2, the kernel is told to make the pages
/// writable, which changes none of them (Linux 5.14 or later; before that, SQLite's byte in each 4 KiB has to do).
void *postern_mmap(void *address, size_t length, int protection, int flags, int descriptor, off_t offset);

/// `ftruncate` for SQLite, whose first connection to a store empties the index of the log: it makes the file this long, which
/// no other file is made. On a full disk the blocks would be gone before they are needed again, a moment later. So this
/// overwrites the file with zeros, with the same effect, and makes it shorter only if that fails.
enum { POSTERN_EMPTY_INDEX = 3 };
int postern_ftruncate(int descriptor, off_t size);

/// `read` and `pread` for SQLite, which takes `EIO` for a damaged file system and reports the database as malformed
/// (`SQLITE_IOERR_CORRUPTFS`). These report another error instead, which SQLite reports as a failed read.
ssize_t postern_read(int descriptor, void *bytes, size_t length);
ssize_t postern_pread(int descriptor, void *bytes, size_t length, off_t offset);
/// How many calls of the two have failed on this thread.
long postern_failed_reads(void);

#endif
