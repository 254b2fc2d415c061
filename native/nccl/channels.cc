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

void note_first_start(Door& d, const Token& op, ci_slot& slot, int64_t gpu_ns) {
  const int64_t now = mono_ns();
  store_relaxed(slot.callback_ns, now);
  store_relaxed(slot.record.start_ns, now);
  if (gpu_ns <= 0) return;
  const int64_t launch_ns = load_relaxed(slot.launch_ns);
  const int64_t lower_ns = launch_ns != 0 ? launch_ns : load_relaxed(slot.record.enqueue_ns);
  // The communicator of a channel's token is not in it.
  d.comms[load_relaxed(slot.record.comm_index)].clock.observe(gpu_ns, now, lower_ns, now);
  (void)op;
}

bool is_whole(const ci_slot& slot, uint64_t stopped) {
  const uint8_t n = load_relaxed(slot.record.n_channels);
  return n != 0 && __builtin_popcountll(stopped) >= n;
}

}  // namespace

void* start_channel(void* task, const KernelChPart& part) {
  Door* d = door();
  if (d == nullptr) return void_token(kIgnored);
  const Token op = token_of(task);
  if (op.type == kVoidToken) return void_token(kIgnored);
  if (op.type != kTaskToken || part.channel_id >= kMaxChannels) return note_unknown(*d);
  ci_slot* slot = find_op(*d, op);
  if (slot == nullptr) return note_stale(*d);
  const auto gpu_ns = static_cast<int64_t>(part.gpu_ns);
  const uint64_t bit = uint64_t{1} << part.channel_id;
  if (__atomic_fetch_or(&slot->started_mask, bit, __ATOMIC_ACQ_REL) == 0) note_first_start(*d, op, *slot, gpu_ns);
  if (gpu_ns > 0) lower_to(slot->record.gpu_start_ns, gpu_ns);
  else store_relaxed(d->ops[op.slot].has_bad_stamp, 1);
  return pointer_of(Token{kChannelToken, part.channel_id, op.slot, op.generation, op.salt});
}

void stop_channel(Door& d, const Token& token, int64_t gpu_ns) {
  ci_slot* slot = find_op(d, token);
  if (slot == nullptr || token.comm >= kMaxChannels) return;
  const uint64_t bit = uint64_t{1} << token.comm;
  if ((load_relaxed(slot->stopped_mask) & bit) != 0) return;  // told by its state before
  if (gpu_ns > 0) raise_to(slot->record.gpu_end_ns, gpu_ns);
  else store_relaxed(d.ops[token.slot].has_bad_stamp, 1);
  const uint64_t stopped = __atomic_fetch_or(&slot->stopped_mask, bit, __ATOMIC_ACQ_REL) | bit;
  if (is_whole(*slot, stopped)) finish(d, token);
}

}  // namespace ci::nccl
