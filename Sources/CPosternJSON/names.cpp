#include "names.hpp"

#include <algorithm>
#include <new>
#include <random>

#include "grammar.hpp"

namespace postern {
namespace {

void append_utf8(std::vector<uint8_t> &result, uint32_t scalar) {
    const auto tail = [&](int shift) { result.push_back(uint8_t(0x80 | (scalar >> shift & 0x3F))); };
    if (scalar < 0x80) {
        result.push_back(uint8_t(scalar));
    } else if (scalar < 0x800) {
        result.push_back(uint8_t(0xC0 | scalar >> 6));
        tail(0);
    } else if (scalar < 0x10000) {
        result.push_back(uint8_t(0xE0 | scalar >> 12));
        tail(6);
        tail(0);
    } else {
        result.push_back(uint8_t(0xF0 | scalar >> 18));
        tail(12);
        tail(6);
        tail(0);
    }
}

/// Appends the character that the escape at `p` stands for, and returns where it ends. It has been checked.
const uint8_t *resolve_escape(const uint8_t *p, std::vector<uint8_t> &result) {
    const uint8_t letter = p[1];
    if (letter == 'u') {
        const uint32_t unit = code_unit(p + 2);
        const bool pair = is_high_surrogate(unit) && is_low_surrogate_escape(p + 6);
        append_utf8(result, pair ? 0x10000 + ((unit - 0xD800) << 10) + (code_unit(p + 8) - 0xDC00) : unit);
        return p + (pair ? 12 : 6);
    }
    result.push_back(letter == 'b' ? '\b' : letter == 'f' ? '\f' : letter == 'n' ? '\n'
                     : letter == 'r' ? '\r' : letter == 't' ? '\t' : letter);
    return p + 2;
}

/// The name that begins after a quotation mark, up to the next one that is not escaped.
std::vector<uint8_t> resolved_name(const uint8_t *p) {
    std::vector<uint8_t> result;
    while (*p != '"') {
        if (*p == '\\') {
            p = resolve_escape(p, result);
        } else {
            result.push_back(*p++);
        }
    }
    return result;
}

uint64_t drawn_seed() {
    std::random_device device;
    return uint64_t(device()) << 32 | device();
}

/// Stable, by 11 bits of the hash from `shift` on.
void sort_by_digit(const uint64_t *from, uint64_t *to, size_t count, int shift) {
    size_t places[2048] = {};
    const auto digit = [&](uint64_t name) { return name >> shift & 2047; };
    for (size_t index = 0; index < count; ++index) ++places[digit(from[index])];
    size_t sum = 0;
    for (size_t &place : places) {
        sum += place;
        place = sum - place;
    }
    for (size_t index = 0; index < count; ++index) to[places[digit(from[index])]++] = from[index];
}

} // namespace

const uint64_t Names::seed = drawn_seed();

uint32_t Names::escaped_hash(const uint8_t *raw, size_t length) {
    resolved.clear();
    for (const uint8_t *p = raw, *const end = raw + length; p != end;) {
        if (*p == '\\') {
            p = resolve_escape(p, resolved);
        } else {
            resolved.push_back(*p++);
        }
    }
    const size_t size = resolved.size();
    resolved.insert(resolved.end(), 8, 0);
    return hash(resolved.data(), size);
}

bool Names::are_equal(uint64_t left, uint64_t right) const {
    return hash_of(left) == hash_of(right)
        && resolved_name(text + start_of(left) + 1) == resolved_name(text + start_of(right) + 1);
}

/// Large blocks move without being copied (`mremap`).
void Names::grow() {
    const size_t size = std::max(size_t(64), capacity * 2);
    void *const grown = std::realloc(open.get(), size * sizeof(uint64_t));
    if (!grown) throw std::bad_alloc();
    open.release();
    open.reset(static_cast<uint64_t *>(grown));
    capacity = size;
}

void Names::trim(size_t kept_bytes) {
    if (capacity * sizeof(uint64_t) > kept_bytes) {
        open.reset();
        capacity = 0;
        used = 0;
    }
    if (resolved.capacity() > kept_bytes) std::vector<uint8_t>().swap(resolved);
}

void Names::look(size_t first) {
    // Objects of messages are small, and comparing a few numbers beats anything clever.
    used - first <= 64 ? look_pairwise(open.get() + first, open.get() + used) : look_sorted(first);
}

/// Finds the first of the names that repeats an earlier one. They are in the order of the text.
void Names::look_pairwise(const uint64_t *first, const uint64_t *last) {
    for (const uint64_t *later = first + 1; later < last; ++later) {
        bool is_met = false;
        for (const uint64_t *earlier = first; earlier < later; ++earlier) is_met |= (*earlier ^ *later) >> 32 == 0;
        if (!is_met) continue;
        for (const uint64_t *earlier = first; earlier < later; ++earlier)
            if (are_equal(*earlier, *later)) return found(*later);
    }
}

/// Puts names with equal hashes next to each other, in linear time. By chance a few different ones have equal digits.
void Names::look_sorted(size_t first) {
    const size_t count = used - first;
    uint64_t *const names = open.get() + first;
    const std::unique_ptr<uint64_t[]> sorted(new uint64_t[count]);
    sort_by_digit(names, sorted.get(), count, 32);
    sort_by_digit(sorted.get(), names, count, 43);
    for (size_t begin = 0; begin < count;) {
        size_t end = begin + 1;
        while (end < count && (names[end] ^ names[begin]) << 10 >> 42 == 0) ++end;
        if (end - begin > 1) look_pairwise(names + begin, names + end);
        begin = end;
    }
}

} // namespace postern
