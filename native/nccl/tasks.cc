// Tasks (Coll, P2p, CeColl): what NCCL made of a call. They stop when everything is handed over, which says
// nothing of the GPU: an op ends with its channels (finish.cc).
#include "door.h"
#include "sampling.h"
#include "words.h"

namespace ci::nccl {
namespace {

// A task without a call of its own: v4, a mask without calls, or a replay.
void* begin_by_task(Door& d, uint32_t comm, const Task& task, uint16_t flags) {
  ci_record record;
  clear_words(&record, sizeof record);
  const bool is_p2p = task.kind == Task::kPeerToPeer;
  describe(d, comm, &record, is_p2p, task.func, task.count, task.datatype, task.peer_or_root);
  record.user_tag = static_cast<int64_t>(task.user_tag);
  record.flags = flags;
  record.op_seq = d.recorder->next_op_seq(comm);
  const bool is_replay = (flags & CI_OPFLAG_GRAPH) != 0;
  record.match_seq = d.recorder->comms.next_match(comm, record.kind, record.op, record.peer_or_root, is_replay);
  record.enqueue_ns = mono_ns();
  return begin_op(d, comm, &record, 0, 0, nccl_mask(d));
}

void fill_peer(Door& d, Token op, ci_slot& slot, const Task& task) {
  ci_record& record = slot.record;
  const uint8_t direction = op_of(task.func);
  store_relaxed(record.op, direction);
  store_relaxed(record.peer_or_root, task.peer_or_root);
  const uint32_t nth = d.recorder->comms.next_match(op.comm(), CI_RECORDKIND_P2P, direction, task.peer_or_root);
  store_relaxed(record.match_seq, nth);
}

uint8_t algorithm_of(const Task& task) {
  if (task.kind == Task::kCopyEngine) return CI_ALGORITHM_COPY_ENGINE;
  return task.is_symmetric ? uint8_t{CI_ALGORITHM_SYMMETRIC} : nccl::algorithm_of(task.algo);
}

void fill_task(Door& d, Token op, ci_slot& slot, const Task& task) {
  ci_record& record = slot.record;
  OpState& own = d.ops[op.slot()];
  const uint8_t n_channels = trusted_channels(d, op.comm(), task);
  store_relaxed(record.n_channels, n_channels);
  if (n_channels == 0 && task.kind == Task::kPeerToPeer) store_relaxed(own.is_untrusted, 1);
  store_relaxed(record.func_seq, static_cast<uint32_t>(task.func_seq));
  store_relaxed(record.algo, algorithm_of(task));
  store_relaxed(record.proto, protocol_of(task.proto));
  store_relaxed(own.is_symmetric, task.is_symmetric ? 1 : 0);
  const bool is_in_plan = task.plan == nullptr && token_of(task.parent).type() == kPlanToken;  // v4
  store_relaxed(own.plan, reinterpret_cast<uint64_t>(is_in_plan ? task.parent : task.plan));
  if (task.user_tag != 0) store_relaxed(record.user_tag, task.user_tag);
}

void lead_tails(CommState& comm, Token op, uint64_t plan) {
  store_relaxed(comm.head, op.bits);
  store_release(comm.head_plan, plan);
}

TokenType type_of(const Task& task) { return task.kind == Task::kCopyEngine ? kCopyToken : kTaskToken; }

void* take_up(Door& d, Token op, ci_slot& slot, const Task& task) {
  fill_task(d, op, slot, task);
  note_order(d, op, slot, raise_flags(slot, CI_SLOTFLAG_TASK_SEEN));
  const uint32_t comm = load_relaxed(slot.record.comm_index);
  if (task.is_symmetric && task.n_channels != 0) lead_tails(d.comms[comm], op, load_relaxed(d.ops[op.slot()].plan));
  else if (task.is_symmetric) follow_head(d, comm, op);
  return pointer_of(renamed(op, type_of(task)));
}

void* begin_new(Door& d, uint32_t comm, const Task& task, uint16_t flags) {
  if (comm == 0) return note_stale(d);
  void* handle = begin_by_task(d, comm, task, flags);
  const Token op = token_of(handle);
  ci_slot* slot = op.type() == kCallToken ? find_op(d, op) : nullptr;
  return slot != nullptr ? take_up(d, op, *slot, task) : handle;
}

void* start_task_of_call(Door& d, uint32_t comm, Token call, const Task& task) {
  ci_slot* slot = find_op(d, call);
  // A forged communicator must not become an index.
  if (slot == nullptr || load_relaxed(slot->record.comm_index) != call.comm()) return note_stale(d);
  // One more task of a call that has one: an op by itself, or two would end as one.
  if ((flags_of(*slot) & CI_SLOTFLAG_TASK_SEEN) != 0) return begin_new(d, comm, task, 0);
  if (task.kind == Task::kPeerToPeer) fill_peer(d, call, *slot, task);
  return take_up(d, call, *slot, task);
}

void* start_task_of_fan(Door& d, uint32_t comm, const Task& task) {
  const FanToken call = fan_token_of(task.parent);
  const FanPlace place = resolve_fan_call(d, call);
  if (place.fold != nullptr) return start_fan_task(d, call, *place.fold, task);
  if (place.op.type() == kVoidToken) return pointer_of(place.op);
  return place.op.type() == kCallToken ? start_task_of_call(d, comm, place.op, task) : note_stale(d);
}

}  // namespace

bool is_send_task(const Task& task) { return op_of(task.func) == CI_OP_SEND; }

uint8_t trusted_channels(const Door& d, uint32_t comm, const Task& task) {
  if (task.n_channels > kMaxChannels) return 0;
  if (task.kind == Task::kPeerToPeer && load_relaxed(d.comms[comm].distrusts_p2p) != 0) return 0;
  return task.n_channels;
}

// A helper thread may be quick enough to begin the task before the caller returns, and the driver's thread tells tasks
// after it: neither says anything.
void note_order(Door& d, Token op, ci_slot& slot, uint32_t flags_before) {
  if ((flags_before & CI_SLOTFLAG_API_SEEN) == 0) return;
  const uint32_t row = load_relaxed(slot.record.comm_index);
  CommState& comm = d.comms[row];
  const OpState& own = d.ops[op.slot()];
  const bool is_by_caller = load_relaxed(own.thread) == static_cast<uint64_t>(pthread_self());
  const bool has_left = (flags_before & CI_SLOTFLAG_GROUP_LEFT) != 0;
  if (is_by_caller && !has_left && load_relaxed(comm.is_blocking) == 0) store_relaxed(comm.is_blocking, 1);
  if (!is_by_caller && load_relaxed(d.has_host_plans) == 0) store_relaxed(d.has_host_plans, 1);
  const uint64_t group_token = load_relaxed(own.group);
  const Group* group = group_token != 0 ? find_group(d, Token::of(group_token)) : nullptr;
  // Where the call is the only one of its group there is no other that may have no task.
  const bool is_single = group == nullptr || (load_relaxed(group->n_members) < 2 && load_relaxed(group->has_fans) == 0);
  if (!is_single) note_plan(d, group_token, row, load_relaxed(own.plan), !is_by_caller);
}

void* start_task(void* context, const Task& task) {
  Door* d = recording_door();
  if (d == nullptr) return void_token(kIgnored);
  const uint32_t comm = comm_of(*d, context);
  const Token parent = token_of(task.parent);
  const CallbackTimer timer(*d, is_sampled(parent.type() == kVoidToken ? token_of(task.plan) : parent));
  switch (parent.type()) {
    case kCallToken: return start_task_of_call(*d, comm, parent, task);
    case kFanCallToken: return start_task_of_fan(*d, comm, task);
    case kTaskToken:
    case kCopyToken: return note_stale(*d);
  }
  if (is_void(parent, kRefused)) return void_token(kRefused);
  return begin_new(*d, comm, task, is_void(parent, kCaptured) ? uint16_t{CI_OPFLAG_GRAPH} : uint16_t{0});
}

void stop_task(Door& d, Token token) {
  ci_slot* slot = find_op(d, token);
  if (slot == nullptr) return;  // all its channels have stopped before
  const uint32_t before = raise_flags(*slot, CI_SLOTFLAG_TASK_HANDED_OVER);
  if ((before & CI_SLOTFLAG_NO_KERNEL_EVENTS) != 0) return retire(d, token, CI_ENDREASON_NO_KERNEL_EVENTS);
  if (load_relaxed(slot->record.n_channels) != 0) return;
  const OpState& own = d.ops[token.slot()];
  if (load_relaxed(own.is_untrusted) != 0) return;  // the rounds see when it is over
  const bool is_tail = load_relaxed(own.is_symmetric) != 0;
  if (!is_tail || !follow_head(d, load_relaxed(slot->record.comm_index), token))
    retire(d, token, CI_ENDREASON_NO_CHANNELS);
}

// NCCL up to 2.32 tells when a copy engine collective is enqueued, and declares states that would tell its end.
void stop_copy(Door& d, Token token, int32_t state) {
  ci_slot* slot = find_op(d, token);
  if (slot == nullptr) return;
  if (state == kCeCollStart) return store_relaxed(slot->record.start_ns, mono_ns());
  if (state == kCeCollComplete) return finish_by_host(d, token);
  raise_flags(*slot, CI_SLOTFLAG_TASK_HANDED_OVER);
  retire(d, token, CI_ENDREASON_COPY_ENGINE);
}

}  // namespace ci::nccl
