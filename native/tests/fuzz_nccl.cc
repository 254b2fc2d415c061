// A million random callbacks from four threads against the four tables. Afterwards every callback has returned 0 and
// written its handle, nothing has crashed, and each op that took a number is in the segments once, counted as lost,
// or in flight. Usage: fuzz_nccl [SEED [CALLBACKS]]
#include <inttypes.h>

#include "../comminsight.h"
#include "life.h"
#include "nccl_fuzz.h"
#include "recorder.h"
#include "stage.h"

namespace {

constexpr int kThreads = 4;
fuzz::Shared shared;

struct NoWatch {
  void enter() {}
  void leave() {}
};

void run(uint64_t seed, uint64_t callbacks) {
  in_threads(kThreads, [&](int thread) {
    fuzz::Players players(shared, seed * 1000003 + static_cast<uint64_t>(thread) * 7919);
    NoWatch watch;
    for (uint64_t i = 0; i < callbacks / kThreads; i++) {
      // All slots would soon be in use: most ops of random callbacks never end.
      if (i % 2500 == 0) players.renew_context();
      players.one(watch);
    }
  });
}

// Ops of communicators that are none of ours took no number.
int64_t lost_numbers() {
  int64_t sum = ci_stat(CI_STAT_LOST);
  for (const int reason : {CI_LOSSREASON_COMM_TABLE_FULL, CI_LOSSREASON_FORKED})
    sum -= ci_stat(kLossSumStat + reason);
  return sum;
}

struct Sum {
  int64_t ended = 0;
  int64_t folds = 0;
  int64_t by_state[8] = {};
};

Sum sum_of(const std::vector<ci_record>& records) {
  Sum sum;
  for (const ci_record& r : records) {
    if (ci::is_marker(r)) continue;
    sum.ended += ci::ops_of(r);
    sum.folds += ci::ops_of(r) > 1;
    sum.by_state[r.state & 7] += ci::ops_of(r);
    CHECK(r.kind == CI_RECORDKIND_COLLECTIVE || r.kind == CI_RECORDKIND_P2P);
    CHECK(r.state >= CI_OPSTATE_DONE && r.state <= CI_OPSTATE_UNOBSERVABLE);
    CHECK_EQ(r.state == CI_OPSTATE_UNOBSERVABLE, r.end_ns == 0);
  }
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t seed = argc > 1 ? strtoull(argv[1], nullptr, 10) : 1;
  const uint64_t callbacks = argc > 2 ? strtoull(argv[2], nullptr, 10) : 1000000;
  Stage stage;
  const bool is_deep = seed % 2 == 0;  // single calls with their proxy steps, or folds
  setenv("COMMINSIGHT_NCCL_MASK", is_deep ? "deep" : "net", 1);
  setenv("COMMINSIGHT_NCCL_BUDGET_PERCENT", "0", 1);  // no guard that would change the mask
  setenv("COMMINSIGHT_SAFE_WINDOW_MS", "20", 1);
  setenv("COMMINSIGHT_OVERDUE_S", "0.05", 1);  // slots of overdue ops go to others
  run(seed, callbacks);
  for (const uint64_t context : shared.contexts)
    CHECK_EQ(ncclProfiler_v7.finalize(reinterpret_cast<void*>(context)), 0);
  CHECK_EQ(ci_flush(20000), 0);
  const int64_t begun = ci_stat(CI_STAT_OPS_BEGUN);
  const ci::Recorder& recorder = *ci::recorder();
  const int64_t lost = lost_numbers();
  const int64_t recycled = ci_stat(CI_STAT_SLOTS_RECYCLED);
  CHECK_EQ(ci_close(), 0);
  const int64_t in_flight = recorder.stat(CI_STAT_OPS_IN_FLIGHT);  // the last round may have ended some
  const Sum sum = sum_of(stage.records());
  printf("seed %" PRIu64 ": %" PRIu64 " callbacks, %" PRIu64 " communicators, %" PRId64 " ops: done %" PRId64
         ", aborted %" PRId64 ", unobservable %" PRId64 ", lost %" PRId64 ", in flight %" PRId64 "; %" PRId64
         " folds, %" PRId64 " slots recycled\n", seed, shared.n_callbacks, shared.n_inits, begun,
         sum.by_state[CI_OPSTATE_DONE], sum.by_state[CI_OPSTATE_ABORTED], sum.by_state[CI_OPSTATE_UNOBSERVABLE], lost,
         in_flight, sum.folds, recycled);
  CHECK(shared.n_callbacks >= callbacks - kThreads);
  CHECK(sum.by_state[CI_OPSTATE_DONE] > 0 && sum.by_state[CI_OPSTATE_UNOBSERVABLE] > 0);
  CHECK_EQ(sum.folds > 0, !is_deep);
  CHECK_EQ(sum.ended + lost + in_flight, begun);
  return failures() != 0;
}
