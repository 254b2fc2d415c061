// 4 producer threads on 3 communicators, ops ended by other threads than began them, with the drain thread
// running and markers being written for ops that end at the same moment: every op that began is in the
// segments exactly once or counted by reason, in order, and no marker follows the record of its op.
#include <map>
#include <utility>

#include "../comminsight.h"
#include "atomics.h"
#include "recorder.h"
#include "stage.h"

namespace {

constexpr int kProducers = 4;
constexpr int kComms = 3;
constexpr int kEach = 12000;
constexpr int kAtMost = 40 * kEach;  // a loaded machine needs longer until markers were written
constexpr int64_t kMarkers = 200;
constexpr int kLag = 64;

uint32_t comms[kComms];

void produce(int producer) {
  uint64_t open[kLag] = {};
  int last = kAtMost;
  for (int i = 0; i < last + kLag; i++) {
    const bool had_markers = ci_stat(CI_STAT_RECORDS_PUSHED) - ci_stat(CI_STAT_OPS_RECORDED) >= kMarkers;
    if (last == kAtMost && i >= kEach && had_markers) last = i;
    uint64_t& slot = open[i % kLag];
    if (slot != 0) ci_op_end(slot, CI_OPSTATE_DONE, CI_TIMINGSOURCE_HOST_FUTURE);
    slot = 0;
    if (i >= last) continue;
    slot = ci_op_begin_args(comms[(i + producer) % kComms], CI_RECORDKIND_COLLECTIVE, CI_OP_ALL_REDUCE,
                            CI_DTYPE_FLOAT32, CI_REDOP_SUM, i, 4 * i, -1, 0, 0);
    ci_op_launched(slot);
    if (i % 256 == 0) usleep(6000);  // lets ops pass half the safe window, so that markers are due
  }
}

struct Seen {
  int finals = 0;
  int markers = 0;
};

}  // namespace

int main() {
  Stage stage;
  setenv("COMMINSIGHT_SAFE_WINDOW_MS", "10", 1);
  setenv("COMMINSIGHT_OVERDUE_S", "0.05", 1);
  for (int i = 0; i < kComms; i++)
    comms[i] = ci_comm_register(static_cast<uint64_t>(100 + i), "name", "desc", 0, 2, "0-1", CI_BACKEND_GLOO, 0);
  in_threads(kProducers, produce);
  CHECK_EQ(ci_flush(20000), 0);
  CHECK_EQ(ci_stat(CI_STAT_OPS_IN_FLIGHT), 0);
  const int64_t lost = ci_stat(CI_STAT_LOST);
  const int64_t begun = ci_stat(CI_STAT_OPS_BEGUN);
  const int64_t recorded = ci_stat(CI_STAT_OPS_RECORDED);
  CHECK_EQ(ci_close(), 0);
  std::map<std::pair<uint32_t, uint32_t>, Seen> ops;
  int64_t finals = 0, markers = 0, last_seq = 0;
  for (const ci_record& r : stage.records()) {
    CHECK(r.seq > last_seq);
    last_seq = r.seq;
    if (r.kind != CI_RECORDKIND_COLLECTIVE) continue;
    Seen& seen = ops[{r.comm_index, r.op_seq}];
    CHECK_EQ(seen.finals, 0);
    if (r.state == CI_OPSTATE_DONE) {
      CHECK_EQ((r.flags & (CI_OPFLAG_WAS_OPEN | CI_OPFLAG_WAS_OVERDUE)) != 0, seen.markers != 0);
      CHECK(r.end_ns >= r.start_ns && r.size_bytes == 4 * r.count);
      seen.finals++;
      finals++;
    } else {
      seen.markers++;
      markers++;
    }
  }
  printf("begun %lld, in segments %lld, lost %lld, markers %lld\n", static_cast<long long>(begun),
         static_cast<long long>(finals), static_cast<long long>(lost), static_cast<long long>(markers));
  CHECK(begun >= kProducers * kEach);
  CHECK_EQ(finals + lost, begun);
  CHECK_EQ(finals, recorded);
  CHECK(markers > 0);
  return failures();
}
