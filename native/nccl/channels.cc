// Channels (KernelCh): the only word NCCL has from the GPU. One starts when the kernel has begun on it and stops
// when the kernel has left it.
#include "door.h"

namespace ci::nccl {
namespace {

void lower_to(int64_t& least, int64_t value) {
  int64_t seen = load_relaxed(least);
  while ((seen == 0 || value < seen) && !cas(least, seen, value)) {}
}

void raise_to(int64_t& most, int64_t value) {
  int64_t seen = load_relaxed(most);
  while (value > seen && !cas(most, seen, value)) {}
}

// No kernel begins before its launch, or its call. A task that stands for itself may have been told after it.
int64_t earliest_start_ns(const ci_slot& slot) {
  const int64_t launch_ns = load_relaxed(slot.launch_ns);
  if (launch_ns != 0) return launch_ns;
  const bool has_call = (load_relaxed(slot.slot_flags) & CI_SLOTFLAG_API_SEEN) != 0;
  return has_call ? load_relaxed(slot.record.enqueue_ns) : 0;
}

void note_first_start(Door& d, ci_slot& slot, int64_t gpu_ns) {
  const int64_t now = mono_ns();
  store_relaxed(slot.callback_ns, now);
  store_relaxed(slot.record.start_ns, now);
  if (gpu_ns > 0) d.comms[load_relaxed(slot.record.comm_index)].clock.observe(gpu_ns, now, earliest_start_ns(slot), now);
}

bool is_whole(const Door& d, const Token& op, const ci_slot& slot, uint64_t stopped) {
  if (load_relaxed(d.ops[op.slot].is_untrusted) != 0)
    return (load_relaxed(slot.slot_flags) & CI_SLOTFLAG_TASK_HANDED_OVER) != 0 && has_stopped_all(slot);
  const uint8_t n = load_relaxed(slot.record.n_channels);
  return n != 0 && __builtin_popcountll(stopped) >= n;
}

}  // namespace

bool has_stopped_all(const ci_slot& slot) {
  const uint64_t stopped = load_acquire(slot.stopped_mask);
  return stopped != 0 && stopped == load_acquire(slot.started_mask);
}

void note_channel_start(Door& d, const Token& op, ci_slot& slot, const KernelChPart& part) {
  const auto gpu_ns = static_cast<int64_t>(part.gpu_ns);
  const uint64_t bit = uint64_t{1} << part.channel_id;
  if (__atomic_fetch_or(&slot.started_mask, bit, __ATOMIC_ACQ_REL) == 0) note_first_start(d, slot, gpu_ns);
  if (gpu_ns > 0) lower_to(slot.record.gpu_start_ns, gpu_ns);
  else store_relaxed(d.ops[op.slot].has_bad_stamp, 1);
}

uint64_t note_channel_stop(Door& d, const Token& op, ci_slot& slot, uint32_t channel, int64_t gpu_ns) {
  const uint64_t bit = uint64_t{1} << channel;
  if (gpu_ns > 0) raise_to(slot.record.gpu_end_ns, gpu_ns);
  else store_relaxed(d.ops[op.slot].has_bad_stamp, 1);
  return __atomic_fetch_or(&slot.stopped_mask, bit, __ATOMIC_ACQ_REL) | bit;
}

void* start_channel(void* task, const KernelChPart& part) {
  Door* d = door();
  if (d == nullptr) return void_token(kIgnored);
  const Token op = token_of(task);
  if (op.type == kVoidToken) return void_token(kIgnored);
  if (part.channel_id >= kMaxChannels) return note_unknown(*d);
  if (op.type == kFanTaskToken) return start_fan_channel(*d, fan_token_of(task), part);
  if (op.type != kTaskToken) return note_unknown(*d);
  ci_slot* slot = find_op(*d, op);
  if (slot == nullptr) return note_stale(*d);
  note_channel_start(*d, op, *slot, part);
  return pointer_of(Token{kChannelToken, part.channel_id, op.slot, op.generation, op.salt});
}

void stop_channel(Door& d, const Token& token, int64_t gpu_ns) {
  ci_slot* slot = find_op(d, token);
  if (slot == nullptr || token.comm >= kMaxChannels) return;
  if ((load_relaxed(slot->stopped_mask) >> token.comm & 1) != 0) return;  // told by its state before
  if (is_whole(d, token, *slot, note_channel_stop(d, token, *slot, token.comm, gpu_ns))) finish(d, token, mono_ns());
}

}  // namespace ci::nccl
