#include "ring.h"

namespace ci {
namespace {
constexpr size_t kWords = sizeof(ci_record) / sizeof(word_t);
}

bool Ring::put(int64_t seq, ci_record* record) {
  record->seq = seq;
  record->seq_low = static_cast<uint32_t>(seq);
  word_t* to = cell(seq);
  word_t seen = __atomic_load_n(&to[0], __ATOMIC_RELAXED);
  do
    if (static_cast<int64_t>(seen) < 0 || static_cast<int64_t>(seen) >= seq) return false;
  while (!__atomic_compare_exchange_n(&to[0], &seen, word_t(-1), false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
  const auto* words = reinterpret_cast<const word_t*>(record);
  COMMINSIGHT_UNROLL for (size_t i = 1; i < kWords; i++) __atomic_store_n(&to[i], words[i], __ATOMIC_RELEASE);
  __atomic_store_n(&to[0], static_cast<word_t>(seq), __ATOMIC_RELEASE);
  return true;
}

Ring::Read Ring::read(int64_t seq, ci_record* out) const {
  const word_t* from = cell(seq);
  auto* words = reinterpret_cast<word_t*>(out);
  const auto before = static_cast<int64_t>(__atomic_load_n(&from[0], __ATOMIC_ACQUIRE));
  if (before > seq) return kLost;
  if (before != seq) return kPending;
  for (size_t i = 1; i < kWords; i++) words[i] = __atomic_load_n(&from[i], __ATOMIC_ACQUIRE);
  words[0] = static_cast<word_t>(seq);
  const bool intact = __atomic_load_n(&from[0], __ATOMIC_ACQUIRE) == static_cast<word_t>(seq) && out->seq_low == static_cast<uint32_t>(seq);
  return intact ? kGot : kLost;
}

}  // namespace ci
