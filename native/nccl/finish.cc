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
  int64_t host_ns[2];
  uint32_t error;
  const GpuClock& clock = d.comms[load_relaxed(slot.record.comm_index)].clock;
  if (!clock.map_span({gpu_start, gpu_end}, host_ns, &error) || host_ns[1] - int64_t{error} > now) return false;
  *end = {host_ns[1], CI_OPSTATE_DONE, CI_TIMINGSOURCE_GPU, 0, error, host_ns[0], gpu_start, gpu_end};
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

// The tasks that share the head's launch.
__attribute__((noinline)) void end_tails(Door& d, uint32_t comm, uint64_t plan, const Outcome& end) {
  d.recorder->slots.each_in_flight([&](int at, uint32_t word) {
    const OpState& own = d.ops[at];
    const ci_slot& slot = d.slots[at];
    const uint32_t generation = slot_generation(word);
    if (load_acquire(own.generation) != generation || load_relaxed(own.plan) != plan) return;
    if (load_relaxed(own.is_symmetric) == 0 || load_relaxed(slot.record.n_channels) != 0) return;
    end_op(d, make_token({kTaskToken, comm, static_cast<uint32_t>(at), generation, d.salt}), end);
  });
}

void raise_to(uint32_t& newest, uint32_t number) {
  const uint32_t seen = load_relaxed(newest);
  if (number != 0 && (seen == 0 || is_later(number, seen))) store_relaxed(newest, number);
}

// NCCL keeps the kernels of a communicator in order, so what came before this op is over as well. The numbers of
// replays and of other launches are given out by different threads and prove nothing of each other.
void note_done(CommState& comm, const ci_slot& slot, uint64_t plan) {
  const bool is_replay = (load_relaxed(slot.record.flags) & CI_OPFLAG_GRAPH) != 0;
  raise_to(is_replay ? comm.done_graph_plan : comm.done_plan, plan_number(plan));
  raise_to(comm.done_group, load_relaxed(slot.record.group_id));
}

}  // namespace

void finish(Door& d, Token op, int64_t now) {
  const ci_slot& slot = d.recorder->slots[static_cast<int>(op.slot())];
  const uint32_t comm = load_relaxed(slot.record.comm_index);
  const int64_t gpu_end = load_relaxed(slot.record.gpu_end_ns);
  Outcome end = {now, CI_OPSTATE_DONE, CI_TIMINGSOURCE_HOST_KERNEL_CALLBACK};
  const bool is_possible = gpu_end > 0 && observe_clock(d.comms[comm], gpu_end, now, 0);
  if (is_possible && is_stamped(d, op, slot)) map_stamps(d, slot, now, &end);
  const OpState& own = d.ops[op.slot()];
  const uint64_t plan = load_relaxed(own.plan);
  const bool is_head = load_relaxed(own.is_symmetric) != 0 && plan != 0;
  note_done(d.comms[comm], slot, plan);
  end_op(d, op, end);
  if (is_head && load_ordered(d.comms[comm].has_tails) != 0) end_tails(d, comm, plan, end);
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

// Either this finds the head over, or the end of the head finds the tail: both write before they read.
bool follow_head(Door& d, uint32_t row, Token tail) {
  CommState& comm = d.comms[row];
  const uint64_t plan = load_relaxed(d.ops[tail.slot()].plan);
  if (plan == 0 || load_acquire(comm.head_plan) != plan) return false;
  const Token head = Token::of(load_relaxed(comm.head));
  exchange(comm.has_tails, 1);
  return find_op(d, head) != nullptr;
}

}  // namespace ci::nccl
