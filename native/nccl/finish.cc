// The end of an op: its times from the GPU's stamps where they can be trusted, else from the callbacks.
#include "door.h"
#include "sampling.h"

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

bool is_stamped(const Door& d, Token op, const ci_slot& slot) {
  return load_relaxed(d.ops[op.slot()].has_bad_stamp) == 0 &&
         load_relaxed(slot.started_mask) == load_relaxed(slot.stopped_mask);
}

void end_op(Door& d, Token op, const Outcome& end) {
  d.recorder->end_at(make_token({kHandleOp, 0, op.slot(), op.generation(), op.salt()}).bits, end, true);
  note_sampled_end(d, op);
}

// The tasks that share the head's launch; each stands in one list only.
void end_tails(Door& d, uint64_t tail, const Outcome& end) {
  while (tail != 0) {
    const Token op = Token::of(tail);
    if (find_op(d, op) == nullptr) return;
    tail = load_acquire(d.ops[op.slot()].tail);
    end_op(d, op, end);
  }
}

void note_done_plan(CommState& comm, uint64_t plan) {
  const uint32_t number = plan_number(plan);
  if (static_cast<int32_t>(number - load_relaxed(comm.done_plan)) > 0) store_relaxed(comm.done_plan, number);
}

}  // namespace

void finish(Door& d, Token op, int64_t now) {
  const ci_slot& slot = d.recorder->slots[static_cast<int>(op.slot())];
  const uint32_t comm = load_relaxed(slot.record.comm_index);
  const int64_t gpu_end = load_relaxed(slot.record.gpu_end_ns);
  Outcome end = {now, CI_OPSTATE_DONE, CI_TIMINGSOURCE_HOST_KERNEL_CALLBACK};
  const bool is_possible = gpu_end > 0 && observe_clock(d.comms[comm], gpu_end, now, 0);
  if (is_possible && is_stamped(d, op, slot)) map_stamps(d, slot, now, &end);
  const uint64_t tail = load_acquire(d.ops[op.slot()].tail);
  note_done_plan(d.comms[comm], load_relaxed(d.ops[op.slot()].plan));
  end_op(d, op, end);
  if (tail != 0) end_tails(d, tail, end);
}

uint32_t plan_number(uint64_t plan) {
  const Token token = Token::of(plan);
  return token.type() == kPlanToken ? token.comm() << 22 | token.generation() : 0;
}

void retire(Door& d, Token op, uint8_t reason) {
  end_op(d, op, {mono_ns(), CI_OPSTATE_UNOBSERVABLE, CI_TIMINGSOURCE_UNKNOWN, reason});
}

void finish_by_host(Door& d, Token op) {
  end_op(d, op, {mono_ns(), CI_OPSTATE_DONE, CI_TIMINGSOURCE_HOST_KERNEL_CALLBACK});
}

bool follow_head(Door& d, Token tail) {
  const uint64_t plan = load_relaxed(d.ops[tail.slot()].plan);
  bool has_head = false;
  d.recorder->slots.each_in_flight([&](int at, uint32_t word) {
    OpState& head = d.ops[at];
    const bool is_head = plan != 0 && load_acquire(head.generation) == slot_generation(word) &&
                         load_relaxed(head.plan) == plan && load_relaxed(head.is_symmetric) != 0 &&
                         load_relaxed(d.recorder->slots[at].record.n_channels) != 0;
    if (!is_head || has_head) return;
    has_head = true;
    if (exchange(d.ops[tail.slot()].is_tail, 1) != 0) return;
    uint64_t next = load_relaxed(head.tail);
    do store_relaxed(d.ops[tail.slot()].tail, next);
    while (!cas(head.tail, next, tail.bits));
  });
  return has_head;
}

}  // namespace ci::nccl
