// The end of an op: its times from the GPU's stamps where they can be trusted, else from the callbacks.
#include "door.h"

namespace ci::nccl {
namespace {

// A poll that lags reads stamps of later work: those show as stamps that contradict each other or the callbacks.
bool map_stamps(Door& d, const ci_slot& slot, int64_t now, Outcome* end) {
  const int64_t gpu_start = load_relaxed(slot.record.gpu_start_ns);
  const int64_t gpu_end = load_relaxed(slot.record.gpu_end_ns);
  if (gpu_start <= 0 || gpu_end <= gpu_start) return false;
  int64_t start_ns, end_ns;
  uint32_t start_error, end_error;
  const GpuClock& clock = d.comms[load_relaxed(slot.record.comm_index)].clock;
  if (!clock.map(gpu_start, &start_ns, &start_error) || !clock.map(gpu_end, &end_ns, &end_error)) return false;
  const uint32_t error = start_error > end_error ? start_error : end_error;
  if (end_ns - int64_t{error} > now) return false;
  *end = {end_ns, CI_OPSTATE_DONE, CI_TIMINGSOURCE_GPU, 0, error, start_ns, gpu_start, gpu_end};
  return true;
}

bool is_stamped(const Door& d, const Token& op, const ci_slot& slot) {
  return load_relaxed(d.ops[op.slot].has_bad_stamp) == 0 &&
         load_relaxed(slot.started_mask) == load_relaxed(slot.stopped_mask);
}

void end_op(Door& d, const Token& op, const Outcome& end) {
  d.recorder->end_at(Token{kHandleOp, 0, op.slot, op.generation, op.salt}.encode(), end, true);
}

}  // namespace

void finish(Door& d, const Token& op) {
  const int64_t now = mono_ns();
  const ci_slot& slot = d.recorder->slots[static_cast<int>(op.slot)];
  const int64_t gpu_end = load_relaxed(slot.record.gpu_end_ns);
  if (gpu_end > 0) d.comms[load_relaxed(slot.record.comm_index)].clock.observe(gpu_end, now, 0, now);
  Outcome end = {now, CI_OPSTATE_DONE, CI_TIMINGSOURCE_HOST_KERNEL_CALLBACK};
  if (is_stamped(d, op, slot)) map_stamps(d, slot, now, &end);
  end_op(d, op, end);
}

void retire(Door& d, const Token& op, uint8_t reason) {
  end_op(d, op, {mono_ns(), CI_OPSTATE_UNOBSERVABLE, CI_TIMINGSOURCE_UNKNOWN, reason});
}

}  // namespace ci::nccl
