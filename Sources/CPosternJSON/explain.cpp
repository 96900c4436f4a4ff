#include "explain.hpp"

#include "grammar.hpp"

namespace postern {
namespace {

/// The end of the well-formed UTF-8 sequence at `p` (Unicode 15, table 3-7); null when there is none.
const uint8_t *sequence_end(const uint8_t *p, const uint8_t *end) {
    const uint8_t lead = *p;
    if (lead < 0x80) return p + 1;
    const int rest = lead < 0xC2 ? 0 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : lead < 0xF5 ? 3 : 0;
    if (rest == 0 || end - p <= rest) return nullptr;
    const uint8_t lowest = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const uint8_t highest = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (p[1] < lowest || p[1] > highest) return nullptr;
    for (int place = 2; place <= rest; ++place)
        if (p[place] >> 6 != 2) return nullptr;
    return p + rest + 1;
}

/// Reads by recursive descent, which the limit on depth bounds. Every method returns whether to go on.
class Explanation {
public:
    Explanation(const uint8_t *text, const uint8_t *begin, const uint8_t *end) : text(text), p(begin), end(end) {}

    Fault fault{POSTERN_JSON_FINE, 0};

    void document() {
        skip_blanks();
        if (p == end) {
            fail(POSTERN_JSON_EMPTY, p);
        } else if (value(0)) {
            skip_blanks();
            if (p != end) unexpected(POSTERN_JSON_TRAILING);
        }
    }

private:
    const uint8_t *const text;
    const uint8_t *p;
    const uint8_t *const end;

    bool fail(int code, const uint8_t *at) {
        fault = {code, size_t(at - text)};
        return false;
    }

    /// The byte at `p` is not allowed there.
    bool unexpected(int code = POSTERN_JSON_SYNTAX) {
        if (p == end) return fail(POSTERN_JSON_TRUNCATED, p);
        return fail(sequence_end(p, end) ? code : POSTERN_JSON_ENCODING, p);
    }

    void skip_blanks() {
        while (p != end && is_blank(*p)) ++p;
    }

    /// Skips `byte` if it is next, and returns whether it was.
    bool take(uint8_t byte) {
        skip_blanks();
        if (p == end || *p != byte) return false;
        ++p;
        return true;
    }

    bool value(int depth) {
        skip_blanks();
        if (p == end) return unexpected();
        switch (*p) {
        case '{': return enter(depth) && (take('}') || members(depth + 1));
        case '[': return enter(depth) && (take(']') || elements(depth + 1));
        case '"': return string();
        case 't': return literal("true");
        case 'f': return literal("false");
        case 'n': return literal("null");
        case '-': case '0': case '1': case '2': case '3': case '4': case '5': case '6': case '7': case '8': case '9':
            return number();
        default: return unexpected();
        }
    }

    bool enter(int depth) {
        if (depth == POSTERN_JSON_DEEPEST) return fail(POSTERN_JSON_DEPTH, p);
        ++p;
        return true;
    }

    bool elements(int depth) {
        do {
            if (!value(depth)) return false;
        } while (take(','));
        return take(']') || unexpected();
    }

    bool members(int depth) {
        do {
            skip_blanks();
            if (p == end || *p != '"') return unexpected();
            if (!string()) return false;
            if (!take(':')) return unexpected();
            if (!value(depth)) return false;
        } while (take(','));
        return take('}') || unexpected();
    }

    bool number() {
        bool is_integer;
        const uint8_t *behind = number_end(p, is_integer);
        if (!behind) return fail(POSTERN_JSON_DIGITS, p);
        p = behind;
        return true;
    }

    template <size_t Size> bool literal(const char (&word)[Size]) {
        if (!is_literal(p, word)) return unexpected();
        p += Size - 1;
        return true;
    }

    bool string() {
        const uint8_t *const quote = p++;
        while (p != end) {
            if (*p == '"') {
                ++p;
                return true;
            }
            if (*p < 0x20) return fail(POSTERN_JSON_CONTROL, p);
            if (*p == '\\') {
                // An escape cut by the end of the text: the string is what lacks its end.
                const uint8_t *const backslash = p;
                if (const int code = skip_escape(p)) {
                    return end - backslash < 2 ? fail(POSTERN_JSON_UNTERMINATED, quote) : fail(code, backslash);
                }
                continue;
            }
            const uint8_t *const behind = sequence_end(p, end);
            if (!behind) return fail(POSTERN_JSON_ENCODING, p);
            p = behind;
        }
        return fail(POSTERN_JSON_UNTERMINATED, quote);
    }
};

} // namespace

Fault explain(const uint8_t *text, const uint8_t *begin, const uint8_t *end) {
    Explanation explanation(text, begin, end);
    explanation.document();
    return explanation.fault;
}

} // namespace postern
