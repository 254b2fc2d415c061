// The end of a group: plans, launches, and the Coll and P2p events that follow them.
#include <algorithm>
#include <chrono>

#include "nccl.h"

namespace fake {
using namespace ci::nccl;
namespace {

uint64_t mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
  return hash ^ hash >> 29;
}

// NCCL names these two by their bytes.
bool is_in_bytes(Func func) { return func == Func::kAllGather || func == Func::kBroadcast; }

int seq_slot(Func func) { return static_cast<int>(func); }  // collectives come first in Func

// Collectives by size, the largest first; sends and receives by distance: the order of NCCL's plans.
void sort_tasks(Tasks* tasks) {
  std::stable_sort(tasks->begin(), tasks->end(), [](const auto& a, const auto& b) {
    const bool a_coll = is_collective(a->func), b_coll = is_collective(b->func);
    if (a_coll != b_coll) return a_coll;
    if (a_coll) return a->bytes() > b->bytes();
    const auto distance = [](const Task& t) { return (t.peer - t.comm->comm_rank + t.comm->size()) % t.comm->size(); };
    return distance(*a) < distance(*b);
  });
}

// The plan of symmetric kernels; there is one.
Plan& head_of(std::vector<Plan>& plans) {
  const auto is_head = [](const Plan& plan) { return plan.tasks[0]->op->via == Via::kSymmetric; };
  return *std::find_if(plans.begin(), plans.end(), is_head);
}

// One communicator's plans: `n_plans` of ordinary kernels, then one of each other way.
std::vector<Plan> split(Comm* comm, const Tasks& tasks, size_t n_plans) {
  Tasks ordinary;
  std::vector<Plan> other;
  bool has_head = false;
  for (const auto& task : tasks) {
    if (task->op->via == Via::kKernel) {
      ordinary.push_back(task);
    } else if (task->op->via == Via::kSymmetric && has_head) {
      task->is_symmetric_tail = true;
      head_of(other).tasks.push_back(task);
    } else {
      has_head = has_head || task->op->via == Via::kSymmetric;
      other.push_back({comm, {task}});
    }
  }
  sort_tasks(&ordinary);
  std::vector<Plan> out;
  const size_t n = std::min(n_plans, ordinary.size());
  for (size_t i = 0; i < n; i++)
    out.push_back({comm, Tasks(ordinary.begin() + static_cast<long>(ordinary.size() * i / n),
                               ordinary.begin() + static_cast<long>(ordinary.size() * (i + 1) / n))});
  out.insert(out.end(), other.begin(), other.end());
  return out;
}

bool are_done(const std::vector<std::shared_ptr<Work>>& works) {
  return std::all_of(works.begin(), works.end(), [](const auto& work) { return work->is_done(); });
}

}  // namespace

std::vector<Plan> plans_of(const Tasks& tasks, int n_plans) {
  std::vector<Comm*> comms;
  std::vector<std::vector<Plan>> by_comm;
  for (const auto& task : tasks)
    if (std::find(comms.begin(), comms.end(), task->comm) == comms.end()) comms.push_back(task->comm);
  size_t n_rounds = 0;
  for (Comm* comm : comms) {
    Tasks own;
    std::copy_if(tasks.begin(), tasks.end(), std::back_inserter(own), [&](const auto& t) { return t->comm == comm; });
    by_comm.push_back(split(comm, own, static_cast<size_t>(n_plans)));
    n_rounds = std::max(n_rounds, by_comm.back().size());
  }
  std::vector<Plan> out;
  for (size_t round = 0; round < n_rounds; round++)
    for (auto& plans : by_comm)
      if (round < plans.size()) out.push_back(plans[round]);
  return out;
}

void Rank::launch(const Tasks& tasks, int n_plans) {
  for (const auto& task : tasks)
    if (task->op->blocked == Blocked::kConnect) stuck();
  for (Plan& plan : plans_of(tasks, n_plans)) launch_plan(plan);
}

bool Rank::is_end_seen(const Task& task) const {
  const Via via = task.op->via;
  if (via == Via::kSymmetric) return process_.plugin.nccl().minor >= 31;
  return via == Via::kKernel;
}

// A plan without it is not seen when its graph is replayed.
bool Rank::has_progress_work(const Plan& plan) const {
  for (const auto& task : plan.tasks)
    if (is_end_seen(*task) && (task->op->n_transfers > 0 || emits(kKernelCh, task->mask))) return true;
  return false;
}

// The kernel may run before anything of it is told.
void Rank::launch_event(const Plan& plan, const std::shared_ptr<Kernel>& kernel) {
  const Task& first = *plan.tasks.front();
  const bool is_dark = first.op->via == Via::kSymmetric && !is_end_seen(first);
  Event event;
  event.type = kKernelLaunch;
  event.parent = first.group_api;
  event.stream = reinterpret_cast<void*>(uintptr_t{0x500000} + static_cast<uintptr_t>(plan.stream()) * 64);
  void* handle = nullptr;
  if (!is_dark && emits(kKernelLaunch, first.mask)) process_.plugin.start(plan.comm->context, &handle, event);
  for (const auto& task : plan.tasks)
    if (task->op->blocked == Blocked::kLaunch) stuck();
  if (kernel) submit(kernel);
  stop(&handle, true);
}

void Rank::launch_plan(Plan& plan) {
  const Runs runs = runs_of(plan);
  for (size_t i = 0; i < runs.size(); i++) plan.tasks[i]->run = runs[i];
  const std::shared_ptr<Kernel> kernel = kernel_of(plan, runs);
  if (plan.tasks.front()->op->via == Via::kCe) return copy_engine(plan, kernel);
  const bool is_told_later = goes_through_host(plan);
  if (is_told_later) tell_on_host(plan, runs, kernel, false);
  launch_event(plan, kernel);
  if (!is_told_later) profile(plan);
}

void Rank::copy_engine(Plan& plan, std::shared_ptr<Kernel> kernel) {
  Task& task = *plan.tasks.front();
  Event event;
  event.type = kCeColl;
  event.parent = task.api;
  event.rank = plan.comm->comm_rank;
  event.seq = event.ce_seq = plan.comm->ce_seq++;
  event.func = func_name(task.func);
  event.count = task.op->count;
  event.root = task.op->root;
  event.datatype = task.op->dtype->name;
  event.user_tag = task.op->tag;
  Plugin& plugin = process_.plugin;
  const bool is_told = plugin.nccl().is_ce_capable() && emits(kCeColl, task.mask);
  if (is_told) plugin.start(plan.comm->context, &task.event, event);
  Event part;
  part.parent = task.event;
  part.rank = plan.comm->comm_rank;
  part.count = task.bytes();
  for (uint64_t type : {kCeSync, kCeBatch, kCeSync}) {
    part.type = type;
    part.peer = plan.comm->size();
    void* handle = nullptr;
    if (is_told && emits(type, task.mask)) plugin.start(plan.comm->context, &handle, part);
    stop(&handle, true);
    part.step = 1;
  }
  submit(std::move(kernel));
  stop(&task.event, true);
}

std::shared_ptr<Run> Rank::make_run(const Task& task) {
  std::lock_guard<std::mutex> lock(counters_mutex_);
  Comm& comm = *task.comm;
  auto run = std::make_shared<Run>();
  const Op& op = *task.op;
  const bool is_send = task.func == Func::kSend;
  run->is_collective = is_collective(task.func);
  run->n_members = process_.script.is_alone ? 1 : run->is_collective ? comm.size() : 2;
  uint64_t key = mixed(mixed(0, static_cast<uint64_t>(comm.index) + 1), static_cast<uint64_t>(comm.life));
  uint64_t signature = mixed(1, op.count);
  for (const char* at = op.dtype->word; *at != 0; at++) signature = mixed(signature, static_cast<uint64_t>(*at));
  if (run->is_collective) {
    key = mixed(key, comm.n_collectives++);
    signature = mixed(mixed(signature, static_cast<uint64_t>(task.func)), static_cast<uint64_t>(op.root));
  } else {
    const int source = is_send ? comm.comm_rank : task.peer, target = is_send ? task.peer : comm.comm_rank;
    key = mixed(mixed(key, static_cast<uint64_t>(source * 64 + target) + 1), 0x9E37);
    key = mixed(key, comm.n_p2p[{task.peer, is_send}]++);
  }
  run->key = key == 0 ? 1 : key;
  run->signature = signature;
  run->dead = op.dead | (op.send_stuck.state != 0 || op.recv_stuck.state != 0 ? op.channels : 0);
  run->duration_ns = op.duration_ns;
  return run;
}

Runs Rank::runs_of(const Plan& plan) {
  Runs runs;
  for (const auto& task : plan.tasks) {
    runs.push_back(make_run(*task));
    const uint64_t id = runs.back()->call_id = task->call_id;
    if (is_end_seen(*task)) runs.back()->on_over = [this, id](const Run& run) { log_done(id, run); };
  }
  return runs;
}

std::shared_ptr<Kernel> Rank::kernel_of(const Plan& plan, const Runs& runs) {
  auto kernel = std::make_shared<Kernel>();
  kernel->comm = plan.comm;
  kernel->stream = plan.stream();
  kernel->runs = runs;
  for (const auto& task : plan.tasks) {
    kernel->delay_ns = std::max(kernel->delay_ns, task->op->start_delay_ns);
    kernel->never_starts = kernel->never_starts || task->op->never_starts;
  }
  return kernel;
}

// The kernel of a plan goes into its stream.
void Rank::submit(std::shared_ptr<Kernel> kernel) {
  if (!is_in_child_) gpu_.submit(std::move(kernel));
}

void Rank::start_task(Task& task, Plan& plan) {
  if (task.run && task.run->is_told_by_host) log_told(task.run->call_id);
  const bool is_coll = is_collective(task.func);
  const Op& op = *task.op;
  Event event;
  event.type = is_coll ? kColl : kP2p;
  event.parent = process_.plugin.nccl().minor == 27 ? plan.group : task.api;
  event.parent_group = plan.group;
  event.rank = plan.comm->comm_rank;
  event.func = func_name(task.func);
  event.datatype = is_coll && is_in_bytes(task.func) ? "ncclInt8" : op.dtype->name;
  event.count = is_coll && is_in_bytes(task.func) ? task.bytes() : op.count;
  event.root = op.root;
  event.peer = task.peer;
  event.algo = op.algo.c_str();
  event.proto = op.proto.c_str();
  event.user_tag = op.tag;
  event.n_channels = static_cast<uint8_t>(__builtin_popcountll(task.channels()));
  if (op.stated_channels >= 0) event.n_channels = static_cast<uint8_t>(op.stated_channels);
  if (op.via == Via::kSymmetric) {
    event.is_symmetric = true;
    event.kernel_variant = "AllReduce_RSxLD_AGxST";
    event.algo = "RSxLD_AGxST";
    event.proto = "";
  }
  if (is_coll) {
    std::lock_guard<std::mutex> lock(counters_mutex_);
    uint64_t& seq = plan.comm->func_seq[seq_slot(task.func)];
    event.seq = seq;
    if (!plan.is_persistent || emits(kKernelCh, task.mask)) seq++;
  }
  task.is_event_stopped = false;
  if (emits(event.type, task.mask)) process_.plugin.start(plan.comm->context, &task.event, event);
}

void Rank::hand_over(const std::shared_ptr<Task>& task) {
  task->works.clear();
  if (is_in_child_ || !task->run) return;
  if (emits(kProxyOp, task->mask) && task->op->n_transfers > 0)
    for (int channel = 0; channel < kMaxChannels; channel++) {
      if (!(task->channels() >> channel & 1)) continue;
      if (task->func != Func::kRecv) task->works.push_back(proxy_work(process_, task, channel, true));
      if (task->func != Func::kSend) task->works.push_back(proxy_work(process_, task, channel, false));
    }
  for (const auto& work : task->works) task->comm->family->proxy.post(work);
  if (!emits(kKernelCh, task->mask) || task->channels() == 0) return;
  task->works.push_back(kernel_work(process_, gpu_, task));
  task->comm->family->of_kernels().post(task->works.back());
}

void Rank::profile(Plan& plan) {
  const Tasks seen = [&] {
    Tasks out;
    for (const auto& task : plan.tasks)
      if (is_end_seen(*task)) out.push_back(task);
    return out;
  }();
  if (seen.empty() || !plan.comm->is_active) return;
  Event event;
  event.type = kGroup;
  if (emits(kGroup, seen.front()->mask)) process_.plugin.start(plan.comm->context, &plan.group, event);
  if (process_.plugin.nccl().minor == 27 && plan.group == nullptr) return;
  for (const auto& task : seen) start_task(*task, plan);
  const bool runs_later = plan.is_persistent && !has_progress_work(plan);
  for (const auto& task : seen)
    if (!runs_later) hand_over(task);
  for (const auto& task : seen) {
    if (task->op->children == Children::kBefore)
      await([&] { return are_done(task->works); }, "children before the stop of their op");
    stop(&task->event, process_.plugin.nccl().clears_task_handle());
    task->is_event_stopped = true;
  }
  stop(&plan.group, true);
}

}  // namespace fake
