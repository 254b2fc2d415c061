// Short names for the atomic operations on plain fields of shared layouts (wire.h holds plain types,
// so std::atomic cannot be used there), word-wise copies of records, and the futex.
#ifndef COMMINSIGHT_ATOMICS_H
#define COMMINSIGHT_ATOMICS_H
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

namespace ci {

// Records are copied word by word: the compiler must not conclude from types what a word cannot hold
// (the build says -fno-strict-aliasing for the same reason).
typedef uint64_t __attribute__((may_alias)) word_t;

template <class T>
inline T load_relaxed(const T& x) { return __atomic_load_n(&x, __ATOMIC_RELAXED); }
template <class T>
inline T load_acquire(const T& x) { return __atomic_load_n(&x, __ATOMIC_ACQUIRE); }
template <class T>
inline T load_ordered(const T& x) { return __atomic_load_n(&x, __ATOMIC_SEQ_CST); }
template <class T, class V>
inline void store_relaxed(T& x, V value) { __atomic_store_n(&x, static_cast<T>(value), __ATOMIC_RELAXED); }
template <class T, class V>
inline void store_release(T& x, V value) { __atomic_store_n(&x, static_cast<T>(value), __ATOMIC_RELEASE); }
template <class T, class V>
inline T add(T& x, V delta) { return __atomic_fetch_add(&x, static_cast<T>(delta), __ATOMIC_ACQ_REL); }
template <class T, class V>
inline T sub(T& x, V delta) { return __atomic_fetch_sub(&x, static_cast<T>(delta), __ATOMIC_ACQ_REL); }
template <class T, class V>
inline T exchange(T& x, V value) { return __atomic_exchange_n(&x, static_cast<T>(value), __ATOMIC_SEQ_CST); }
// On failure `expected` holds what was found.
template <class T, class V>
inline bool cas(T& x, T& expected, V desired) {
  return __atomic_compare_exchange_n(&x, &expected, static_cast<T>(desired), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

// Written out where the number of words is known: a record's 16 in a loop take twice as long.
#if defined(__clang__)
#define COMMINSIGHT_UNROLL _Pragma("unroll")
#else
#define COMMINSIGHT_UNROLL _Pragma("GCC unroll 16")
#endif

// Word-wise relaxed copies between private and shared memory; `bytes` is a multiple of 8.
inline void store_words(void* shared, const void* from, size_t bytes) {
  auto* to = static_cast<word_t*>(shared);
  const auto* words = static_cast<const word_t*>(from);
  COMMINSIGHT_UNROLL for (size_t i = 0; i < bytes / 8; i++) __atomic_store_n(&to[i], words[i], __ATOMIC_RELAXED);
}
inline void load_words(void* to, const void* shared, size_t bytes) {
  auto* words = static_cast<word_t*>(to);
  const auto* from = static_cast<const word_t*>(shared);
  COMMINSIGHT_UNROLL for (size_t i = 0; i < bytes / 8; i++) words[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
}

// As plain code it would become a string instruction, which takes longer for so few words.
inline void clear_words(void* shared, size_t bytes) {
  auto* to = static_cast<word_t*>(shared);
  COMMINSIGHT_UNROLL for (size_t i = 0; i < bytes / 8; i++) __atomic_store_n(&to[i], word_t{0}, __ATOMIC_RELAXED);
}

inline void futex_wait(const uint32_t& word, uint32_t seen, int64_t timeout_ns) {
  const timespec wait = {static_cast<time_t>(timeout_ns / 1000000000), static_cast<long>(timeout_ns % 1000000000)};
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, &wait, nullptr, 0);
}
inline void futex_wake(const uint32_t& word) { syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0); }

inline int64_t clock_ns(clockid_t id) {
  timespec t;
  clock_gettime(id, &t);
  return static_cast<int64_t>(t.tv_sec) * 1000000000 + t.tv_nsec;
}
inline int64_t mono_ns() { return clock_ns(CLOCK_MONOTONIC); }
inline int64_t real_ns() { return clock_ns(CLOCK_REALTIME); }

// Whether `now_ns` is `limit_ns` or more after `since_ns`; any two times will do: a stamp of the GPU may be anything,
// and the last look is made at INT64_MAX.
inline bool has_lasted(int64_t now_ns, int64_t since_ns, int64_t limit_ns) {
  return now_ns >= since_ns &&
         static_cast<uint64_t>(now_ns) - static_cast<uint64_t>(since_ns) >= static_cast<uint64_t>(limit_ns);
}

}  // namespace ci
#endif
