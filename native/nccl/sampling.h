// What the callbacks cost, measured on one of kSampledOf of each kind. Which one tells a number that is at hand anyway, that of
// the handle mostly: nothing has to be kept or looked up for the others.
#ifndef COMMINSIGHT_NCCL_SAMPLING_H
#define COMMINSIGHT_NCCL_SAMPLING_H
#include "door.h"

namespace ci::nccl {

inline bool is_sampled_number(uint64_t number) { return number % kSampledOf == kSampledOf / 2 + 1; }
// Not the first use of a slot, which is dearer than the others: generation and slot of the handle together.
inline uint64_t sample_number(uint64_t handle) { return (handle >> 16) + (handle >> 38) * 37; }
inline bool is_sampled(Token token) { return is_sampled_number(sample_number(token.bits)); }

// In the handle of a step, beside its place.
constexpr uint32_t kSampledStep = 512;
inline bool is_sampled_step(Token token) { return (token.comm() & kSampledStep) != 0; }
inline bool is_step_to_sample(Token proxy, int32_t step) {
  return is_sampled_number(sample_number(proxy.bits) + static_cast<uint32_t>(step));
}

// Longer ones did not run all the time: the thread had lost its core.
constexpr int64_t kLongestCallbackNs = 5000;

inline void note_sampled(Door& d, int64_t since_ns) {
  const int64_t elapsed_ns = mono_ns() - since_ns;
  const int64_t ns = elapsed_ns < kLongestCallbackNs ? elapsed_ns : kLongestCallbackNs;
  d.guard.sample(ns, 1);
  add(d.header->nccl_callback_ns, ns);
}

// Times the callback it lives in.
class CallbackTimer {
 public:
  CallbackTimer(Door& d, bool is_wanted) : door_(d), since_ns_(is_wanted ? mono_ns() : 0) {}
  ~CallbackTimer() {
    if (since_ns_ != 0) note_sampled(door_, since_ns_);
  }
  CallbackTimer(const CallbackTimer&) = delete;
  CallbackTimer& operator=(const CallbackTimer&) = delete;

 private:
  Door& door_;
  int64_t since_ns_;
};

// One op of kSampledOf, for the mean per op: what was timed is such a part of everything as well.
inline void note_sampled_end(Door& d, Token op) {
  if (is_sampled(op)) add(d.header->nccl_sampled_ops, 1);
}

}  // namespace ci::nccl
#endif
