// Progress threads and what they deliver: kernel channels and proxy ops.
#include <unistd.h>

#include <algorithm>

#include "nccl.h"

namespace fake {
using namespace ci::nccl;
namespace {

constexpr int64_t kChannelSkewNs = 100;
constexpr int kPollUs = 100;
constexpr int kIdlePollUs = 2000;  // nothing has moved for a while
constexpr int kIdlePolls = 200;
constexpr const char* kPhases[] = {"initial_sync", "compute", "final_sync"};

class KernelWork : public Work {
 public:
  KernelWork(Process& process, Gpu& gpu, const std::shared_ptr<Task>& task)
      : Work(task->comm), process_(process), gpu_(gpu), task_(task), run_(task->run), parent_(task->event),
        network_(task->works) {
    for (int channel = 0; channel < kMaxChannels; channel++)
      if (task->channels() >> channel & 1) channels_.push_back({channel, nullptr, 0});
    is_done_ = channels_.empty();
  }

  bool poll(int64_t now_ns) override {
    const int64_t start_ns = run_->start_ns, end_ns = run_->end_ns;
    if (start_ns == 0 || !is_allowed()) return false;
    bool has_moved = false;
    for (size_t i = 0; i < channels_.size(); i++) {
      Channel& channel = channels_[i];
      const int64_t skew_ns = static_cast<int64_t>(i) * kChannelSkewNs;
      if (channel.stage == 0 && now_ns >= start_ns + skew_ns) {
        if (!task_->op->is_stop_first) start(channel, start_ns + skew_ns, now_ns);
        channel.stage = 1;
      } else if (channel.stage == 1 && end_ns != 0 && now_ns >= end_ns && is_free(channel.id)) {
        stop(channel, start_ns + skew_ns, end_ns - skew_ns);
        channel.stage = 2;
        n_stopped_++;
      } else {
        continue;
      }
      has_moved = true;
    }
    is_done_ = n_stopped_ == channels_.size();
    return has_moved;
  }

 private:
  struct Channel {
    int id;
    void* handle;
    int stage;  // 0 not begun, 1 begun, 2 over
  };

  bool is_allowed() const {
    if (task_->op->children == Children::kAfter) return task_->is_event_stopped;
    if (task_->op->children == Children::kLate) return task_->group->is_left;
    return true;
  }

  // A kernel cannot leave a channel while its data are still to be sent or to come.
  bool is_free(int channel) const {
    if (run_->dead_channels >> channel & 1) return false;
    return std::all_of(network_.begin(), network_.end(), [](const auto& work) { return work->has_flowed(); });
  }

  void start(Channel& channel, int64_t start_ns, int64_t now_ns) {
    Event event;
    event.type = kKernelCh;
    event.parent = parent_;
    event.channel = static_cast<uint8_t>(channel.id);
    event.gpu_ns = start_stamp(start_ns, now_ns);
    process_.plugin.start(task_->comm->context, &channel.handle, event);
  }

  void stop(Channel& channel, int64_t start_ns, int64_t end_ns) {
    phases(channel, start_ns, end_ns);
    StateArgs args;
    args.gpu_ns = stop_stamp(start_ns, end_ns);
    process_.plugin.state(channel.handle, kKernelChStop, args);
    process_.plugin.stop(channel.handle);
  }

  uint64_t start_stamp(int64_t start_ns, int64_t now_ns) const {
    const Stamps stamps = task_->op->stamps;
    if (stamps == Stamps::kZero || stamps == Stamps::kNoStart) return 0;
    // Of a later work, but written before it is read.
    return gpu_.stamp(stamps == Stamps::kLagging ? now_ns : start_ns);
  }

  uint64_t stop_stamp(int64_t start_ns, int64_t end_ns) const {
    switch (task_->op->stamps) {
      case Stamps::kZero: return 0;
      case Stamps::kReversed: return gpu_.stamp(start_ns - 1000);
      case Stamps::kSame: return gpu_.stamp(start_ns);
      case Stamps::kLagging: return gpu_.stamp(start_ns);
      default: return gpu_.stamp(std::max(end_ns, start_ns));
    }
  }

  // Three phases back to back, right before the stop of their channel.
  void phases(Channel& channel, int64_t start_ns, int64_t end_ns) {
    if (task_->op->via != Via::kSymmetric || !is_emitted(process_.plugin.nccl(), kKernelPhase, task_->mask)) return;
    const int64_t third_ns = (end_ns - start_ns) / 3;
    for (int i = 0; i < 3; i++) {
      Event event;
      event.type = kKernelPhase;
      event.parent = channel.handle;
      event.channel = static_cast<uint8_t>(channel.id);
      event.phase = static_cast<uint8_t>(i);
      event.phase_name = kPhases[i];
      event.gpu_ns = gpu_.stamp(start_ns + i * third_ns);
      void* handle = nullptr;
      process_.plugin.start(task_->comm->context, &handle, event);
      StateArgs args;
      args.gpu_ns = gpu_.stamp(start_ns + (i + 1) * third_ns);
      if (handle == nullptr) continue;
      process_.plugin.state(handle, kKernelPhaseStop, args);
      process_.plugin.stop(handle);
    }
  }

  Process& process_;
  Gpu& gpu_;
  std::shared_ptr<Task> task_;
  std::shared_ptr<Run> run_;
  void* parent_;  // the task's handle at hand-over: a replay may change it meanwhile
  std::vector<std::shared_ptr<Work>> network_;  // proxy ops of the same task
  std::vector<Channel> channels_;
  size_t n_stopped_ = 0;
};

class ProxyWork : public Work {
 public:
  ProxyWork(Process& process, const std::shared_ptr<Task>& task, int channel, bool is_send)
      : Work(task->comm), process_(process), task_(task), run_(task->run), parent_(task->event), channel_(channel),
        is_send_(is_send), has_steps_(is_emitted(process.plugin.nccl(), kProxyStep, task->mask)) {
    steps_.resize(static_cast<size_t>(task->op->n_transfers));
    has_flowed_ = false;
  }

  bool poll(int64_t) override {
    if (run_->start_ns == 0) return false;  // the proxy has its op, the kernel does not run
    if (!has_begun_) return begin();
    bool has_moved = false;
    for (size_t i = n_done_; i < steps_.size() && i < n_done_ + kProxyStepsInFlight; i++)
      has_moved = advance(i) || has_moved;
    while (n_done_ < steps_.size() && steps_[n_done_].stage == kOver) n_done_++;
    const int last = is_send_ ? kSendWait : kRecvGpuWait;
    has_flowed_ = std::all_of(steps_.begin() + static_cast<long>(n_done_), steps_.end(),
                              [last](const StepState& step) { return step.stage == kOver || step.stage == last; });
    if (n_done_ < steps_.size()) return has_moved;
    if (handle_ != nullptr) process_.plugin.stop(handle_);
    handle_ = nullptr;
    is_done_ = true;
    return true;
  }

 private:
  static constexpr int kOver = 100;
  struct StepState {
    int stage = 0;
    int n_credits = 0;
    void* handle = nullptr;
  };

  bool begin() {
    has_begun_ = true;
    const Comm& comm = *task_->comm;
    Event event;
    event.type = kProxyOp;
    event.parent = parent_;
    event.rank = comm.comm_rank;
    event.pid = getpid();
    event.channel = static_cast<uint8_t>(channel_);
    const int next = (comm.comm_rank + (is_send_ ? 1 : comm.size() - 1)) % comm.size();
    event.peer = is_collective(task_->func) ? next : task_->peer;
    event.n_steps = task_->op->n_transfers;
    event.chunk_bytes = static_cast<int>(transfer_bytes());
    event.is_send = is_send_;
    process_.plugin.start(comm.context, &handle_, event);
    if (handle_ != nullptr) process_.plugin.state(handle_, kProxyOpInProgress, StateArgs{0});
    return true;
  }

  size_t transfer_bytes() const {
    const size_t n_channels = static_cast<size_t>(__builtin_popcountll(task_->op->channels));
    return std::max<size_t>(1, task_->bytes() / n_channels / steps_.size());
  }

  bool advance(size_t i) {
    StepState& step = steps_[i];
    if (step.stage == kOver) return false;
    if (step.stage == 0) return enter(step, i);
    const Stuck& stuck = is_send_ ? task_->op->send_stuck : task_->op->recv_stuck;
    if (step.stage == stuck.state && static_cast<int>(i) >= stuck.step) return false;
    return is_send_ ? advance_send(step) : advance_recv(step);
  }

  bool enter(StepState& step, size_t i) {
    step.stage = is_send_ ? kSendGpuWait : kRecvWait;
    if (!has_steps_) return true;
    Event event;
    event.type = kProxyStep;
    event.parent = handle_;
    event.rank = task_->comm->comm_rank;
    event.step = static_cast<int>(i);
    process_.plugin.start(task_->comm->context, &step.handle, event);
    state(step, step.stage);
    return true;
  }

  bool advance_send(StepState& step) {
    if (step.stage == kSendGpuWait) return state(step, kSendPeerWait);
    if (step.stage == kSendPeerWait && ++step.n_credits < task_->op->n_credits) return state(step, kSendPeerWait);
    if (step.stage == kSendPeerWait) return has_met() && state(step, kSendWait);
    return finish(step);
  }

  bool advance_recv(StepState& step) {
    if (step.stage == kRecvWait) return has_met() && state(step, kRecvFlushWait);
    if (step.stage == kRecvFlushWait) return state(step, kRecvGpuWait);
    return finish(step);
  }

  // The other members run their kernels too: credits and data come.
  bool has_met() const { return run_->end_ns != 0; }

  bool state(StepState& step, int state) {
    step.stage = state;
    StateArgs args;
    args.trans_bytes = transfer_bytes();
    if (step.handle != nullptr) process_.plugin.state(step.handle, state, args);
    return true;
  }

  bool finish(StepState& step) {
    if (step.handle != nullptr) process_.plugin.stop(step.handle);
    step.handle = nullptr;
    step.stage = kOver;
    return true;
  }

  Process& process_;
  std::shared_ptr<Task> task_;
  std::shared_ptr<Run> run_;
  void* parent_;
  int channel_;
  bool is_send_;
  bool has_steps_;
  bool has_begun_ = false;
  void* handle_ = nullptr;
  std::vector<StepState> steps_;
  size_t n_done_ = 0;
};

}  // namespace

std::shared_ptr<Work> kernel_work(Process& process, Gpu& gpu, const std::shared_ptr<Task>& task) {
  return std::make_shared<KernelWork>(process, gpu, task);
}
std::shared_ptr<Work> proxy_work(Process& process, const std::shared_ptr<Task>& task, int channel, bool is_send) {
  return std::make_shared<ProxyWork>(process, task, channel, is_send);
}

Worker::Worker() : thread_([this] { run(); }) {}

Worker::~Worker() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    is_ending_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Worker::post(std::shared_ptr<Work> work) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    incoming_.push_back(std::move(work));
    n_open_++;
  }
  wake_.notify_all();
}

void Worker::post(std::function<void()> call) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    calls_.push_back(std::move(call));
    n_open_++;
  }
  wake_.notify_all();
}

void Worker::call(const std::function<void()>& call) {
  std::atomic<bool> is_over{false};
  post([&] {
    call();
    is_over = true;
  });
  while (!is_over) usleep(20);
}

void Worker::drop(const Comm* comm) {
  call([this, comm] {
    const size_t before = works_.size();
    works_.remove_if([comm](const std::shared_ptr<Work>& work) { return work->comm() == comm; });
    std::lock_guard<std::mutex> lock(mutex_);
    n_open_ -= before - works_.size();
  });
}

bool Worker::is_idle() {
  std::lock_guard<std::mutex> lock(mutex_);
  return n_open_ == 0;
}

void Worker::run() {
  int pause_us = 1, n_idle_polls = 0;
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    if (works_.empty()) wake_.wait(lock, [this] { return is_ending_ || n_open_ > 0; });
    if (is_ending_) return;
    std::vector<std::function<void()>> calls;
    calls.swap(calls_);
    works_.insert(works_.end(), incoming_.begin(), incoming_.end());
    incoming_.clear();
    lock.unlock();
    for (const auto& call : calls) call();
    const bool has_moved = poll_works() || !calls.empty();
    n_idle_polls = has_moved ? 0 : n_idle_polls + 1;
    pause_us = has_moved ? 1 : std::min(pause_us * 2, n_idle_polls < kIdlePolls ? kPollUs : kIdlePollUs);
    lock.lock();
    n_open_ -= calls.size();
    if (!works_.empty() && calls_.empty()) wake_.wait_for(lock, std::chrono::microseconds(pause_us));
  }
}

bool Worker::poll_works() {
  bool has_moved = false;
  size_t n_finished = 0;
  const int64_t now_ns = mono_ns();
  for (auto at = works_.begin(); at != works_.end();) {
    has_moved = (*at)->poll(now_ns) || has_moved;
    const bool is_done = (*at)->is_done();
    n_finished += is_done;
    at = is_done ? works_.erase(at) : std::next(at);
  }
  if (n_finished > 0) {
    std::lock_guard<std::mutex> lock(mutex_);
    n_open_ -= n_finished;
  }
  return has_moved;
}

}  // namespace fake
