// What the NCCL door keeps beside the recorder: one block of zeroed pages, born with the first communicator. State
// that a reader needs after a kill lives in the slots of the black box; this here dies with the process.
//
// Threads of NCCL that call in: the application's (calls, launches, tasks), the proxy's and the profiler's
// (channels, proxy ops), the driver's (replays), all at once for one op. Every field is read and written by atomics.
#ifndef COMMINSIGHT_NCCL_DOOR_H
#define COMMINSIGHT_NCCL_DOOR_H
#include "event.h"
#include "gpu_clock.h"
#include "guard.h"
#include "life.h"
#include "token.h"

namespace ci::nccl {

// Beside each slot.
struct alignas(64) OpState {
  uint64_t group;       // token of its group call; 0: none
  uint64_t plan;        // token of the Group event of its task
  uint64_t tail;        // token of the next op that ends with this one; 0: none
  int64_t left_ns;      // when the drain thread first saw that its group call is over and it has no task
  int64_t callback_ns;  // of a sampled op
  uint32_t n_callbacks;
  uint8_t has_bad_stamp;
  uint8_t is_untrusted;  // n_channels means nothing
  uint8_t is_symmetric;
  uint8_t reserved;
  uint32_t generation;  // of the slot; last, so that the drain thread never takes an op's state for another's
};
static_assert(offsetof(OpState, generation) % 8 == 0, "words");

struct CommState {
  uint32_t is_live;
  uint32_t is_blocking;      // a task began before its group call returned
  uint32_t is_nonblocking;   // ... and one after
  uint32_t distrusts_p2p;    // behind a shim that does not fill in the channels of P2P tasks
  uint32_t n_untrusted;      // ops in flight with such channels
  GpuClock clock;
};

struct Group {
  enum Stage : uint32_t { kFree, kOpen, kLeft };
  static constexpr uint32_t kMembers = 64;
  uint32_t word;  // generation << 8 | stage
  uint32_t group_id;
  uint32_t n_members;
  uint64_t members[kMembers];  // tokens of ops
};

struct Door {
  static constexpr uint32_t kGroups = 512;
  Recorder* recorder;
  ci_box_header* header;
  uint32_t salt;
  uint32_t n_live_comms;
  int32_t* mask_word;  // NCCL's; null while no communicator is live
  pthread_mutex_t mask_lock;  // init, finalize and the drain thread
  alignas(64) uint32_t next_group;
  uint32_t group_calls;
  uint32_t plans;
  Guard guard;
  Group groups[kGroups];
  CommState comms[CI_COMM_CAPACITY + 1];
  OpState ops[CI_SLOT_CAPACITY];
};

// The door of this process; nullptr when nothing is recorded.
Door* door();

// --- counters of the black box
inline void* note_stale(Door& d) {
  add(d.header->nccl_stale_events, 1);
  return void_token(kIgnored);
}
inline void* note_unknown(Door& d) {
  add(d.header->nccl_unknown_events, 1);
  return void_token(kIgnored);
}

// --- door.cc
// Row of a live communicator of ours; 0 otherwise.
uint32_t comm_of(Door& d, const void* context);
uint32_t nccl_mask(const Door& d);

// --- ops.cc
// The slot that the token names while its op is in flight, else nullptr.
ci_slot* find_op(Door& d, const Token& token);
// Fills in what both calls and tasks tell of an op.
void describe(Door& d, uint32_t comm, ci_record* record, bool is_p2p, const char* func, size_t count,
              const char* datatype, int32_t peer_or_root);
// Begins the op; a void token when it is not recorded.
void* begin_op(Door& d, uint32_t comm, ci_record* record, uint32_t slot_flags, uint64_t group);
inline uint32_t raise_flags(ci_slot& slot, uint32_t flags) {
  return __atomic_fetch_or(&slot.slot_flags, flags, __ATOMIC_ACQ_REL);
}

// --- finish.cc
// All channels have stopped.
void finish(Door& d, const Token& op);
void retire(Door& d, const Token& op, uint8_t reason);

// --- groups.cc
Group* find_group(Door& d, const Token& token);
void join_group(Door& d, const Token& group, uint64_t op);
void end_group_call(Door& d, const Token& token);
void leave_group_call(Door& d, const Token& token);
void stop_launch(Door& d, const Token& token);

// --- tasks.cc
void stop_task(Door& d, const Token& token);

// --- channels.cc
// `gpu_ns` is 0 when the stop came without a stamp.
void stop_channel(Door& d, const Token& token, int64_t gpu_ns);

}  // namespace ci::nccl
#endif
