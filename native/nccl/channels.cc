// Channels (KernelCh): the only word NCCL has from the GPU. One starts when the kernel has begun on it and stops
// when the kernel has left it.
#include "door.h"
#include "sampling.h"

namespace ci::nccl {
namespace {

// No kernel begins before its launch, or its call. A task that stands for itself may have been told after it.
int64_t earliest_start_ns(const ci_slot& slot) {
  const int64_t launch_ns = load_relaxed(slot.launch_ns);
  if (launch_ns != 0) return launch_ns;
  const bool has_call = (flags_of(slot) & CI_SLOTFLAG_API_SEEN) != 0;
  return has_call ? load_relaxed(slot.record.enqueue_ns) : 0;
}

__attribute__((noinline)) void note_first_start(Door& d, uint32_t at, ci_slot& slot, int64_t gpu_ns) {
  const int64_t now = mono_ns();
  store_relaxed(slot.callback_ns, now);
  store_relaxed(slot.record.start_ns, now);
  if (gpu_ns <= 0) return;
  CommState& comm = d.comms[load_relaxed(slot.record.comm_index)];
  if (!observe_clock(comm, gpu_ns, now, earliest_start_ns(slot))) store_relaxed(d.ops[at].has_bad_stamp, 1);
}

inline bool is_first_start(const ci_slot& slot) { return load_relaxed(slot.started_mask) == 0; }

// The channels of an op are told by one thread (the proxy's, or the profiler's): plain reads and writes will do.
inline void note_start(Door& d, uint32_t at, ci_slot& slot, const KernelChPart& part) {
  const auto gpu_ns = static_cast<int64_t>(part.gpu_ns);
  store_release(slot.started_mask, load_relaxed(slot.started_mask) | uint64_t{1} << part.channel_id);
  const int64_t least = load_relaxed(slot.record.gpu_start_ns);
  if (gpu_ns <= 0) store_relaxed(d.ops[at].has_bad_stamp, 1);
  else if (least == 0 || gpu_ns < least) store_relaxed(slot.record.gpu_start_ns, gpu_ns);
}

inline void note_stop(Door& d, uint32_t at, ci_slot& slot, uint32_t channel, int64_t gpu_ns) {
  if (gpu_ns <= 0) store_relaxed(d.ops[at].has_bad_stamp, 1);
  else if (gpu_ns > load_relaxed(slot.record.gpu_end_ns)) store_relaxed(slot.record.gpu_end_ns, gpu_ns);
  store_release(slot.stopped_mask, load_relaxed(slot.stopped_mask) | uint64_t{1} << channel);
}

}  // namespace

bool has_stopped_all(const ci_slot& slot) {
  const uint64_t stopped = load_acquire(slot.stopped_mask);
  return stopped != 0 && stopped == load_acquire(slot.started_mask);
}

void note_channel_start(Door& d, uint32_t at, ci_slot& slot, const KernelChPart& part) {
  if (is_first_start(slot)) note_first_start(d, at, slot, static_cast<int64_t>(part.gpu_ns));
  note_start(d, at, slot, part);
}

void note_channel_stop(Door& d, uint32_t at, ci_slot& slot, uint32_t channel, int64_t gpu_ns) {
  note_stop(d, at, slot, channel, gpu_ns);
}

namespace {

inline void* start_channel_of(Door& d, Token task, ci_slot& slot, const KernelChPart& part) {
  const uint32_t at = task.slot();
  store_relaxed(d.starts_ns[at][part.channel_id], part.gpu_ns);
  note_start(d, at, slot, part);
  return pointer_of(channel_of_task(task, part.channel_id));
}

__attribute__((noinline)) void* start_first_channel(Door& d, Token task, ci_slot& slot, const KernelChPart& part) {
  const CallbackTimer timer(d, is_sampled(task));
  if (is_first_start(slot)) note_first_start(d, task.slot(), slot, static_cast<int64_t>(part.gpu_ns));
  return start_channel_of(d, task, slot, part);
}

__attribute__((noinline)) Result end_channels(Door& d, Token token) {
  finish(d, token, mono_ns());
  return kSuccess;
}

// How many there are is not known: others may be about to begin, so the rounds wait for them.
__attribute__((noinline)) Result note_untold_stop(OpState& own) {
  if (load_relaxed(own.is_untrusted) != 0) store_release(own.last_stop_ns, mono_ns());
  return kSuccess;
}

__attribute__((noinline)) void* start_other_channel(Door& d, void* task, const KernelChPart& part) {
  const Token token = token_of(task);
  if (token.type() == kVoidToken) return void_token(kIgnored);
  if (token.type() != kFanTaskToken || part.channel_id >= kMaxChannels) return note_unknown(d);
  const CallbackTimer timer(d, is_sampled(token));
  return start_fan_channel(d, fan_token_of(task), part);
}

}  // namespace

void* start_channel(void* handle, const KernelChPart& part) {
  Door* d = door();
  if (d == nullptr) return void_token(kIgnored);
  const Token task = token_of(handle);
  if (task.type() != kTaskToken || part.channel_id >= kMaxChannels) return start_other_channel(*d, handle, part);
  ci_slot* slot = find_op(*d, task);
  if (slot == nullptr) return note_stale(*d);
  if (is_first_start(*slot) || is_sampled(task)) return start_first_channel(*d, task, *slot, part);
  return start_channel_of(*d, task, *slot, part);
}

Result stop_channel(Door& d, Token token, int64_t gpu_ns) {
  ci_slot* slot = find_op(d, token);
  const uint32_t channel = token.channel();
  if (slot == nullptr || (load_relaxed(slot->stopped_mask) >> channel & 1) != 0) return kSuccess;  // told before
  const uint32_t at = token.slot();
  note_stop(d, at, *slot, channel, gpu_ns);
  OpState& own = d.ops[at];
  // A channel that stops when it starts, or before, has the stamp of another work.
  if (gpu_ns <= load_relaxed(d.starts_ns[at][channel])) store_relaxed(own.has_bad_stamp, 1);
  const uint32_t n_stopped = load_relaxed(own.n_stopped) + 1;
  store_relaxed(own.n_stopped, n_stopped);
  const uint8_t n_channels = load_relaxed(slot->record.n_channels);
  if (n_channels == 0) return note_untold_stop(own);
  return n_stopped >= n_channels ? end_channels(d, token) : kSuccess;
}

}  // namespace ci::nccl
