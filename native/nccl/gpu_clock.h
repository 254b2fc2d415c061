// Host time of a GPU's stamps without asking the GPU. Each event of a kernel lies between two readings of the
// host clock: before its launch (lower) and in the callback that reports it (upper). offset = host - GPU is
// therefore bounded from both sides; the tightest bounds of some windows, carried on by the drift that is possible
// between them, bound it now.
#ifndef COMMINSIGHT_NCCL_GPU_CLOCK_H
#define COMMINSIGHT_NCCL_GPU_CLOCK_H
#include <cstdint>

namespace ci::nccl {

// One per GPU or communicator. Any thread may call, nobody ever waits: an observation that meets another one is
// left out, it could only have tightened the bounds. All bytes zero is a fresh object.
class GpuClock {
 public:
  // The GPU stamped `gpu_ns` not after `host_upper_ns` and not before `host_lower_ns` (0: none). Both are host
  // times (CLOCK_MONOTONIC), as is `now_ns`.
  void observe(int64_t gpu_ns, int64_t host_upper_ns, int64_t host_lower_ns, int64_t now_ns);
  // False before the first observation. Truth lies within `error_ns` of `host_ns`, which is near the upper bound:
  // polling is mostly quick, queues are mostly not empty. UINT32_MAX: no lower bound is known, or 4 s and more.
  bool map(int64_t gpu_ns, int64_t* host_ns, uint32_t* error_ns) const;
  // Of both, the wider error.
  bool map_span(const int64_t (&gpu_ns)[2], int64_t (&host_ns)[2], uint32_t* error_ns) const;

 private:
  struct Bound {
    int64_t gpu_ns;
    int64_t offset_ns;
  };
  struct Window {
    int64_t number;
    int64_t has_upper, has_lower;
    Bound upper, lower;
  };
  struct Fit {  // what map needs, published as a whole
    int64_t has_upper, has_lower;
    Bound upper, lower;
    double drift_low, drift_high;
    int64_t quantum_ns;
  };
  // What tells most observations at a glance that they add nothing. Its words are read one by one: what is left out
  // for a mixture of two states could only have tightened the bounds.
  struct Gate {
    int64_t until_ns;  // end of the window; 0: closed
    Bound upper, lower;  // the best of the window
    int64_t drift_low, drift_high;  // times 2^40
    int64_t quantum_ns;
  };
  static constexpr int kWindows = 16;

  bool adds_nothing(int64_t gpu_ns, int64_t host_upper_ns, int64_t host_lower_ns, int64_t now_ns) const;
  void set_gate();
  bool contradicts(int64_t gpu_ns, int64_t upper_ns, int64_t lower_ns, bool has_lower) const;
  void restart();
  void roll(int64_t now_ns);
  bool improve(int64_t gpu_ns, int64_t upper_ns, int64_t lower_ns, bool has_lower);
  void narrow_drift(const Bound& bound, bool is_upper);
  void renew_drift();
  void note_quantum(int64_t gpu_ns);
  void publish();
  bool read(Fit* fit) const;
  static inline void map_by(const Fit& fit, int64_t gpu_ns, int64_t* host_ns, uint32_t* error_ns);

  uint32_t is_busy_;   // one observer at a time; the others leave
  uint32_t version_;   // odd while the published fit is written
  uint32_t n_contradictions_;
  uint32_t has_started_;
  uint32_t n_seen_;  // up to kSettled
  uint32_t newest_;  // window
  int64_t last_gpu_ns_;
  Window windows_[kWindows];
  Fit fit_;        // the observer's
  Fit published_;  // map's
  Gate gate_;
};

}  // namespace ci::nccl
#endif
