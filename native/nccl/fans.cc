#include "fans.h"

#include <sched.h>

#include "door.h"

namespace ci::nccl {
namespace {

constexpr int kSpins = 1000;
constexpr int kWaits = 1000;  // of a communicator that goes
constexpr uint32_t kTries = 8;
constexpr uint32_t kMostFolded = UINT16_MAX;

uint32_t stage_of(const Fan& fan) { return load_acquire(fan.word) & 255; }
void set_stage(Fan& fan, Fan::Stage stage) { store_release(fan.word, (load_relaxed(fan.word) & ~255u) | stage); }

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class FanLock {
 public:
  explicit FanLock(Fan& fan) : fan_(fan), is_held_(false) {
    for (int i = 0; i < kSpins && !is_held_; i++) {
      if (i != 0) pause();
      is_held_ = load_relaxed(fan.lock) == 0 && __atomic_exchange_n(&fan.lock, 1u, __ATOMIC_ACQUIRE) == 0;
    }
  }
  ~FanLock() {
    if (is_held_) store_release(fan_.lock, 0);
  }
  FanLock(const FanLock&) = delete;
  FanLock& operator=(const FanLock&) = delete;
  bool is_held() const { return is_held_; }

 private:
  Fan& fan_;
  bool is_held_;
};

Fan* find_fan(Door& d, const FanToken& token) {
  if (token.salt != d.salt) return nullptr;
  Fan& fan = d.fans[token.fan];
  const uint32_t word = load_acquire(fan.word);
  return word >> 8 == token.generation && (word & 255) != Fan::kFree ? &fan : nullptr;
}

Token op_token(const Fan& fan) { return Token::of(load_relaxed(fan.op)); }

// A split fan only translates handles of calls whose tasks are about to begin, so it may be taken soon; a fold's or
// an open one's place is free when its op is over.
bool is_reusable(Door& d, const Fan& fan) {
  const uint32_t stage = stage_of(fan);
  return stage == Fan::kFree || stage == Fan::kSplit || find_op(d, op_token(fan)) == nullptr;
}

void note_direction(Fan& fan, uint8_t op) {
  if (op == CI_OP_SEND) store_relaxed(fan.n_send_calls, load_relaxed(fan.n_send_calls) + 1);
  if (op == CI_OP_RECV) store_relaxed(fan.n_recv_calls, load_relaxed(fan.n_recv_calls) + 1);
}

uint8_t fold_op(uint32_t n_sends, uint32_t n_recvs) {
  if (n_sends != 0 && n_recvs == 0) return CI_OP_SEND;
  if (n_recvs != 0 && n_sends == 0) return CI_OP_RECV;
  return CI_OP_ALL_TO_ALL;
}

void* token_for_call(const Fan& fan, const Door& d, uint32_t call) {
  const auto at = static_cast<uint32_t>(&fan - d.fans);
  const uint32_t item = call < Fan::kTasks ? call : Fan::kTasks - 1;
  return pointer_of(FanToken{kFanCallToken, at, item, 0, load_relaxed(fan.word) >> 8, d.salt}.encode());
}

void keep_call(Fan& fan, uint32_t call, const ci_record& record) {
  if (call >= Fan::kUnfolded) return;
  store_words(&fan.calls[call].record, &record, sizeof record);
  store_relaxed(fan.calls[call].op, 0);
}

// Under its lock: the first call takes the slot.
void* open_fan(Door& d, Fan& fan, Group& group, uint64_t group_token, uint32_t comm, const ci_record& record) {
  ci_record first = record;
  void* handle = begin_op(d, comm, &first, CI_SLOTFLAG_API_SEEN, group_token, load_relaxed(group.mask));
  if (token_of(handle).type() != kCallToken) return handle;
  const uint32_t generation = ((load_relaxed(fan.word) >> 8) + 1) % FanToken::kGenerations;
  const size_t counters = offsetof(Fan, calls) - offsetof(Fan, n_calls);
  static_assert(offsetof(Fan, n_calls) % 4 == 0 && offsetof(Fan, calls) % 8 == 0, "cleared by words");
  for (size_t i = 0; i < counters / 4; i++) store_relaxed(reinterpret_cast<uint32_t*>(&fan.n_calls)[i], 0);
  clear_words(fan.pending, sizeof fan.pending);
  store_relaxed(fan.comm, comm);
  store_relaxed(fan.group, group_token);
  store_relaxed(fan.op, reinterpret_cast<uint64_t>(handle));
  store_relaxed(fan.n_calls, 1);
  note_direction(fan, record.op);
  keep_call(fan, 0, record);
  store_release(fan.word, generation << 8 | Fan::kOpen);
  join_group(group, reinterpret_cast<uint64_t>(handle));
  return token_for_call(fan, d, 0);
}

// Under its lock, with the fan's slot held: the drain thread must count all its calls as lost, or none.
class SlotHold {
 public:
  SlotHold(Door& d, const Fan& fan) : slots_(d.recorder->slots) {
    const Token op = op_token(fan);
    slot_ = static_cast<int>(op.slot());
    if (find_op(d, op) != nullptr) state_ = slots_.hold(slot_, op.generation());
  }
  ~SlotHold() {
    if (state_ != 0) slots_.let_go(slot_, state_);
  }
  bool is_held() const { return state_ != 0; }
  ci_slot& slot() { return slots_[slot_]; }

 private:
  SlotTable& slots_;
  int slot_;
  uint32_t state_ = 0;
};

// False when the fan takes no more calls.
bool add_call(Door& d, Fan& fan, const ci_record& record) {
  SlotHold hold(d, fan);
  const uint32_t n = load_relaxed(fan.n_calls);
  if (!hold.is_held() || n >= kMostFolded) return false;
  ci_record& shown = hold.slot().record;
  store_relaxed(shown.n_folded, n + 1);
  if (n == 1) store_relaxed(shown.flags, load_relaxed(shown.flags) | CI_OPFLAG_COALESCED);
  store_relaxed(shown.size_bytes, load_relaxed(shown.size_bytes) + record.size_bytes);
  store_relaxed(shown.count, load_relaxed(shown.count) + record.count);
  note_direction(fan, record.op);
  store_relaxed(shown.op, fold_op(load_relaxed(fan.n_send_calls), load_relaxed(fan.n_recv_calls)));
  keep_call(fan, n, record);
  store_relaxed(fan.n_calls, n + 1);
  return true;
}

void split(Door& d, Fan& fan, ci_slot& slot) {
  const uint64_t group_token = load_relaxed(fan.group);
  Group* group = find_group(d, Token::of(group_token));
  const uint32_t n = load_relaxed(fan.n_calls);
  const uint32_t mask = group != nullptr ? load_relaxed(group->mask) : nccl_mask(d);
  constexpr uint32_t kFlags = CI_SLOTFLAG_API_SEEN | CI_SLOTFLAG_API_RETURNED;
  ci_record call;
  store_relaxed(fan.calls[0].op, load_relaxed(fan.op));
  for (uint32_t i = 1; i < n; i++) {
    load_words(&call, &fan.calls[i].record, sizeof call);
    void* handle = begin_op(d, load_relaxed(fan.comm), &call, kFlags, group_token, mask);
    store_relaxed(fan.calls[i].op, reinterpret_cast<uint64_t>(handle));
    const bool has_begun = token_of(handle).type() == kCallToken;
    if (has_begun && group != nullptr) join_group(*group, reinterpret_cast<uint64_t>(handle));
  }
  // Last: a process killed in between leaves a call twice, not lost.
  load_words(&call, &fan.calls[0].record, sizeof call);
  store_relaxed(slot.record.flags, load_relaxed(slot.record.flags) & ~uint32_t{CI_OPFLAG_COALESCED});
  store_relaxed(slot.record.n_folded, 0);
  store_relaxed(slot.record.op, call.op);
  store_relaxed(slot.record.count, call.count);
  store_relaxed(slot.record.size_bytes, call.size_bytes);
}

// Under its lock. The stage comes after the slot is let go: who sees it finds the ops in flight.
void settle(Door& d, Fan& fan) {
  if (stage_of(fan) != Fan::kOpen) return;
  const bool is_fold = load_relaxed(fan.n_calls) > Fan::kUnfolded;
  {
    SlotHold hold(d, fan);
    if (!hold.is_held()) return set_stage(fan, Fan::kFree);
    if (!is_fold) split(d, fan, hold.slot());
    else store_relaxed(hold.slot().record.match_seq, add(d.comms[load_relaxed(fan.comm)].n_folds, 1) + 1);
  }
  set_stage(fan, is_fold ? Fan::kFolded : Fan::kSplit);
}

Fan* new_fan(Door& d) {
  for (uint32_t i = 0; i < kTries; i++) {
    Fan& fan = d.fans[add(d.next_fan, 1) % Door::kFans];
    if (is_reusable(d, fan)) return &fan;
  }
  return nullptr;
}

// The group's fan on this communicator that still takes calls, joined; nullptr without one.
void* join_open_fan(Door& d, const Group& group, uint32_t comm, const ci_record& record) {
  for (const uint64_t& place : group.fans) {
    Fan* fan = find_fan(d, FanToken::decode(load_acquire(place)));
    if (fan == nullptr || load_relaxed(fan->comm) != comm) continue;
    FanLock lock(*fan);
    const bool is_same = lock.is_held() && fan == find_fan(d, FanToken::decode(load_acquire(place)));
    if (!is_same || stage_of(*fan) != Fan::kOpen || !add_call(d, *fan, record)) continue;
    return token_for_call(*fan, d, load_relaxed(fan->n_calls) - 1);
  }
  return nullptr;
}

uint64_t* free_place(Door& d, Group& group) {
  for (uint64_t& place : group.fans)
    if (find_fan(d, FanToken::decode(load_acquire(place))) == nullptr) return &place;
  return nullptr;
}

void mark_pending(ci_slot& slot, uint32_t peer, bool is_pending) {
  uint64_t& word = (&slot.pending_peers_0)[peer / 64];
  const uint64_t bit = uint64_t{1} << (peer % 64);
  if (is_pending) __atomic_fetch_or(&word, bit, __ATOMIC_ACQ_REL);
  else __atomic_fetch_and(&word, ~bit, __ATOMIC_ACQ_REL);
}

bool has_all_tasks(const Fan& fan) {
  return load_acquire(fan.n_tasks) >= load_relaxed(fan.n_calls) || load_acquire(fan.is_told_whole) != 0;
}

// `op` was read before what was asked of the fan: should the fan be another's by now, it names an op that is over.
void finish_fold(Door& d, Token op, int64_t end_ns) {
  ci_slot* slot = find_op(d, op);
  if (slot == nullptr) return;
  if ((flags_of(*slot) & CI_SLOTFLAG_NO_KERNEL_EVENTS) != 0) return retire(d, op, CI_ENDREASON_NO_KERNEL_EVENTS);
  store_relaxed(slot->record.n_channels, __builtin_popcountll(load_relaxed(slot->started_mask)));
  finish(d, op, end_ns != 0 ? end_ns : mono_ns());
}

void finish_if_complete(Door& d, Fan& fan, int64_t end_ns) {
  const Token op = Token::of(load_acquire(fan.op));
  const uint32_t n_done = load_acquire(fan.n_tasks_done);
  if (n_done != 0 && n_done == load_acquire(fan.n_tasks) && has_all_tasks(fan)) finish_fold(d, op, end_ns);
}

void finish_task(Door& d, Fan& fan, FanTask& task) {
  if (exchange(task.is_done, 1) != 0) return;
  const auto peer = static_cast<uint32_t>(load_relaxed(task.peer)) % 256;
  ci_slot* slot = find_op(d, op_token(fan));
  if (slot != nullptr && sub(fan.pending[peer], 1) == 1) {
    mark_pending(*slot, peer, false);
    if (load_ordered(fan.pending[peer]) != 0) mark_pending(*slot, peer, true);  // a task began in between
  }
  const uint32_t n_done = add(fan.n_tasks_done, 1) + 1;
  if (n_done < load_acquire(fan.n_tasks)) return;
  const int64_t now = mono_ns();
  store_relaxed(fan.last_stop_ns, now);
  finish_if_complete(d, fan, now);
}

FanTask* task_at(Door& d, const FanToken& token) { return &d.fan_tasks[token.fan][token.item]; }

bool is_task_over(const FanTask& task) {
  const uint8_t n_channels = load_relaxed(task.n_channels);
  return n_channels != 0 && __builtin_popcountll(load_acquire(task.stopped_mask)) >= n_channels;
}

// Where the number of channels is not known: those that began have stopped.
bool is_at_rest(const FanTask& task) {
  const uint64_t stopped = load_acquire(task.stopped_mask);
  const bool has_ended = stopped != 0 && stopped == load_acquire(task.started_mask);
  return load_relaxed(task.n_channels) == 0 && load_acquire(task.is_handed_over) != 0 && has_ended;
}

}  // namespace

void* join_fan(Door& d, Group& group, uint64_t group_token, uint32_t comm, const ci_record& record) {
  if (void* handle = join_open_fan(d, group, comm, record)) return handle;
  uint64_t* place = free_place(d, group);
  Fan* fan = place != nullptr ? new_fan(d) : nullptr;
  if (fan == nullptr) {
    add(d.header->nccl_untracked_groups, 1);
    return nullptr;
  }
  FanLock lock(*fan);
  if (!lock.is_held() || !is_reusable(d, *fan)) return nullptr;
  void* handle = open_fan(d, *fan, group, group_token, comm, record);
  if (token_of(handle).type() != kFanCallToken) return handle;
  store_release(*place, reinterpret_cast<uint64_t>(handle));
  store_release(group.has_fans, 1);
  return handle;
}

void settle_fans(Door& d, Group& group) {
  for (const uint64_t& place : group.fans) {
    const FanToken token = FanToken::decode(load_acquire(place));
    Fan* fan = find_fan(d, token);
    if (fan == nullptr) continue;
    FanLock lock(*fan);
    if (lock.is_held() && fan == find_fan(d, token)) settle(d, *fan);
  }
}

void settle_fans_of_comm(Door& d, uint32_t comm) {
  for (Fan& fan : d.fans) {
    // Another thread may be splitting it: its calls must not end as a fold and as single ops.
    for (int i = 0; i < kWaits && stage_of(fan) == Fan::kOpen && load_relaxed(fan.comm) == comm; i++) {
      FanLock lock(fan);
      if (lock.is_held() && load_relaxed(fan.comm) == comm) settle(d, fan);
      if (!lock.is_held()) sched_yield();
    }
  }
}

void leave_fans(Door& d, Group& group) {
  for (const uint64_t& place : group.fans) {
    Fan* fan = find_fan(d, FanToken::decode(load_acquire(place)));
    if (fan == nullptr || stage_of(*fan) != Fan::kFolded) continue;
    if (is_told_whole(d, group, load_relaxed(fan->comm))) store_release(fan->is_told_whole, 1);
    store_release(fan->has_left, 1);
    finish_if_complete(d, *fan, load_relaxed(fan->last_stop_ns));
  }
}

FanPlace resolve_fan_call(Door& d, const FanToken& token) {
  Fan* fan = find_fan(d, token);
  if (fan == nullptr) return {};
  if (stage_of(*fan) == Fan::kOpen) {
    FanLock lock(*fan);
    if (lock.is_held() && fan == find_fan(d, token)) settle(d, *fan);
  }
  // What was decided stands as long as the fan is this one, whoever has the lock.
  if (stage_of(*fan) == Fan::kFolded) return {fan, {}};
  const bool is_split = stage_of(*fan) == Fan::kSplit && token.item < Fan::kUnfolded;
  const Token op = is_split ? Token::of(load_acquire(fan->calls[token.item].op)) : Token{};
  return {nullptr, fan == find_fan(d, token) ? op : Token{}};
}

void note_fan_call_returned(Door& d, const FanToken& token) {
  Fan* fan = find_fan(d, token);
  ci_slot* slot = fan != nullptr ? find_op(d, op_token(*fan)) : nullptr;
  if (slot != nullptr) raise_flags(*slot, CI_SLOTFLAG_API_RETURNED);
}

void* start_fan_task(Door& d, const FanToken& call, Fan& fold, const Task& task) {
  ci_slot* slot = find_op(d, op_token(fold));
  if (slot == nullptr) return note_stale(d);
  const bool is_send = is_send_task(task);
  d.recorder->comms.next_match(load_relaxed(fold.comm), CI_RECORDKIND_P2P, is_send ? CI_OP_SEND : CI_OP_RECV,
                               task.peer_or_root);
  add(is_send ? fold.n_send_tasks : fold.n_recv_tasks, 1);
  store_relaxed(slot->record.op, fold_op(load_relaxed(fold.n_send_tasks), load_relaxed(fold.n_recv_tasks)));
  store_relaxed(d.ops[op_token(fold).slot()].plan, reinterpret_cast<uint64_t>(task.plan));
  note_order(d, op_token(fold), *slot, raise_flags(*slot, CI_SLOTFLAG_TASK_SEEN));
  const uint32_t at = add(fold.n_tasks, 1);
  if (at >= Fan::kTasks) {  // more than a fold follows: its end is that of the others
    add(fold.n_tasks_done, 1);
    return void_token(kIgnored);
  }
  const auto peer = static_cast<uint32_t>(task.peer_or_root) % 256;
  FanTask& entry = d.fan_tasks[call.fan][at];
  FanTask fresh = {};
  fresh.peer = task.peer_or_root;
  fresh.n_channels = trusted_channels(d, load_relaxed(fold.comm), task);
  store_words(&entry, &fresh, sizeof fresh);
  if (fresh.n_channels == 0) add(fold.n_untold, 1);
  add(fold.pending[peer], 1);
  mark_pending(*slot, peer, true);
  return pointer_of(FanToken{kFanTaskToken, call.fan, at, 0, call.generation, d.salt}.encode());
}

void stop_fan_task(Door& d, const FanToken& token) {
  Fan* fan = find_fan(d, token);
  ci_slot* slot = fan != nullptr ? find_op(d, op_token(*fan)) : nullptr;
  if (slot == nullptr) return;
  FanTask& task = *task_at(d, token);
  store_release(task.is_handed_over, 1);
  const uint32_t flags = raise_flags(*slot, CI_SLOTFLAG_TASK_HANDED_OVER);
  if ((flags & CI_SLOTFLAG_NO_KERNEL_EVENTS) != 0 || is_task_over(task)) finish_task(d, *fan, task);
}

void* start_fan_channel(Door& d, const FanToken& token, const KernelChPart& part) {
  Fan* fan = find_fan(d, token);
  ci_slot* slot = fan != nullptr ? find_op(d, op_token(*fan)) : nullptr;
  if (slot == nullptr) return note_stale(d);
  note_channel_start(d, op_token(*fan).slot(), *slot, part);
  __atomic_fetch_or(&task_at(d, token)->started_mask, uint64_t{1} << part.channel_id, __ATOMIC_ACQ_REL);
  FanToken channel = token;
  channel.type = kFanChannelToken;
  channel.channel = part.channel_id;
  return pointer_of(channel.encode());
}

void stop_fan_channel(Door& d, const FanToken& token, int64_t gpu_ns) {
  Fan* fan = find_fan(d, token);
  ci_slot* slot = fan != nullptr ? find_op(d, op_token(*fan)) : nullptr;
  if (slot == nullptr) return;
  FanTask& task = *task_at(d, token);
  const uint64_t bit = uint64_t{1} << token.channel;
  if ((load_relaxed(task.stopped_mask) & bit) != 0) return;
  note_channel_stop(d, op_token(*fan).slot(), *slot, token.channel, gpu_ns);
  __atomic_fetch_or(&task.stopped_mask, bit, __ATOMIC_ACQ_REL);
  if (load_relaxed(task.n_channels) == 0) store_relaxed(fan->last_stop_ns, mono_ns());
  else if (is_task_over(task)) finish_task(d, *fan, task);
}

Token op_of_fan(Door& d, const FanToken& token) {
  const Fan* fan = find_fan(d, token);
  return fan != nullptr ? op_token(*fan) : Token{};
}

namespace {

// Where the group call's place went to another one nothing speaks against it.
bool has_told_launches(Door& d, const Fan& fan, Token op) {
  const Group* group = find_group(d, Token::of(load_relaxed(fan.group)));
  const bool has_launches = load_relaxed(d.ops[op.slot()].has_launches) != 0;
  return group == nullptr || !has_launches || has_told_launches(*group, load_relaxed(fan.comm));
}

void finish_tasks_at_rest(Door& d, uint32_t at) {
  Fan& fan = d.fans[at];
  const uint32_t n_tasks = load_acquire(fan.n_tasks);
  for (uint32_t i = 0; i < n_tasks && i < Fan::kTasks; i++)
    if (is_at_rest(d.fan_tasks[at][i])) finish_task(d, fan, d.fan_tasks[at][i]);
}

}  // namespace

// The in-place pair of a rank with itself has no task.
void finish_quiet_folds(Door& d, int64_t now) {
  constexpr uint32_t kSelf = 2;
  for (uint32_t at = 0; at < Door::kFans; at++) {
    Fan& fan = d.fans[at];
    const Token op = Token::of(load_acquire(fan.op));
    const int64_t last_ns = load_relaxed(fan.last_stop_ns);
    if (stage_of(fan) != Fan::kFolded || last_ns == 0 || !has_lasted(now, last_ns, kGraceNs)) continue;
    if (find_op(d, op) == nullptr) continue;
    if (load_relaxed(fan.n_untold) != 0) finish_tasks_at_rest(d, at);
    const uint32_t n_done = load_acquire(fan.n_tasks_done);
    const bool is_over = n_done != 0 && n_done == load_acquire(fan.n_tasks) && load_acquire(fan.has_left) != 0;
    if (is_over && n_done + kSelf >= load_relaxed(fan.n_calls) && has_told_launches(d, fan, op))
      finish_fold(d, op, last_ns);
  }
}

}  // namespace ci::nccl
