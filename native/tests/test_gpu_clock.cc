// The mapping against a simulated GPU clock: arbitrary base, drift and quantum, kernels that are polled with bursts
// of delay and queues that are deep or empty. Truth is known and must lie within the stated error, always.
#include <math.h>
#include <string.h>

#include <algorithm>
#include <vector>

#include "check.h"
#include "nccl/gpu_clock.h"
#include "stage.h"

using namespace ci::nccl;

namespace {

constexpr int64_t kUs = 1000;
constexpr int64_t kS = 1000000000;
constexpr int64_t kGpuBase = 1700000000 * kS;
constexpr int64_t kHostBase = 12345 * kS;

struct Random {
  uint64_t state;
  uint64_t next() {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
  }
  int64_t below(int64_t n) { return static_cast<int64_t>(next() % static_cast<uint64_t>(n)); }
};

struct Machine {
  double drift;           // GPU seconds gained per host second
  int64_t quantum_ns;
  int64_t slow_poll_ns;   // most of a delay; bursts are 20 times that
  int64_t queue_ns;       // most of the time between launch and begin
  int64_t least_queue_ns;
  bool has_launches;
  double wander = 0;      // change of the drift per second
  int64_t gpu_of(int64_t host_ns) const {
    const auto passed = static_cast<double>(host_ns - kHostBase);
    const double gained = passed * (drift + passed * 1e-9 * wander / 2);
    const int64_t exact = kGpuBase + (host_ns - kHostBase) + static_cast<int64_t>(gained);
    return exact - exact % quantum_ns;
  }
};

struct Quality {
  int64_t n = 0;
  int64_t wrong = 0;
  std::vector<int64_t> errors;  // as stated, of the second half
  std::vector<int64_t> misses;  // as they were
};

int64_t median(std::vector<int64_t> values) {
  if (values.empty()) return -1;
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// `seconds` of kernels, 500 a second: begin is observed with the launch as lower bound, the end without one.
Quality run(const Machine& machine, GpuClock* clock, int seconds, uint64_t seed) {
  Quality quality;
  Random random = {seed};
  const int n = seconds * 500;
  for (int i = 0; i < n; i++) {
    const int64_t begin = kHostBase + i * (2000 * kUs) + random.below(300 * kUs);
    const int64_t launch = begin - machine.least_queue_ns - random.below(machine.queue_ns);
    const int64_t end = begin + 50 * kUs + random.below(500 * kUs);
    const bool is_burst = i / 50 % 7 == 3;
    const auto delay = [&] { return kUs + random.below(is_burst ? 20 * machine.slow_poll_ns : machine.slow_poll_ns); };
    const int64_t seen_begin = begin + delay();
    const int64_t seen_end = std::max(seen_begin, end + delay());
    clock->observe(machine.gpu_of(begin), seen_begin, machine.has_launches ? launch : 0, seen_begin);
    clock->observe(machine.gpu_of(end), seen_end, 0, seen_end);
    for (const int64_t truth : {begin, end}) {
      int64_t host_ns = 0;
      uint32_t error_ns = 0;
      if (!clock->map(machine.gpu_of(truth), &host_ns, &error_ns)) continue;
      quality.n++;
      quality.wrong += llabs(host_ns - truth) > error_ns;
      if (i < n / 2) continue;
      quality.errors.push_back(error_ns);
      quality.misses.push_back(llabs(host_ns - truth));
    }
  }
  return quality;
}

void print(const char* name, const Quality& q) {
  printf("%-34s mapped %lld, wrong %lld, stated error %lld ns, real %lld ns\n", name, static_cast<long long>(q.n),
         static_cast<long long>(q.wrong), static_cast<long long>(median(q.errors)),
         static_cast<long long>(median(q.misses)));
}

void truth_lies_within_the_stated_error() {
  for (const double drift : {50e-6, -50e-6, 0.0, 150e-6})
    for (const int64_t quantum_ns : {int64_t{32}, int64_t{1024}})
      for (const int64_t queue_ns : {2 * kUs, 5000 * kUs}) {
        GpuClock clock = {};
        const Machine machine = {drift, quantum_ns, 50 * kUs, queue_ns, 3 * queue_ns, true};
        const Quality q = run(machine, &clock, 60, 88172645463325252u);
        CHECK_EQ(q.n, 60 * 500 * 2);
        CHECK_EQ(q.wrong, 0);
        CHECK(median(q.misses) < 20 * kUs);  // bounded by polling, whatever the queues are
        print(queue_ns > 10 * kUs ? "slow polling, deep queues" : "slow polling, short queues", q);
      }
}

// Oscillators warm up and the host clock is steered: the drift of the last minute is not the one of now.
void a_drift_that_wanders_is_followed() {
  for (const double wander : {0.02e-6, -0.02e-6}) {
    GpuClock clock = {};
    const Machine machine = {50e-6, 32, 5 * kUs, 10 * kUs, 3 * kUs, true, wander};
    const Quality q = run(machine, &clock, 120, 31);
    CHECK_EQ(q.wrong, 0);
    CHECK(median(q.errors) < 100 * kUs);
    print("a drift that wanders", q);
  }
}

void quick_polling_makes_the_error_small() {
  for (const int64_t quantum_ns : {int64_t{32}, int64_t{1024}}) {
    GpuClock clock = {};
    const Quality q = run({50e-6, quantum_ns, kUs, 10 * kUs, 3 * kUs, true}, &clock, 60, 4101842887655102017u);
    CHECK_EQ(q.wrong, 0);
    CHECK(median(q.errors) < 15 * kUs);
    CHECK(median(q.misses) < 5 * kUs);
    print("quick polling", q);
  }
}

void without_a_lower_bound_the_error_is_not_known() {
  GpuClock clock = {};
  int64_t host_ns = 0;
  uint32_t error_ns = 0;
  CHECK(!clock.map(kGpuBase, &host_ns, &error_ns));
  CHECK(!clock.map(0, &host_ns, &error_ns));
  CHECK(!clock.map(INT64_MAX, &host_ns, &error_ns));
  const Quality q = run({-50e-6, 32, kUs, kUs, 0, false}, &clock, 10, 99);
  CHECK_EQ(median(q.errors), UINT32_MAX);
  CHECK(median(q.misses) < 1000 * kUs);
}

// One wrong stamp in hundred: far ahead, far behind, or zero. It may be mapped nowhere near, but what follows is.
void wrong_stamps_do_not_stay() {
  const Machine machine = {20e-6, 32, 5 * kUs, 10 * kUs, 0, true};
  GpuClock clock = {};
  Random random = {12345};
  int64_t wrong = 0, n = 0;
  for (int i = 0; i < 20000; i++) {
    const int64_t begin = kHostBase + i * (1000 * kUs);
    const int64_t seen = begin + kUs + random.below(5 * kUs);
    const int64_t stamps[] = {machine.gpu_of(begin), 0, 1, machine.gpu_of(begin) + 3600 * kS, INT64_MAX};
    const int64_t stamp = stamps[i % 100 == 99 ? 1 + random.below(4) : 0];
    clock.observe(stamp, seen, begin - 5 * kUs, seen);
    int64_t host_ns = 0;
    uint32_t error_ns = 0;
    if (!clock.map(machine.gpu_of(begin), &host_ns, &error_ns)) continue;
    n++;
    wrong += llabs(host_ns - begin) > error_ns;
  }
  CHECK(n > 19000);
  CHECK_EQ(wrong, 0);
}

// The GPU was reset: its clock starts somewhere else.
void a_clock_that_was_set_is_followed() {
  const Machine machine = {0, 32, 5 * kUs, 10 * kUs, 0, true};
  GpuClock clock = {};
  run(machine, &clock, 5, 7);
  const int64_t shift = -1000 * kS;
  int64_t wrong = 0, n = 0;
  for (int i = 0; i < 1000; i++) {
    const int64_t begin = kHostBase + 6 * kS + i * (1000 * kUs);
    clock.observe(machine.gpu_of(begin) + shift, begin + 3 * kUs, begin - 3 * kUs, begin + 3 * kUs);
    int64_t host_ns = 0;
    uint32_t error_ns = 0;
    if (i < 10 || !clock.map(machine.gpu_of(begin) + shift, &host_ns, &error_ns)) continue;
    n++;
    wrong += llabs(host_ns - begin) > error_ns;
  }
  CHECK_EQ(n, 990);
  CHECK_EQ(wrong, 0);
}

void threads_never_see_half_a_fit() {
  const Machine machine = {50e-6, 32, 5 * kUs, 10 * kUs, 0, true};
  static GpuClock clock;
  int64_t wrong = 0;
  in_threads(4, [&](int thread) {
    Random random = {static_cast<uint64_t>(thread) + 1};
    for (int i = 0; i < 20000; i++) {
      const int64_t begin = kHostBase + i * (100 * kUs);
      const int64_t seen = begin + kUs + random.below(5 * kUs);
      clock.observe(machine.gpu_of(begin), seen, begin - kUs - random.below(5 * kUs), seen);
      int64_t host_ns = 0;
      uint32_t error_ns = 0;
      if (!clock.map(machine.gpu_of(begin), &host_ns, &error_ns)) continue;
      if (llabs(host_ns - begin) > error_ns) __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
    }
  });
  CHECK_EQ(wrong, 0);
}

}  // namespace

int main() {
  truth_lies_within_the_stated_error();
  a_drift_that_wanders_is_followed();
  quick_polling_makes_the_error_small();
  without_a_lower_bound_the_error_is_not_known();
  wrong_stamps_do_not_stay();
  a_clock_that_was_set_is_followed();
  threads_never_see_half_a_fit();
  return failures();
}
