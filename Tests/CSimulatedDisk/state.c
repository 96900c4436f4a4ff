// What a test queries about a disk, and the damage that it causes.
#include "disk.h"

#include <string.h>

int64_t postern_disk_capacity(struct postern_disk *disk) {
    pthread_mutex_lock(&disk->lock);
    int64_t capacity = disk->capacity;
    pthread_mutex_unlock(&disk->lock);
    return capacity;
}

void postern_disk_set_capacity(struct postern_disk *disk, int64_t bytes) {
    pthread_mutex_lock(&disk->lock);
    disk->capacity = bytes;
    pthread_mutex_unlock(&disk->lock);
}

int64_t postern_disk_used(struct postern_disk *disk) {
    pthread_mutex_lock(&disk->lock);
    int64_t used = disk->used;
    pthread_mutex_unlock(&disk->lock);
    return used;
}

int32_t postern_disk_broken_promises(struct postern_disk *disk) {
    pthread_mutex_lock(&disk->lock);
    int32_t broken = disk->broken_promises;
    pthread_mutex_unlock(&disk->lock);
    return broken;
}

bool postern_disk_is_damaged(struct postern_disk *disk) {
    pthread_mutex_lock(&disk->lock);
    bool is_damaged = disk->is_damaged;
    pthread_mutex_unlock(&disk->lock);
    return is_damaged;
}

/// The block of a file that is written and clean, as the `number`th of all; counts them if `number` is negative.
static int64_t clean_block(const struct file *file, int64_t number) {
    int64_t count = 0;
    for (int64_t block = 0; block < file->block_room && block * BLOCK < file->platter.size; block++) {
        if (file->blocks[block] != BLOCK_WRITTEN) continue;
        bool is_dirty = file->is_stale;
        for (int64_t i = 0; i < file->event_count && !is_dirty; i++) {
            const struct event *event = &file->events[i];
            is_dirty = event->is_resize
                || (event->offset < (block + 1) * BLOCK && event->offset + event->length > block * BLOCK);
        }
        if (is_dirty) continue;
        if (count == number) return block;
        count++;
    }
    return count;
}

static int64_t clean_blocks(const struct name *entry, const char *name) {
    if (name && strcmp(entry->text, name) != 0) return 0;
    if (entry->file->is_folder || entry->file->is_mapped) return 0;
    return clean_block(entry->file, -1);
}

bool postern_disk_flip(struct postern_disk *disk, const char *name, const char **where, int64_t *offset) {
    pthread_mutex_lock(&disk->lock);
    int64_t all = 0;
    for (int i = 0; i < disk->names.count; i++) all += clean_blocks(&disk->names.list[i], name);
    int64_t number = disk_below(disk, all);
    for (int i = 0; i < disk->names.count && all > 0; i++) {
        struct file *file = disk->names.list[i].file;
        int64_t count = clean_blocks(&disk->names.list[i], name);
        if (number >= count) {
            number -= count;
            continue;
        }
        int64_t start = clean_block(file, number) * BLOCK;
        int64_t length = file->platter.size - start < BLOCK ? file->platter.size - start : BLOCK;
        *offset = start + disk_below(disk, length);
        uint8_t bit = (uint8_t)(1 << disk_below(disk, 8));
        file->platter.bytes[*offset] ^= bit;
        file->cache.bytes[*offset] ^= bit;
        *where = disk_counted(disk, disk->names.list[i].text)->name;
        disk->is_damaged = true;
        break;
    }
    pthread_mutex_unlock(&disk->lock);
    return all > 0;
}
