// Two passes over a text: simdjson's first stage finds structural characters and the starts of values and checks UTF-8
// and control characters, many bytes at a time; a walk over what it found checks the grammar and writes words.
// simdjson's own second stage is not used: it converts numbers, which Postern forwards as they are spelled.
//
// Memory: a copy of the text, and 4 bytes for each index. The words take the place of the indexes that were read, so a
// text of n bytes costs at most 5n, and 16 bytes for each name of the largest object, of which each has 5 bytes at least.

#include "postern_json.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>

#include <simdjson.h>
#include <sys/mman.h>

#include "explain.hpp"
#include "grammar.hpp"
#include "names.hpp"

// `stage1` belongs to simdjson's internals. The library's soname keeps the one that is loaded compatible with this one.
static_assert(
    simdjson::SIMDJSON_VERSION_MAJOR == 3 && simdjson::SIMDJSON_VERSION_MINOR == 0,
    "check the use of simdjson's first stage against this version");

using namespace postern;

namespace {

/// An object or array that is open.
struct Container {
    uint32_t word;
    bool is_object;
    size_t first_name;
};

/// The words of the open objects and arrays, and of the array of all lines, are written before as many indexes are read.
constexpr size_t words_ahead = POSTERN_JSON_DEEPEST + 2;

/// The names of an object, from which on pages are counted.
constexpr size_t many_names = 16 << 10;

/// Walks over the structural indexes, and writes words in their place. The last index is followed by the length of the
/// text, where there is a blank: no value starts and no container ends with it, so the walk ends there.
class Walk {
public:
    /// `words` has room for `words_ahead` more than the indexes with which it begins.
    Walk(const uint8_t *text, size_t length, uint32_t *words, uint32_t count, Names &names,
         bool allows_lone_surrogates)
        : text(text), text_end(text + length), index(words + words_ahead), index_end(index + count), words(words),
          names(names), allows_lone_surrogates(allows_lone_surrogates), backslash(next_backslash(text)) {
        std::memmove(words + words_ahead, words, (size_t(count) + 1) * sizeof *words);
    }

    bool is_at_end() const { return index == index_end; }
    uint32_t place() const { return *index; }
    /// The end of the value whose first word was written `at`.
    uint32_t end_of(uint32_t at) const { return words[at] & ~POSTERN_JSON_FLAG; }
    uint32_t word_count() const { return written; }

    uint32_t open_lines() { return open(); }

    /// Gives back the memory of indexes that were read and that no word was written over.
    void release_read_indexes() {
        const uintptr_t page = 4096;
        const uintptr_t start = (reinterpret_cast<uintptr_t>(words + written) + page - 1) & ~(page - 1);
        const uintptr_t end = reinterpret_cast<uintptr_t>(index) & ~(page - 1);
        if (start < end) madvise(reinterpret_cast<void *>(start), end - start, MADV_DONTNEED);
    }

    void close_lines(uint32_t word) { close(word, uint32_t(text_end - text)); }

    /// Reads one value and all it contains. False: something is wrong with it.
    bool document() {
        // On a copy that nothing else can see: its members stay in registers while words are written.
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
    postern_json_word *const words;
    Names &names;
    const bool allows_lone_surrogates;
    uint32_t written = 0;
    /// The first backslash that has not been looked at, or the end of the text.
    const uint8_t *backslash;

    Walk(const Walk &) = default;

    __attribute__((always_inline)) bool read() {
        Container containers[POSTERN_JSON_DEEPEST + 1];
        Container *top = containers;  // the first stands for the text itself
        bool is_object = false;
        uint32_t at;

    value:
        at = *index++;
        switch (text[at]) {
        case '"':
            if (!string(at)) return false;
            break;
        case '{':
        case '[':
            if (top == containers + POSTERN_JSON_DEEPEST) return false;
            is_object = text[at] == '{';
            *++top = {open(), is_object, names.count()};
            if (text[*index] == (is_object ? '}' : ']')) goto end_of_container;
            if (is_object) goto name;
            goto value;
        case 't':
            if (!literal(at, "true")) return false;
            break;
        case 'f':
            if (!literal(at, "false")) return false;
            break;
        case 'n':
            if (!literal(at, "null")) return false;
            break;
        default:
            if (!number(at)) return false;
        }

    after_value:
        if (top == containers) return true;
        if (text[*index] == ',') {
            ++index;
            if (is_object) goto name;
            goto value;
        }
        if (text[*index] != (is_object ? '}' : ']')) return false;

    end_of_container:
        close(top->word, *index++ + 1);
        if (is_object) {
            // To look through so many takes as much memory again as they have.
            if (names.count() - top->first_name > many_names) release_read_indexes();
            names.close(top->first_name);
        }
        --top;
        is_object = top > containers && top->is_object;
        goto after_value;

    name:
        at = *index++;
        if (text[at] != '"' || !string(at)) return false;
        names.add(at, words[written - 1]);
        if (text[*index++] != ':') return false;
        goto value;
    }

    const uint8_t *next_backslash(const uint8_t *from) const {
        // Escapes often follow one another.
        if (*from == '\\') return from;
        const void *found = std::memchr(from, '\\', size_t(text_end - from));
        return found ? static_cast<const uint8_t *>(found) : text_end;
    }

    void write(uint32_t end, bool flag) { words[written++] = flag ? end | POSTERN_JSON_FLAG : end; }

    uint32_t open() {
        written += 2;
        return written - 2;
    }

    void close(uint32_t word, uint32_t end) {
        words[word] = end;
        words[word + 1] = written;
    }

    /// Between a closing quote and the next index there are only blanks; anything else would have an index itself.
    __attribute__((always_inline)) bool string(uint32_t start) {
        uint32_t end = *index;
        while (is_blank(text[end - 1])) --end;
        if (end < start + 2 || text[end - 1] != '"') return false;
        bool has_escapes = false;
        while (backslash < text + end) {
            if (skip_escape(backslash, allows_lone_surrogates)) return false;
            backslash = next_backslash(backslash);
            has_escapes = true;
        }
        write(end, has_escapes);
        return true;
    }

    bool number(uint32_t start) {
        bool is_integer;
        const uint8_t *const end = number_end(text + start, is_integer);
        if (!end) return false;
        write(uint32_t(end - text), is_integer);
        return true;
    }

    template <size_t Size> bool literal(uint32_t start, const char (&word)[Size]) {
        if (!is_literal(text + start, word)) return false;
        write(start + uint32_t(Size - 1), false);
        return true;
    }
};

bool walk_one(Walk &walk) { return walk.document() && walk.is_at_end(); }

bool has_line_feed(const uint8_t *text, uint32_t start, uint32_t end) {
    return std::memchr(text + start, '\n', end - start);
}

/// The lines before the one that holds `start` are fine, even if the walk fails.
bool walk_lines(Walk &walk, const uint8_t *text, uint32_t &start) {
    const uint32_t all = walk.open_lines();
    while (!walk.is_at_end()) {
        start = walk.place();
        const uint32_t word = walk.word_count();
        if (!walk.document()) return false;
        const uint32_t end = walk.end_of(word);
        // Only between the values of an object or array can there be one.
        const bool may_span_lines = text[start] == '{' || text[start] == '[';
        if (may_span_lines && has_line_feed(text, start, end)) return false;
        if (!walk.is_at_end() && text[end] != '\n' && !has_line_feed(text, end, walk.place())) return false;
    }
    walk.close_lines(all);
    return true;
}

/// The lines before the one that holds `place` are known to be fine.
Fault explain_lines(const uint8_t *text, const uint8_t *place, const uint8_t *text_end) {
    while (place > text && place[-1] != '\n') --place;
    for (const uint8_t *line = place; line < text_end;) {
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

    /// Its indexes become the words.
    std::unique_ptr<simdjson::internal::dom_parser_implementation> stage1;
    /// A `[` precedes the text, so that lines begin like an array.
    std::unique_ptr<uint8_t[]> buffer;
    size_t capacity = 0;
    Names names;

    postern_json_result parse(const uint8_t *source, size_t length, bool lines, bool lone_surrogates = false) {
        if (length >= POSTERN_JSON_FLAG) return fault({POSTERN_JSON_TOO_LARGE, POSTERN_JSON_FLAG});
        if (length == 0) return fault({POSTERN_JSON_EMPTY, 0});
        reserve(length);
        buffer[0] = '[';
        uint8_t *const text = buffer.get() + 1;
        std::memcpy(text, source, length);
        std::memset(text + length, ' ', simdjson::SIMDJSON_PADDING);
        if (!is_sound(text, length, lines, lone_surrogates))
            return fault(
                lines ? explain_lines(text, text + start, text + length) : explain(text, text, text + length));
        if (names.duplicate() != Names::none) return fault({POSTERN_JSON_DUPLICATE, names.duplicate()});
        // The caller is going to use memory, too.
        names.trim(kept_bytes);
        return {text, stage1->structural_indexes.get(), lines ? -1 : ptrdiff_t(start), POSTERN_JSON_FINE, 0};
    }

    void trim() {
        if (capacity > kept_bytes) {
            stage1.reset();
            buffer.reset();
            capacity = 0;
        }
        names.trim(kept_bytes);
    }

private:
    /// Where the text's value starts; of lines, where the last one does that was looked at.
    uint32_t start = 0;

    static postern_json_result fault(Fault fault) { return {nullptr, nullptr, 0, fault.code, fault.offset}; }

    static size_t rounded_up(size_t count) {
        size_t result = 4096;
        while (result < count) result *= 2;
        return result;
    }

    void reserve(size_t length) {
        if (length <= capacity) return;
        const size_t size = std::min(rounded_up(length), size_t(POSTERN_JSON_FLAG));
        capacity = 0;
        buffer.reset(new uint8_t[1 + size + simdjson::SIMDJSON_PADDING]);
        stage1.reset();
        if (simdjson::get_active_implementation()->create_dom_parser_implementation(size + words_ahead, 1, stage1))
            throw std::bad_alloc();
        capacity = size;
    }

    bool is_sound(const uint8_t *text, size_t length, bool lines, bool lone_surrogates) {
        start = 0;
        if (stage1->stage1(text, length, simdjson::stage1_mode::regular)) return false;
        uint32_t *const words = stage1->structural_indexes.get();
        start = words[0];
        names.begin(text);
        Walk walk(text, length, words, stage1->n_structural_indexes, names, lone_surrogates);
        const bool is_fine = lines ? walk_lines(walk, text, start) : walk_one(walk);
        if (length > kept_bytes) walk.release_read_indexes();
        return is_fine;
    }
};

static postern_json_result parse(
    postern_json_parser *parser, const uint8_t *text, size_t length, bool lines, bool lone_surrogates = false) {
    try {
        return parser->parse(text, length, lines, lone_surrogates);
    } catch (...) {
        return {nullptr, nullptr, 0, POSTERN_JSON_MEMORY, 0};
    }
}

postern_json_parser *postern_json_create(void) { return new (std::nothrow) postern_json_parser(); }

void postern_json_destroy(postern_json_parser *parser) { delete parser; }

postern_json_result postern_json_parse(postern_json_parser *parser, const uint8_t *text, size_t length) {
    return parse(parser, text, length, false);
}

postern_json_result postern_json_parse_lone(postern_json_parser *parser, const uint8_t *text, size_t length) {
    return parse(parser, text, length, false, true);
}

postern_json_result postern_json_parse_lines(postern_json_parser *parser, const uint8_t *text, size_t length) {
    return parse(parser, text, length, true);
}

void postern_json_trim(postern_json_parser *parser) { parser->trim(); }
