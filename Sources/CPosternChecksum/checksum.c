#include "checksum.h"

#include <pthread.h>
#include <string.h>

static uint32_t table[256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void fill(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t sum = byte;
        for (int bit = 0; bit < 8; bit++) sum = sum >> 1 ^ (sum & 1 ? 0x82F63B78u : 0);
        table[byte] = sum;
    }
}

uint32_t postern_crc32c_by_table(const void *bytes, size_t size) {
    pthread_once(&once, fill);
    const uint8_t *next = bytes;
    uint32_t sum = ~0u;
    while (size--) sum = sum >> 8 ^ table[(sum ^ *next++) & 0xFF];
    return ~sum;
}

#if defined(__x86_64__)

__attribute__((target("sse4.2"))) static uint32_t byInstruction(const uint8_t *next, size_t size) {
    uint64_t sum = ~0u;
    for (; size >= 8; size -= 8, next += 8) {
        uint64_t word;
        memcpy(&word, next, 8);
        sum = __builtin_ia32_crc32di(sum, word);
    }
    while (size--) sum = __builtin_ia32_crc32qi((uint32_t)sum, *next++);
    return ~(uint32_t)sum;
}

uint32_t postern_crc32c(const void *bytes, size_t size) {
    return __builtin_cpu_supports("sse4.2") ? byInstruction(bytes, size) : postern_crc32c_by_table(bytes, size);
}

#elif defined(__aarch64__) && defined(__linux__)

#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>

__attribute__((target("+crc"))) static uint32_t byInstruction(const uint8_t *next, size_t size) {
    uint32_t sum = ~0u;
    for (; size >= 8; size -= 8, next += 8) {
        uint64_t word;
        memcpy(&word, next, 8);
        sum = __crc32cd(sum, word);
    }
    while (size--) sum = __crc32cb(sum, *next++);
    return ~sum;
}

uint32_t postern_crc32c(const void *bytes, size_t size) {
    return getauxval(AT_HWCAP) & HWCAP_CRC32 ? byInstruction(bytes, size) : postern_crc32c_by_table(bytes, size);
}

#else

uint32_t postern_crc32c(const void *bytes, size_t size) { return postern_crc32c_by_table(bytes, size); }

#endif
