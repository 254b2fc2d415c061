// Memory that all processes of a scenario share: where the ranks stand, and which kernels met on their GPUs.
#ifndef FAKE_NCCL_ARENA_H
#define FAKE_NCCL_ARENA_H
#include <pthread.h>

#include <atomic>
#include <cstdint>

#include "script.h"

namespace fake {

enum class Place : int { kRunning, kWaiting, kStuck, kHolding, kGone };

// The meeting of one op: all members' kernels must come before any ends.
struct Meeting {
  uint64_t key;  // 0: free
  uint64_t signature;
  uint64_t dead_channels;
  int64_t latest_start_ns;
  int32_t n_arrived;
  int32_t n_left;
  bool is_mismatched;
  int32_t next;  // in its bucket, -1: last
};

class Arena {
 public:
  // In memory shared with all children; nullptr when there is none to have.
  static Arena* create();

  // A member's kernel begins. The place of the meeting, -1 when there is no room (ask again later).
  int arrive(uint64_t key, uint64_t signature, int64_t start_ns, uint64_t dead_channels);
  struct Outcome {
    bool is_complete;
    bool has_met;  // all came, whether or not they agree
    int64_t latest_start_ns;
    uint64_t dead_channels;
  };
  Outcome look(int meeting, int n_members);
  // A member has seen that it is complete; the last one frees the place.
  void leave(int meeting, int n_members);

  // Waits until all ranks that are not gone called; false when told to leave meanwhile.
  bool barrier(int n_ranks);

  std::atomic<int> places[kMaxRanks];
  std::atomic<int64_t> in_flight[kMaxRanks];
  std::atomic<int> failed[kMaxRanks];
  std::atomic<int64_t> progress;
  std::atomic<int> is_leaving;  // the time is over: everybody goes

 private:
  static constexpr int kBuckets = 4096;
  static constexpr int kMeetings = 1 << 16;
  class Lock;

  pthread_mutex_t mutex_;
  int32_t heads_[kBuckets];
  int32_t free_;
  std::atomic<int> barrier_arrived_;
  std::atomic<int> barrier_round_;
  Meeting meetings_[kMeetings];
};

}  // namespace fake
#endif
