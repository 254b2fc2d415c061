// A rank plays its lines: steps, waiting, log.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nccl.h"

namespace fake {

Rank::Rank(Process& process, int rank)
    : process_(process), rank_(rank), gpu_(process.arena, process.script.clocks[rank]),
      comms_(process.script.comms.size()), random_(process.script.seed * 1000 + static_cast<uint64_t>(rank)) {
  for (size_t i = 0; i < comms_.size(); i++) {
    comms_[i].spec = &process.script.comms[i];
    comms_[i].index = static_cast<int>(i);
    for (size_t member = 0; member < comms_[i].spec->members.size(); member++)
      if (comms_[i].spec->members[member] == rank) comms_[i].comm_rank = static_cast<int>(member);
  }
}

Comm* Rank::comm_of(const std::string& name) {
  const int index = process_.script.comm_of(name, rank_);
  return index < 0 ? nullptr : &comms_[static_cast<size_t>(index)];
}

void Rank::play() {
  thread_ = pthread_self();
  const Script& script = process_.script;
  for (const CommSpec& spec : script.comms) {
    Comm* comm = comm_of(spec.name);
    if (comm != nullptr && comm->spec == &spec && !spec.is_lazy && !init(*comm)) process_.arena.failed[rank_] = 3;
  }
  process_.arena.places[rank_] = static_cast<int>(Place::kWaiting);
  process_.arena.barrier(script.n_ranks);
  process_.arena.places[rank_] = static_cast<int>(Place::kRunning);
  for (const int index : script.order) {
    const Step& step = script.steps[static_cast<size_t>(index)];
    if (!(step.who >> rank_ & 1)) continue;
    line_ = step.line;
    for (int i = 0; i < step.times; i++) take(step);
  }
  leave_script();
  is_out_ = true;
}

void Rank::take(const Step& step) {
  Comm* comm = step.comm.empty() ? nullptr : comm_of(step.comm);
  if (!step.comm.empty() && comm == nullptr) return;
  switch (step.verb) {
    case Verb::kOp: return call(step, *comm);
    case Verb::kGroup: return enter();
    case Verb::kGroupEnd: return leave(static_cast<int>(step.value));
    case Verb::kSync: return await([this] { return is_quiet(); }, "the GPU");
    case Verb::kDelay: usleep(static_cast<useconds_t>(step.value / 1000)); return;
    case Verb::kCapture: capturing_ = step.word; return;
    case Verb::kCaptureEnd: capturing_.clear(); return;
    case Verb::kReplay: return replay(step.word);
    case Verb::kBlockingLaunch:
      is_launch_blocking_ = step.value != 0;
      host_callbacks();
      return;
    case Verb::kHostBusy: return host_busy(*comm, step.value);
    case Verb::kForeign: return Trouble(*this).foreign(*comm, step);
    case Verb::kProxyCtrl: return Trouble(*this).proxy_ctrl(*comm);
    case Verb::kNetPlugin: return Trouble(*this).net_plugin(*comm);
    case Verb::kBad: return Trouble(*this).bad(step);
    default: return take_life(step);
  }
}

void Rank::take_life(const Step& step) {
  Comm* comm = step.comm.empty() ? nullptr : comm_of(step.comm);
  switch (step.verb) {
    case Verb::kBarrier:
      process_.arena.places[rank_] = static_cast<int>(Place::kWaiting);
      process_.arena.barrier(process_.script.n_ranks);
      process_.arena.places[rank_] = static_cast<int>(Place::kRunning);
      return;
    case Verb::kInit: init(*comm); return;
    case Verb::kFinalize: return finalize(*comm, true);
    case Verb::kAbort: return abort(*comm);
    case Verb::kReload: return reload();
    case Verb::kFork: return fork_child(step.word);
    case Verb::kKill: kill(getpid(), SIGKILL); return;
    case Verb::kExit: log_end(); exit(0);
    case Verb::kCrash: log_end(); ::abort();
    case Verb::kMask: process_.plugin.set_mask(static_cast<int32_t>(step.value)); return;
    case Verb::kChaos: return process_.chaos(step.value != 0);
    default: return;
  }
}

// The thread is inside a call that does not come back; the process ends around it. The caller of a helper goes on.
void Rank::stuck() {
  if (!is_on_caller())
    while (true) pause();
  process_.arena.places[rank_] = static_cast<int>(Place::kStuck);
  while (!process_.arena.is_leaving) {
    gpu_.advance(mono_ns());
    usleep(500);
  }
  log_end();
  is_out_ = true;
  while (true) pause();
}

bool Rank::is_quiet(const Comm* comm) {
  if (!gpu_.is_idle(comm) || (helper_ && !helper_->is_idle()) || (host_ && !host_->is_idle())) return false;
  for (const Comm& each : comms_) {
    if (!each.family || (comm != nullptr && comm != &each)) continue;
    if (!each.family->proxy.is_idle() || !each.family->of_kernels().is_idle()) return false;
  }
  return true;
}

void Rank::await(const std::function<bool()>& is_done, const char* what) {
  const Script& script = process_.script;
  const int64_t limit_ns = mono_ns() + script.patience_ns;
  process_.arena.places[rank_] = static_cast<int>(Place::kWaiting);
  int pause_us = 10;
  while (!is_done()) {
    if (process_.arena.is_leaving) break;
    if (!script.is_holding && mono_ns() > limit_ns) {
      fprintf(stderr, "%s:%d: rank %d waited too long for %s\n", script.path.c_str(), line_, rank_, what);
      process_.arena.failed[rank_] = 1;
      break;
    }
    pause_us = gpu_.advance(mono_ns()) ? 10 : pause_us < 1000 ? pause_us * 2 : pause_us;
    usleep(static_cast<useconds_t>(pause_us));
  }
  process_.arena.places[rank_] = static_cast<int>(Place::kRunning);
}

void Rank::leave_script() {
  const Script& script = process_.script;
  if (script.is_holding) {
    process_.arena.places[rank_] = static_cast<int>(Place::kHolding);
    while (!process_.arena.is_leaving) {
      gpu_.advance(mono_ns());
      usleep(1000);
    }
  } else if (script.leave == Leave::kFinalize) {
    await([this] { return is_quiet(); }, "the GPU");
  }
  log_end();
  if (script.leave == Leave::kKill) kill(getpid(), SIGKILL);
  if (script.leave == Leave::kExit) return;
  for (Comm& comm : comms_) {
    if (!comm.is_alive) continue;
    if (script.leave == Leave::kAbort)
      abort(comm);
    else
      finalize(comm, false);
  }
}

void Rank::reload() {
  for (Comm& comm : comms_)
    if (comm.is_alive) finalize(comm, true);
  for (const CommSpec& spec : process_.script.comms)
    if (Comm* comm = comm_of(spec.name); comm != nullptr && comm->spec == &spec) init(*comm);
}

void Rank::fork_child(const std::string& how) {
  fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    is_in_child_ = true;
    Step step;
    step.op.dtype = data_type("float32");
    if (how == "use")
      for (Comm& comm : comms_)
        if (comm.is_alive) call(step, comm);
    if (how == "exit") exit(0);
    _exit(0);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
    fprintf(stderr, "%s:%d: the child of rank %d ended with status %d\n", process_.script.path.c_str(), line_, rank_,
            status);
    process_.arena.failed[rank_] = 1;
  }
}

void Rank::log_call(Task& task, bool is_replay) {
  if (is_in_child_) return;
  task.call_id = ++n_calls_;
  // A captured call does nothing; a replay is seen through kernel events only.
  const bool is_dark = task.is_captured && !(is_replay && emits(ci::nccl::kKernelCh, task.mask));
  const bool is_unseen = is_dark || !is_end_seen(task);
  if (is_unseen) n_unseen_++;
  {
    std::lock_guard<std::mutex> lock(open_mutex_);
    if (!is_unseen) open_calls_.insert(task.call_id);
    process_.arena.in_flight[rank_] = static_cast<int64_t>(open_calls_.size());
  }
  if (!process_.log.is_open()) return;
  const Op& op = *task.op;
  Json json;
  json.text("event", "call").number("rank", rank_).number("id", static_cast<int64_t>(task.call_id));
  json.text("comm", task.comm->spec->name).hex("hash", task.comm->spec->hash);
  json.number("call_seq", task.is_captured && !is_replay ? 0 : task.comm->call_seq);
  json.text("func", func_name(task.func)).text("kind", is_collective(task.func) ? "coll" : "p2p");
  json.number("count", static_cast<int64_t>(op.count)).text("dtype", op.dtype->word).number("root", op.root);
  json.number("peer", task.peer).number("channels", __builtin_popcountll(op.channels)).number("line", task.line);
  if (is_unseen) json.raw("unseen", "true");
  if (task.is_captured) json.raw(is_replay ? "replay" : "captured", "true");
  process_.log.line(json.number("t_ns", mono_ns()));
}

// H tells it now: before that the plugin knows nothing of a replay.
void Rank::log_told(uint64_t call_id) {
  if (!process_.log.is_open()) return;
  Json json;
  json.text("event", "told").number("rank", rank_).number("id", static_cast<int64_t>(call_id));
  process_.log.line(json);
}

void Rank::log_done(uint64_t call_id, const Run& run) {
  {
    std::lock_guard<std::mutex> lock(open_mutex_);
    open_calls_.erase(call_id);
    process_.arena.in_flight[rank_] = static_cast<int64_t>(open_calls_.size());
  }
  n_done_++;
  if (!process_.log.is_open()) return;
  Json json;
  json.text("event", "done").number("rank", rank_).number("id", static_cast<int64_t>(call_id));
  json.number("gpu_start_ns", static_cast<int64_t>(gpu_.stamp(run.start_ns)));
  json.number("gpu_end_ns", static_cast<int64_t>(gpu_.stamp(run.end_ns)));
  process_.log.line(json.number("start_ns", run.start_ns).number("end_ns", run.end_ns));
}

void Rank::log_end() {
  if (!process_.log.is_open()) return;
  std::string open = "[";
  {
    std::lock_guard<std::mutex> lock(open_mutex_);
    for (const uint64_t id : open_calls_) open += (open.size() > 1 ? "," : "") + std::to_string(id);
  }
  Json callbacks;
  Calls& calls = process_.plugin.calls();
  for (int bit = 0; bit < kEventTypes; bit++)
    if (const int64_t n = calls.started[bit]; n > 0) callbacks.number(event_name(bit), n);
  Json json;
  json.text("event", "end").number("rank", rank_).number("played", static_cast<int64_t>(n_calls_));
  json.number("done", static_cast<int64_t>(n_done_)).number("unseen", static_cast<int64_t>(n_unseen_));
  json.raw("in_flight", open + "]").raw("callbacks", callbacks.str());
  json.number("stops", calls.stops).number("states", calls.states);
  process_.log.line(json.number("unwritten", calls.unwritten).number("nonzero", calls.nonzero));
}

}  // namespace fake
