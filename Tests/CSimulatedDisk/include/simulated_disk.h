#ifndef POSTERN_SIMULATED_DISK_H
#define POSTERN_SIMULATED_DISK_H

#include <stdbool.h>
#include <stdint.h>

/// A disk in memory. See `SimulatedDisk` in Swift for what it does; this is what that type calls.
struct postern_disk;

/// The system calls that a disk sees. The values are indices.
enum postern_disk_call {
    POSTERN_DISK_OPEN,
    POSTERN_DISK_READ,
    POSTERN_DISK_WRITE,
    POSTERN_DISK_TRUNCATE,
    POSTERN_DISK_ALLOCATE,
    POSTERN_DISK_SYNC,
    POSTERN_DISK_DELETE,
    POSTERN_DISK_RENAME,
    POSTERN_DISK_MAKE_FOLDER,
    POSTERN_DISK_STATUS,
    /// SQLite allocates memory, on a thread that watches it.
    POSTERN_DISK_MEMORY,
    POSTERN_DISK_CALLS,
};

/// The faults that a call can have.
enum postern_disk_fault {
    POSTERN_DISK_NONE,
    /// A read or write transfers less than it was asked to.
    POSTERN_DISK_SHORT,
    POSTERN_DISK_NO_SPACE,
    /// A write may have written a part; after a sync that failed, some of what was not synced is lost and counts as clean.
    POSTERN_DISK_IO_ERROR,
    /// A sync reports success and does nothing.
    POSTERN_DISK_LIE,
    /// The same, but what it loses is not marked: to see that a test finds the loss.
    POSTERN_DISK_SECRET_LIE,
    /// The process stops in the middle of the call: this one and all that follow fail.
    POSTERN_DISK_STOP,
    POSTERN_DISK_FAULTS,
};

struct postern_disk_counts {
    int64_t reads, writes, syncs;
};

/// One call of the past. `name` is valid as long as the disk.
struct postern_disk_record {
    enum postern_disk_call call;
    enum postern_disk_fault fault;
    /// 0, or the `errno` that it returned.
    int32_t error;
    int64_t offset, length;
    const char *name;
};

/// Nil if the disk's folder cannot be made.
struct postern_disk *postern_disk_new(uint64_t seed, int64_t capacity);
/// Deletes everything on the disk. Descriptors that are still open remain, without effect.
void postern_disk_free(struct postern_disk *disk);

/// Deletes the folders of processes that were killed. A process does so before its first disk.
void postern_disk_delete_left_over(void);

/// The folder of the current life. Valid until the next one begins.
const char *postern_disk_folder(struct postern_disk *disk);
/// Begins the next life, after a kill or a power cut.
void postern_disk_next_life(struct postern_disk *disk, bool is_power_cut);
bool postern_disk_has_stopped(struct postern_disk *disk);

/// Odds of a fault per million calls.
void postern_disk_set_odds(
    struct postern_disk *disk, enum postern_disk_call call, enum postern_disk_fault fault, uint32_t per_million);
/// No fault strikes meanwhile, and no call counts towards one that is planned.
void postern_disk_set_calm(struct postern_disk *disk, bool is_calm);
/// Lets a fault strike calls whose file's name ends in `name`, the first `after` of them excepted, `times` times. "/" is
/// the folder of the disk.
/// `POSTERN_DISK_CALLS` as the call: any that changes something.
void postern_disk_strike(
    struct postern_disk *disk, enum postern_disk_call call, enum postern_disk_fault fault, const char *name,
    int64_t after, int64_t times);
/// How many of the planned faults have not struck yet.
int64_t postern_disk_strikes_left(struct postern_disk *disk);
/// Forgets what `postern_disk_strike` planned.
void postern_disk_strike_no_more(struct postern_disk *disk);

/// Lets the disk see allocations of SQLite. To be called before SQLite is used; false if it was.
bool postern_disk_prepare_memory(void);
/// From now on the disk sees those of the calling thread; nil: no disk does. The disk has to outlive that.
void postern_disk_watch_memory(struct postern_disk *disk);

int64_t postern_disk_capacity(struct postern_disk *disk);
void postern_disk_set_capacity(struct postern_disk *disk, int64_t bytes);
int64_t postern_disk_used(struct postern_disk *disk);

/// Flips a bit of a block that was written and synced in the file `name`, or in any if it is nil. Returns false if there
/// is none. `where` gets the name, `offset` the byte.
bool postern_disk_flip(struct postern_disk *disk, const char *name, const char **where, int64_t *offset);

/// How often something was lost that a lying sync had promised.
int32_t postern_disk_broken_promises(struct postern_disk *disk);
bool postern_disk_is_damaged(struct postern_disk *disk);

struct postern_disk_counts postern_disk_counts(struct postern_disk *disk, const char *name);
/// Calls so far that a fault could have struck.
int64_t postern_disk_calls_of(struct postern_disk *disk, enum postern_disk_call call);
/// Calls so far that changed something or synced, and a digest of all calls with their results.
int64_t postern_disk_changes(struct postern_disk *disk);
uint64_t postern_disk_digest(struct postern_disk *disk);
/// The last calls, oldest first, without reads that succeeded. Returns how many.
int32_t postern_disk_last_calls(struct postern_disk *disk, struct postern_disk_record *records, int32_t most);

#endif
