// Keeps the price of the callbacks under a budget: measured on samples, it tells when to ask NCCL for fewer events.
// Only down, and never below the calls themselves (program order); going up again is for whoever watches.
#ifndef COMMINSIGHT_NCCL_GUARD_H
#define COMMINSIGHT_NCCL_GUARD_H
#include <cstdint>

namespace ci::nccl {

// Of each kind of callback one in so many is timed, so their sum says what all of them cost.
constexpr int64_t kSampledOf = 1024;

class Guard {  // born zeroed: the default budget
 public:
  // Share of one core in parts per million (Settings::nccl_budget_ppm); 0: no guard.
  void set_budget(uint32_t ppm);
  // What one clock reading costs: each timed callback holds one, which ops that are not timed do not pay.
  void set_clock_ns(int64_t reading_ns) { reading_ns_ = reading_ns; }
  // Callbacks that were timed, one of kSampledOf: their sum and how many they were. Any thread.
  void sample(int64_t callback_ns, uint32_t n_callbacks);
  // Drain thread, each round. True, with the mask to go down to, when three windows of a second in a row were above
  // the budget. A window without samples is not above.
  bool round(int64_t now_ns, uint32_t mask, uint32_t* lower_mask);

  int64_t callback_ns() const;  // of all samples

 private:
  int64_t callback_ns_;
  int64_t reading_ns_;
  // of the drain thread
  int64_t window_start_ns_;
  int64_t window_callback_ns_;
  uint32_t n_above_;
  uint32_t budget_ppm_;
  bool has_budget_;
};

// The least of some readings, for set_clock_ns.
int64_t measured_clock_ns();

// The next mask down (deep, net, light, api); the same when there is none.
uint32_t lower_mask_of(uint32_t mask);

}  // namespace ci::nccl
#endif
