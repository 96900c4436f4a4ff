#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "postern_json.h"

namespace postern {

/// The member names of the objects that are open, and the search for one that occurs twice in its object.
class Names {
public:
    static constexpr uint32_t none = UINT32_MAX;

    void begin(const uint8_t *new_text) {
        text = new_text;
        used = 0;
        first_duplicate = none;
    }

    size_t count() const { return used; }

    /// `word` is what the parser wrote of the name that begins at `start`.
    void add(uint32_t start, postern_json_word word) {
        if (used == capacity) grow();
        const uint8_t *const raw = text + start + 1;
        const size_t length = (word & ~POSTERN_JSON_FLAG) - start - 2;
        const uint64_t hash = word & POSTERN_JSON_FLAG ? escaped_hash(raw, length) : Names::hash(raw, length);
        open[used++] = hash << 32 | start;
    }

    /// An object ends whose names are those from `first` on. Only the first duplicate of the text is looked for.
    void close(size_t first) {
        if (used - first > 1 && start_of(open[first]) < first_duplicate) look(first);
        used = first;
    }

    /// Where the first name starts that repeats one of the same object, or `none`.
    uint32_t duplicate() const { return first_duplicate; }

    /// Leaves no more than about `kept_bytes` for the next text.
    void trim(size_t kept_bytes);

private:
    struct Freed {
        void operator()(void *memory) const { std::free(memory); }
    };

    const uint8_t *text = nullptr;
    /// A hash, which equal names share however they are escaped, and in the lower half where the name starts.
    /// The first `used` count.
    std::unique_ptr<uint64_t[], Freed> open;
    size_t capacity = 0;
    size_t used = 0;
    uint32_t first_duplicate = none;
    /// An escaped name, with its escapes resolved.
    std::vector<uint8_t> resolved;

    static uint32_t hash_of(uint64_t name) { return uint32_t(name >> 32); }
    static uint32_t start_of(uint64_t name) { return uint32_t(name); }

    static uint32_t hash(const uint8_t *bytes, size_t length);
    uint32_t escaped_hash(const uint8_t *raw, size_t length);
    bool are_equal(uint64_t left, uint64_t right) const;
    void grow();
    void look(size_t first);
    void look_pairwise(const uint64_t *first, const uint64_t *last);
    void look_sorted(size_t first);
    void found(uint64_t name) {
        if (start_of(name) < first_duplicate) first_duplicate = start_of(name);
    }

    /// Drawn when the process starts, so that no client can choose names with equal hashes.
    static const uint64_t seed;
};

/// Reads up to 7 bytes behind the name. Each step multiplies to 128 bits and folds them, so that without the seed no
/// difference is known to vanish.
inline uint32_t Names::hash(const uint8_t *bytes, size_t length) {
    uint64_t state = seed ^ length;
    const auto mix = [&](uint64_t word) {
        const auto product = static_cast<unsigned __int128>(state ^ word) * 0x9E3779B97F4A7C15u;
        state = uint64_t(product) ^ uint64_t(product >> 64);
    };
    uint64_t word;
    for (; length >= 8; bytes += 8, length -= 8) {
        std::memcpy(&word, bytes, 8);
        mix(word);
    }
    if (length > 0) {
        std::memcpy(&word, bytes, 8);
        mix(word << (64 - 8 * length));
    }
    mix(seed >> 32);
    return uint32_t(state ^ state >> 32);
}

} // namespace postern
