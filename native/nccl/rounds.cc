// What the drain thread does for the NCCL door in each of its rounds: the event mask, the budget, and ops that
// nothing will ever be heard of.
#include "door.h"

namespace ci::nccl {
namespace {

constexpr int64_t kRoundNs = 200 * kNsPerMs;

// Written when the wish has changed only: another tool (RAS) may set NCCL's word, and is not fought.
void apply_mask(Door& d) {
  const uint32_t wanted = load_relaxed(d.header->active_profiler_mask);
  if (wanted == load_relaxed(d.applied_mask) || pthread_mutex_trylock(&d.mask_lock) != 0) return;
  int32_t* word = __atomic_load_n(&d.mask_word, __ATOMIC_ACQUIRE);
  if (word != nullptr) store_relaxed(*word, mask_for(wanted, load_relaxed(d.abi_version)));
  note_mask(d, wanted);
  pthread_mutex_unlock(&d.mask_lock);
}

void guard(Door& d, int64_t now) {
  uint32_t lower;
  const uint32_t mask = load_relaxed(d.header->active_profiler_mask);
  if (d.guard.round(now, mask, &lower)) d.recorder->lower_profiler_mask(lower, now);
}

// A launch has begun that has not told all its tasks: the driver's thread may still have to, behind a graph.
bool is_task_to_come(Door& d, const OpState& own, uint32_t comm, uint32_t flags) {
  if (is_told_by_caller(d, comm)) return false;
  if (load_relaxed(own.has_launches) == 0) return true;
  if ((flags & CI_SLOTFLAG_LAUNCH_BEGUN) == 0) return false;
  const Group* group = find_group(d, Token::of(load_relaxed(own.group)));
  return group == nullptr || !has_told_launches(*group, comm);
}

// A call whose group is over, without a task, that never gets one. Without a proof it may be stuck: a helper thread
// may be connecting, the driver's may be behind a graph. Proofs are an op of a later group call that has ended; or,
// where all that was launched is told, that nobody is to launch more: the caller would have, or it has gone on to
// another group call, which a communicator that launches by a helper refuses until that is done.
bool is_forsaken(Door& d, const OpState& own, const ci_slot& slot, uint32_t flags) {
  if ((flags & CI_SLOTFLAG_API_SEEN) == 0 || (flags & CI_SLOTFLAG_TASK_SEEN) != 0) return false;
  const uint64_t group = load_relaxed(own.group);
  if (group == 0 || !is_group_over(d, Token::of(group))) return false;
  const uint32_t row = load_relaxed(slot.record.comm_index);
  const CommState& comm = d.comms[row];
  const uint32_t group_id = load_relaxed(slot.record.group_id);
  if (is_later(load_relaxed(comm.done_group), group_id)) return true;
  if (is_task_to_come(d, own, row, flags)) return false;
  return load_relaxed(comm.is_blocking) != 0 || is_later(load_relaxed(comm.newest_group), group_id);
}

// A later launch of the communicator has ended: NCCL keeps them in order, so this one is over, whatever its channels
// have (not) told.
bool is_overtaken(Door& d, const OpState& own, const ci_slot& slot, uint32_t flags) {
  const uint32_t plan = plan_number(load_relaxed(own.plan));
  const CommState& comm = d.comms[load_relaxed(slot.record.comm_index)];
  const bool is_replay = (load_relaxed(slot.record.flags) & CI_OPFLAG_GRAPH) != 0;
  const uint32_t done = load_relaxed(is_replay ? comm.done_graph_plan : comm.done_plan);
  return (flags & CI_SLOTFLAG_TASK_HANDED_OVER) != 0 && plan != 0 && is_later(done, plan);
}

// 0: more may come.
uint8_t silence_of(Door& d, const OpState& own, const ci_slot& slot, uint32_t flags) {
  if (is_forsaken(d, own, slot, flags)) return CI_ENDREASON_NO_TASK;
  if (!is_overtaken(d, own, slot, flags)) return 0;
  return load_relaxed(own.is_untrusted) != 0 ? CI_ENDREASON_UNTRUSTED_CHANNELS : CI_ENDREASON_OVERTAKEN;
}

// The number of its channels is not known; those that began have stopped.
bool is_at_rest(const OpState& own, const ci_slot& slot, uint32_t flags) {
  const bool is_asked = load_relaxed(own.is_untrusted) != 0 && (flags & CI_SLOTFLAG_TASK_HANDED_OVER) != 0;
  return is_asked && load_acquire(own.last_stop_ns) != 0 && has_stopped_all(slot);
}

// `now` is far away when nobody will look again.
void settle_op(Door& d, Token op, int64_t now) {
  OpState& own = d.ops[op.slot()];
  const ci_slot& slot = d.slots[op.slot()];
  const uint32_t flags = flags_of(slot);
  if (is_at_rest(own, slot, flags)) {
    const int64_t last_ns = load_relaxed(own.last_stop_ns);
    if (has_lasted(now, last_ns, kGraceNs) || is_overtaken(d, own, slot, flags)) finish(d, op, last_ns);
    return;
  }
  const uint8_t reason = silence_of(d, own, slot, flags);
  const int64_t since = load_relaxed(own.left_ns);
  if (reason == 0) {
    if (since != 0) store_relaxed(own.left_ns, 0);
  } else if (now == INT64_MAX || (since != 0 && has_lasted(now, since, kGraceNs))) {
    retire(d, op, reason);
  } else if (since == 0) {
    store_relaxed(own.left_ns, now);
  }
}

// Calls f(token) for the ops in flight.
template <class F>
void each_op(Door& d, F f) {
  d.recorder->slots.each_in_flight([&](int at, uint32_t word) {
    const uint32_t generation = slot_generation(word);
    if (load_acquire(d.ops[at].generation) != generation) return;
    const uint32_t comm = load_relaxed(d.slots[at].record.comm_index);
    f(make_token({kCallToken, comm, static_cast<uint32_t>(at), generation, d.salt}));
  });
}

}  // namespace

void note_mask(Door& d, uint32_t wanted) {
  store_relaxed(d.applied_mask, wanted);
  if ((wanted & (kCollApi | kColl | kKernelCh)) == 0) store_relaxed(d.has_host_plans, 1);  // captures go unseen
}

// v4 cannot name the calls; without a Group handle NCCL 2.27 tells nothing at all.
int32_t mask_for(uint32_t mask, uint8_t abi_version) {
  if (abi_version > 4 || mask == 0) return static_cast<int32_t>(mask);
  const uint32_t tasks = (mask & kMaskApi) != 0 ? kGroup | kColl | kP2p : kGroup;
  return static_cast<int32_t>((mask & 0xFF) | tasks);
}

void settle_comm(Door& d, uint32_t comm) {
  each_op(d, [&d, comm](Token op) {
    if (op.comm() == comm) settle_op(d, op, INT64_MAX);
  });
}

void round(Recorder& recorder, int64_t now) {
  Door* d = door();
  if (d == nullptr || d->recorder != &recorder) return;
  const bool is_last = load_acquire(recorder.stop) != 0;
  if (!is_last) apply_mask(*d);
  if (now < d->next_round_ns && !is_last) return;
  d->next_round_ns = now + kRoundNs;
  if (!is_last) guard(*d, now);
  each_op(*d, [d, now](Token op) { settle_op(*d, op, now); });
  finish_quiet_folds(*d, now);
  publish_late_nets(*d, is_last ? INT64_MAX : now);
}

}  // namespace ci::nccl
