// The pair-wait kernel against its definition, one nanosecond at a time, and what it refuses.
#include "pairs/pair_waits.h"

#include <string.h>

#include "check.h"

namespace {

constexpr int kRanks = 7, kInstances = 12, kSpan = 64, kMaxRows = 2 * kRanks * kInstances;

uint64_t state = 1;

int below(int n) {  // Knuth's MMIX generator
  state = state * 6364136223846793005u + 1442695040888963407u;
  return static_cast<int>((state >> 33) % static_cast<uint64_t>(n));
}

struct Step {
  int64_t n = 0, rank[kMaxRows], instance[kMaxRows], start_ns[kMaxRows];
  int64_t caused_ns[kRanks], n_pairs[kRanks];

  void add(int64_t r, int64_t i, int64_t t) {
    rank[n] = r;
    instance[n] = i;
    start_ns[n++] = t;
  }
  int32_t sweep() {
    return ci_pair_waits(n, rank, instance, start_ns, kRanks, kInstances, caused_ns, n_pairs);
  }
  // Is this nanosecond one in which `victim` waits for `cause`?
  bool waits(int victim, int cause, int64_t at_ns) const {
    for (int64_t i = 0; i < n; i++) {
      for (int64_t j = 0; j < n; j++) {
        if (rank[i] == victim && rank[j] == cause && instance[i] == instance[j] && start_ns[i] <= at_ns &&
            at_ns < start_ns[j])
          return true;
      }
    }
    return false;
  }
};

// Some members twice in an instance, rows in any order, starts that meet.
void fill(Step& step) {
  step.n = 0;
  const int n_instances = 1 + below(kInstances);
  for (int i = 0; i < n_instances; i++) {
    const int n_members = below(kRanks + 1);
    for (int k = 0; k < n_members; k++) step.add(below(kRanks), i, below(kSpan) - kSpan / 2);
  }
}

void is_the_definition() {
  Step step;
  for (int round = 0; round < 60; round++) {
    fill(step);
    CHECK_EQ(step.sweep(), CI_PAIRS_OK);
    int64_t caused_ns[kRanks] = {}, n_pairs[kRanks] = {};
    for (int p = 0; p < kRanks; p++) {
      for (int q = p + 1; q < kRanks; q++) {
        int64_t net_ns = 0;  // what p caused
        for (int64_t at_ns = -kSpan; at_ns < kSpan; at_ns++) net_ns += step.waits(q, p, at_ns) - step.waits(p, q, at_ns);
        const int cause = net_ns > 0 ? p : q;
        caused_ns[cause] += net_ns > 0 ? net_ns : -net_ns;
        n_pairs[cause] += net_ns != 0;
      }
    }
    CHECK(memcmp(caused_ns, step.caused_ns, sizeof(caused_ns)) == 0);
    CHECK(memcmp(n_pairs, step.n_pairs, sizeof(n_pairs)) == 0);
  }
}

void nothing_is_no_wait() {
  Step step;
  CHECK_EQ(step.sweep(), CI_PAIRS_OK);
  step.add(3, 0, 5);
  CHECK_EQ(step.sweep(), CI_PAIRS_OK);
  for (int rank = 0; rank < kRanks; rank++) CHECK_EQ(step.caused_ns[rank] + step.n_pairs[rank], 0);
}

void what_is_out_of_range_is_refused() {
  const int64_t bad[][3] = {{-1, 0, 0}, {kRanks, 0, 0}, {0, -1, 0}, {0, kInstances, 0}, {0, 0, INT64_MAX}};
  for (const auto& [rank, instance, start_ns] : bad) {
    Step step;
    step.add(1, 0, -1);
    step.add(rank, instance, start_ns);
    CHECK_EQ(step.sweep(), CI_PAIRS_RANGE);
  }
  int64_t sums[2];
  CHECK_EQ(ci_pair_waits(-1, sums, sums, sums, 1, 1, sums, sums), CI_PAIRS_RANGE);
  CHECK_EQ(ci_pair_waits(0, sums, sums, sums, 0, 1, sums, sums), CI_PAIRS_RANGE);
}

void starts_may_be_at_the_edge_of_time() {
  Step step;
  step.add(0, 0, INT64_MIN);
  step.add(1, 0, INT64_MIN + 9);
  CHECK_EQ(step.sweep(), CI_PAIRS_OK);
  CHECK_EQ(step.caused_ns[1], 9);
  CHECK_EQ(step.n_pairs[0], 0);
}

}  // namespace

int main() {
  is_the_definition();
  nothing_is_no_wait();
  what_is_out_of_range_is_refused();
  starts_may_be_at_the_edge_of_time();
  return failures();
}
