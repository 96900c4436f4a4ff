// Preloaded by `make sanitize-thread`: tells the thread sanitizer of synchronization inside Swift's libraries, which are
// not instrumented. Without it, whatever a contended `Mutex` guards is reported as a race.
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

// `Synchronization._MutexHandle`: waiting for a lock that is taken, and handing one on to who waits. Locking a free one
// and unlocking one without waiting threads are atomic operations in instrumented code.
#define LOCK "$s15Synchronization12_MutexHandleV9_lockSlowyys6UInt32VF"
#define UNLOCK "$s15Synchronization12_MutexHandleV11_unlockSlowyyF"
#define SELF __attribute__((swift_context)) void *mutex

typedef __attribute__((swiftcall)) void Lock(uint32_t thread, SELF);
typedef __attribute__((swiftcall)) void Unlock(SELF);

__attribute__((swiftcall)) void lock_slow(uint32_t thread, SELF) __asm__(LOCK);
__attribute__((swiftcall)) void unlock_slow(SELF) __asm__(UNLOCK);

__attribute__((swiftcall)) void lock_slow(uint32_t thread, SELF) {
    ((Lock *)dlsym(RTLD_NEXT, LOCK))(thread, mutex);
    acquired(mutex);
}

__attribute__((swiftcall)) void unlock_slow(SELF) {
    released(mutex);
    ((Unlock *)dlsym(RTLD_NEXT, UNLOCK))(mutex);
}
