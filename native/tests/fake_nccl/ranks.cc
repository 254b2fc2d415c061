#include "ranks.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "nccl.h"

namespace fake {
namespace {

constexpr int64_t kSettledNs = 100000000;  // nothing has moved for so long: it stands

volatile sig_atomic_t is_told_to_leave = 0;

void set_environment(const Script& script, int rank) {
  const auto set = [](const char* name, int value) { setenv(name, std::to_string(value).c_str(), 1); };
  set("WORLD_SIZE", script.n_ranks);
  set("LOCAL_WORLD_SIZE", std::min(script.n_ranks, script.ranks_per_node));
  if (rank < 0) {
    unsetenv("RANK");  // several ranks in one process: launchers name none
    unsetenv("LOCAL_RANK");
    return;
  }
  set("RANK", rank);
  set("LOCAL_RANK", rank % script.ranks_per_node);
}

// The body of one process with some ranks, each on a thread of its own.
[[noreturn]] void run_process(const Script& script, Arena& arena, Log& log, const std::vector<int>& ranks) {
  static Process* process = nullptr;  // never destroyed: threads may still run at exit
  process = new Process(script, arena, log);
  for (const int rank : ranks) process->ranks.push_back(std::make_unique<Rank>(*process, rank));
  for (const auto& rank : process->ranks) std::thread([&rank] { rank->play(); }).detach();
  const auto is_out = [](const auto& rank) { return rank->is_out(); };
  while (!std::all_of(process->ranks.begin(), process->ranks.end(), is_out)) process->tick();
  process->chaos(false);
  int status = 0;
  for (const int rank : ranks) status = std::max(status, arena.failed[rank].load());
  exit(status);
}

class Watch {
 public:
  Watch(const Script& script, Arena& arena, Log& log, bool is_quiet)
      : script_(script), arena_(arena), log_(log), is_quiet_(is_quiet) {}

  int run() {
    struct sigaction leave = {};
    leave.sa_handler = [](int) { is_told_to_leave = 1; };
    sigaction(SIGTERM, &leave, nullptr);
    sigaction(SIGINT, &leave, nullptr);
    start_all();
    while (!children_.empty()) {
      reap();
      look();
      usleep(500);
    }
    return status_;
  }

 private:
  void start_all() {
    std::vector<int> all;
    for (int rank = 0; rank < script_.n_ranks; rank++) all.push_back(rank);
    if (script_.is_threads) return start(all);
    for (const int rank : all) start({rank});
  }

  void start(const std::vector<int>& ranks) {
    fflush(nullptr);
    const pid_t child = fork();
    if (child != 0) {
      children_[child] = ranks;
      return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    if (const int null = ::open("/dev/null", O_RDONLY); null >= 0) dup2(null, 0);
    set_environment(script_, script_.is_threads && script_.n_ranks > 1 ? -1 : ranks.front());
    run_process(script_, arena_, log_, ranks);
  }

  void reap() {
    int status = 0;
    for (pid_t child; (child = waitpid(-1, &status, WNOHANG)) > 0;) {
      for (const int rank : children_[child]) arena_.places[rank] = static_cast<int>(Place::kGone);
      note_status(children_[child].front(), status);
      children_.erase(child);
    }
  }

  void note_status(int rank, int status) {
    if (WIFEXITED(status)) {
      status_ = std::max(status_, WEXITSTATUS(status));
      return;
    }
    status_ = std::max(status_, 1);
    const int signal = WTERMSIG(status);
    if (signal == SIGKILL || signal == SIGABRT) return;  // a script may ask for these
    fprintf(stderr, "%s: the process of rank %d died of signal %d\n", script_.path.c_str(), rank, signal);
  }

  // Says when everything stands still, and ends the hold when it is time.
  void look() {
    const int64_t now_ns = mono_ns();
    const int64_t progress = arena_.progress;
    const bool stands = standing();
    if (progress != progress_ || !stands) {
      progress_ = progress;
      since_ns_ = now_ns;
    }
    if (is_told_to_leave) arena_.is_leaving = 1;
    if (!stands || !script_.is_holding || now_ns - since_ns_ < kSettledNs || children_.empty()) return;
    if (settled_ns_ == 0) announce();
    if (settled_ns_ == 0) settled_ns_ = now_ns;
    if (script_.hold_ns >= 0 ? now_ns - settled_ns_ >= script_.hold_ns : has_input_ended()) arena_.is_leaving = 1;
  }

  bool standing() const {
    for (int rank = 0; rank < script_.n_ranks; rank++)
      if (arena_.places[rank].load() == static_cast<int>(Place::kRunning)) return false;
    return true;
  }

  void announce() const {
    if (is_quiet_) return;
    static const char* const kPlaces[] = {"running", "waiting", "stuck", "holding", "gone"};
    std::string places, pids;
    int64_t in_flight = 0;
    for (int rank = 0; rank < script_.n_ranks; rank++) {
      const int place = arena_.places[rank];
      if (place != static_cast<int>(Place::kGone)) in_flight += arena_.in_flight[rank];
      places += (rank > 0 ? "," : "") + json_text(kPlaces[place]);
      pids += (rank > 0 ? "," : "") + std::to_string(pid_of(rank));
    }
    Json json;
    json.raw("settled", "true").number("in_flight", in_flight);
    json.raw("places", "[" + places + "]").raw("pids", "[" + pids + "]");
    puts(json.str().c_str());
    fflush(stdout);
  }

  // 0: gone
  pid_t pid_of(int rank) const {
    for (const auto& [child, ranks] : children_)
      if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end()) return child;
    return 0;
  }

  static bool has_input_ended() {
    pollfd input{0, POLLIN, 0};
    char drop[256];
    if (poll(&input, 1, 0) <= 0) return false;
    return read(0, drop, sizeof drop) <= 0;
  }

  const Script& script_;
  Arena& arena_;
  Log& log_;
  bool is_quiet_;
  std::map<pid_t, std::vector<int>> children_;
  int status_ = 0;
  int64_t progress_ = -1, since_ns_ = 0, settled_ns_ = 0;
};

}  // namespace

int play_script(const Script& script, Log& log, bool is_quiet) {
  Arena* arena = Arena::create();
  if (arena == nullptr) {
    perror("fake_nccl: no shared memory");
    return 1;
  }
  return Watch(script, *arena, log, is_quiet).run();
}

}  // namespace fake
