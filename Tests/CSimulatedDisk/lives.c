// Disks, their lives, and what happens between two of them.
#include "disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t disks_lock = PTHREAD_MUTEX_INITIALIZER;
static struct postern_disk *disks;
static int last_number;
/// Of all disks, with a slash at its end. Set before the first disk is in the list.
static char root[PATH_SIZE];
static _Atomic size_t root_length;

// MARK: Finding

struct postern_disk *disk_of_path(const char *path, const char **name) {
    size_t length = atomic_load_explicit(&root_length, memory_order_acquire);
    if (length == 0 || !path || strncmp(path, root, length) != 0) return NULL;
    char *end;
    long number = strtol(path + length, &end, 10);
    if (*end != '.') return NULL;
    long life = strtol(end + 1, &end, 10);
    if (*end != '/' && *end != 0) return NULL;
    *name = *end == '/' ? end + 1 : end;
    pthread_mutex_lock(&disks_lock);
    struct postern_disk *disk = disks;
    while (disk && disk->number != number) disk = disk->next;
    pthread_mutex_unlock(&disks_lock);
    if (!disk || strlen(*name) >= NAME_SIZE) return NULL;
    pthread_mutex_lock(&disk->lock);
    if (!disk->is_gone && disk->life == life) return disk;
    pthread_mutex_unlock(&disk->lock);
    return NULL;
}

// MARK: Real files

static void path_in(char *path, const char *folder, const char *name) {
    snprintf(path, PATH_SIZE + NAME_SIZE, "%s/%s", folder, name);
}

/// Deletes a folder with all that is in it.
static void delete_folder(const char *folder) {
    DIR *entries = opendir(folder);
    if (!entries) return;
    for (struct dirent *entry; (entry = readdir(entries));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (raw_unlink(path) != 0) delete_folder(path);
    }
    closedir(entries);
    rmdir(folder);
}

/// Where the folders of all processes are.
static bool find_shelf(char *shelf) { return realpath("/dev/shm", shelf) || realpath("/tmp", shelf); }

void postern_disk_delete_left_over(void) {
    static const char prefix[] = "postern-disks-";
    char shelf[PATH_MAX];
    DIR *entries = find_shelf(shelf) ? opendir(shelf) : NULL;
    if (!entries) return;
    for (struct dirent *entry; (entry = readdir(entries));) {
        if (strncmp(entry->d_name, prefix, sizeof prefix - 1) != 0) continue;
        pid_t owner = (pid_t)atol(entry->d_name + sizeof prefix - 1);
        if (owner <= 0 || kill(owner, 0) == 0 || errno != ESRCH) continue;
        char path[PATH_MAX + 300];
        snprintf(path, sizeof path, "%s/%s", shelf, entry->d_name);
        delete_folder(path);
    }
    closedir(entries);
}

static bool make_root(void) {
    if (root_length > 0) return true;
    char shelf[PATH_MAX];
    if (!find_shelf(shelf)) return false;
    postern_disk_delete_left_over();
    snprintf(root, sizeof root, "%.200s/postern-disks-%d/", shelf, (int)getpid());
    // A process of the same number may have been killed.
    delete_folder(root);
    if (raw_mkdir(root, 0700) != 0) return false;
    atomic_store_explicit(&root_length, strlen(root), memory_order_release);
    return true;
}

__attribute__((destructor)) static void delete_root(void) {
    if (root_length > 0) delete_folder(root);
}

static void copy_real_file(const char *from, const char *to) {
    int source = raw_open(from, O_RDONLY | O_CLOEXEC, 0);
    int target = raw_open(to, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct stat status;
    if (source >= 0 && target >= 0 && fstat(source, &status) == 0 && raw_ftruncate(target, status.st_size) == 0) {
        char bytes[1 << 14];
        off_t offset = 0;
        while ((offset = lseek(source, offset, SEEK_DATA)) >= 0) {
            ssize_t count = raw_pread(source, bytes, sizeof bytes, offset);
            if (count <= 0 || raw_pwrite(target, bytes, (size_t)count, offset) != count) break;
            offset += count;
        }
    }
    if (source >= 0) raw_close(source);
    if (target >= 0) raw_close(target);
}

/// A real file of the right size, without bytes: it has an inode, locks and `fstat`.
static void make_real_file(const char *path, int64_t size) {
    int descriptor = raw_open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (descriptor < 0) abort();
    if (raw_ftruncate(descriptor, size) != 0) abort();
    raw_close(descriptor);
}

// MARK: Beginning and end

static void name_folders(struct postern_disk *disk) {
    snprintf(disk->folder, PATH_SIZE, "%s%d.%d", root, disk->number, disk->life);
    snprintf(disk->next_folder, PATH_SIZE, "%s%d.%d", root, disk->number, disk->life + 1);
}

struct postern_disk *postern_disk_new(uint64_t seed, int64_t capacity) {
    struct postern_disk *disk = calloc(1, sizeof *disk);
    pthread_mutex_init(&disk->lock, NULL);
    // A test may have a generator of the same kind with the same seed.
    disk->random = ~seed;
    disk->capacity = capacity;
    pthread_mutex_lock(&disks_lock);
    bool is_made = make_root();
    disk->number = ++last_number;
    name_folders(disk);
    if (is_made && raw_mkdir(disk->folder, 0700) == 0) {
        disk->next = disks;
        disks = disk;
    } else {
        free(disk);
        disk = NULL;
    }
    pthread_mutex_unlock(&disks_lock);
    return disk;
}

static void free_files(struct postern_disk *disk, bool all) {
    for (struct file *file = disk->files; file; file = file->next) file->is_reached = false;
    for (int i = 0; i < disk->names.count; i++) disk->names.list[i].file->is_reached = true;
    for (int i = 0; i < disk->durable.count; i++) disk->durable.list[i].file->is_reached = true;
    for (int i = 0; i < disk->naming_count; i++) {
        if (disk->namings[i].file) disk->namings[i].file->is_reached = true;
    }
    for (struct file **place = &disk->files; *place;) {
        struct file *file = *place;
        if (file->is_reached && !all) {
            place = &file->next;
            continue;
        }
        file_release(disk, file);
        *place = file->next;
        file_free(file);
    }
}

/// The disk itself stays, empty: descriptors that are still open refer to it.
void postern_disk_free(struct postern_disk *disk) {
    pthread_mutex_lock(&disk->lock);
    disk->is_gone = disk->has_stopped = true;
    disk->life++;
    free_files(disk, true);
    free(disk->names.list);
    free(disk->durable.list);
    free(disk->namings);
    disk->names = disk->durable = (struct names){0};
    disk->namings = NULL;
    disk->naming_count = 0;
    delete_folder(disk->folder);
    delete_folder(disk->next_folder);
    pthread_mutex_unlock(&disk->lock);
    postern_disk_strike_no_more(disk);
}

const char *postern_disk_folder(struct postern_disk *disk) { return disk->folder; }

// MARK: Lives

static void make_folders(struct postern_disk *disk, const char *folder) {
    char path[PATH_SIZE + NAME_SIZE];
    raw_mkdir(folder, 0700);
    for (int i = 0; i < disk->names.count; i++) {
        if (!disk->names.list[i].file->is_folder) continue;
        path_in(path, folder, disk->names.list[i].text);
        raw_mkdir(path, 0700);
    }
}

/// What is mapped into memory goes on changing, so it is copied here, for a kill.
void disk_stop(struct postern_disk *disk) {
    if (disk->has_stopped) return;
    disk->has_stopped = true;
    make_folders(disk, disk->next_folder);
    for (int i = 0; i < disk->names.count; i++) {
        if (!disk->names.list[i].file->is_mapped) continue;
        char from[PATH_SIZE + NAME_SIZE], to[PATH_SIZE + NAME_SIZE];
        path_in(from, disk->folder, disk->names.list[i].text);
        path_in(to, disk->next_folder, disk->names.list[i].text);
        copy_real_file(from, to);
    }
}

/// After a power cut the index of a log holds something of an earlier time, or nothing, and its date says so.
static void age(struct postern_disk *disk, const char *path) {
    int64_t luck = disk_below(disk, 3);
    if (luck > 0) raw_unlink(path);
    if (luck > 0) make_real_file(path, luck == 1 ? 0 : 32768);
    struct timespec long_ago[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    utimensat(AT_FDCWD, path, long_ago, 0);
}

static void cut_power(struct postern_disk *disk) {
    for (struct file *file = disk->files; file; file = file->next) {
        if (!file->is_folder && !file->is_mapped && file_survive(disk, file)) disk->broken_promises++;
    }
    struct names former = {0};
    names_copy(&former, &disk->names);
    if (disk_survive_names(disk)) disk->broken_promises++;
    for (int i = 0; i < former.count; i++) {
        char path[PATH_SIZE + NAME_SIZE];
        path_in(path, disk->next_folder, former.list[i].text);
        if (former.list[i].file->is_mapped && !names_find(&disk->names, former.list[i].text)) raw_unlink(path);
    }
    free(former.list);
}

void postern_disk_next_life(struct postern_disk *disk, bool is_power_cut) {
    pthread_mutex_lock(&disk->lock);
    disk_stop(disk);
    char former[PATH_SIZE];
    strcpy(former, disk->folder);
    if (is_power_cut) {
        cut_power(disk);
        make_folders(disk, disk->next_folder);
    }
    free_files(disk, false);
    disk->life++;
    name_folders(disk);
    for (int i = 0; i < disk->names.count; i++) {
        struct file *file = disk->names.list[i].file;
        char path[PATH_SIZE + NAME_SIZE];
        path_in(path, disk->folder, disk->names.list[i].text);
        if (file->is_folder) continue;
        if (!file->is_mapped) make_real_file(path, file->cache.size);
        else if (is_power_cut) age(disk, path);
    }
    disk->has_stopped = false;
    pthread_mutex_unlock(&disk->lock);
    delete_folder(former);
}

bool postern_disk_has_stopped(struct postern_disk *disk) {
    pthread_mutex_lock(&disk->lock);
    bool has_stopped = disk->has_stopped;
    pthread_mutex_unlock(&disk->lock);
    return has_stopped;
}
