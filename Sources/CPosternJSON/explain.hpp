#pragma once

#include <cstddef>
#include <cstdint>

namespace postern {

/// A fault and where it is, in bytes from the start of the whole text.
struct Fault {
    int code;
    size_t offset;
};

/// Finds the first fault of the text between `begin` and `end`, one byte after the other. The fast walk only knows
/// *that* something is wrong; this knows what and where. Duplicate names are none of its business.
Fault explain(const uint8_t *text, const uint8_t *begin, const uint8_t *end);

} // namespace postern
