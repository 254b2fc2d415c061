// zlib's CRC-32, eight bytes a step.
#ifndef COMMINSIGHT_CRC32_H
#define COMMINSIGHT_CRC32_H
#include <cstddef>
#include <cstdint>

namespace ci {
// Continues `crc` (0 to begin) over `bytes` bytes; equals zlib.crc32(data, crc).
uint32_t crc32(uint32_t crc, const void* data, size_t bytes);
}  // namespace ci
#endif
