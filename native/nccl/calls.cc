// Calls (CollApi, P2pApi): here an op begins, and takes its place in the order of its communicator.
#include "door.h"
#include "sampling.h"

namespace ci::nccl {
namespace {

uint32_t folded(const void* pointer) {
  const auto bits = reinterpret_cast<uint64_t>(pointer);
  return static_cast<uint32_t>(bits ^ bits >> 32);
}

// A context that is not ours: nothing can be said of the call but that it was.
void* start_unplaced(Door& d, const void* context) {
  uint32_t token;
  if (!is_context(context, &token)) return note_unknown(d);
  if (is_comm_of(*d.recorder, token)) return note_stale(d);  // after finalize
  comm_row(*d.recorder, token);  // counts it
  return void_token(kRefused);
}

void* begin_op_of_group(Door& d, uint32_t comm, ci_record* record, Group* group, uint64_t group_token) {
  const uint32_t mask = group != nullptr ? load_relaxed(group->mask) : nccl_mask(d);
  const bool may_fold = record->kind == CI_RECORDKIND_P2P && group != nullptr && (mask & kProxyStep) == 0;
  void* folded = may_fold ? join_fan(d, *group, group_token, comm, *record) : nullptr;
  if (folded != nullptr) return folded;
  void* handle = begin_op(d, comm, record, CI_SLOTFLAG_API_SEEN, group_token, mask);
  if (group != nullptr && token_of(handle).type() == kCallToken) join_group(*group, reinterpret_cast<uint64_t>(handle));
  return handle;
}

void* begin_call(Door& d, uint32_t comm, const Call& call) {
  const CallbackTimer timer(d, is_sampled_number(load_relaxed(d.recorder->comms.state(comm).op_seq)));
  Group* group = find_group(d, token_of(call.parent));
  const uint64_t group_token = group != nullptr ? reinterpret_cast<uint64_t>(call.parent) : 0;
  ci_record record;
  clear_words(&record, sizeof record);
  describe(d, comm, &record, call.is_p2p, call.func, call.count, call.datatype, call.root);
  record.user_tag = static_cast<int64_t>(call.user_tag);
  record.stream_id = folded(call.stream);
  record.group_id = group != nullptr ? load_relaxed(group->group_id) : 0;
  if (record.group_id != 0) store_relaxed(d.comms[comm].newest_group, record.group_id);
  record.op_seq = d.recorder->next_op_seq(comm);
  record.enqueue_ns = mono_ns();
  // The peer of a P2P op, and so its place among those with this peer, is known with its task only.
  if (!call.is_p2p) record.match_seq = d.recorder->comms.next_match(comm, record.kind, record.op, -1);
  return begin_op_of_group(d, comm, &record, group, group_token);
}

}  // namespace

void* start_call(void* context, const Call& call) {
  Door* d = recording_door();
  if (d == nullptr) {
    note_unrecorded_op();
    return void_token(kIgnored);
  }
  if (call.is_captured) {
    add(d->header->nccl_captured_calls, 1);
    store_relaxed(d->has_host_plans, 1);
    return void_token(kCaptured);
  }
  const uint32_t comm = comm_of(*d, context);
  return comm != 0 ? begin_call(*d, comm, call) : start_unplaced(*d, context);
}

}  // namespace ci::nccl
