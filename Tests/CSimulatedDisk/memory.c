// Lets allocations of SQLite fail, on a thread that works with a disk.
#include "disk.h"

#include <sqlite3.h>

static sqlite3_mem_methods usual;
static _Thread_local struct postern_disk *watched;

static bool fails(void) {
    struct postern_disk *disk = watched;
    if (!disk) return false;
    pthread_mutex_lock(&disk->lock);
    bool fails = !disk->has_stopped && disk_fault(disk, POSTERN_DISK_MEMORY, "memory") != POSTERN_DISK_NONE;
    pthread_mutex_unlock(&disk->lock);
    return fails;
}

static void *allocate(int size) { return fails() ? NULL : usual.xMalloc(size); }
static void *reallocate(void *former, int size) { return fails() ? NULL : usual.xRealloc(former, size); }

bool postern_disk_prepare_memory(void) {
    if (sqlite3_config(SQLITE_CONFIG_GETMALLOC, &usual) != SQLITE_OK) return false;
    sqlite3_mem_methods methods = usual;
    methods.xMalloc = allocate;
    methods.xRealloc = reallocate;
    return sqlite3_config(SQLITE_CONFIG_MALLOC, &methods) == SQLITE_OK;
}

void postern_disk_watch_memory(struct postern_disk *disk) { watched = disk; }
