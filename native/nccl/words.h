// NCCL's words as our numbers. NCCL gives pointers to static strings; each word is compared by content, and the
// pointer is only a guess of where to look first, so a pointer that comes to hold another word is no trap.
#ifndef COMMINSIGHT_NCCL_WORDS_H
#define COMMINSIGHT_NCCL_WORDS_H
#include <cstdint>

namespace ci::nccl {

// CI_OP_*, CI_DTYPE_*, CI_ALGORITHM_*, CI_PROTOCOL_*; UNKNOWN (0) for NULL and for every other word.
uint8_t op_of(const char* func);
uint8_t dtype_of(const char* datatype);  // uint8 has no word in NCCL ("Unknown")
uint8_t algorithm_of(const char* algo);
uint8_t protocol_of(const char* proto);

// Bytes of one element; 0: unknown.
int64_t element_bytes(uint8_t dtype);

}  // namespace ci::nccl
#endif
