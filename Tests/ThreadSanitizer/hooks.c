// Preloaded by `make sanitize-thread`: tells the thread sanitizer of synchronization inside Swift's libraries, which are
// not instrumented. Without it, whatever a contended `Mutex` or a dispatch queue guards is reported as a race.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>

// Programs without the sanitizer have neither.
void __tsan_acquire(void *place) __attribute__((weak));
void __tsan_release(void *place) __attribute__((weak));

static void acquired(void *place) {
    if (__tsan_acquire) __tsan_acquire(place);
}

static void released(void *place) {
    if (__tsan_release) __tsan_release(place);
}

// `Synchronization._MutexHandle._lockSlow(_:)`, which waits for a lock that is taken. Locking a free one and unlocking are
// atomic operations in instrumented code.
#define LOCK_SLOW "$s15Synchronization12_MutexHandleV9_lockSlowyys6UInt32VF"

typedef __attribute__((swiftcall)) void LockSlow(uint32_t thread, __attribute__((swift_context)) void *mutex);

__attribute__((swiftcall)) void lock_slow(uint32_t thread, __attribute__((swift_context)) void *mutex) __asm__(LOCK_SLOW);

__attribute__((swiftcall)) void lock_slow(uint32_t thread, __attribute__((swift_context)) void *mutex) {
    ((LockSlow *)dlsym(RTLD_NEXT, LOCK_SLOW))(thread, mutex);
    acquired(mutex);
}

// GRDB runs each connection's work on a queue of its own. The layout of a block is that of the Blocks ABI.
struct block {
    void *isa;
    int flags, reserved;
    void (*invoke)(void *block);
};

struct work {
    void *queue;
    struct block *block;
};

static void perform(void *context) {
    struct work *work = context;
    acquired(work->queue);
    work->block->invoke(work->block);
    released(work->queue);
}

typedef void Sync(void *queue, void *context, void (*perform)(void *context));

static void run(const char *function, void *queue, void *block) {
    struct work work = {queue, block};
    released(queue);
    ((Sync *)dlsym(RTLD_NEXT, function))(queue, &work, perform);
    acquired(queue);
}

void dispatch_sync(void *queue, void *block) { run("dispatch_sync_f", queue, block); }
void dispatch_barrier_sync(void *queue, void *block) { run("dispatch_barrier_sync_f", queue, block); }
