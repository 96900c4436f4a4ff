#include "names.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "grammar.hpp"

namespace postern {
namespace {

void append_utf8(std::string &result, uint32_t scalar) {
    const auto tail = [&](int shift) { result.push_back(char(0x80 | (scalar >> shift & 0x3F))); };
    if (scalar < 0x80) {
        result.push_back(char(scalar));
    } else if (scalar < 0x800) {
        result.push_back(char(0xC0 | scalar >> 6));
        tail(0);
    } else if (scalar < 0x10000) {
        result.push_back(char(0xE0 | scalar >> 12));
        tail(6);
        tail(0);
    } else {
        result.push_back(char(0xF0 | scalar >> 18));
        tail(12);
        tail(6);
        tail(0);
    }
}

/// The name itself; its escapes have been checked.
std::string unescaped(const uint8_t *p, size_t length) {
    std::string result;
    result.reserve(length);
    for (const uint8_t *const end = p + length; p != end;) {
        if (*p != '\\') {
            result.push_back(char(*p++));
            continue;
        }
        const uint8_t letter = p[1];
        if (letter == 'u') {
            const uint32_t unit = code_unit(p + 2);
            const bool pair = is_high_surrogate(unit);
            append_utf8(result, pair ? 0x10000 + ((unit - 0xD800) << 10) + (code_unit(p + 8) - 0xDC00) : unit);
            p += pair ? 12 : 6;
            continue;
        }
        result.push_back(letter == 'b' ? '\b' : letter == 'f' ? '\f' : letter == 'n' ? '\n'
                         : letter == 'r' ? '\r' : letter == 't' ? '\t' : char(letter));
        p += 2;
    }
    return result;
}

} // namespace

uint64_t Names::escaped_hash(const postern_json_token &name) const {
    std::string bytes = unescaped(raw(name), raw_length(name));
    const size_t length = bytes.size();
    bytes.append(8, '\0');
    return hash(reinterpret_cast<const uint8_t *>(bytes.data()), length);
}

int Names::compare(const Name &left, const Name &right) const {
    const auto is_plain = [&](const Name &name) { return !std::memchr(raw(name), '\\', raw_length(name)); };
    if (is_plain(left) && is_plain(right)) {
        const size_t common = std::min(raw_length(left), raw_length(right));
        if (const int order = std::memcmp(raw(left), raw(right), common)) return order;
        return raw_length(left) < raw_length(right) ? -1 : raw_length(left) > raw_length(right);
    }
    return unescaped(raw(left), raw_length(left)).compare(unescaped(raw(right), raw_length(right)));
}

void Names::grow() {
    const size_t size = std::max(size_t(64), used * 2);
    open.resize(size);
    short_hashes.resize(size);
}

void Names::look(size_t first) {
    // Objects of messages are small, and comparing a few numbers beats anything clever.
    used - first <= 64 ? look_pairwise(first) : look_sorted(first);
}

void Names::look_pairwise(size_t first) {
    const uint32_t *const hashes = short_hashes.data();
    for (size_t later = first + 1; later < used; ++later) {
        bool is_met = false;
        for (size_t earlier = first; earlier < later; ++earlier) is_met |= hashes[earlier] == hashes[later];
        if (!is_met) continue;
        for (size_t earlier = first; earlier < later; ++earlier)
            if (open[earlier].hash == open[later].hash && compare(open[earlier], open[later]) == 0)
                return found(open[later]);
    }
}

/// Sorted rather than put into a hash table: names made to collide cost no more than others.
void Names::look_sorted(size_t first) {
    const auto begin = open.begin() + std::ptrdiff_t(first);
    const auto last = open.begin() + std::ptrdiff_t(used);
    std::sort(begin, last, [](const Name &left, const Name &right) { return left.hash < right.hash; });
    for (auto run = begin; run != last;) {
        auto end = run + 1;
        while (end != last && end->hash == run->hash) ++end;
        if (end - run > 1) {
            std::sort(run, end, [&](const Name &left, const Name &right) {
                const int order = compare(left, right);
                return order < 0 || (order == 0 && left.start < right.start);
            });
            for (auto name = run + 1; name != end; ++name)
                if (compare(name[-1], *name) == 0) found(*name);
        }
        run = end;
    }
}

} // namespace postern
