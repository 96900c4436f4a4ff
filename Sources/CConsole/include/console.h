#ifndef POSTERN_CONSOLE_H
#define POSTERN_CONSOLE_H

#include <stddef.h>
#include <stdint.h>

/// A file of the console as it was when the gateway was built. Everything lives as long as the process.
struct postern_console_file {
    /// What follows `/console/`; empty for the page itself, which is `/console`.
    const char *path;
    /// The media type.
    const char *type;
    const uint8_t *bytes;
    size_t count;
};

/// All files of the console. `count` is set to their number.
const struct postern_console_file *postern_console_files(size_t *count);

#endif
