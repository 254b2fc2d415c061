// H, the thread of CUDA's host callbacks: it tells the tasks of graph replays, and of launches that go through the host
// stream of their communicator, while A goes on with what comes next.
#include <unistd.h>

#include "nccl.h"

namespace fake {
using namespace ci::nccl;
namespace {

constexpr int kPollUs = 50;

}  // namespace

// Made by A before anything can go through it.
Worker& Rank::host_callbacks() {
  if (!host_) host_ = std::make_unique<Worker>();
  return *host_;
}

// With CUDA_LAUNCH_BLOCKING, or when a live graph keeps the host stream busy.
bool Rank::goes_through_host(const Plan& plan) const {
  if (!host_ || is_in_child_ || !has_progress_work(plan)) return false;
  return is_launch_blocking_ || (plan.comm->has_graph && plan.comm->n_on_host > 0);
}

// The kernel does not begin before its tasks were told; with `waits` they are not told before its turn has come.
void Rank::tell_on_host(const Plan& plan, const Runs& runs, const std::shared_ptr<Kernel>& kernel, bool waits) {
  kernel->is_held = true;
  for (const auto& run : runs) run->is_told_by_host = true;
  if (waits) submit(kernel);
  plan.comm->n_on_host++;
  const int life = plan.comm->life;
  host_->post([this, plan = Plan(plan), runs, kernel, waits, life]() mutable {
    while (waits && gpu_.turn_of(*kernel) == Gpu::Turn::kWaits)
      if (!gpu_.advance(mono_ns())) usleep(kPollUs);
    std::unique_lock<std::mutex> lock(host_mutex_);
    if (plan.comm->life == life) {
      for (size_t i = 0; i < runs.size(); i++) plan.tasks[i]->run = runs[i];
      profile(plan);
    }
    lock.unlock();
    gpu_.release(*kernel);
    plan.comm->n_on_host--;
  });
}

// Something else of the application in the host stream.
void Rank::host_busy(Comm& comm, int64_t time_ns) {
  comm.n_on_host++;
  host_callbacks().post([this, &comm, time_ns] {
    const int64_t end_ns = mono_ns() + time_ns;
    while (mono_ns() < end_ns) {
      process_.arena.progress++;
      usleep(kPollUs);
    }
    comm.n_on_host--;
  });
}

void Rank::capture(const Tasks& tasks, int n_plans) {
  host_callbacks();
  for (Plan& plan : plans_of(tasks, n_plans)) {
    plan.is_persistent = true;
    launch_event(plan, nullptr);
    if (has_progress_work(plan))
      plan.comm->has_graph = true;
    else
      profile(plan);
    graphs_[capturing_].push_back(plan);
  }
}

void Rank::replay(const std::string& graph) {
  for (const Plan& plan : graphs_[graph]) {
    for (const auto& task : plan.tasks) {
      plan.comm->call_seq++;
      log_call(*task, true);
    }
    const Runs runs = runs_of(plan);
    const std::shared_ptr<Kernel> kernel = kernel_of(plan, runs);
    if (has_progress_work(plan) && !is_in_child_)
      tell_on_host(plan, runs, kernel, true);
    else
      submit(kernel);
  }
}

}  // namespace fake
