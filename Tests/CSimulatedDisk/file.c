// The bytes of one file: those that the program reads, those that are on the disk, and the changes between the two.
#include "disk.h"

#include <stdlib.h>
#include <string.h>

struct file *file_new(struct postern_disk *disk) {
    struct file *file = calloc(1, sizeof *file);
    file->next = disk->files;
    disk->files = file;
    return file;
}

void file_free(struct file *file) {
    image_free(&file->cache);
    image_free(&file->platter);
    free(file->events);
    free(file->journal);
    free(file->blocks);
    free(file);
}

static int64_t smaller(int64_t one, int64_t other) { return one < other ? one : other; }

// MARK: Blocks

int64_t file_allocate(struct postern_disk *disk, struct file *file, int64_t offset, int64_t length, enum block state) {
    int64_t blocks = (offset + length + BLOCK - 1) / BLOCK;
    if (blocks > file->block_room) {
        int64_t room = blocks * 2;
        file->blocks = realloc(file->blocks, (size_t)room);
        memset(file->blocks + file->block_room, BLOCK_NONE, (size_t)(room - file->block_room));
        file->block_room = room;
    }
    for (int64_t block = offset / BLOCK; block < blocks; block++) {
        if (file->blocks[block] == BLOCK_NONE) {
            if (disk->used + BLOCK > disk->capacity) return block * BLOCK > offset ? block * BLOCK - offset : 0;
            disk->used += BLOCK;
        }
        if (file->blocks[block] < state) file->blocks[block] = (uint8_t)state;
    }
    return length;
}

static void cut_blocks(struct postern_disk *disk, struct file *file, int64_t size) {
    for (int64_t block = (size + BLOCK - 1) / BLOCK; block < file->block_room; block++) {
        if (file->blocks[block] != BLOCK_NONE) disk->used -= BLOCK;
        file->blocks[block] = BLOCK_NONE;
    }
}

void file_release(struct postern_disk *disk, struct file *file) { cut_blocks(disk, file, 0); }

// MARK: Changes

static struct event *add_event(struct file *file) {
    if (file->event_count == file->event_room) {
        file->event_room = file->event_room ? file->event_room * 2 : 64;
        file->events = realloc(file->events, (size_t)file->event_room * sizeof *file->events);
    }
    struct event *event = &file->events[file->event_count++];
    *event = (struct event){0};
    return event;
}

void file_write(struct file *file, int64_t offset, const void *bytes, int64_t length) {
    if (file->cache.size < offset + length) image_resize(&file->cache, offset + length);
    memcpy(file->cache.bytes + offset, bytes, (size_t)length);
    int64_t start = offset / SECTOR * SECTOR;
    int64_t end = smaller((offset + length + SECTOR - 1) / SECTOR * SECTOR, file->cache.size);
    if (file->journal_size + end - start > file->journal_room) {
        file->journal_room = (file->journal_size + end - start) * 2;
        file->journal = realloc(file->journal, (size_t)file->journal_room);
    }
    struct event *event = add_event(file);
    event->offset = start;
    event->length = end - start;
    event->size = file->cache.size;
    event->place = file->journal_size;
    memcpy(file->journal + file->journal_size, file->cache.bytes + start, (size_t)event->length);
    file->journal_size += event->length;
}

void file_resize(struct postern_disk *disk, struct file *file, int64_t size) {
    if (size == file->cache.size) return;
    if (size < file->cache.size) cut_blocks(disk, file, size);
    image_resize(&file->cache, size);
    struct event *event = add_event(file);
    event->is_resize = true;
    event->offset = size;
    event->size = size;
}

static void forget_events(struct file *file) {
    file->event_count = 0;
    file->journal_size = 0;
}

// MARK: Syncs

void file_sync(struct file *file) {
    for (int64_t i = 0; i < file->event_count; i++) {
        struct event *event = &file->events[i];
        image_resize(&file->platter, event->size);
        if (!event->is_resize) {
            memcpy(file->platter.bytes + event->offset, file->journal + event->place, (size_t)event->length);
        }
    }
    forget_events(file);
}

void file_promise(struct file *file) {
    for (int64_t i = 0; i < file->event_count; i++) file->events[i].is_promised = true;
}

/// Reads the disk again, except for blocks that were only allocated.
static void read_platter(struct file *file) {
    image_resize(&file->cache, 0);
    image_resize(&file->cache, file->platter.size);
    for (int64_t start = 0; start < file->platter.size; start += BLOCK) {
        int64_t block = start / BLOCK;
        if (block < file->block_room && file->blocks[block] == BLOCK_ALLOCATED) continue;
        int64_t length = smaller(BLOCK, file->platter.size - start);
        memcpy(file->cache.bytes + start, file->platter.bytes + start, (size_t)length);
    }
}

void file_evict(struct file *file) {
    if (!file->is_stale) return;
    int64_t size = file->cache.size;
    read_platter(file);
    for (int64_t i = 0; i < file->event_count; i++) {
        struct event *event = &file->events[i];
        image_resize(&file->cache, event->size);
        if (!event->is_resize) {
            memcpy(file->cache.bytes + event->offset, file->journal + event->place, (size_t)event->length);
        }
    }
    // The size is in the inode, not in a block.
    image_resize(&file->cache, size);
    file->is_stale = false;
}

// MARK: A power cut

/// How much of what was not synced is on the disk.
enum luck { NOTHING, EVERYTHING, BEGINNING, SOME_WRITES, FEW_SECTORS, SOME_SECTORS, MOST_SECTORS, LUCKS };

static bool is_kept(struct postern_disk *disk, enum luck luck, int64_t i, int64_t beginning, bool is_write_kept) {
    switch (luck) {
    case NOTHING: return false;
    case EVERYTHING: return true;
    // The write at which it ends is torn.
    case BEGINNING: return i < beginning || (i == beginning && disk_below(disk, 2) == 0);
    case SOME_WRITES: return is_write_kept;
    case FEW_SECTORS: return disk_below(disk, 8) == 0;
    case SOME_SECTORS: return disk_below(disk, 2) == 0;
    default: return disk_below(disk, 8) != 0;
    }
}

/// Writes a part of what is not synced. Changes of the size are kept in their order up to one of them, as a file system
/// with a journal does; sectors are kept in any combination. Space that a change of the size adds holds zeros.
static bool keep_some(struct postern_disk *disk, struct file *file) {
    enum luck luck = (enum luck)disk_below(disk, LUCKS);
    int64_t count = file->event_count;
    int64_t beginning = disk_below(disk, count + 1);
    // Events before this one have their effect on the size.
    int64_t sized = luck == NOTHING ? 0 : luck == EVERYTHING ? count : luck == BEGINNING ? beginning + disk_below(disk, 2)
        : disk_below(disk, 2) == 0 ? count : disk_below(disk, count + 1);
    // What is written behind a cut that is not kept is in blocks that the file does not have.
    int64_t barrier = INT64_MAX;
    bool is_promise_broken = false;
    for (int64_t i = 0; i < count; i++) {
        struct event *event = &file->events[i];
        bool is_lost = false;
        if (i < sized) {
            image_resize(&file->platter, event->size);
        } else if (event->is_resize) {
            barrier = smaller(barrier, event->offset);
        }
        is_lost = i >= sized && event->size != file->platter.size;
        bool is_write_kept = disk_below(disk, 2) == 0;
        for (int64_t done = 0; done < event->length; done += SECTOR) {
            int64_t start = event->offset + done;
            int64_t length = smaller(SECTOR, event->length - done);
            if (start >= file->platter.size || start >= barrier || !is_kept(disk, luck, i, beginning, is_write_kept)) {
                is_lost = true;
                continue;
            }
            length = smaller(length, file->platter.size - start);
            memcpy(file->platter.bytes + start, file->journal + event->place + done, (size_t)length);
        }
        if (is_lost && event->is_promised) is_promise_broken = true;
    }
    forget_events(file);
    return is_promise_broken;
}

bool file_survive(struct postern_disk *disk, struct file *file) {
    bool is_promise_broken = keep_some(disk, file);
    read_platter(file);
    file->is_stale = false;
    cut_blocks(disk, file, file->cache.size);
    // Blocks that a cut of the file gave back, if the power cut undid that.
    int64_t capacity = disk->capacity;
    disk->capacity = INT64_MAX;
    for (int64_t start = 0; start < file->cache.size; start += BLOCK) {
        if (start / BLOCK < file->block_room && file->blocks[start / BLOCK] != BLOCK_NONE) continue;
        file_allocate(disk, file, start, 1, BLOCK_WRITTEN);
    }
    disk->capacity = capacity;
    return is_promise_broken;
}

void file_fail_sync(struct postern_disk *disk, struct file *file) {
    if (keep_some(disk, file)) disk->broken_promises++;
    // The size stays what the program knows: the inode is written with the next sync.
    if (file->platter.size != file->cache.size) {
        struct event *event = add_event(file);
        event->is_resize = true;
        event->offset = event->size = file->cache.size;
    }
    file->is_stale = true;
    // Some file systems show what was lost at once, others until the block is read again.
    if (disk_below(disk, 2) == 0) file_evict(file);
}
