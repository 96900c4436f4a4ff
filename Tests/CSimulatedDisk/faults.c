// Chooses the fault of each call, and records the calls.
#include "disk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/// SplitMix64 (https://prng.di.unimi.it/splitmix64.c).
uint64_t disk_random(struct postern_disk *disk) {
    uint64_t z = disk->random += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

int64_t disk_below(struct postern_disk *disk, int64_t limit) {
    return limit > 1 ? (int64_t)(disk_random(disk) % (uint64_t)limit) : 0;
}

static bool changes(enum postern_disk_call call) {
    return call != POSTERN_DISK_OPEN && call != POSTERN_DISK_READ && call != POSTERN_DISK_STATUS
        && call != POSTERN_DISK_MEMORY;
}

static bool ends_in(const char *text, const char *end) {
    size_t length = strlen(text), tail = strlen(end);
    return tail <= length && memcmp(text + length - tail, end, tail) == 0;
}

enum postern_disk_fault disk_fault(struct postern_disk *disk, enum postern_disk_call call, const char *name) {
    if (disk->has_stopped) return POSTERN_DISK_STOP;
    if (disk->is_calm) return POSTERN_DISK_NONE;
    disk->calls[call]++;
    for (struct strike *strike = disk->strikes; strike; strike = strike->next) {
        bool is_meant = strike->call == POSTERN_DISK_CALLS ? changes(call) : strike->call == call;
        bool is_named = strcmp(strike->name, "/") == 0 ? name[0] == 0 : ends_in(name, strike->name);
        if (strike->times == 0 || !is_meant || !is_named) continue;
        if (strike->after > 0) {
            strike->after--;
            continue;
        }
        strike->times--;
        return strike->fault;
    }
    if (!disk->has_odds[call]) return POSTERN_DISK_NONE;
    int64_t drawn = disk_below(disk, 1000000);
    for (int fault = 1; fault < POSTERN_DISK_FAULTS; fault++) {
        drawn -= disk->odds[call][fault];
        if (drawn < 0) return (enum postern_disk_fault)fault;
    }
    return POSTERN_DISK_NONE;
}

void postern_disk_set_odds(
    struct postern_disk *disk, enum postern_disk_call call, enum postern_disk_fault fault, uint32_t per_million
) {
    pthread_mutex_lock(&disk->lock);
    disk->odds[call][fault] = per_million;
    disk->has_odds[call] = false;
    for (int other = 1; other < POSTERN_DISK_FAULTS; other++) {
        if (disk->odds[call][other] > 0) disk->has_odds[call] = true;
    }
    pthread_mutex_unlock(&disk->lock);
}

void postern_disk_set_calm(struct postern_disk *disk, bool is_calm) {
    pthread_mutex_lock(&disk->lock);
    disk->is_calm = is_calm;
    pthread_mutex_unlock(&disk->lock);
}

void postern_disk_strike(
    struct postern_disk *disk, enum postern_disk_call call, enum postern_disk_fault fault, const char *name,
    int64_t after, int64_t times
) {
    struct strike *strike = calloc(1, sizeof *strike);
    strike->call = call;
    strike->fault = fault;
    strncpy(strike->name, name, NAME_SIZE - 1);
    strike->after = after;
    strike->times = times;
    pthread_mutex_lock(&disk->lock);
    struct strike **last = &disk->strikes;
    while (*last) last = &(*last)->next;
    *last = strike;
    pthread_mutex_unlock(&disk->lock);
}

int64_t postern_disk_strikes_left(struct postern_disk *disk) {
    int64_t left = 0;
    pthread_mutex_lock(&disk->lock);
    for (struct strike *strike = disk->strikes; strike; strike = strike->next) left += strike->times;
    pthread_mutex_unlock(&disk->lock);
    return left;
}

void postern_disk_strike_no_more(struct postern_disk *disk) {
    pthread_mutex_lock(&disk->lock);
    while (disk->strikes) {
        struct strike *strike = disk->strikes;
        disk->strikes = strike->next;
        free(strike);
    }
    pthread_mutex_unlock(&disk->lock);
}

// MARK: What was called

struct counted *disk_counted(struct postern_disk *disk, const char *name) {
    for (struct counted *counted = disk->counted; counted; counted = counted->next) {
        if (strcmp(counted->name, name) == 0) return counted;
    }
    struct counted *counted = calloc(1, sizeof *counted);
    strncpy(counted->name, name, NAME_SIZE - 1);
    counted->next = disk->counted;
    disk->counted = counted;
    return counted;
}

static void digest(struct postern_disk *disk, uint64_t value) {
    disk->digest = (disk->digest ^ value) * 0x100000001B3u;
    disk->digest ^= disk->digest >> 29;
}

int64_t disk_note(
    struct postern_disk *disk, enum postern_disk_call call, enum postern_disk_fault fault, int error,
    struct counted *counted, int64_t offset, int64_t length, int64_t result
) {
    if (call == POSTERN_DISK_READ) counted->counts.reads++;
    if (call == POSTERN_DISK_WRITE) counted->counts.writes++;
    if (call == POSTERN_DISK_SYNC) counted->counts.syncs++;
    if (changes(call)) disk->changes++;
    digest(disk, (uint64_t)call << 32 | (uint64_t)fault << 16 | (uint64_t)error);
    digest(disk, (uint64_t)offset);
    digest(disk, (uint64_t)length);
    digest(disk, (uint64_t)result);
    if (call != POSTERN_DISK_READ || fault != POSTERN_DISK_NONE) {
        disk->history[disk->history_count++ % HISTORY] = (struct postern_disk_record){
            .call = call, .fault = fault, .error = error, .offset = offset, .length = length, .name = counted->name,
        };
    }
    if (error == 0) return result;
    errno = error;
    return -1;
}

struct postern_disk_counts postern_disk_counts(struct postern_disk *disk, const char *name) {
    pthread_mutex_lock(&disk->lock);
    struct postern_disk_counts counts = disk_counted(disk, name)->counts;
    pthread_mutex_unlock(&disk->lock);
    return counts;
}

int32_t postern_disk_last_calls(struct postern_disk *disk, struct postern_disk_record *records, int32_t most) {
    pthread_mutex_lock(&disk->lock);
    int64_t kept = disk->history_count < HISTORY ? disk->history_count : HISTORY;
    int32_t count = kept < most ? (int32_t)kept : most;
    for (int32_t i = 0; i < count; i++) records[i] = disk->history[(disk->history_count - count + i) % HISTORY];
    pthread_mutex_unlock(&disk->lock);
    return count;
}

int64_t postern_disk_calls_of(struct postern_disk *disk, enum postern_disk_call call) {
    pthread_mutex_lock(&disk->lock);
    int64_t calls = disk->calls[call];
    pthread_mutex_unlock(&disk->lock);
    return calls;
}

int64_t postern_disk_changes(struct postern_disk *disk) {
    pthread_mutex_lock(&disk->lock);
    int64_t changes = disk->changes;
    pthread_mutex_unlock(&disk->lock);
    return changes;
}

uint64_t postern_disk_digest(struct postern_disk *disk) {
    pthread_mutex_lock(&disk->lock);
    uint64_t digest = disk->digest;
    pthread_mutex_unlock(&disk->lock);
    return digest;
}
