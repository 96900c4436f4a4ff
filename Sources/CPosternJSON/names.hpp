#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "postern_json.h"

namespace postern {

/// The member names of the objects that are open, and the search for one that stands twice in its object.
class Names {
public:
    static constexpr uint32_t none = UINT32_MAX;

    void begin(const uint8_t *new_text) {
        text = new_text;
        used = 0;
        first_duplicate = none;
    }

    size_t count() const { return used; }

    void add(const postern_json_token &name) {
        if (used == open.size()) grow();
        // Member by member: `push_back` copies a whole `Name` right after its parts were written, which stalls.
        Name &added = open[used];
        added.hash = name.flags & POSTERN_JSON_ESCAPED ? escaped_hash(name) : hash(raw(name), raw_length(name));
        added.start = name.start;
        added.end = name.end;
        short_hashes[used++] = uint32_t(added.hash);
    }

    /// An object ends whose names are those from `first` on.
    void close(size_t first) {
        if (used - first > 1) look(first);
        used = first;
    }

    /// Where the first name starts that repeats one of the same object, or `none`.
    uint32_t duplicate() const { return first_duplicate; }

    void trim() {
        std::vector<Name>().swap(open);
        std::vector<uint32_t>().swap(short_hashes);
        used = 0;
    }

private:
    struct Name {
        /// Equal names, however they are escaped, have equal ones.
        uint64_t hash;
        /// Quotes included.
        uint32_t start;
        uint32_t end;
    };

    const uint8_t *text = nullptr;
    /// The first `used` count.
    std::vector<Name> open;
    /// Half of each hash, side by side, where a few instructions compare many.
    std::vector<uint32_t> short_hashes;
    size_t used = 0;
    uint32_t first_duplicate = none;

    template <class N> const uint8_t *raw(const N &name) const { return text + name.start + 1; }
    template <class N> static size_t raw_length(const N &name) { return name.end - name.start - 2; }

    static uint64_t hash(const uint8_t *bytes, size_t length);
    uint64_t escaped_hash(const postern_json_token &name) const;
    int compare(const Name &left, const Name &right) const;
    void grow();
    void look(size_t first);
    void look_pairwise(size_t first);
    void look_sorted(size_t first);
    void found(const Name &name) {
        if (name.start < first_duplicate) first_duplicate = name.start;
    }
};

/// Reads up to 7 bytes behind the name. Good enough to tell names apart: whoever makes many collide gains nothing, see
/// `look_sorted`.
inline uint64_t Names::hash(const uint8_t *bytes, size_t length) {
    uint64_t state = length;
    const auto mix = [&](uint64_t word) {
        state = (state ^ word) * 0x9E3779B97F4A7C15u;
        state ^= state >> 32;
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
    return state;
}

} // namespace postern
