// What the parts of the disk share. Everything here is called with the disk's lock held, unless it says otherwise.
#ifndef POSTERN_DISK_H
#define POSTERN_DISK_H

#define _GNU_SOURCE
#include "simulated_disk.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

enum { SECTOR = 512, BLOCK = 4096, NAME_SIZE = 128, PATH_SIZE = 256, HISTORY = 256 };

/// Bytes of a file. Memory that was never written to costs nothing.
struct image {
    uint8_t *bytes;
    int64_t size, capacity;
};

/// A change that is not synced: the sectors that it wrote, as they were after it, or a new size.
struct event {
    bool is_resize;
    /// A sync reported that it is on the disk, and this is marked.
    bool is_promised;
    /// Of the first sector; or the new size.
    int64_t offset;
    int64_t length;
    /// Size of the file after it.
    int64_t size;
    /// Where its bytes begin in the journal.
    int64_t place;
};

enum block { BLOCK_NONE, BLOCK_ALLOCATED, BLOCK_WRITTEN };

struct file {
    bool is_folder;
    /// The index of a log, which SQLite maps into memory: its bytes are in the real file.
    bool is_mapped;
    /// What the program reads.
    struct image cache;
    /// What a power cut leaves for certain.
    struct image platter;
    /// After a sync that failed: blocks that are not dirty may differ between the two.
    bool is_stale;
    struct event *events;
    int64_t event_count, event_room;
    uint8_t *journal;
    int64_t journal_size, journal_room;
    /// One of `enum block` for each block.
    uint8_t *blocks;
    int64_t block_room;
    struct file *next;
    bool is_reached;
};

struct name {
    char text[NAME_SIZE];
    struct file *file;
};

struct names {
    struct name *list;
    int count, room;
};

/// A change to the names in a folder that is not synced. A nil file: the name goes. `from` is empty unless it is a rename.
struct naming {
    char name[NAME_SIZE], from[NAME_SIZE];
    struct file *file;
    bool is_promised;
};

struct counted {
    char name[NAME_SIZE];
    struct postern_disk_counts counts;
    struct counted *next;
};

struct strike {
    enum postern_disk_call call;
    enum postern_disk_fault fault;
    char name[NAME_SIZE];
    int64_t after, times;
    struct strike *next;
};

struct postern_disk {
    pthread_mutex_t lock;
    int number, life;
    bool is_gone, has_stopped;
    char folder[PATH_SIZE], next_folder[PATH_SIZE];
    uint64_t random;
    int64_t capacity, used;
    struct file *files;
    struct names names, durable;
    struct naming *namings;
    int naming_count, naming_room;
    int32_t broken_promises;
    bool is_damaged;
    uint32_t odds[POSTERN_DISK_CALLS][POSTERN_DISK_FAULTS];
    bool has_odds[POSTERN_DISK_CALLS];
    bool is_calm;
    struct strike *strikes;
    struct counted *counted;
    int64_t calls[POSTERN_DISK_CALLS];
    int64_t changes;
    uint64_t digest;
    struct postern_disk_record history[HISTORY];
    int64_t history_count;
    struct postern_disk *next;
};

/// An open descriptor. Belongs to one life, and has no effect after it.
struct handle {
    struct postern_disk *disk;
    int life;
    /// Nil: a folder.
    struct file *file;
    struct counted *counted;
    bool is_read_only;
};

// faults.c
uint64_t disk_random(struct postern_disk *disk);
/// At least 0 and below `limit`.
int64_t disk_below(struct postern_disk *disk, int64_t limit);
/// What happens to a call, `POSTERN_DISK_STOP` also if the process stopped before.
enum postern_disk_fault disk_fault(struct postern_disk *disk, enum postern_disk_call call, const char *name);
/// Notes a call for counters, digest and history. Returns -1 with `errno` set if `error` is not 0, else `result`.
int64_t disk_note(
    struct postern_disk *disk, enum postern_disk_call call, enum postern_disk_fault fault, int error,
    struct counted *counted, int64_t offset, int64_t length, int64_t result);
struct counted *disk_counted(struct postern_disk *disk, const char *name);

// image.c
void image_resize(struct image *image, int64_t size);
void image_free(struct image *image);

// file.c
struct file *file_new(struct postern_disk *disk);
void file_free(struct file *file);
/// Gives blocks to a range. Returns how many bytes of it have blocks, from its beginning on.
int64_t file_allocate(struct postern_disk *disk, struct file *file, int64_t offset, int64_t length, enum block state);
void file_write(struct file *file, int64_t offset, const void *bytes, int64_t length);
void file_resize(struct postern_disk *disk, struct file *file, int64_t size);
/// Makes everything durable.
void file_sync(struct file *file);
/// A sync that failed: a part is durable, the rest counts as clean.
void file_fail_sync(struct postern_disk *disk, struct file *file);
void file_promise(struct file *file);
/// Clean blocks are read from the disk again.
void file_evict(struct file *file);
/// Applies a power cut. Returns whether it loses something that a sync falsely reported as done.
bool file_survive(struct postern_disk *disk, struct file *file);
/// Releases the memory of the file's blocks.
void file_release(struct postern_disk *disk, struct file *file);

// names.c
struct file *names_find(const struct names *names, const char *name);
/// A nil file removes the name.
void names_set(struct names *names, const char *name, struct file *file);
void names_copy(struct names *to, const struct names *from);
/// Changes a name now, and on the disk once its folder is synced.
void disk_name(struct postern_disk *disk, const char *name, const char *from, struct file *file);
void disk_sync_names(struct postern_disk *disk, const char *folder);
void disk_promise_names(struct postern_disk *disk, const char *folder);
/// Applies a power cut to the names. Returns whether it loses one that a sync falsely reported as done.
bool disk_survive_names(struct postern_disk *disk);

// lives.c, not under a lock
/// The disk whose current life has `path`, locked, and the name of the file there; nil if there is none.
struct postern_disk *disk_of_path(const char *path, const char **name);
/// The process stops: nothing it does from now on has an effect.
void disk_stop(struct postern_disk *disk);

// calls.c, not under a lock
/// The handle of a descriptor, nil if it is not of a disk.
struct handle *handle_of(int descriptor);
/// Locks the disk of a handle. Returns false, with `errno` set, if the handle's life is over.
bool disk_enter(struct handle *handle);
/// Unlocks the disk, keeps `errno`, and returns `result`.
int64_t disk_leave(struct postern_disk *disk, int64_t result);
/// What a fault that leaves no trace on the disk makes of a call; 0 if nothing.
int disk_error(enum postern_disk_fault fault);

// raw.c: the system calls themselves
int raw_open(const char *path, int flags, mode_t mode);
int raw_close(int descriptor);
int raw_fcntl(int descriptor, int command, void *argument);
ssize_t raw_pread(int descriptor, void *bytes, size_t length, off_t offset);
ssize_t raw_pwrite(int descriptor, const void *bytes, size_t length, off_t offset);
int raw_ftruncate(int descriptor, off_t size);
int raw_unlink(const char *path);
int raw_rename(const char *from, const char *to);
int raw_mkdir(const char *path, mode_t mode);
int raw_stat(const char *path, struct stat *status);
ssize_t raw_read(int descriptor, void *bytes, size_t length);
ssize_t raw_write(int descriptor, const void *bytes, size_t length);
int raw_fsync(int descriptor);
int raw_fdatasync(int descriptor);
int raw_fallocate(int descriptor, int mode, off_t offset, off_t length);

#endif
