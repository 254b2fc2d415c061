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
  store_relaxed(d.applied_mask, wanted);
  pthread_mutex_unlock(&d.mask_lock);
}

void guard(Door& d, int64_t now) {
  uint32_t lower;
  const uint32_t mask = load_relaxed(d.header->active_profiler_mask);
  const int64_t n_ops = d.recorder->stat(CI_STAT_OPS_BEGUN);
  if (d.guard.round(now, n_ops, mask, &lower)) d.recorder->lower_profiler_mask(lower, now);
}

// A call whose group is over, without a task. Never so where another thread launches the groups.
bool is_forsaken(Door& d, int at, const ci_slot& slot, uint32_t flags) {
  if ((flags & CI_SLOTFLAG_API_SEEN) == 0 || (flags & CI_SLOTFLAG_TASK_SEEN) != 0) return false;
  if (load_relaxed(d.comms[load_relaxed(slot.record.comm_index)].is_nonblocking) != 0) return false;
  const uint64_t group = load_relaxed(d.ops[at].group);
  return group != 0 && is_group_over(d, Token::of(group));
}

// A later launch of the communicator has ended: NCCL keeps them in order, so this one is over, whatever its channels
// have (not) told.
bool is_overtaken(Door& d, int at, const ci_slot& slot, uint32_t flags) {
  const uint32_t plan = plan_number(load_relaxed(d.ops[at].plan));
  const uint32_t done = load_relaxed(d.comms[load_relaxed(slot.record.comm_index)].done_plan);
  return (flags & CI_SLOTFLAG_TASK_HANDED_OVER) != 0 && plan != 0 && static_cast<int32_t>(done - plan) > 0;
}

// 0: more may come.
uint8_t silence_of(Door& d, int at, const ci_slot& slot) {
  const uint32_t flags = flags_of(slot);
  if (is_forsaken(d, at, slot, flags)) return CI_ENDREASON_NO_TASK;
  return is_overtaken(d, at, slot, flags) ? uint8_t{CI_ENDREASON_UNTRUSTED_CHANNELS} : uint8_t{0};
}

// Calls f(token, state, reason) for the ops of which nothing more should come.
template <class F>
void each_silent(Door& d, F f) {
  d.recorder->slots.each_in_flight([&](int at, uint32_t word) {
    const uint32_t generation = slot_generation(word);
    if (load_acquire(d.ops[at].generation) != generation) return;
    const uint32_t comm = load_relaxed(d.slots[at].record.comm_index);
    const Token op = make_token({kCallToken, comm, static_cast<uint32_t>(at), generation, d.salt});
    const uint8_t reason = silence_of(d, at, d.slots[at]);
    if (reason != 0) f(op, d.ops[at], reason);
  });
}

void retire_silent_since(Door& d, int64_t now) {
  each_silent(d, [&](Token op, OpState& own, uint8_t reason) {
    const int64_t since = load_relaxed(own.left_ns);
    if (since == 0) store_relaxed(own.left_ns, now);
    else if (now - since >= kGraceNs) retire(d, op, reason);
  });
}

}  // namespace

// v4 cannot name the calls; without a Group handle NCCL 2.27 tells nothing at all.
int32_t mask_for(uint32_t mask, uint8_t abi_version) {
  if (abi_version > 4 || mask == 0) return static_cast<int32_t>(mask);
  const uint32_t tasks = (mask & kMaskApi) != 0 ? kGroup | kColl | kP2p : kGroup;
  return static_cast<int32_t>((mask & 0xFF) | tasks);
}

void retire_silent(Door& d, uint32_t comm) {
  each_silent(d, [&](Token op, OpState&, uint8_t reason) {
    if (op.comm() == comm) retire(d, op, reason);
  });
}

void round(Recorder& recorder, int64_t now) {
  Door* d = door();
  if (d == nullptr || d->recorder != &recorder) return;
  apply_mask(*d);
  if (now < d->next_round_ns) return;
  d->next_round_ns = now + kRoundNs;
  guard(*d, now);
  retire_silent_since(*d, now);
  finish_quiet_folds(*d, now);
}

}  // namespace ci::nccl
