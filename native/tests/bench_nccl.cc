// Prints what a collective costs the threads that NCCL calls in from: ns of CPU time with our callbacks and with
// empty ones, played by the same harness in turns, medians of rounds. The harness reads the clock twice itself.
#include <algorithm>

#include "../comminsight.h"
#include "nccl_play.h"
#include "recorder.h"
#include "stage.h"

namespace {

constexpr int kRounds = 5;
constexpr int kBatches = 10;
constexpr int kBatch = 2000;  // a quarter of the ring, which is drained between them
constexpr int kThreads = 2;

// Callbacks that write the handle and nothing else.
template <int kVersion>
struct Empty {
  using Abi = play::Abi<kVersion>;
  static play::Result start(void*, void** handle, typename Abi::Descriptor*) {
    *handle = nullptr;
    return 0;
  }
  static play::Result stop(void*) { return 0; }
  static play::Result record(void*, int32_t, play::StateArgs*) { return 0; }
  static play::Result finalize(void*) { return 0; }
  static const typename Abi::Table& table() {
    static typename Abi::Table empty = {"empty", nullptr, start, stop, record, finalize};
    asm volatile("" : : "r"(&empty) : "memory");  // calls go through the table, as NCCL's do
    return empty;
  }
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

template <int kVersion>
double batch_ns(play::Collective<kVersion>& collective, int n_channels) {
  const int64_t from = ci::clock_ns(CLOCK_THREAD_CPUTIME_ID);
  for (int i = 0; i < kBatch; i++) collective.play(n_channels);
  return static_cast<double>(ci::clock_ns(CLOCK_THREAD_CPUTIME_ID) - from) / kBatch;
}

// One round of one thread or more, each with a communicator of its own: mean over batches and threads.
template <int kVersion>
double round_ns(std::vector<play::Collective<kVersion>>& players, int n_threads, int n_channels) {
  double sum[kThreads] = {};
  for (int batch = 0; batch < kBatches; batch++) {
    ci_flush(5000);
    if (n_threads == 1) sum[0] += batch_ns(players[0], n_channels);
    else in_threads(n_threads, [&](int i) { sum[i] += batch_ns(players[static_cast<size_t>(i)], n_channels); });
  }
  return (sum[0] + sum[1]) / n_threads / kBatches;
}

template <int kVersion>
void measure(int n_threads, int n_channels) {
  static int32_t masks[kThreads];
  const auto& table = play::Abi<kVersion>::ours();
  std::vector<play::Collective<kVersion>> ours, empty;
  std::vector<void*> contexts;
  for (int i = 0; i < n_threads; i++) {
    contexts.push_back(play::init<kVersion>(table, static_cast<uint64_t>(i), &masks[i], "dp", 8, 0));
    ours.emplace_back(table, contexts.back());
    empty.emplace_back(Empty<kVersion>::table(), nullptr);
  }
  std::vector<double> with, without, ratio;
  round_ns<kVersion>(ours, n_threads, n_channels);
  for (int round = 0; round < kRounds; round++) {
    without.push_back(round_ns<kVersion>(empty, n_threads, n_channels));
    with.push_back(round_ns<kVersion>(ours, n_threads, n_channels));
    ratio.push_back(with.back() / without.back());
  }
  printf("v%d %8d %9d %10.0f %10.0f %8.2f\n", kVersion, n_threads, n_channels, median(without), median(with),
         median(ratio));
  for (void* context : contexts) table.finalize(context);
}

template <int kVersion>
void measure_version() {
  for (const int n_channels : {1, 8, 24}) measure<kVersion>(1, n_channels);
  measure<kVersion>(kThreads, 8);
}

}  // namespace

int main() {
  Stage stage;
  setenv("COMMINSIGHT_NCCL_MASK", "light", 1);
  setenv("COMMINSIGHT_NCCL_BUDGET_PERCENT", "0", 1);  // it would take the mask down in the middle
  printf("%-2s %8s %9s %10s %10s %8s\n", "", "threads", "channels", "empty ns", "ours ns", "ratio");
  measure_version<4>();
  measure_version<5>();
  measure_version<6>();
  measure_version<7>();
  printf("lost %lld\n", static_cast<long long>(ci_stat(CI_STAT_LOST)));
  return ci_close();
}
