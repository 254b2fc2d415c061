// Birth and death of the NCCL door: inert processes, the mask at run time, forks, events after the end.
#include <sys/wait.h>

#include "life.h"
#include "nccl_play.h"
#include "stage.h"

// The child of a fork starts a recorder, and so a thread, of its own.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options() { return "die_after_fork=0"; }

namespace {

using play::kMaskLight;
constexpr uint32_t kNet = ci::nccl::kMaskNet;
int32_t mask = 0x77;

void* open(uint64_t hash) { return play::init<7>(ncclProfiler_v7, hash, &mask, "dp", 2, 0); }

void play_one(void* context) {
  play::Collective<7> collective(ncclProfiler_v7, context);
  collective.play(4);
}

int exit_code(pid_t child) {
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void disabled() {
  const pid_t child = fork();
  if (child == 0) {
    setenv("COMMINSIGHT_DISABLE", "1", 1);
    void* context = open(1);
    CHECK_EQ(mask, 0);
    CHECK(context != nullptr);
    play_one(context);
    play_one(nullptr);
    CHECK_EQ(ncclProfiler_v7.finalize(context), 0);
    _exit(failures());
  }
  CHECK_EQ(exit_code(child), 0);
}

bool becomes(const int32_t& word, uint32_t value) {
  for (int i = 0; i < 500; i++, usleep(10000))
    if (static_cast<uint32_t>(ci::load_relaxed(word)) == value) return true;
  return false;
}

void masks() {
  void* context = open(2);
  ci_box_header& header = *ci::recorder()->box.header();
  CHECK_EQ(mask, kMaskLight);
  ci::store_relaxed(header.control_profiler_mask, kNet);
  ci::add(header.control_generation, 1);
  CHECK(becomes(mask, kNet));
  ci::store_relaxed(mask, 0x42);  // another tool's wish stands
  CHECK_EQ(ci::flush(5000), 0);
  CHECK_EQ(ci::flush(5000), 0);
  CHECK_EQ(ci::load_relaxed(mask), 0x42);
  int32_t other = 0;
  void* second = play::init<4>(ncclProfiler_v4, 3, &other, nullptr, 2, 1);
  CHECK_EQ(other, (kNet & 0xFF) | ci::nccl::kGroup);
  ncclProfiler_v4.finalize(second);
  ncclProfiler_v7.finalize(context);
}

// A child has its parent's context and handles, and must touch nothing of its parent's.
void forks() {
  void* context = open(4);
  play_one(context);
  const int64_t begun = ci::recorder()->stat(CI_STAT_OPS_BEGUN);
  const pid_t child = fork();
  if (child == 0) {
    play_one(context);
    void* own = open(5);
    play_one(context);
    play_one(own);
    CHECK_EQ(ci::recorder()->stat(CI_STAT_OPS_BEGUN), 1);
    CHECK_EQ(ci::recorder()->stat(CI_STAT_OPS_RECORDED), 1);
    CHECK_EQ(ci::recorder()->stat(kLossSumStat + CI_LOSSREASON_FORKED), 2);
    ncclProfiler_v7.finalize(context);
    ncclProfiler_v7.finalize(own);
    _exit(failures());
  }
  CHECK_EQ(exit_code(child), 0);
  CHECK_EQ(ci::recorder()->stat(CI_STAT_OPS_BEGUN), begun);
  play_one(context);
  CHECK_EQ(ci::recorder()->stat(CI_STAT_OPS_BEGUN), begun + 1);
  ncclProfiler_v7.finalize(context);
}

void afterwards() {
  void* context = open(6);
  ncclProfiler_v7.finalize(context);
  const int64_t begun = ci::recorder()->stat(CI_STAT_OPS_BEGUN);
  play_one(context);
  ncclProfiler_v7.finalize(context);
  CHECK_EQ(ci::recorder()->stat(CI_STAT_OPS_BEGUN), begun);
  void* late = open(7);
  play_one(late);
  CHECK_EQ(ci::close_recorder(), 0);
  play_one(late);
  ncclProfiler_v7.finalize(late);
  CHECK_EQ(ci::recorder() == nullptr, true);
}

}  // namespace

int main() {
  Stage stage;
  disabled();
  masks();
  forks();
  afterwards();
  return failures() != 0;
}
