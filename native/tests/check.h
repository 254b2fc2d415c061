// CHECK prints what failed and counts; main returns failures(). No framework.
#ifndef COMMINSIGHT_CHECK_H
#define COMMINSIGHT_CHECK_H
#include <stdio.h>

inline int& failures() {
  static int n = 0;
  return n;
}

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: CHECK(%s)\n", __FILE__, __LINE__, #condition);  \
      __atomic_fetch_add(&failures(), 1, __ATOMIC_RELAXED);                   \
    }                                                                         \
  } while (0)

#define CHECK_EQ(a, b)                                                                                              \
  do {                                                                                                              \
    const auto a_ = static_cast<long long>(a);                                                                      \
    const auto b_ = static_cast<long long>(b);                                                                      \
    if (a_ != b_) {                                                                                                 \
      fprintf(stderr, "%s:%d: CHECK_EQ(%s, %s): %lld, %lld\n", __FILE__, __LINE__, #a, #b, a_, b_);                 \
      __atomic_fetch_add(&failures(), 1, __ATOMIC_RELAXED);                                                         \
    }                                                                                                               \
  } while (0)

#endif
