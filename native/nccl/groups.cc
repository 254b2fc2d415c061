// Group calls: one GroupApi event around the calls of ncclGroupStart to ncclGroupEnd, or around a single call.
#include "door.h"
#include "sampling.h"

namespace ci::nccl {
namespace {

constexpr uint32_t kTries = 8;

// Calls f(token, slot) for the ops of the group that are still in flight: its members, or when they are more than it
// can hold, whatever names it.
template <class F>
void each_member(Door& d, const Group& group, Token name, F f) {
  const uint32_t n = load_acquire(group.n_members);
  for (uint32_t i = 0; i < n && i < Group::kMembers; i++) {
    const Token op = Token::of(load_relaxed(group.members[i]));
    if (ci_slot* slot = find_op(d, op)) f(op, *slot);
  }
  if (n <= Group::kMembers) return;
  const uint64_t group_token = make_token({kGroupToken, 0, name.slot(), name.generation(), name.salt()}).bits;
  d.recorder->slots.each_in_flight([&](int at, uint32_t word) {
    const OpState& own = d.ops[at];
    const uint32_t generation = slot_generation(word);
    if (load_acquire(own.generation) != generation || load_relaxed(own.group) != group_token) return;
    const uint32_t comm = load_relaxed(d.slots[at].record.comm_index);
    f(make_token({kCallToken, comm, static_cast<uint32_t>(at), generation, d.salt}), d.slots[at]);
  });
}

// One that was never left (abort, lost thread) gives its place when its ops are over; one without ops, when there is
// no other (`is_last_try`).
bool is_reusable(Door& d, const Group& group, uint32_t word, bool is_last_try) {
  if ((word & 255) != Group::kOpen) return true;
  bool has_ops = false;
  each_member(d, group, {}, [&has_ops](const Token&, ci_slot&) { has_ops = true; });
  return !has_ops && (is_last_try || load_acquire(group.n_members) != 0);
}

// What was called and has no task is given up here only where every task that may come would be known by now; else
// the rounds of the drain thread wait for a proof.
void leave(Door& d, const Group& group, Token op, ci_slot& slot) {
  const uint32_t before = raise_flags(slot, CI_SLOTFLAG_GROUP_LEFT);
  if ((before & CI_SLOTFLAG_TASK_SEEN) != 0) return;
  if ((before & CI_SLOTFLAG_NO_KERNEL_EVENTS) != 0) retire(d, op, CI_ENDREASON_NO_KERNEL_EVENTS);
  else if (load_relaxed(d.ops[op.slot()].has_launches) != 0 && is_told_whole(d, group, op.comm()))
    retire(d, op, CI_ENDREASON_NO_TASK);
}

}  // namespace

bool is_group_over(Door& d, Token token) {
  const Group* group = find_group(d, token);
  return group == nullptr || stage_of(*group) == Group::kLeft;
}

void note_plan(Door& d, uint64_t group_token, uint32_t comm, uint64_t plan, bool is_elsewhere) {
  Group* group = find_group(d, Token::of(group_token));
  if (group == nullptr) return;
  if (is_elsewhere) store_relaxed(group->is_told_elsewhere, 1);
  const uint64_t entry = uint64_t{plan_number(plan)} << 32 | comm;
  const uint32_t n = load_acquire(group->n_plans);
  for (uint32_t i = 0; i < n && i < Group::kPlans; i++)
    if (load_relaxed(group->plans[i]) == entry) return;
  const uint32_t at = add(group->n_plans, 1);
  if (at < Group::kPlans) store_release(group->plans[at], entry);
}

bool has_told_launches(const Group& group, uint32_t comm) {
  const uint32_t n_launches = load_acquire(group.n_launches), n_plans = load_acquire(group.n_plans);
  if (n_launches > Group::kPlans || n_plans > Group::kPlans) return false;
  int32_t n_to_tell = 0;
  for (uint32_t i = 0; i < n_launches; i++) n_to_tell += load_relaxed(group.launches[i]) == comm ? 1 : 0;
  for (uint32_t i = 0; i < n_plans; i++) n_to_tell -= (load_acquire(group.plans[i]) & UINT32_MAX) == comm ? 1 : 0;
  return n_to_tell <= 0;
}

bool is_told_whole(const Door& d, const Group& group, uint32_t comm) {
  if (load_relaxed(group.is_told_elsewhere) != 0) return false;
  const bool is_blocking = load_relaxed(d.comms[comm].is_blocking) != 0;
  return is_told_by_caller(d, comm) || (is_blocking && has_told_launches(group, comm));
}

void* start_group_call(const GroupApiPart&) {
  Door* d = door();
  if (d == nullptr) return void_token(kIgnored);
  const CallbackTimer timer(*d, is_sampled_number(load_relaxed(d->next_group)));
  for (uint32_t i = 0; i < 2 * kTries; i++) {
    const uint32_t number = add(d->next_group, 1);
    const uint32_t at = number % Door::kGroups;
    Group& group = d->groups[at];
    uint32_t word = load_relaxed(group.word);
    const uint32_t generation = ((word >> 8) + 1) & kGenerationMask;
    if (!is_reusable(*d, group, word, i >= kTries) || !cas(group.word, word, generation << 8 | Group::kOpen)) continue;
    store_relaxed(group.group_id, number + 1);
    for (uint64_t& fan : group.fans) store_relaxed(fan, 0);
    store_relaxed(group.has_fans, 0);
    store_relaxed(group.is_told_elsewhere, 0);
    store_relaxed(group.n_launches, 0);
    store_relaxed(group.n_plans, 0);
    store_relaxed(group.mask, nccl_mask(*d));
    store_release(group.n_members, 0);
    return pointer_of(make_token({kGroupToken, 0, at, generation, d->salt}));
  }
  add(d->header->nccl_untracked_groups, 1);
  return void_token(kIgnored);
}

void end_group_call(Door& d, Token token) {
  Group* group = find_group(d, token);
  if (group == nullptr) return;
  if (load_acquire(group->has_fans) != 0) settle_fans(d, *group);
  each_member(d, *group, token, [](const Token&, ci_slot& slot) { raise_flags(slot, CI_SLOTFLAG_GROUP_ENDED); });
}

void leave_group_call(Door& d, Token token) {
  Group* group = find_group(d, token);
  if (group == nullptr) return;
  if (load_acquire(group->has_fans) != 0) {
    settle_fans(d, *group);
    leave_fans(d, *group);
  }
  each_member(d, *group, token, [&d, group](Token op, ci_slot& slot) { leave(d, *group, op, slot); });
  store_release(group->word, token.generation() << 8 | Group::kLeft);
}

namespace {

// Of a single call: the time of the call itself while no tick of the kernel's clock (some ms) lies between, which is
// much cheaper to see than the time is to read. Every 16th is read, for bounds of the GPU's clock that are as narrow.
int64_t launch_time_ns(Door& d, const Group& group) {
  const bool is_single = load_relaxed(group.n_members) == 1 && load_relaxed(group.has_fans) == 0;
  if (!is_single || load_relaxed(group.group_id) % 16 == 0) return mono_ns();
  const ci_slot* slot = find_op(d, Token::of(load_relaxed(group.members[0])));
  const int64_t enqueue_ns = slot != nullptr ? load_relaxed(slot->record.enqueue_ns) : 0;
  return clock_ns(CLOCK_MONOTONIC_COARSE) <= enqueue_ns ? enqueue_ns : mono_ns();
}

}  // namespace

// A launch is of one communicator, whose row stands in its token; a group call may have several.
void* start_launch(void* context, void* group_call) {
  Door* d = door();
  const Token token = token_of(group_call);
  Group* group = d != nullptr ? find_group(*d, token) : nullptr;
  if (group == nullptr) return void_token(kIgnored);
  const CallbackTimer timer(*d, is_sampled(token));
  const int64_t now = launch_time_ns(*d, *group);
  const uint32_t comm = comm_of(*d, context);
  const uint32_t nth = load_relaxed(group->n_launches);  // one thread launches a group call
  if (nth < Group::kPlans) store_relaxed(group->launches[nth], comm);
  store_release(group->n_launches, nth + 1);
  each_member(*d, *group, token, [now, comm](Token op, ci_slot& slot) {
    if (comm != 0 && op.comm() != comm) return;
    // The first one: which of several launches is the op's own is not told, and no kernel begins before its launch.
    const uint32_t before = raise_flags(slot, CI_SLOTFLAG_LAUNCH_BEGUN);
    if ((before & CI_SLOTFLAG_LAUNCH_BEGUN) == 0) store_relaxed(slot.launch_ns, now);
  });
  return pointer_of(make_token({kLaunchToken, comm, token.slot(), token.generation(), token.salt()}));
}

void stop_launch(Door& d, Token token) {
  const Group* group = find_group(d, token);
  if (group == nullptr) return;
  each_member(d, *group, token, [token](Token op, ci_slot& slot) {
    if (token.comm() == 0 || op.comm() == token.comm()) raise_flags(slot, CI_SLOTFLAG_LAUNCH_RETURNED);
  });
}

void* start_plan() {
  Door* d = door();
  if (d == nullptr) return void_token(kIgnored);
  const uint32_t number = add(d->plans, 1) + 1;
  return pointer_of(make_token({kPlanToken, number >> 22, 0, number & kGenerationMask, d->salt}));
}

}  // namespace ci::nccl
