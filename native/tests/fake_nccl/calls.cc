// Thread A inside an NCCL call: group, call and task.
#include <algorithm>

#include "nccl.h"

namespace fake {
using namespace ci::nccl;

bool is_emitted(const Release& release, uint64_t type, int32_t mask) {
  constexpr uint64_t kCe = kCeColl | kCeSync | kCeBatch;
  constexpr uint64_t kNetwork = kProxyOp | kProxyStep | kNetPlugin;
  constexpr uint64_t kTask = kNetwork | kKernelCh;
  auto wanted = static_cast<uint32_t>(mask);
  if (release.minor >= 31 && (wanted & kKernelPhase) != 0) wanted |= kKernelCh;
  const uint64_t by_2_27 = release.minor == 27 ? uint64_t{kNetPlugin} : 0;
  switch (type) {
    case kGroupApi:
      return wanted & (kGroupApi | kP2pApi | kCollApi | kKernelLaunch | kGroup | kColl | kP2p | kTask | kCe);
    case kCollApi: return wanted & (kCollApi | kColl | kTask | kCe);
    case kP2pApi: return wanted & (kP2pApi | kP2p | kTask);
    case kGroup: return wanted & (kGroup | kColl | kP2p | kTask);
    case kColl: return wanted & (kColl | kTask);
    case kP2p: return wanted & ((kP2p | kTask) & ~by_2_27);
    case kProxyOp: return wanted & kNetwork;
    case kProxyStep: return wanted & (kProxyStep | kNetPlugin);
    case kCeColl: return wanted & kCe;
    default: return wanted & type;
  }
}

bool Rank::emits(uint64_t type, int32_t mask) const {
  const Release& nccl = process_.plugin.nccl();
  const bool is_api = (type & (kGroupApi | kCollApi | kP2pApi | kKernelLaunch)) != 0;
  if (is_api && !nccl.has_api_events()) return false;
  return is_emitted(nccl, type, mask);
}

// NCCL asks for NULL nearly everywhere before it stops something.
void Rank::stop(void** handle, bool clears) {
  if (*handle != nullptr) process_.plugin.stop(*handle);
  if (clears) *handle = nullptr;
}

void Rank::call(const Step& step, Comm& comm) {
  if (comm.size() == 1 || step.op.count == 0 || !comm.is_alive) return;  // NCCL returns before it queues a task
  const Func func = step.op.func;
  const bool is_fan = func == Func::kAllToAll || func == Func::kGather || func == Func::kScatter;
  enter();
  if (is_fan) {
    fan(step, comm);
  } else {
    int peer = step.op.peer;
    if (step.op.is_peer_relative) peer = ((comm.comm_rank + peer) % comm.size() + comm.size()) % comm.size();
    append(comm, step, func, is_collective(func) ? -1 : peer);
  }
  leave();
}

void Rank::fan(const Step& step, Comm& comm) {
  const Func func = step.op.func;
  const bool is_root = comm.comm_rank == step.op.root;
  for (int peer = 0; peer < comm.size(); peer++) {
    if (peer == comm.comm_rank) continue;  // in place: dropped
    const bool is_with_root = peer == step.op.root;
    if (func == Func::kAllToAll || (func == Func::kGather && is_with_root) || (func == Func::kScatter && is_root))
      append(comm, step, Func::kSend, peer);
    if (func == Func::kAllToAll || (func == Func::kGather && is_root) || (func == Func::kScatter && is_with_root))
      append(comm, step, Func::kRecv, peer);
  }
}

void Rank::begin_group(Comm& comm) {
  group_ = std::make_shared<GroupCall>();
  group_comm_ = &comm;
  group_mask_ = comm.is_active ? process_.plugin.mask() : 0;
  if (!emits(kGroupApi, group_mask_)) return;
  Event event;
  event.type = kGroupApi;
  event.rank = process_.plugin.nccl().sets_api_rank() ? comm.comm_rank : 0;
  event.depth = depth_;
  event.is_captured = !capturing_.empty();
  process_.plugin.start(comm.context, &group_->handle, event);
  if (group_->handle != nullptr) process_.plugin.group_state(group_->handle, kGroupStartApiStop);
}

// A non-blocking communicator takes no call while the one before is in progress: the application asks until it is not.
void Rank::await_ready(Comm& comm) {
  if (comm.n_in_helper == 0 || is_in_child_) return;
  await([&comm] { return comm.n_in_helper == 0; }, "the last call of a non-blocking communicator");
  if (comm.n_in_helper > 0) stuck();
}

void Rank::append(Comm& comm, const Step& step, Func func, int peer) {
  await_ready(comm);
  if (!group_) begin_group(comm);
  auto task = std::make_shared<Task>();
  task->comm = &comm;
  task->op = &step.op;
  task->func = func;
  task->peer = peer;
  task->line = step.line;
  task->mask = comm.is_active ? group_mask_ : 0;
  task->group = group_;
  task->is_captured = !capturing_.empty();
  if (!task->is_captured) comm.call_seq++;
  task->group_api = group_->handle;
  log_call(*task);
  api_event(*task);
  tasks_.push_back(std::move(task));
}

void Rank::api_event(Task& task) {
  const bool is_coll = is_collective(task.func);
  Event event;
  event.type = is_coll ? kCollApi : kP2pApi;
  void** handle = is_coll ? &api_coll_ : &api_p2p_;
  if (emits(event.type, task.mask)) {
    const Op& op = *task.op;
    event.parent = task.group_api;
    event.rank = process_.plugin.nccl().sets_api_rank() ? task.comm->comm_rank : 0;
    event.func = func_name(task.func);
    event.count = op.count;
    event.datatype = op.dtype->name;
    event.root = op.root;
    event.stream = reinterpret_cast<void*>(uintptr_t{0x500000} + static_cast<uintptr_t>(op.stream) * 64);
    event.is_captured = task.is_captured;
    event.user_tag = op.tag;
    process_.plugin.start(task.comm->context, handle, event);
  }
  task.api = *handle;
  if (task.op->blocked == Blocked::kApi) stuck();
  stop(handle, !is_coll);  // a collective's stays in its thread-local variable
}

void Rank::end_group(int n_plans) {
  if (!group_) return;
  Tasks tasks;
  tasks.swap(tasks_);
  const std::shared_ptr<GroupCall> group = std::move(group_);
  group_ = nullptr;
  if (group->handle != nullptr) process_.plugin.group_state(group->handle, kGroupEndApiStart);
  bool is_nonblocking = false;
  for (const auto& task : tasks) is_nonblocking = is_nonblocking || task->comm->spec->is_nonblocking;
  if (!capturing_.empty()) {
    capture(tasks, n_plans);
  } else if (is_nonblocking && !is_in_child_) {
    if (!helper_) helper_ = std::make_unique<Worker>();
    for (const auto& task : tasks) task->comm->n_in_helper++;
    helper_->post([this, tasks, n_plans] {
      launch(tasks, n_plans);
      for (const auto& task : tasks) task->comm->n_in_helper--;
    });
  } else {
    launch(tasks, n_plans);
  }
  stop(&group->handle, true);
  group->is_left = true;
}

}  // namespace fake
