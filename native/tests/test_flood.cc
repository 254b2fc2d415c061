// Three threads flood one communicator, with ops that never end and with ops that end at once; the anchor
// communicator loses none, and the flood's losses are counted on its own row.
#include "../comminsight.h"
#include "atomics.h"
#include "recorder.h"
#include "stage.h"

namespace {

constexpr int kFlooders = 3;
constexpr int kAnchorOps = 400;
uint32_t anchor, flood;
int running = 1;

uint64_t begin(uint32_t comm, int64_t count) {
  return ci_op_begin_args(comm, CI_RECORDKIND_COLLECTIVE, CI_OP_BARRIER, 0, 0, count, 0, -1, 0, 0);
}

void work(int thread) {
  if (thread == kFlooders) {
    for (int i = 0; i < kAnchorOps; i++) {
      const uint64_t handle = begin(anchor, i);
      CHECK(handle != 0);
      usleep(500);
      CHECK_EQ(ci_op_end(handle, CI_OPSTATE_DONE, CI_TIMINGSOURCE_HOST_WAIT), 1);
    }
    ci::store_release(running, 0);
  }
  for (int64_t i = 0; ci::load_acquire(running) != 0; i++) {
    const uint64_t handle = begin(flood, i);
    if (i % 100 != 0) ci_op_end(handle, CI_OPSTATE_DONE, CI_TIMINGSOURCE_HOST_WAIT);  // each hundredth never ends
  }
}

}  // namespace

int main() {
  Stage stage;
  setenv("COMMINSIGHT_OVERDUE_S", "0.1", 1);
  anchor = ci_comm_register(1, "anchor", "", 0, 2, nullptr, CI_BACKEND_GLOO, 0);
  flood = ci_comm_register(2, "flood", "", 0, 2, nullptr, CI_BACKEND_GLOO, 0);
  in_threads(kFlooders + 1, work);
  CHECK_EQ(ci_flush(20000), 0);
  const int64_t quota = ci_stat(kLossSumStat + CI_LOSSREASON_SLOT_QUOTA);
  CHECK_EQ(ci_stat(kLossSumStat + CI_LOSSREASON_SLOTS_FULL), 0);
  CHECK_EQ(ci_stat(kLossSumStat + CI_LOSSREASON_RING_OVERWRITTEN), 0);
  printf("flood begun %lld, slot quota %lld, ring quota %lld, recycled %lld\n",
         static_cast<long long>(ci_stat(CI_STAT_OPS_BEGUN)), static_cast<long long>(quota),
         static_cast<long long>(ci_stat(kLossSumStat + CI_LOSSREASON_RING_QUOTA)),
         static_cast<long long>(ci_stat(CI_STAT_SLOTS_RECYCLED)));
  CHECK_EQ(ci_close(), 0);
  int anchors = 0;
  for (const ci_record& r : stage.records())
    if (r.comm_index == anchor && r.state == CI_OPSTATE_DONE) anchors += r.count == anchors;
  CHECK_EQ(anchors, kAnchorOps);
  return failures();
}
