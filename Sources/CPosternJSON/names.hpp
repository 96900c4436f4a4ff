#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "postern_json.h"

namespace postern {

/// The member names of the objects that are open, and the search for one that stands twice in its object.
class Names {
public:
    static constexpr uint32_t none = UINT32_MAX;

    void begin(const uint8_t *new_text) {
        text = new_text;
        open.clear();
        first_duplicate = none;
    }

    size_t count() const { return open.size(); }

    void add(const postern_json_token &name) {
        const bool escaped = name.flags & POSTERN_JSON_ESCAPED;
        open.push_back({escaped ? escaped_hash(name) : hash(raw(name), raw_length(name)), name.start, name.end});
    }

    /// An object ends whose names are those from `first` on.
    void close(size_t first) {
        if (open.size() - first > 1) look(first);
        open.resize(first);
    }

    /// Where the first name starts that repeats one of the same object, or `none`.
    uint32_t duplicate() const { return first_duplicate; }

    void trim() { std::vector<Name>().swap(open); }

private:
    struct Name {
        /// Equal names, however they are escaped, have equal ones.
        uint64_t hash;
        /// Quotes included.
        uint32_t start;
        uint32_t end;
    };

    const uint8_t *text = nullptr;
    std::vector<Name> open;
    uint32_t first_duplicate = none;

    template <class N> const uint8_t *raw(const N &name) const { return text + name.start + 1; }
    template <class N> static size_t raw_length(const N &name) { return name.end - name.start - 2; }

    static uint64_t hash(const uint8_t *bytes, size_t length);
    uint64_t escaped_hash(const postern_json_token &name) const;
    int compare(const Name &left, const Name &right) const;
    void look(size_t first);
    void look_pairwise(size_t first);
    void look_sorted(size_t first);
    void found(const Name &name) {
        if (name.start < first_duplicate) first_duplicate = name.start;
    }
};

} // namespace postern
