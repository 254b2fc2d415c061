// What differs between NCCL releases: table versions, names that are tried, threads, habits.
#ifndef FAKE_NCCL_RELEASE_H
#define FAKE_NCCL_RELEASE_H
#include <string>
#include <vector>

namespace fake {

struct Release {
  std::string name = "2.30";
  int minor = 30;     // 2.<minor>
  int newest = 6;     // table version it knows natively
  int at_most = 6;    // smaller: NCCL finds no newer table, a shim stands between
  bool is_2_27_3 = false;
  bool has_kernel_thread() const { return minor >= 31; }
  bool has_api_events() const { return minor >= 28; }
  bool clears_task_handle() const { return minor >= 31; }
  bool sets_api_rank() const { return minor >= 32; }
  bool is_ce_capable() const { return minor >= 29; }
};

// "2.28" or "2.28 shim v4"; false when there is no such release or shim.
bool parse_release(const std::string& text, Release* out);
const std::vector<std::string>& release_names();

// What NCCL passes to dlopen, in order, for a value of NCCL_PROFILER_PLUGIN.
struct Attempts {
  bool is_disabled = false;
  std::vector<std::string> names;  // an empty name stands for the program itself
};
Attempts plugin_attempts(const Release& release, const char* value);

}  // namespace fake
#endif
