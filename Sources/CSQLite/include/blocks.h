#ifndef POSTERN_BLOCKS_H
#define POSTERN_BLOCKS_H

#include <sqlite3.h>
#include <stddef.h>
#include <stdint.h>

/// The maximum number of messages of a block.
#define POSTERN_BLOCK_MESSAGES 128
/// The maximum number of bytes of a head: six numbers of up to 10, the checksum, and a key of up to 255.
#define POSTERN_HEAD_BYTES 319

/// What a block of messages or of receipts knows of one of them, apart from its payload.
typedef struct {
    int64_t id;
    int64_t kind;
    int64_t lane;
    int64_t acceptedAtMs;
    /// Where its payload is among those of the block.
    int64_t offset;
    int64_t size;
    int64_t checksum;
    /// Not terminated; NULL without a key. A head that was read points into the heads of the block.
    const char *key;
    int64_t keySize;
    /// The flags of a message that need no row, less than 64.
    int64_t tried;
} postern_head;

/// Writes the head of a message that follows `former` in its block. The first one follows a head of zeros with the `id` and the
/// `acceptedAtMs` of the block. Returns the number of bytes.
size_t postern_put_head(uint8_t *at, const postern_head *former, const postern_head *head);

/// Replaces the former head by the one at `at`. Returns where the next one is; NULL if the bytes are damaged.
const uint8_t *postern_next_head(postern_head *head, const uint8_t *at, const uint8_t *end);

/// Adds the functions `postern_queued(number)` and `postern_received(number)` to a connection. They read the messages in the
/// tables `blocks_#` and `receipts_#` of an upstream as rows, in the order of their ids.
int postern_add_block_functions(sqlite3 *connection);

#endif
