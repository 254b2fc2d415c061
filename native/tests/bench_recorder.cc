// Prints what an op costs its thread: ns of CPU time per begin + end, cheapest and median of rounds, for
// some situations, and the two clock reads that every op needs as the baseline.
#include <algorithm>

#include "../comminsight.h"
#include "atomics.h"
#include "recorder.h"
#include "stage.h"

namespace {

constexpr int kRounds = 60;
constexpr int kOps = 2000;
uint32_t comms[4];

uint64_t begin(uint32_t comm, bool is_p2p, int i) {
  return ci_op_begin_args(comm, is_p2p ? CI_RECORDKIND_P2P : CI_RECORDKIND_COLLECTIVE,
                          is_p2p ? CI_OP_SEND : CI_OP_ALL_REDUCE, CI_DTYPE_BFLOAT16, CI_REDOP_SUM, 1 << 20, 2 << 20,
                          is_p2p ? i % 64 : -1, 0, 0);
}

template <class F>
void measure(const char* name, F one) {
  std::vector<double> ns;
  for (int round = 0; round < kRounds; round++) {
    ci_flush(5000);
    const int64_t from = ci::clock_ns(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < kOps; i++) one(i);
    ns.push_back(static_cast<double>(ci::clock_ns(CLOCK_THREAD_CPUTIME_ID) - from) / kOps);
  }
  std::sort(ns.begin(), ns.end());
  printf("%-44s %6.0f %6.0f\n", name, ns[0], ns[ns.size() / 2]);
}

void finish(uint64_t handle) { ci_op_end(handle, CI_OPSTATE_DONE, CI_TIMINGSOURCE_HOST_FUTURE); }

void contended() {
  double cheapest[4] = {1e9, 1e9, 1e9, 1e9};
  for (int round = 0; round < 20; round++) {
    ci_flush(5000);
    in_threads(4, [&](int thread) {
      const int64_t from = ci::clock_ns(CLOCK_THREAD_CPUTIME_ID);
      for (int i = 0; i < kOps / 4; i++) finish(begin(comms[thread], false, i));
      const double ns = static_cast<double>(ci::clock_ns(CLOCK_THREAD_CPUTIME_ID) - from) / (kOps / 4);
      cheapest[thread] = std::min(cheapest[thread], ns);
    });
  }
  printf("%-44s %6.0f\n", "4 threads at once, own communicators", *std::max_element(cheapest, cheapest + 4));
}

}  // namespace

int main() {
  Stage stage;
  for (uint32_t i = 0; i < 4; i++) comms[i] = ci_comm_register(i + 1, "", "", 0, 8, nullptr, CI_BACKEND_NCCL, 0);
  printf("%-44s %6s %6s\n", "ns of CPU per op (C)", "least", "median");
  int64_t sink = 0;
  measure("baseline: two clock reads", [&](int) { sink += ci::mono_ns() + ci::mono_ns(); });
  measure("collective, begin + end", [](int i) { finish(begin(comms[0], false, i)); });
  measure("send to 64 peers, begin + end", [](int i) { finish(begin(comms[0], true, i)); });
  std::vector<uint64_t> open;
  for (int i = 0; i < 1000; i++) open.push_back(begin(comms[1], false, i));
  measure("collective, 1000 others in flight", [&](int i) {
    uint64_t& oldest = open[static_cast<size_t>(i % 1000)];
    finish(oldest);
    oldest = begin(comms[1], false, i);
  });
  for (const uint64_t handle : open) finish(handle);
  contended();
  printf("%-44s %lld\n", "lost", static_cast<long long>(ci_stat(CI_STAT_LOST)));
  return ci_close() + (sink == 0);
}
