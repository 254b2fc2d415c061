// Pair waits: who made whom wait in one step, as a kernel for the analysis side.
//
// A library of its own, loaded where runs are analysed and never inside a job. No state, no thread, no
// file: columns in, sums out.
#ifndef COMMINSIGHT_PAIR_WAITS_H
#define COMMINSIGHT_PAIR_WAITS_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
#define CI_API __attribute__((visibility("default")))

// Grows when the signature or the meaning changes.
#define CI_PAIRS_VERSION 1
CI_API int32_t ci_pairs_version(void);

enum {
  CI_PAIRS_OK = 0,
  CI_PAIRS_RANGE = 1,   // a rank, an instance or the span of the starts out of range; nothing was written
  CI_PAIRS_MEMORY = 2,  // no memory; nothing was written
};

// Writes, per rank, the sum of its net caused waits over the pairs in which it comes out as the cause, and
// the number of these pairs. Row i: rank[i] of [0, n_ranks) started instance[i] of [0, n_instances) at
// start_ns[i]. The definition stands in comminsight/analysis/waits.py, whose numpy_sweep is the reference:
// results are equal to the last nanosecond. Time O(sum of |instance|^2 / 2), memory 36 bytes per row,
// 8 per instance and 32 per rank.
CI_API int32_t ci_pair_waits(int64_t n_rows, const int64_t* rank, const int64_t* instance, const int64_t* start_ns,
                             int64_t n_ranks, int64_t n_instances, int64_t* caused_ns, int64_t* n_pairs);

#ifdef __cplusplus
}
#endif
#endif
