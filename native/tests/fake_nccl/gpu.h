// The GPU of one rank: streams in order, kernels that wait for the other members, a clock of its own.
#ifndef FAKE_NCCL_GPU_H
#define FAKE_NCCL_GPU_H
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "arena.h"

namespace fake {

struct Comm;

// One op on the GPU. Times are CLOCK_MONOTONIC; a thread that reads a time other than 0 may use the rest.
struct Run {
  uint64_t call_id = 0;
  bool is_told_by_host = false;
  uint64_t key = 0;
  uint64_t signature = 0;
  uint64_t dead = 0;  // what this member adds
  int n_members = 0;
  int64_t duration_ns = 0;
  bool is_collective = true;
  std::function<void(const Run&)> on_over;

  int meeting = -1;
  bool has_left = false;
  std::atomic<int64_t> start_ns{0};
  std::atomic<int64_t> end_ns{0};  // of the channels that are not dead
  std::atomic<uint64_t> dead_channels{0};
  std::atomic<bool> is_over{false};
};

struct Kernel {
  const Comm* comm = nullptr;
  int stream = 1;
  int64_t launch_ns = 0;
  int64_t delay_ns = 0;
  bool never_starts = false;
  std::atomic<bool> is_held{false};  // a host callback comes before it in its stream
  std::vector<std::shared_ptr<Run>> runs;
  int64_t start_ns = 0;
};

class Gpu {
 public:
  Gpu(Arena& arena, const ClockSpec& clock) : arena_(arena), clock_(clock) {}

  void submit(std::shared_ptr<Kernel> kernel);
  // Lets time pass; true when anything changed.
  bool advance(int64_t now_ns);
  bool is_idle(const Comm* comm = nullptr);
  enum class Turn { kWaits, kIsNext, kIsGone };
  // Whether all that is before the kernel in its stream is over.
  Turn turn_of(const Kernel& kernel);
  // The host callback before it is over.
  void release(Kernel& kernel);
  // Kernels of an aborted communicator leave.
  void drop(const Comm* comm);
  uint64_t stamp(int64_t mono_ns) const;

 private:
  struct Stream {
    std::deque<std::shared_ptr<Kernel>> kernels;
    int64_t free_ns = 0;
  };
  bool advance(Stream& stream, int64_t now_ns);
  bool begin(Kernel& kernel, const Stream& stream, int64_t now_ns);
  bool meet(Kernel& kernel);
  bool finish_runs(Kernel& kernel);
  static int64_t end_of(const Kernel& kernel);

  Arena& arena_;
  ClockSpec clock_;
  std::mutex mutex_;
  std::map<int, Stream> streams_;
};

}  // namespace fake
#endif
