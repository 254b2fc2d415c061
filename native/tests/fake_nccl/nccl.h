// NCCL as the plugin meets it: communicators, calls, groups, launches and the threads behind them.
#ifndef FAKE_NCCL_NCCL_H
#define FAKE_NCCL_NCCL_H
#include <pthread.h>

#include <condition_variable>
#include <functional>
#include <list>
#include <random>
#include <set>
#include <string>
#include <thread>

#include "gpu.h"
#include "log.h"
#include "plugin.h"
#include "script.h"

namespace fake {

class Rank;
struct Task;

// Something a progress thread looks after.
class Work {
 public:
  explicit Work(const Comm* comm) : comm_(comm) {}
  virtual ~Work() = default;
  // Makes the callbacks that are due; true when there were any.
  virtual bool poll(int64_t now_ns) = 0;
  bool is_done() const { return is_done_; }
  // The network has done its part: no kernel ends before.
  bool has_flowed() const { return has_flowed_; }
  const Comm* comm() const { return comm_; }

 protected:
  std::atomic<bool> is_done_{false};
  std::atomic<bool> has_flowed_{true};

 private:
  const Comm* comm_;
};

// A progress thread: P (proxy), K (profiler, from 2.31), H (CUDA host callbacks) or the helper of non-blocking calls.
class Worker {
 public:
  Worker();
  ~Worker();  // leaves its works where they are
  void post(std::shared_ptr<Work> work);
  void post(std::function<void()> call);
  void call(const std::function<void()>& call);  // and waits for it
  void drop(const Comm* comm);                   // forgets its works, without a callback
  bool is_idle();

 private:
  void run();
  bool poll_works();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::function<void()>> calls_;
  std::vector<std::shared_ptr<Work>> incoming_;
  std::list<std::shared_ptr<Work>> works_;  // the thread's own
  size_t n_open_ = 0;
  bool is_ending_ = false;
  std::thread thread_;
};

// Threads that a communicator shares with those split from it.
struct Family {
  explicit Family(const Release& release) : kernel(release.has_kernel_thread() ? new Worker : nullptr) {}
  Worker proxy;
  std::unique_ptr<Worker> kernel;
  Worker& of_kernels() { return kernel ? *kernel : proxy; }
};

struct Comm {
  const CommSpec* spec = nullptr;
  int index = 0;
  int comm_rank = 0;
  int life = 0;  // how often it was created before
  bool is_alive = false;
  bool is_active = false;  // the plugin was initialised
  void* context = nullptr;
  std::shared_ptr<Family> family;
  uint64_t func_seq[5] = {};
  uint32_t ce_seq = 0;
  uint32_t call_seq = 0;
  uint32_t n_collectives = 0;
  std::map<std::pair<int, bool>, uint32_t> n_p2p;  // by peer and direction
  bool has_graph = false;                          // one with work for the host stream was captured
  std::atomic<int> n_on_host{0};                   // callbacks in its host stream
  std::atomic<int> n_in_helper{0};                 // group calls that its helper has not launched yet
  int size() const { return static_cast<int>(spec->members.size()); }
};

// What outlives a group call: late children ask whether it is over.
struct GroupCall {
  void* handle = nullptr;
  std::atomic<bool> is_left{false};
};

struct Task {
  Comm* comm = nullptr;
  const Op* op = nullptr;
  Func func = Func::kAllReduce;
  int peer = -1;
  uint64_t call_id = 0;
  int line = 0;
  int32_t mask = 0;
  std::shared_ptr<GroupCall> group;
  void* group_api = nullptr;  // as they were when the call was queued
  void* api = nullptr;
  void* event = nullptr;
  bool is_captured = false;
  bool is_symmetric_tail = false;
  std::atomic<bool> is_event_stopped{false};
  std::shared_ptr<Run> run;
  std::vector<std::shared_ptr<Work>> works;
  uint64_t channels() const { return is_symmetric_tail ? 0 : op->channels; }
  size_t bytes() const { return op->count * static_cast<size_t>(op->dtype->bytes); }
};
using Tasks = std::vector<std::shared_ptr<Task>>;
using Runs = std::vector<std::shared_ptr<Run>>;  // beside tasks

struct Plan {
  Comm* comm = nullptr;
  Tasks tasks;
  void* group = nullptr;
  bool is_persistent = false;
  int stream() const { return tasks.front()->op->stream; }
};

// One process of the scenario.
class Process {
 public:
  Process(const Script& s, Arena& a, Log& l) : script(s), arena(a), log(l), plugin(s.release, s.is_poisoning) {}
  ~Process();
  void chaos(bool is_on);
  void tick();

  const Script& script;
  Arena& arena;
  Log& log;
  Plugin plugin;
  std::vector<std::unique_ptr<Rank>> ranks;

 private:
  std::mutex chaos_mutex_;
  std::atomic<bool> is_chaos_{false};
  std::thread chaos_;
};

class Rank {
 public:
  Rank(Process& process, int rank);
  // The whole script; returns when it is over, never when it is stuck in a call.
  void play();
  Gpu& gpu() { return gpu_; }
  int number() const { return rank_; }
  bool is_out() const { return is_out_; }  // played, or stuck and told to leave

  // life.cc
  bool init(Comm& comm);
  void finalize(Comm& comm, bool waits);
  void abort(Comm& comm);

 private:
  friend class Trouble;
  // calls.cc
  void call(const Step& step, Comm& comm);
  void fan(const Step& step, Comm& comm);
  void await_ready(Comm& comm);
  void append(Comm& comm, const Step& step, Func func, int peer);
  void begin_group(Comm& comm);
  void api_event(Task& task);
  void end_group(int n_plans);
  void enter() { depth_++; }
  void leave(int n_plans = 1) {
    if (--depth_ == 0) end_group(n_plans);
  }
  void stop(void** handle, bool clears);

  // host.cc
  bool goes_through_host(const Plan& plan) const;
  void tell_on_host(const Plan& plan, const Runs& runs, const std::shared_ptr<Kernel>& kernel, bool waits);
  void host_busy(Comm& comm, int64_t time_ns);
  void capture(const Tasks& tasks, int n_plans);
  void replay(const std::string& graph);

  // launch.cc
  void launch(const Tasks& tasks, int n_plans);
  bool is_end_seen(const Task& task) const;
  bool has_progress_work(const Plan& plan) const;
  void launch_plan(Plan& plan);
  void launch_event(const Plan& plan, const std::shared_ptr<Kernel>& kernel);
  void copy_engine(Plan& plan, std::shared_ptr<Kernel> kernel);
  Runs runs_of(const Plan& plan);
  std::shared_ptr<Kernel> kernel_of(const Plan& plan, const Runs& runs);
  void submit(std::shared_ptr<Kernel> kernel);
  void profile(Plan& plan);
  void start_task(Task& task, Plan& plan);
  void hand_over(const std::shared_ptr<Task>& task);
  std::shared_ptr<Run> make_run(const Task& task);

  // rank.cc
  void take(const Step& step);
  void take_life(const Step& step);
  [[noreturn]] void stuck();
  bool is_on_caller() const { return pthread_equal(thread_, pthread_self()) != 0; }
  void await(const std::function<bool()>& is_done, const char* what);
  bool is_quiet(const Comm* comm = nullptr);
  void log_call(Task& task, bool is_replay = false);
  void log_told(uint64_t call_id);
  void log_done(uint64_t call_id, const Run& run);
  void log_end();
  void leave_script();
  void fork_child(const std::string& how);
  void reload();
  Comm* comm_of(const std::string& name);
  bool emits(uint64_t type, int32_t mask) const;

  Process& process_;
  int rank_;
  Gpu gpu_;
  std::vector<Comm> comms_;  // one per communicator line of the script; those it is no member of stay unused
  std::mt19937_64 random_;
  int line_ = 0;
  int depth_ = 0;
  bool is_in_child_ = false;
  bool is_launch_blocking_ = false;
  std::atomic<bool> is_out_{false};

  // What NCCL keeps per thread.
  void* api_coll_ = nullptr;
  void* api_p2p_ = nullptr;
  std::shared_ptr<GroupCall> group_;
  int32_t group_mask_ = 0;
  Comm* group_comm_ = nullptr;
  Tasks tasks_;

  std::string capturing_;
  std::map<std::string, std::vector<Plan>> graphs_;
  Worker& host_callbacks();
  std::unique_ptr<Worker> host_;
  std::mutex host_mutex_;  // held while H makes callbacks: no communicator goes away under it
  std::unique_ptr<Worker> helper_;

  pthread_t thread_ = pthread_self();  // A
  std::mutex counters_mutex_;  // a helper thread may launch while this one makes the next call
  std::mutex open_mutex_;
  std::set<uint64_t> open_calls_;
  uint64_t n_calls_ = 0;
  uint64_t n_unseen_ = 0;
  std::atomic<uint64_t> n_done_{0};
};

// Plans of all communicators of a group call, round-robin.
std::vector<Plan> plans_of(const Tasks& tasks, int n_plans);
std::shared_ptr<Work> kernel_work(Process& process, Gpu& gpu, const std::shared_ptr<Task>& task);
std::shared_ptr<Work> proxy_work(Process& process, const std::shared_ptr<Task>& task, int channel, bool is_send);

// Calls that NCCL should never make, or makes for others (trouble.cc).
class Trouble {
 public:
  explicit Trouble(Rank& rank) : rank_(rank), plugin_(rank.process_.plugin) {}
  void foreign(Comm& comm, const Step& step);
  void proxy_ctrl(Comm& comm);
  void net_plugin(Comm& comm);
  void bad(const Step& step);

 private:
  void null_calls();
  void unknown_state(Comm& comm);
  void unknown_type(Comm& comm);
  void stop_twice(Comm& comm);
  void stale_parent(Comm& comm);
  void wrong_parents(Comm& comm);
  void random_handles(Comm& comm);
  void late_calls(Comm& comm);
  void odd_strings(Comm& comm);
  void* coll(Comm& comm, void* parent, const char* func, const char* text);

  Rank& rank_;
  Plugin& plugin_;
};

// Which types NCCL sends when the mask has `mask` (any descendant asks for its ancestors).
bool is_emitted(const Release& release, uint64_t type, int32_t mask);

}  // namespace fake
#endif
