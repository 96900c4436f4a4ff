// Two passes over a text: simdjson's first stage finds structural characters and the starts of values and checks UTF-8
// and control characters, many bytes at a time; a walk over what it found checks the grammar and writes tokens.
// simdjson's own second stage is not used: it converts numbers, which Postern forwards as they are spelled.

#include "postern_json.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>

#include <simdjson.h>

#include "explain.hpp"
#include "grammar.hpp"
#include "names.hpp"

static_assert(sizeof(postern_json_token) == 16, "JSONToken has 16 bytes");
static_assert(offsetof(postern_json_token, end) == 4, "as in JSONToken");
static_assert(offsetof(postern_json_token, next) == 8, "as in JSONToken");
static_assert(offsetof(postern_json_token, kind) == 12, "as in JSONToken");
static_assert(offsetof(postern_json_token, flags) == 13, "as in JSONToken");
static_assert(offsetof(postern_json_token, count) == 14, "as in JSONToken");

using namespace postern;

namespace {

/// An object or array that is open.
struct Container {
    uint32_t token;
    uint32_t count;
    size_t first_name;
};

/// Walks over the structural indexes. Behind the last one stands the length of the text, where there is a blank: no
/// value starts and no container ends with it, so the walk cannot run on.
class Walk {
public:
    Walk(const uint8_t *text, size_t length, const uint32_t *indexes, uint32_t count, postern_json_token *tokens,
         Names &names)
        : text(text), text_end(text + length), index(indexes), index_end(indexes + count), tokens(tokens),
          names(names), backslash(next_backslash(text)) {}

    bool is_at_end() const { return index == index_end; }
    uint32_t place() const { return *index; }
    uint32_t token_count() const { return written; }

    uint32_t open_lines() { return write(POSTERN_JSON_ARRAY, 0, 0); }
    void close_lines(uint32_t token, uint32_t lines) { close(token, uint32_t(text_end - text), lines); }

    /// Reads one value and all it contains. False: something is wrong with it.
    bool document() {
        // On a copy that nothing else can see: its members stay in registers while tokens are written.
        Walk walk = *this;
        const bool is_fine = walk.read();
        index = walk.index;
        written = walk.written;
        backslash = walk.backslash;
        return is_fine;
    }

private:
    const uint8_t *const text;
    const uint8_t *const text_end;
    const uint32_t *index;
    const uint32_t *const index_end;
    postern_json_token *const tokens;
    Names &names;
    uint32_t written = 0;
    /// The first backslash that has not been looked at, or the end of the text.
    const uint8_t *backslash;

    __attribute__((always_inline)) bool read() {
        Container containers[POSTERN_JSON_DEEPEST + 1];
        Container *top = containers;  // the first stands for the text itself
        bool is_object = false;
        uint32_t at;

    value:
        at = *index++;
        switch (text[at]) {
        case '"':
            if (!string(at, POSTERN_JSON_STRING)) return false;
            break;
        case '{':
        case '[':
            if (top == containers + POSTERN_JSON_DEEPEST) return false;
            is_object = text[at] == '{';
            *++top = {write(is_object ? POSTERN_JSON_OBJECT : POSTERN_JSON_ARRAY, at, at), 0, names.count()};
            if (text[*index] == (is_object ? '}' : ']')) goto end_of_container;
            if (is_object) goto name;
            goto value;
        case 't':
            if (!literal(POSTERN_JSON_TRUE, at, "true")) return false;
            break;
        case 'f':
            if (!literal(POSTERN_JSON_FALSE, at, "false")) return false;
            break;
        case 'n':
            if (!literal(POSTERN_JSON_NULL, at, "null")) return false;
            break;
        default:
            if (!number(at)) return false;
        }

    after_value:
        if (top == containers) return true;
        ++top->count;
        if (text[*index] == ',') {
            ++index;
            if (is_object) goto name;
            goto value;
        }
        if (text[*index] != (is_object ? '}' : ']')) return false;

    end_of_container:
        close(top->token, *index++ + 1, top->count);
        if (is_object) names.close(top->first_name);
        --top;
        is_object = top > containers && tokens[top->token].kind == POSTERN_JSON_OBJECT;
        goto after_value;

    name:
        at = *index++;
        if (text[at] != '"' || !string(at, POSTERN_JSON_KEY)) return false;
        names.add(tokens[written - 1]);
        if (text[*index++] != ':') return false;
        goto value;
    }

    const uint8_t *next_backslash(const uint8_t *from) const {
        const void *found = std::memchr(from, '\\', size_t(text_end - from));
        return found ? static_cast<const uint8_t *>(found) : text_end;
    }

    uint32_t write(uint8_t kind, uint32_t start, uint32_t end, uint8_t flags = 0) {
        tokens[written] = {start, end, written + 1, kind, flags, 0};
        return written++;
    }

    void close(uint32_t token, uint32_t end, uint32_t count) {
        tokens[token].end = end;
        tokens[token].next = written;
        tokens[token].count = count > UINT16_MAX ? UINT16_MAX : uint16_t(count);
    }

    /// Between a closing quote and the next index there are only blanks; anything else would have an index itself.
    __attribute__((always_inline)) bool string(uint32_t start, uint8_t kind) {
        uint32_t end = *index;
        while (is_blank(text[end - 1])) --end;
        if (end < start + 2 || text[end - 1] != '"') return false;
        uint8_t flags = 0;
        while (backslash < text + end) {
            if (skip_escape(backslash)) return false;
            backslash = next_backslash(backslash);
            flags = POSTERN_JSON_ESCAPED;
        }
        write(kind, start, end, flags);
        return true;
    }

    bool number(uint32_t start) {
        bool is_integer;
        const uint8_t *const end = number_end(text + start, is_integer);
        if (!end) return false;
        write(POSTERN_JSON_NUMBER, start, uint32_t(end - text), is_integer ? POSTERN_JSON_INTEGER : 0);
        return true;
    }

    template <size_t Size> bool literal(uint8_t kind, uint32_t start, const char (&word)[Size]) {
        if (!is_literal(text + start, word)) return false;
        write(kind, start, start + uint32_t(Size - 1));
        return true;
    }
};

bool walk_one(Walk &walk) { return walk.document() && walk.is_at_end(); }

bool has_line_feed(const uint8_t *text, uint32_t start, uint32_t end) {
    return std::memchr(text + start, '\n', end - start);
}

bool walk_lines(Walk &walk, const uint8_t *text, const postern_json_token *tokens) {
    const uint32_t all = walk.open_lines();
    uint32_t lines = 0;
    while (!walk.is_at_end()) {
        const uint32_t token = walk.token_count();
        if (!walk.document() || has_line_feed(text, tokens[token].start, tokens[token].end)) return false;
        if (!walk.is_at_end() && !has_line_feed(text, tokens[token].end, walk.place())) return false;
        ++lines;
    }
    walk.close_lines(all, lines);
    return true;
}

Fault explain_lines(const uint8_t *text, const uint8_t *text_end) {
    for (const uint8_t *line = text; line < text_end;) {
        const void *const feed = std::memchr(line, '\n', size_t(text_end - line));
        const uint8_t *const end = feed ? static_cast<const uint8_t *>(feed) : text_end;
        const Fault fault = explain(text, line, end);
        if (fault.code != POSTERN_JSON_FINE && fault.code != POSTERN_JSON_EMPTY) return fault;
        line = end + 1;
    }
    return {POSTERN_JSON_EMPTY, size_t(text_end - text)};
}

} // namespace

/// Buffers grow in powers of two and are kept for the next text.
struct postern_json_parser {
    /// A text of more bytes leaves nothing behind once `trim` is called.
    static constexpr size_t kept_bytes = 256 << 10;

    std::unique_ptr<simdjson::internal::dom_parser_implementation> stage1;
    std::unique_ptr<uint8_t[]> text;
    size_t text_capacity = 0;
    std::unique_ptr<postern_json_token[]> tokens;
    size_t token_capacity = 0;
    Names names;

    postern_json_result parse(const uint8_t *source, size_t length, bool lines) {
        if (length > UINT32_MAX) return fault({POSTERN_JSON_TOO_LARGE, UINT32_MAX});
        if (length == 0) return fault({POSTERN_JSON_EMPTY, 0});
        reserve_text(length);
        std::memcpy(text.get(), source, length);
        std::memset(text.get() + length, ' ', simdjson::SIMDJSON_PADDING);
        const uint8_t *const end = text.get() + length;
        if (!is_sound(length, lines))
            return fault(lines ? explain_lines(text.get(), end) : explain(text.get(), text.get(), end));
        if (names.duplicate() != Names::none) return fault({POSTERN_JSON_DUPLICATE, names.duplicate()});
        return {text.get(), tokens.get(), POSTERN_JSON_FINE, 0};
    }

    void trim() {
        if (text_capacity > kept_bytes) {
            stage1.reset();
            text.reset();
            text_capacity = 0;
        }
        if (token_capacity * sizeof(postern_json_token) > kept_bytes * 4) {
            tokens.reset();
            token_capacity = 0;
            names.trim();
        }
    }

private:
    static postern_json_result fault(Fault fault) { return {nullptr, nullptr, fault.code, fault.offset}; }

    static size_t rounded_up(size_t count) {
        size_t result = 4096;
        while (result < count) result *= 2;
        return result;
    }

    void reserve_text(size_t length) {
        if (length <= text_capacity) return;
        const size_t capacity = std::min(rounded_up(length), simdjson::SIMDJSON_MAXSIZE_BYTES);
        text_capacity = 0;
        text.reset(new uint8_t[capacity + simdjson::SIMDJSON_PADDING]);
        stage1.reset();
        if (simdjson::get_active_implementation()->create_dom_parser_implementation(capacity, 1, stage1))
            throw std::bad_alloc();
        text_capacity = capacity;
    }

    void reserve_tokens(size_t count) {
        if (count <= token_capacity) return;
        token_capacity = 0;
        tokens.reset(new postern_json_token[rounded_up(count)]);
        token_capacity = rounded_up(count);
    }

    bool is_sound(size_t length, bool lines) {
        if (stage1->stage1(text.get(), length, simdjson::stage1_mode::regular)) return false;
        const uint32_t count = stage1->n_structural_indexes;
        reserve_tokens(size_t(count) + 1);
        names.begin(text.get());
        Walk walk(text.get(), length, stage1->structural_indexes.get(), count, tokens.get(), names);
        return lines ? walk_lines(walk, text.get(), tokens.get()) : walk_one(walk);
    }
};

static postern_json_result parse(postern_json_parser *parser, const uint8_t *text, size_t length, bool lines) {
    try {
        return parser->parse(text, length, lines);
    } catch (...) {
        return {nullptr, nullptr, POSTERN_JSON_MEMORY, 0};
    }
}

postern_json_parser *postern_json_create(void) { return new (std::nothrow) postern_json_parser(); }

void postern_json_destroy(postern_json_parser *parser) { delete parser; }

postern_json_result postern_json_parse(postern_json_parser *parser, const uint8_t *text, size_t length) {
    return parse(parser, text, length, false);
}

postern_json_result postern_json_parse_lines(postern_json_parser *parser, const uint8_t *text, size_t length) {
    return parse(parser, text, length, true);
}

postern_json_result postern_json_check(const uint8_t *text, size_t length) {
    const std::unique_ptr<uint8_t[]> copy(new (std::nothrow) uint8_t[length + simdjson::SIMDJSON_PADDING]);
    if (!copy) return {nullptr, nullptr, POSTERN_JSON_MEMORY, 0};
    if (length > 0) std::memcpy(copy.get(), text, length);
    std::memset(copy.get() + length, ' ', simdjson::SIMDJSON_PADDING);
    const Fault fault = explain(copy.get(), copy.get(), copy.get() + length);
    return {nullptr, nullptr, fault.code, fault.offset};
}

void postern_json_trim(postern_json_parser *parser) { parser->trim(); }
