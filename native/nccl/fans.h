// Fans: the P2P calls of one group call on one communicator. While the group is open they share one slot; at its end
// up to 16 calls become ops of their own, more stay one record (an all-to-all over 256 ranks is one op to a reader).
#ifndef COMMINSIGHT_NCCL_FANS_H
#define COMMINSIGHT_NCCL_FANS_H
#include "event.h"
#include "token.h"

namespace ci::nccl {

struct Door;
struct Group;

// A fan's token: type 4 | fan 7 | call or task 11 | channel 6 | generation 20 | process salt 16.
struct FanToken {
  uint32_t type;
  uint32_t fan;
  uint32_t item;
  uint32_t channel;
  uint32_t generation;
  uint32_t salt;

  static constexpr uint32_t kGenerations = 1u << 20;

  uint64_t encode() const {
    return uint64_t{type} << 60 | uint64_t{fan} << 53 | uint64_t{item} << 42 | uint64_t{channel} << 36 |
           uint64_t{generation} << 16 | salt;
  }
  static FanToken decode(uint64_t bits) {
    return {static_cast<uint32_t>(bits >> 60),      static_cast<uint32_t>(bits >> 53) & 127,
            static_cast<uint32_t>(bits >> 42) & 2047, static_cast<uint32_t>(bits >> 36) & 63,
            static_cast<uint32_t>(bits >> 16) & (kGenerations - 1), static_cast<uint32_t>(bits) & 65535};
  }
};
inline FanToken fan_token_of(const void* handle) { return FanToken::decode(reinterpret_cast<uint64_t>(handle)); }

struct Fan {
  enum Stage : uint32_t { kFree, kOpen, kSplit, kFolded };
  static constexpr uint32_t kUnfolded = 16;  // calls that still become ops of their own
  static constexpr uint32_t kTasks = 2048;

  // One thread calls into a communicator at a time, so nobody ever waits here but in a test; who does not get it
  // soon does without the fan.
  uint32_t lock;
  uint32_t word;  // generation << 8 | stage
  uint32_t comm;
  uint32_t n_calls;
  uint32_t n_send_calls, n_recv_calls;
  uint32_t n_tasks, n_tasks_done;
  uint32_t n_send_tasks, n_recv_tasks;
  uint32_t has_left;      // its group call has returned
  uint32_t is_told_whole;  // ... and no task will follow
  uint32_t n_untold;      // tasks whose number of channels is not known
  uint64_t group;
  uint64_t op;            // of its slot
  int64_t last_stop_ns;
  struct {
    ci_record record;
    uint64_t op;  // once split
  } calls[kUnfolded];
  uint16_t pending[256];  // unfinished tasks by peer, modulo
};

struct FanTask {
  uint64_t started_mask;
  uint64_t stopped_mask;
  int32_t peer;
  uint8_t n_channels;  // 0: not told, or not to be trusted
  uint8_t is_handed_over;
  uint8_t is_done;
};

// The handle of a P2P call that joined a fan; nullptr when it has to be an op of its own.
void* join_fan(Door& d, Group& group, uint64_t group_token, uint32_t comm, const ci_record& record);
// Decides between single ops and a fold, for all fans of the group call.
void settle_fans(Door& d, Group& group);
void settle_fans_of_comm(Door& d, uint32_t comm);
void leave_fans(Door& d, Group& group);

// What a call's token stands for by now: an op (call token), a fold (its first task's place) or nothing.
struct FanPlace {
  Fan* fold;    // the task joins this fold,
  Token op;     // else this op, if its type is set
};
FanPlace resolve_fan_call(Door& d, const FanToken& token);
void note_fan_call_returned(Door& d, const FanToken& token);
void* start_fan_task(Door& d, const FanToken& call, Fan& fold, const Task& task);
void stop_fan_task(Door& d, const FanToken& token);
void* start_fan_channel(Door& d, const FanToken& task, const KernelChPart& part);
void stop_fan_channel(Door& d, const FanToken& token, int64_t gpu_ns);
// The op behind a fold's task.
Token op_of_fan(Door& d, const FanToken& token);
// Drain thread: folds that are complete but for calls that have no task, or for channels nobody can count.
void finish_quiet_folds(Door& d, int64_t now);

}  // namespace ci::nccl
#endif
