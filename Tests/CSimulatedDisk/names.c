// The names of the files: those that the program sees, those that are on the disk, and the changes between the two.
#include "disk.h"

#include <stdlib.h>
#include <string.h>

static void set_text(char *text, const char *value) {
    strncpy(text, value, NAME_SIZE - 1);
    text[NAME_SIZE - 1] = 0;
}

struct file *names_find(const struct names *names, const char *name) {
    for (int i = 0; i < names->count; i++) {
        if (strcmp(names->list[i].text, name) == 0) return names->list[i].file;
    }
    return NULL;
}

void names_set(struct names *names, const char *name, struct file *file) {
    for (int i = 0; i < names->count; i++) {
        if (strcmp(names->list[i].text, name) != 0) continue;
        names->list[i].file = file;
        // Keeps the order, which the seed's choices follow.
        if (!file) memmove(&names->list[i], &names->list[i + 1], (size_t)(--names->count - i) * sizeof *names->list);
        return;
    }
    if (!file) return;
    if (names->count == names->room) {
        names->room = names->room ? names->room * 2 : 16;
        names->list = realloc(names->list, (size_t)names->room * sizeof *names->list);
    }
    set_text(names->list[names->count].text, name);
    names->list[names->count++].file = file;
}

void names_copy(struct names *to, const struct names *from) {
    to->count = 0;
    for (int i = 0; i < from->count; i++) names_set(to, from->list[i].text, from->list[i].file);
}

/// Whether a name is directly in a folder; "" is the folder of the disk.
static bool is_in(const char *name, const char *folder) {
    const char *slash = strrchr(name, '/');
    size_t length = slash ? (size_t)(slash - name) : 0;
    return strlen(folder) == length && memcmp(name, folder, length) == 0;
}

static void apply(struct names *names, const struct naming *naming) {
    if (naming->from[0]) names_set(names, naming->from, NULL);
    names_set(names, naming->name, naming->file);
}

void disk_name(struct postern_disk *disk, const char *name, const char *from, struct file *file) {
    if (disk->naming_count == disk->naming_room) {
        disk->naming_room = disk->naming_room ? disk->naming_room * 2 : 16;
        disk->namings = realloc(disk->namings, (size_t)disk->naming_room * sizeof *disk->namings);
    }
    struct naming *naming = &disk->namings[disk->naming_count++];
    *naming = (struct naming){.file = file};
    set_text(naming->name, name);
    set_text(naming->from, from);
    apply(&disk->names, naming);
}

void disk_sync_names(struct postern_disk *disk, const char *folder) {
    int kept = 0;
    for (int i = 0; i < disk->naming_count; i++) {
        if (is_in(disk->namings[i].name, folder)) {
            apply(&disk->durable, &disk->namings[i]);
        } else {
            disk->namings[kept++] = disk->namings[i];
        }
    }
    disk->naming_count = kept;
}

void disk_promise_names(struct postern_disk *disk, const char *folder) {
    for (int i = 0; i < disk->naming_count; i++) {
        if (is_in(disk->namings[i].name, folder)) disk->namings[i].is_promised = true;
    }
}

/// Drops the names whose folder is not there.
static void drop_orphans(struct names *names) {
    for (int i = 0; i < names->count; i++) {
        char folder[NAME_SIZE];
        set_text(folder, names->list[i].text);
        char *slash = strrchr(folder, '/');
        if (slash) *slash = 0;
        if (!slash || names_find(names, folder)) continue;
        names_set(names, names->list[i].text, NULL);
        i = -1;
    }
}

/// Keeps the beginning of what is not synced: file systems with a journal keep the order of such changes.
bool disk_survive_names(struct postern_disk *disk) {
    int64_t luck = disk_below(disk, 4);
    int64_t kept = luck == 0 ? 0 : luck == 1 ? disk->naming_count : disk_below(disk, disk->naming_count + 1);
    bool is_promise_broken = false;
    for (int i = 0; i < disk->naming_count; i++) {
        if (i < kept) apply(&disk->durable, &disk->namings[i]);
        else if (disk->namings[i].is_promised) is_promise_broken = true;
    }
    disk->naming_count = 0;
    drop_orphans(&disk->durable);
    names_copy(&disk->names, &disk->durable);
    return is_promise_broken;
}
