// Group calls: one GroupApi event around the calls of ncclGroupStart to ncclGroupEnd, or around a single call.
#include "door.h"

namespace ci::nccl {
namespace {

constexpr uint32_t kTries = 8;

uint32_t stage_of(uint32_t word) { return word & 255; }

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

// One that was never left (abort, lost thread) gives its place when its ops are over.
bool is_reusable(Door& d, const Group& group, uint32_t word) {
  if (stage_of(word) != Group::kOpen) return true;
  bool has_ops = false;
  each_member(d, group, {}, [&has_ops](const Token&, ci_slot&) { has_ops = true; });
  return !has_ops && load_acquire(group.n_members) != 0;
}

// What was called and has no task when its group call is left never gets one, unless the communicator lets another
// thread launch its groups.
void leave(Door& d, Token op, ci_slot& slot) {
  const uint32_t before = raise_flags(slot, CI_SLOTFLAG_GROUP_LEFT);
  if ((before & CI_SLOTFLAG_TASK_SEEN) != 0) return;
  const CommState& comm = d.comms[op.comm()];
  if ((before & CI_SLOTFLAG_NO_KERNEL_EVENTS) != 0) retire(d, op, CI_ENDREASON_NO_KERNEL_EVENTS);
  else if (load_relaxed(comm.is_blocking) != 0 && load_relaxed(comm.is_nonblocking) == 0)
    retire(d, op, CI_ENDREASON_NO_TASK);
}

}  // namespace

Group* find_group(Door& d, Token token) {
  if ((token.type() != kGroupToken && token.type() != kLaunchToken) || token.salt() != d.salt) return nullptr;
  if (token.slot() >= Door::kGroups) return nullptr;
  Group& group = d.groups[token.slot()];
  const uint32_t word = load_acquire(group.word);
  return word >> 8 == token.generation() && stage_of(word) != Group::kFree ? &group : nullptr;
}

bool is_group_over(Door& d, Token token) {
  const Group* group = find_group(d, token);
  return group == nullptr || stage_of(load_acquire(group->word)) == Group::kLeft;
}

void* start_group_call(const GroupApiPart&) {
  Door* d = door();
  if (d == nullptr) return void_token(kIgnored);
  for (uint32_t i = 0; i < kTries; i++) {
    const uint32_t number = add(d->next_group, 1);
    const uint32_t at = number % Door::kGroups;
    Group& group = d->groups[at];
    uint32_t word = load_relaxed(group.word);
    const uint32_t generation = ((word >> 8) + 1) & kGenerationMask;
    if (!is_reusable(*d, group, word) || !cas(group.word, word, generation << 8 | Group::kOpen)) continue;
    store_relaxed(group.group_id, number + 1);
    for (uint64_t& fan : group.fans) store_relaxed(fan, 0);
    store_relaxed(group.has_fans, 0);
    store_release(group.n_members, 0);
    return pointer_of(make_token({kGroupToken, 0, at, generation, d->salt}));
  }
  add(d->header->nccl_untracked_groups, 1);
  return void_token(kIgnored);
}

void join_group(Door& d, Token token, uint64_t op) {
  Group* group = find_group(d, token);
  if (group == nullptr) return;
  const uint32_t at = load_relaxed(group->n_members);  // one thread is in a group call
  store_relaxed(group->n_members, at + 1);
  if (at < Group::kMembers) store_release(group->members[at], op);
}

void end_group_call(Door& d, Token token) {
  Group* group = find_group(d, token);
  if (group == nullptr) return;
  settle_fans(d, *group);
  each_member(d, *group, token, [](const Token&, ci_slot& slot) { raise_flags(slot, CI_SLOTFLAG_GROUP_ENDED); });
}

void leave_group_call(Door& d, Token token) {
  Group* group = find_group(d, token);
  if (group == nullptr) return;
  settle_fans(d, *group);
  leave_fans(d, *group);
  each_member(d, *group, token, [&d](Token op, ci_slot& slot) { leave(d, op, slot); });
  store_release(group->word, token.generation() << 8 | Group::kLeft);
}

// A launch is of one communicator, whose row stands in its token; a group call may have several.
void* start_launch(void* context, void* group_call) {
  Door* d = door();
  const Token token = token_of(group_call);
  const Group* group = d != nullptr ? find_group(*d, token) : nullptr;
  if (group == nullptr) return void_token(kIgnored);
  const int64_t now = mono_ns();
  const uint32_t comm = comm_of(*d, context);
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
