#include "disk.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void ensure(struct image *image, int64_t size) {
    if (size <= image->capacity) return;
    int64_t capacity = image->capacity ? image->capacity : 1 << 20;
    while (capacity < size) capacity *= 2;
    // Pages that nothing was written to take no memory, and read as zeros.
    void *bytes =
        image->bytes
        ? mremap(image->bytes, (size_t)image->capacity, (size_t)capacity, MREMAP_MAYMOVE)
        : mmap(NULL, (size_t)capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (bytes == MAP_FAILED) abort();
    image->bytes = bytes;
    image->capacity = capacity;
}

void image_resize(struct image *image, int64_t size) {
    ensure(image, size);
    // What is cut off is zeros when the file grows again.
    if (size < image->size) {
        int64_t page = (size + BLOCK - 1) / BLOCK * BLOCK;
        int64_t end = page < image->size ? page : image->size;
        memset(image->bytes + size, 0, (size_t)(end - size));
        if (page < image->size) madvise(image->bytes + page, (size_t)(image->size - page), MADV_DONTNEED);
    }
    image->size = size;
}

void image_free(struct image *image) {
    if (image->bytes) munmap(image->bytes, (size_t)image->capacity);
    *image = (struct image){0};
}
