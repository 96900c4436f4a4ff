// Parts of the JSON grammar (RFC 8259) that the fast walk and the explanation of faults share.
//
// All of them read ahead without asking for the end: texts are followed by blanks, and no blank continues a number, a
// literal or an escape.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "postern_json.h"

namespace postern {

inline bool is_blank(uint8_t byte) { return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t'; }

/// Whether `byte` may directly follow a number or a literal.
inline bool ends_scalar(uint8_t byte) {
    switch (byte) {
    case ' ': case '\n': case '\r': case '\t': case ',': case ':': case '[': case ']': case '{': case '}': return true;
    default: return false;
    }
}

inline bool is_digit(uint8_t byte) { return uint8_t(byte - '0') < 10; }

inline const uint8_t *digits_end(const uint8_t *p) {
    while (is_digit(*p)) ++p;
    return p;
}

/// The end of the number at `p`, whose value does not matter; null when its form is wrong.
inline const uint8_t *number_end(const uint8_t *p, bool &is_integer) {
    is_integer = true;
    if (*p == '-') ++p;
    if (!is_digit(*p)) return nullptr;
    p = *p == '0' ? p + 1 : digits_end(p);
    if (*p == '.') {
        is_integer = false;
        if (!is_digit(*++p)) return nullptr;
        p = digits_end(p);
    }
    if (*p == 'e' || *p == 'E') {
        is_integer = false;
        ++p;
        if (*p == '+' || *p == '-') ++p;
        if (!is_digit(*p)) return nullptr;
        p = digits_end(p);
    }
    return ends_scalar(*p) ? p : nullptr;
}

/// Whether the literal `word` is at `p`.
template <size_t Size> inline bool is_literal(const uint8_t *p, const char (&word)[Size]) {
    return std::memcmp(p, word, Size - 1) == 0 && ends_scalar(p[Size - 1]);
}

/// The value of a hexadecimal digit, or more than 15.
inline uint32_t hex_digit(uint8_t byte) {
    if (is_digit(byte)) return byte - '0';
    const uint8_t letter = uint8_t((byte | 0x20) - 'a');
    return letter < 6 ? letter + 10u : 16u;
}

/// The code unit of the four digits at `p`, or more than 0xFFFF.
inline uint32_t code_unit(const uint8_t *p) {
    uint32_t unit = 0;
    for (int place = 0; place < 4; ++place) {
        const uint32_t digit = hex_digit(p[place]);
        if (digit > 15) return 0x10000;
        unit = unit << 4 | digit;
    }
    return unit;
}

inline bool is_high_surrogate(uint32_t unit) { return unit >> 10 == 0xD800 >> 10; }
inline bool is_low_surrogate(uint32_t unit) { return unit >> 10 == 0xDC00 >> 10; }

/// Whether the escape of a low surrogate is at `p`.
inline bool is_low_surrogate_escape(const uint8_t *p) {
    return p[0] == '\\' && p[1] == 'u' && is_low_surrogate(code_unit(p + 2));
}

/// Moves `p` from a backslash behind the escape (both halves of a surrogate pair), or says what is wrong with it.
inline int skip_escape(const uint8_t *&p, bool allows_lone_surrogates = false) {
    switch (p[1]) {
    case '"': case '\\': case '/': case 'b': case 'f': case 'n': case 'r': case 't':
        p += 2;
        return POSTERN_JSON_FINE;
    case 'u': break;
    default: return POSTERN_JSON_ESCAPE;
    }
    const uint32_t unit = code_unit(p + 2);
    if (unit > 0xFFFF) return POSTERN_JSON_ESCAPE;
    const bool is_pair = is_high_surrogate(unit) && is_low_surrogate_escape(p + 6);
    if (!is_pair && !allows_lone_surrogates && (is_high_surrogate(unit) || is_low_surrogate(unit)))
        return POSTERN_JSON_SURROGATE;
    p += is_pair ? 12 : 6;
    return POSTERN_JSON_FINE;
}

} // namespace postern
