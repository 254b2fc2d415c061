// The deep mask end to end: an op that moves its data in thousands of steps costs more than the budget, few ops a
// second or not, and NCCL is asked for less until it does not.
#include "life.h"
#include "nccl_play.h"
#include "stage.h"

using namespace ci::nccl;

namespace {

constexpr int kSteps = 5000;  // five callbacks each
constexpr int64_t kPatienceNs = 30 * ci::kNsPerS;
int32_t mask = 0;

void* begin(void* context, uint64_t type, void* parent) {
  DescriptorV7 d;
  memset(static_cast<void*>(&d), 0, sizeof d);
  d.type = type;
  d.parent = parent;
  if (type == kProxyOp) d.proxy_op.pid = getpid();
  if (type == kColl) {
    d.coll.func = "AllReduce";
    d.coll.datatype = "ncclFloat32";
    d.coll.n_channels = 1;
  }
  void* handle = nullptr;
  ncclProfiler_v7.start_event(context, &handle, &d);
  return handle;
}

void move_data(void* context, void* task) {
  StateArgs args;
  args.trans_bytes = 1 << 20;
  void* proxy = begin(context, kProxyOp, task);
  for (int i = 0; i < kSteps; i++) {
    DescriptorV7 d;
    memset(static_cast<void*>(&d), 0, sizeof d);
    d.type = kProxyStep;
    d.parent = proxy;
    d.proxy_step.step = i;
    void* step = nullptr;
    ncclProfiler_v7.start_event(context, &step, &d);
    for (const int32_t state : {kSendGpuWait, kSendPeerWait, kSendWait})
      ncclProfiler_v7.record_state(step, state, &args);
    ncclProfiler_v7.stop_event(step);
  }
  ncclProfiler_v7.stop_event(proxy);
}

bool asks_for_steps() { return (static_cast<uint32_t>(ci::load_relaxed(mask)) & kProxyStep) != 0; }

void steps_are_asked_for_until_they_cost_too_much() {
  void* context = play::init<7>(ncclProfiler_v7, 1, &mask, "dp", 2, 0);
  CHECK(asks_for_steps());
  const int64_t deadline = ci::mono_ns() + kPatienceNs;
  int64_t n_ops = 0;
  for (; asks_for_steps() && ci::mono_ns() < deadline; n_ops++) {
    void* task = begin(context, kColl, nullptr);
    move_data(context, task);
    ncclProfiler_v7.stop_event(task);
    void* channel = begin(context, kKernelCh, task);
    ncclProfiler_v7.stop_event(channel);
    usleep(20000);
  }
  CHECK(!asks_for_steps());
  const uint32_t now = ci::load_relaxed(ci::recorder()->box.header()->active_profiler_mask);
  CHECK_EQ(now & kProxyStep, 0);
  CHECK((now & kKernelCh) != 0);  // one step down, no more
  printf("the mask went down after %lld ops\n", static_cast<long long>(n_ops));
  ncclProfiler_v7.finalize(context);
}

}  // namespace

int main() {
  Stage stage;
  setenv("COMMINSIGHT_NCCL_MASK", "deep", 1);
  steps_are_asked_for_until_they_cost_too_much();
  CHECK_EQ(ci::close_recorder(), 0);
  return failures() != 0;
}
