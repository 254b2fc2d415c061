// Tasks (Coll, P2p, CeColl): what NCCL made of a call. They stop when everything is handed over, which says
// nothing of the GPU: an op ends with its channels (finish.cc).
#include "door.h"
#include "words.h"

namespace ci::nccl {
namespace {

// A task without a call of its own: v4, a mask without calls, or a replay.
void* begin_by_task(Door& d, uint32_t comm, const Task& task, uint16_t flags) {
  ci_record record = {};
  const bool is_p2p = task.kind == Task::kPeerToPeer;
  describe(d, comm, &record, is_p2p, task.func, task.count, task.datatype, task.peer_or_root);
  record.user_tag = static_cast<int64_t>(task.user_tag);
  record.flags = flags;
  record.op_seq = d.recorder->next_op_seq(comm);
  record.match_seq = d.recorder->comms.next_match(comm, record.kind, record.op, record.peer_or_root);
  record.enqueue_ns = mono_ns();
  return begin_op(d, comm, &record, 0, 0);
}

void fill_peer(Door& d, const Token& op, ci_slot& slot, const Task& task) {
  ci_record& record = slot.record;
  const uint8_t direction = op_of(task.func);
  store_relaxed(record.op, direction);
  store_relaxed(record.peer_or_root, task.peer_or_root);
  const uint32_t nth = d.recorder->comms.next_match(op.comm, CI_RECORDKIND_P2P, direction, task.peer_or_root);
  store_relaxed(record.match_seq, nth);
}

uint8_t algorithm_of(const Task& task) {
  if (task.kind == Task::kCopyEngine) return CI_ALGORITHM_COPY_ENGINE;
  return task.is_symmetric ? uint8_t{CI_ALGORITHM_SYMMETRIC} : nccl::algorithm_of(task.algo);
}

void fill_task(Door& d, const Token& op, ci_slot& slot, const Task& task) {
  ci_record& record = slot.record;
  OpState& own = d.ops[op.slot];
  const bool is_p2p = task.kind == Task::kPeerToPeer;
  const bool distrusts = is_p2p && (load_relaxed(d.comms[op.comm].distrusts_p2p) != 0 || task.n_channels == 0);
  store_relaxed(record.n_channels, distrusts ? 0 : task.n_channels);
  store_relaxed(record.func_seq, static_cast<uint32_t>(task.func_seq));
  store_relaxed(record.algo, algorithm_of(task));
  store_relaxed(record.proto, protocol_of(task.proto));
  store_relaxed(own.plan, reinterpret_cast<uint64_t>(task.plan));
  store_relaxed(own.is_symmetric, task.is_symmetric ? 1 : 0);
  if (task.user_tag != 0) store_relaxed(record.user_tag, task.user_tag);
}

// Learns from the order of events whether the communicator launches its groups in the caller's thread.
void note_order(CommState& comm, uint32_t flags_before) {
  if ((flags_before & CI_SLOTFLAG_API_SEEN) == 0) return;
  uint32_t& seen = (flags_before & CI_SLOTFLAG_GROUP_LEFT) != 0 ? comm.is_nonblocking : comm.is_blocking;
  if (load_relaxed(seen) == 0) store_relaxed(seen, 1);
}

void* take_up(Door& d, const Token& op, ci_slot& slot, const Task& task) {
  const bool is_from_call = (load_relaxed(slot.slot_flags) & CI_SLOTFLAG_API_SEEN) != 0;
  if (is_from_call && task.kind == Task::kPeerToPeer) fill_peer(d, op, slot, task);
  fill_task(d, op, slot, task);
  note_order(d.comms[op.comm], raise_flags(slot, CI_SLOTFLAG_TASK_SEEN));
  return pointer_of(renamed(op, task.kind == Task::kCopyEngine ? kCopyToken : kTaskToken));
}

bool is_op(const Token& token) {
  return token.type == kCallToken || token.type == kTaskToken || token.type == kCopyToken;
}

void* take_up_new(Door& d, void* handle, const Task& task) {
  const Token op = token_of(handle);
  ci_slot* slot = op.type == kCallToken ? find_op(d, op) : nullptr;
  return slot != nullptr ? take_up(d, op, *slot, task) : handle;
}

void* start_task_of(Door& d, uint32_t comm, const Task& task) {
  const Token parent = token_of(task.parent);
  if (is_op(parent)) {
    ci_slot* slot = find_op(d, parent);
    return slot != nullptr ? take_up(d, parent, *slot, task) : note_stale(d);
  }
  if (is_void(parent, kRefused)) return void_token(kRefused);
  if (comm == 0) return note_stale(d);
  const uint16_t flags = is_void(parent, kCaptured) ? uint16_t{CI_OPFLAG_GRAPH} : uint16_t{0};
  return take_up_new(d, begin_by_task(d, comm, task, flags), task);
}

}  // namespace

void* start_task(void* context, const Task& task) {
  Door* d = door();
  if (d == nullptr) return void_token(kIgnored);
  return start_task_of(*d, comm_of(*d, context), task);
}

void stop_task(Door& d, const Token& token) {
  ci_slot* slot = find_op(d, token);
  if (slot == nullptr) return;  // all its channels have stopped before
  const uint32_t before = raise_flags(*slot, CI_SLOTFLAG_TASK_HANDED_OVER);
  if (token.type == kCopyToken) return retire(d, token, CI_ENDREASON_COPY_ENGINE);
  if ((before & CI_SLOTFLAG_NO_KERNEL_EVENTS) != 0) return retire(d, token, CI_ENDREASON_NO_KERNEL_EVENTS);
  if (load_relaxed(slot->record.n_channels) == 0 && load_relaxed(slot->record.kind) == CI_RECORDKIND_COLLECTIVE)
    retire(d, token, CI_ENDREASON_NO_CHANNELS);
}

}  // namespace ci::nccl
