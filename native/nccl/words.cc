#include "words.h"

#include <string.h>

#include "atomics.h"
#include "wire.h"

namespace ci::nccl {
namespace {

// Up to 15 letters as two numbers, zeros behind them.
struct Letters {
  uint64_t low, high;
  constexpr bool operator==(const Letters& other) const { return low == other.low && high == other.high; }
};

constexpr Letters letters_of(const char* text) {
  Letters out = {};
  for (int i = 0; text[i] != 0; i++) (i < 8 ? out.low : out.high) |= uint64_t{static_cast<uint8_t>(text[i])} << i % 8 * 8;
  return out;
}

struct Word {
  Letters letters;
  uint8_t number;
  constexpr Word(const char* text, uint8_t n) : letters(letters_of(text)), number(n) {}
};

constexpr Word kOps[] = {
    {"AllReduce", CI_OP_ALL_REDUCE}, {"AllGather", CI_OP_ALL_GATHER}, {"ReduceScatter", CI_OP_REDUCE_SCATTER},
    {"Send", CI_OP_SEND},            {"Recv", CI_OP_RECV},            {"Broadcast", CI_OP_BROADCAST},
    {"Reduce", CI_OP_REDUCE},        {"AlltoAll", CI_OP_ALL_TO_ALL},  {"Gather", CI_OP_GATHER},
    {"Scatter", CI_OP_SCATTER},
};
constexpr Word kDtypes[] = {
    {"ncclBfloat16", CI_DTYPE_BFLOAT16}, {"ncclFloat32", CI_DTYPE_FLOAT32},        {"ncclFloat16", CI_DTYPE_FLOAT16},
    {"ncclInt8", CI_DTYPE_INT8},         {"ncclInt64", CI_DTYPE_INT64},            {"ncclInt32", CI_DTYPE_INT32},
    {"ncclUint8", CI_DTYPE_UINT8},       {"ncclUint32", CI_DTYPE_UINT32},          {"ncclUint64", CI_DTYPE_UINT64},
    {"ncclFloat64", CI_DTYPE_FLOAT64},   {"ncclFloat8e4m3", CI_DTYPE_FLOAT8_E4M3},
    {"ncclFloat8e5m2", CI_DTYPE_FLOAT8_E5M2},
};
constexpr Word kAlgorithms[] = {
    {"RING", CI_ALGORITHM_RING}, {"TREE", CI_ALGORITHM_TREE},
    {"NVLS", CI_ALGORITHM_NVLS}, {"NVLS_TREE", CI_ALGORITHM_NVLS_TREE},
    {"PAT", CI_ALGORITHM_PAT},   {"COLLNET_DIRECT", CI_ALGORITHM_COLLNET_DIRECT},
    {"COLLNET_CHAIN", CI_ALGORITHM_COLLNET_CHAIN},
};
constexpr Word kProtocols[] = {
    {"SIMPLE", CI_PROTOCOL_SIMPLE}, {"LL", CI_PROTOCOL_LL}, {"LL128", CI_PROTOCOL_LL128},
};

constexpr size_t kGuesses = 64;

constexpr uintptr_t kPageBytes = 4096;

__attribute__((noinline)) bool read_slowly(const char* text, Letters* out) {
  *out = {};
  for (uint32_t i = 0; i < sizeof *out; i++) {
    if (text[i] == 0) return true;
    (i < 8 ? out->low : out->high) |= uint64_t{static_cast<uint8_t>(text[i])} << i % 8 * 8;
  }
  return false;
}

// The bytes from the first zero on cleared; true when there was one.
inline bool cut_at_end(uint64_t* bytes) {
  constexpr uint64_t kOnes = 0x0101010101010101;
  const uint64_t zeros = (*bytes - kOnes) & ~*bytes & (kOnes << 7);
  if (zeros == 0) return false;
  *bytes &= ((zeros & -zeros) >> 7) - 1;  // below the lowest one
  return true;
}

// Bytes behind the end are read along, on the page of the beginning: that is there. False for longer texts.
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
__attribute__((no_sanitize("address"))) inline bool read_letters(const char* text, Letters* out) {
  if ((reinterpret_cast<uintptr_t>(text) & (kPageBytes - 1)) > kPageBytes - sizeof *out) return read_slowly(text, out);
  typedef uint64_t __attribute__((may_alias, aligned(1))) loose_t;
  const auto* words = reinterpret_cast<const loose_t*>(text);
  *out = {words[0], 0};
  if (cut_at_end(&out->low)) return true;
  out->high = words[1];
  return cut_at_end(&out->high);
}
#else
inline bool read_letters(const char* text, Letters* out) { return read_slowly(text, out); }
#endif

template <size_t N>
uint8_t number_of(const Word (&words)[N], uint8_t (&guesses)[kGuesses], const char* text) {
  Letters letters;
  if (text == nullptr || !read_letters(text, &letters)) return 0;
  const uint64_t at = (reinterpret_cast<uint64_t>(text) * 0x9E3779B97F4A7C15u) >> 58;
  const size_t guess = load_relaxed(guesses[at]);
  if (words[guess].letters == letters) return words[guess].number;
  for (size_t i = 0; i < N; i++) {
    if (!(words[i].letters == letters)) continue;
    store_relaxed(guesses[at], i);
    return words[i].number;
  }
  return 0;
}

}  // namespace

uint8_t op_of(const char* func) {
  static uint8_t guesses[kGuesses];
  return number_of(kOps, guesses, func);
}

uint8_t dtype_of(const char* datatype) {
  static uint8_t guesses[kGuesses];
  return number_of(kDtypes, guesses, datatype);
}

uint8_t algorithm_of(const char* algo) {
  static uint8_t guesses[kGuesses];
  return number_of(kAlgorithms, guesses, algo);
}

uint8_t protocol_of(const char* proto) {
  static uint8_t guesses[kGuesses];
  return number_of(kProtocols, guesses, proto);
}

int64_t element_bytes(uint8_t dtype) {
  switch (dtype) {
    case CI_DTYPE_INT8: case CI_DTYPE_UINT8: case CI_DTYPE_FLOAT8_E4M3: case CI_DTYPE_FLOAT8_E5M2: case CI_DTYPE_BOOL:
      return 1;
    case CI_DTYPE_INT16: case CI_DTYPE_FLOAT16: case CI_DTYPE_BFLOAT16:
      return 2;
    case CI_DTYPE_INT32: case CI_DTYPE_UINT32: case CI_DTYPE_FLOAT32:
      return 4;
    case CI_DTYPE_INT64: case CI_DTYPE_UINT64: case CI_DTYPE_FLOAT64: case CI_DTYPE_COMPLEX64:
      return 8;
    case CI_DTYPE_COMPLEX128:
      return 16;
    default:
      return 0;
  }
}

}  // namespace ci::nccl
