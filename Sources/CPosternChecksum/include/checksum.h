#ifndef POSTERN_CHECKSUM_H
#define POSTERN_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/// CRC32C (RFC 3720, appendix B.4) of `size` bytes. In C because the processor computes it in one instruction per eight
/// bytes, which Swift cannot name; a processor without that instruction uses a table.
uint32_t postern_crc32c(const void *bytes, size_t size);

/// The same by the table alone, so that a test can compare both.
uint32_t postern_crc32c_by_table(const void *bytes, size_t size);

#endif
