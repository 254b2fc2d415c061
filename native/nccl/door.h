// What the NCCL door keeps beside the recorder: one block of zeroed pages, born with the first communicator. State
// that a reader needs after a kill lives in the slots of the black box; this here dies with the process.
//
// Threads of NCCL that call in: the application's (calls, launches, tasks), the proxy's and the profiler's
// (channels, proxy ops), the driver's (replays), all at once for one op. Every field is read and written by atomics.
#ifndef COMMINSIGHT_NCCL_DOOR_H
#define COMMINSIGHT_NCCL_DOOR_H
#include "event.h"
#include "fans.h"
#include "gpu_clock.h"
#include "guard.h"
#include "life.h"
#include "proxy.h"
#include "token.h"

namespace ci::nccl {

// How long an op of which nothing more should come may keep its place, in case it does.
constexpr int64_t kGraceNs = kNsPerS;

// Beside each slot.
struct alignas(64) OpState {
  uint64_t group;    // token of its group call; 0: none
  uint64_t plan;     // token of the Group event of its task
  int64_t left_ns;   // when the drain thread first saw that nothing more will be heard of it; 0: more may come
  int64_t last_stop_ns;  // of a channel, where their number means nothing
  uint64_t thread;   // of the call
  uint8_t n_stopped;  // channels
  uint8_t has_bad_stamp;
  uint8_t is_untrusted;  // n_channels means nothing
  uint8_t is_symmetric;
  uint8_t has_launches;  // the mask has launches: without one there is no task to come
  uint8_t reserved[3];
  uint32_t generation;  // of the slot; last, so that the drain thread never takes an op's state for another's
};

static_assert(offsetof(OpState, generation) % 8 == 0 && sizeof(OpState) == 64, "words");

struct CommState {
  uint32_t token;           // the number given out for it; 0: not (or no longer) live
  uint32_t is_blocking;     // a task began in the caller's thread, before its group call returned
  uint32_t distrusts_p2p;   // behind a shim that does not fill in the channels of P2P tasks
  uint32_t n_folds;
  uint32_t newest_group;    // group_id of the newest call; 0: none
  uint32_t done_group;      // ... of the newest op that has ended
  uint32_t done_plan;       // the newest Group event with an op that has ended; 0: none
  uint32_t done_graph_plan; // ... with a replay
  uint32_t has_tails;       // symmetric launches of more than one op
  uint64_t head_plan;       // the newest symmetric launch, and its op that has the channels
  uint64_t head;
  uint32_t n_observed;
  int64_t next_observed_ns;
  GpuClock clock;
};

// Tells the clock of a stamp that was read at `upper_ns`; false when the stamp cannot be of that time. Bounds tighten
// with the quickest of many polls; at high rates not all of them are needed.
inline bool observe_clock(CommState& comm, int64_t gpu_ns, int64_t upper_ns, int64_t lower_ns) {
  constexpr uint32_t kAllOf = 64;
  constexpr int64_t kPauseNs = 20000;
  const uint32_t n = load_relaxed(comm.n_observed);
  if (n >= kAllOf && upper_ns < load_relaxed(comm.next_observed_ns)) return true;
  if (n < kAllOf) store_relaxed(comm.n_observed, n + 1);
  store_relaxed(comm.next_observed_ns, upper_ns + kPauseNs);
  int64_t host_ns;
  uint32_t error_ns;
  const bool is_later = comm.clock.map(gpu_ns, &host_ns, &error_ns) && host_ns - int64_t{error_ns} > upper_ns;
  comm.clock.observe(gpu_ns, upper_ns, lower_ns, upper_ns);
  return !is_later;
}

struct Group {
  enum Stage : uint32_t { kFree, kOpen, kLeft };
  static constexpr uint32_t kMembers = 64;
  static constexpr uint32_t kFans = 4;  // communicators with P2P calls
  static constexpr uint32_t kPlans = 8;
  uint32_t word;  // generation << 8 | stage
  uint32_t group_id;
  uint32_t n_members;
  uint32_t mask;      // of NCCL when it began: that of all its calls
  uint32_t has_fans;
  uint32_t is_told_elsewhere;  // tasks came from another thread than the calls
  uint32_t n_launches;
  uint32_t n_plans;
  uint32_t launches[kPlans];   // row of the communicator of each
  uint64_t plans[kPlans];      // of which tasks were told: number << 32 | communicator; only where some op may have none
  uint64_t fans[kFans];        // tokens of calls in them
  uint64_t members[kMembers];  // tokens of ops
};

struct Door {
  static constexpr uint32_t kGroups = 512;
  static constexpr uint32_t kFans = 128;
  static constexpr uint32_t kProxies = 4096;
  static constexpr uint32_t kLateNets = 128;
  uint32_t is_alive;  // 0 in a forked child: the whole block is wiped there
  uint32_t salt;
  ci_slot* slots;
  Recorder* recorder;
  ci_box_header* header;
  int32_t pid;
  int32_t* mask_word;  // NCCL's; null while no communicator is live
  uint32_t n_live_comms;
  uint32_t has_host_plans;  // tasks may come from another thread than the caller's: a graph was captured, or may have been
  uint32_t applied_mask;
  uint8_t abi_version;
  pthread_mutex_t mask_lock;  // init, finalize and the drain thread
  int64_t next_round_ns;
  alignas(64) uint32_t next_group;
  alignas(64) uint32_t plans;
  alignas(64) uint32_t next_fan;
  alignas(64) uint32_t next_proxy;
  alignas(64) uint32_t n_late_nets;
  uint64_t late_ops[kLateNets];  // tokens of ops that ended before their proxy ops; 0: free
  alignas(64) Guard guard;
  Group groups[kGroups];
  CommState comms[CI_COMM_CAPACITY + 1];
  OpState ops[CI_SLOT_CAPACITY];
  int64_t starts_ns[CI_SLOT_CAPACITY][kMaxChannels];  // GPU stamps; 0: not told
  Fan fans[kFans];
  FanTask fan_tasks[kFans][Fan::kTasks];
  Proxy proxies[kProxies];
  NetState nets[CI_SLOT_CAPACITY];
  LateNet late_nets[kLateNets];
};

extern Door* current_door;

// The door of this process; nullptr before the first communicator and in a forked child.
inline Door* door() {
  Door* d = load_acquire(current_door);
  return d != nullptr && load_acquire(d->is_alive) != 0 ? d : nullptr;
}

// For whatever begins an op: nullptr also after the recorder was closed.
inline Door* recording_door() {
  Door* d = door();
  return d != nullptr && load_acquire(*d->recorder->alive) == 1 ? d : nullptr;
}

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
inline uint32_t comm_of(Door& d, const void* context) {
  uint32_t token;
  const bool is_ours = is_context(context, &token);
  const uint32_t row = token & 0xFFFF;
  return is_ours && row <= CI_COMM_CAPACITY && token != 0 && load_acquire(d.comms[row].token) == token ? row : 0;
}
// The events NCCL is asked for at this moment.
inline uint32_t nccl_mask(const Door& d) {
  const int32_t* word = __atomic_load_n(&d.mask_word, __ATOMIC_ACQUIRE);
  return word != nullptr ? static_cast<uint32_t>(load_relaxed(*word)) : 0;
}

// --- ops.cc
// The slot that the token names while its op is in flight, else nullptr. Generation and salt are compared in one go.
inline ci_slot* find_op(Door& d, Token token) {
  ci_slot& slot = d.slots[token.slot()];
  const uint32_t word = load_acquire(slot.state_word);
  const uint64_t key = uint64_t{slot_generation(word)} << 16 | d.salt;
  const bool is_there = (word & 254) == CI_SLOT_IN_FLIGHT;  // or overdue
  return is_there && key == (token.bits & ((uint64_t{1} << 38) - 1)) ? &slot : nullptr;
}
static_assert((CI_SLOT_IN_FLIGHT & 1) == 0 && CI_SLOT_OVERDUE == CI_SLOT_IN_FLIGHT + 1, "differ in the lowest bit");
// Fills in what both calls and tasks tell of an op.
void describe(Door& d, uint32_t comm, ci_record* record, bool is_p2p, const char* func, size_t count,
              const char* datatype, int32_t peer_or_root);
// Begins the op; a void token when it is not recorded. `mask` is what NCCL tells of it.
void* begin_op(Door& d, uint32_t comm, ci_record* record, uint32_t slot_flags, uint64_t group, uint32_t mask);
inline uint32_t flags_of(const ci_slot& slot) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(&slot.slot_flags);
  return uint32_t{load_acquire(bytes[2])} << 16 | uint32_t{load_acquire(bytes[1])} << 8 | load_relaxed(bytes[0]);
}
// The flags as they were before. The low byte tells how far the call came and belongs to the thread that is in it, the
// third one to the thread that tells the task: plain reads and writes will do. Any thread may raise the others.
inline uint32_t raise_flags(ci_slot& slot, uint32_t flags) {
  auto* bytes = reinterpret_cast<uint8_t*>(&slot.slot_flags);
  const uint32_t before = flags_of(slot);
  const uint32_t fresh = flags & ~before;
  if ((fresh & 0xFF) != 0) store_release(bytes[0], before | flags);
  if ((fresh & 0xFF00) != 0) __atomic_fetch_or(&bytes[1], static_cast<uint8_t>(flags >> 8), __ATOMIC_ACQ_REL);
  if ((fresh & 0xFF0000) != 0) store_release(bytes[2], (before | flags) >> 16);
  return before;
}
static_assert(CI_SLOTFLAG_LAUNCH_RETURNED < 1 << 8 && CI_SLOTFLAG_TASK_SEEN >= 1 << 16, "one writer for each byte");

// --- finish.cc
// All channels have stopped; the last callback of them came at `now`.
void finish(Door& d, Token op, int64_t now);
void retire(Door& d, Token op, uint8_t reason);
// Without a word from the GPU: a copy engine's.
void finish_by_host(Door& d, Token op);
uint32_t plan_number(uint64_t plan);  // in the order of their begins
// Symmetric tasks without channels end with the task of their launch that has them. False when there is none in flight.
bool follow_head(Door& d, uint32_t comm, Token tail);
// `b` is set and later than `a`: numbers of groups and plans.
inline bool is_later(uint32_t b, uint32_t a) { return b != 0 && static_cast<int32_t>(b - a) > 0; }

// --- groups.cc
inline uint32_t stage_of(const Group& group) { return load_acquire(group.word) & 255; }
inline Group* find_group(Door& d, Token token) {
  const bool is_of_group = token.type() == kGroupToken || token.type() == kLaunchToken;
  if (!is_of_group || token.salt() != d.salt || token.slot() >= Door::kGroups) return nullptr;
  Group& group = d.groups[token.slot()];
  const uint32_t word = load_acquire(group.word);
  return word >> 8 == token.generation() && (word & 255) != Group::kFree ? &group : nullptr;
}
// By the thread that is in the group call.
inline void join_group(Group& group, uint64_t op) {
  const uint32_t at = load_relaxed(group.n_members);
  store_relaxed(group.n_members, at + 1);
  if (at < Group::kMembers) store_release(group.members[at], op);
}
bool is_group_over(Door& d, Token token);
// A task of the group call was told.
void note_plan(Door& d, uint64_t group, uint32_t comm, uint64_t plan, bool is_elsewhere);
// Every launch on the communicator that the group call has begun has told (some of) its tasks.
bool has_told_launches(const Group& group, uint32_t comm);
// NCCL launches in the caller's thread, and tells the tasks there: behind a live graph the driver's thread would.
inline bool is_told_by_caller(const Door& d, uint32_t comm) {
  return load_relaxed(d.comms[comm].is_blocking) != 0 && load_relaxed(d.has_host_plans) == 0;
}
// For its caller, who is about to leave: no task will follow those that are known.
bool is_told_whole(const Door& d, const Group& group, uint32_t comm);
void end_group_call(Door& d, Token token);
void leave_group_call(Door& d, Token token);
void stop_launch(Door& d, Token token);

// --- tasks.cc
bool is_send_task(const Task& task);
// Channels of the task; 0 when the number means nothing.
uint8_t trusted_channels(const Door& d, uint32_t comm, const Task& task);
// Learns from the order of events whether the communicator launches its groups in the caller's thread.
void note_order(Door& d, Token op, ci_slot& slot, uint32_t flags_before);
void stop_task(Door& d, Token token);
void stop_copy(Door& d, Token token, int32_t state);

// --- channels.cc
// `at` is the place of the slot.
void note_channel_start(Door& d, uint32_t at, ci_slot& slot, const KernelChPart& part);
void note_channel_stop(Door& d, uint32_t at, ci_slot& slot, uint32_t channel, int64_t gpu_ns);
// `gpu_ns` is 0 when the stop came without a stamp.
Result stop_channel(Door& d, Token token, int64_t gpu_ns);
// Every channel that began has stopped, and one did. Others may be about to begin.
bool has_stopped_all(const ci_slot& slot);

// --- rounds.cc
void round(Recorder& recorder, int64_t now_ns);
// The communicator is about to go: decides at once what the rounds would.
void settle_comm(Door& d, uint32_t comm);
int32_t mask_for(uint32_t mask, uint8_t abi_version);
// The mask was written into NCCL's word. Under the lock.
void note_mask(Door& d, uint32_t wanted);

}  // namespace ci::nccl
#endif
