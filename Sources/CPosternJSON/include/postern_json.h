#ifndef POSTERN_JSON_H
#define POSTERN_JSON_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// What is known of each value of a text, in the order of the text: one word for a string, member name, number or
/// literal, two for an object or array.
///
/// The first word is the offset behind the value, and `POSTERN_JSON_FLAG` of a string or name that holds an escape, or of
/// a number without fraction and exponent. The second is the index of the first word after the value and all it contains.
/// Where a value starts, and of which kind it is, the text shows. `JSONValue` in PosternUpstream reads this.
typedef uint32_t postern_json_word;

#define POSTERN_JSON_FLAG 0x80000000u

/// Objects and arrays inside one another, the outermost counted.
enum { POSTERN_JSON_DEEPEST = 64 };

/// What is wrong with a text; in the order of `JSONFault.Reason`.
enum {
    POSTERN_JSON_FINE,
    POSTERN_JSON_EMPTY,
    POSTERN_JSON_SYNTAX,
    POSTERN_JSON_TRUNCATED,
    POSTERN_JSON_TRAILING,
    POSTERN_JSON_DEPTH,
    POSTERN_JSON_DUPLICATE,
    POSTERN_JSON_ENCODING,
    POSTERN_JSON_SURROGATE,
    POSTERN_JSON_ESCAPE,
    POSTERN_JSON_DIGITS,
    POSTERN_JSON_CONTROL,
    POSTERN_JSON_UNTERMINATED,
    POSTERN_JSON_TOO_LARGE,
    POSTERN_JSON_MEMORY
};

/// A parser and its buffers. One thread at a time.
typedef struct postern_json_parser postern_json_parser;

/// What a parser found. Text and words are the parser's own, valid until it is used again, trimmed or destroyed.
typedef struct postern_json_result {
    /// A copy of the text, followed by blanks.
    const uint8_t *text;
    const postern_json_word *words;
    /// Where the value starts; -1 for lines, before which a `[` stands.
    ptrdiff_t start;
    /// `POSTERN_JSON_FINE`, or what is wrong first.
    int fault;
    /// Where, in bytes from the start of the text.
    size_t offset;
} postern_json_result;

/// NULL when there is no memory.
postern_json_parser *postern_json_create(void);
void postern_json_destroy(postern_json_parser *parser);

/// Checks one JSON text (RFC 8259) and finds its values. Throws nothing.
postern_json_result postern_json_parse(postern_json_parser *parser, const uint8_t *text, size_t length);

/// The same, with escapes of lone surrogates, which RFC 8259, section 8.2, leaves open, and some clients produce.
postern_json_result postern_json_parse_lone(postern_json_parser *parser, const uint8_t *text, size_t length);

/// Checks texts separated by line feeds, each on a line of its own; blank lines are skipped. The first value is an
/// array of them all.
postern_json_result postern_json_parse_lines(postern_json_parser *parser, const uint8_t *text, size_t length);

/// Gives back buffers that a large text has left.
void postern_json_trim(postern_json_parser *parser);

#ifdef __cplusplus
}
#endif

#endif
