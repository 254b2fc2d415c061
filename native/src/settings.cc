#include "settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nccl/abi.h"
#include "text.h"

namespace ci {
namespace {

constexpr int64_t kMiB = 1 << 20;

int64_t clamp(int64_t value, int64_t low, int64_t high) { return value < low ? low : value > high ? high : value; }

// Absolute, since the process may change its directory later. False when it is too long to be a path.
bool absolute_path(char (&out)[kPathBytes], const char* path) {
  char here[kPathBytes];
  Text text(out, sizeof out);
  if (path[0] != '/' && getcwd(here, sizeof here) != nullptr) text.raw(here).raw("/");
  return !text.raw(path).full();
}

void path_setting(char (&out)[kPathBytes], const char* name, const char* otherwise, const char* suffix = "") {
  const char* value = env(name);
  if (value != nullptr && absolute_path(out, value)) return;
  if (value != nullptr) log_line("%s is longer than a path can be, the default stays", name);
  Text(out, sizeof out).raw(otherwise).raw(suffix);
}

uint32_t profiler_mask_setting(const char* name) {
  constexpr struct {
    const char* word;
    uint32_t mask;
  } kWords[] = {{"off", 0},
                {"api", nccl::kMaskApi},
                {"light", nccl::kMaskLight},
                {"net", nccl::kMaskNet},
                {"deep", nccl::kMaskDeep}};
  const char* value = env(name);
  if (value == nullptr) return nccl::kMaskLight;
  for (const auto& known : kWords)
    if (strcmp(value, known.word) == 0) return known.mask;
  char* end = nullptr;
  const unsigned long long number = strtoull(value, &end, 0);
  if (*end == 0 && number <= INT32_MAX) return static_cast<uint32_t>(number);
  log_line("%s is none of off, api, light, net, deep and no number: light stays", name);
  return nccl::kMaskLight;
}

}  // namespace

int64_t clamp_safe_window_ns(int64_t value) { return clamp(value, 10 * kNsPerMs, 600 * kNsPerS); }
int64_t clamp_overdue_limit_ns(int64_t value) { return clamp(value, 50 * kNsPerMs, 86400 * kNsPerS); }
int64_t clamp_min_size_bytes(int64_t value) { return clamp(value, 0, int64_t{1} << 40); }

void read_settings(Settings* out) {
  memset(static_cast<void*>(out), 0, sizeof *out);
  const auto ms = static_cast<double>(kNsPerMs);
  out->safe_window_ns = clamp_safe_window_ns(env_scaled("COMMINSIGHT_SAFE_WINDOW_MS", ms, 2 * kNsPerS, 0, INT64_MAX));
  out->overdue_limit_ns =
      clamp_overdue_limit_ns(env_scaled("COMMINSIGHT_OVERDUE_S", 1e3 * ms, 60 * kNsPerS, 0, INT64_MAX));
  out->min_size_bytes = clamp_min_size_bytes(env_scaled("COMMINSIGHT_MIN_SIZE_BYTES", 1, 0, 0, INT64_MAX));
  out->event_mask = static_cast<uint32_t>(env_scaled("COMMINSIGHT_EVENT_MASK", 1, UINT32_MAX, 0, UINT32_MAX));
  out->enabled = 1;
  out->profiler_mask = profiler_mask_setting("COMMINSIGHT_NCCL_MASK");
  out->nccl_budget_ppm =
      static_cast<uint32_t>(env_scaled("COMMINSIGHT_NCCL_BUDGET_PERCENT", 1e4, 20000, 0, 1000000));
  out->flush_ns = env_scaled("COMMINSIGHT_FLUSH_MS", ms, 200 * kNsPerMs, kNsPerMs, 10 * kNsPerS);
  out->segment_bytes = env_scaled("COMMINSIGHT_SEGMENT_MB", kMiB, 64 * kMiB, kMiB, int64_t{4096} * kMiB);
  out->spool_cap_bytes = env_scaled("COMMINSIGHT_SPOOL_CAP_MB", kMiB, 2048 * kMiB, kMiB, INT64_MAX / 2);
  char own[64];
  snprintf(own, sizeof own, "/comminsight-%u", geteuid());
  char fallback[128];
  snprintf(fallback, sizeof fallback, "/dev/shm%s", own);
  path_setting(out->box_dir, "COMMINSIGHT_BOX_DIR", fallback);
  snprintf(fallback, sizeof fallback, "/tmp%s", own);
  path_setting(out->spool_dir, "COMMINSIGHT_SPOOL", fallback, "/spool");
  path_setting(out->fallback_dir, "COMMINSIGHT_BOX_FALLBACK", out->spool_dir, "/boxes");
  path_setting(out->disable_file, "COMMINSIGHT_DISABLE_FILE", "/run/comminsight.disable");
  path_setting(out->fifo, "COMMINSIGHT_FIFO", "");
  out->allow_network_spool = env_is_true("COMMINSIGHT_ALLOW_NETWORK_SPOOL");
}

}  // namespace ci
