// What the callbacks cost, measured on one op of 256: which ones tells the generation of their slot, so that nothing
// has to be kept or looked up for the others.
#ifndef COMMINSIGHT_NCCL_SAMPLING_H
#define COMMINSIGHT_NCCL_SAMPLING_H
#include "door.h"

namespace ci::nccl {

inline bool is_sampled(uint32_t number) { return (number & 255) == 1; }

inline void note_sampled(Door& d, int64_t since_ns) {
  add(d.sampled_ns, mono_ns() - since_ns);
  add(d.n_sampled_callbacks, 1);
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

// A sampled op is over: what was timed since the last one goes to the guard. The callback that ends the op is part
// of the next sample; it is the mean that counts.
inline void note_sampled_end(Door& d, Token op) {
  if (!is_sampled(op.generation())) return;
  const int64_t ns = exchange(d.sampled_ns, 0);
  const uint32_t n = exchange(d.n_sampled_callbacks, 0);
  add(d.header->nccl_callback_ns, ns);
  add(d.header->nccl_sampled_ops, 1);
  d.guard.sample(ns, n);
}

}  // namespace ci::nccl
#endif
