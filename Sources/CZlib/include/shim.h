#ifndef POSTERN_CZLIB_H
#define POSTERN_CZLIB_H

#include <zlib.h>

/// `deflateInit2` and `inflateInit2` are macros, which Swift does not see.
static inline int postern_deflate_init(z_stream *stream, int level, int windowBits) {
    return deflateInit2(stream, level, Z_DEFLATED, windowBits, 8, Z_DEFAULT_STRATEGY);
}
static inline int postern_inflate_init(z_stream *stream, int windowBits) {
    return inflateInit2(stream, windowBits);
}

#endif
