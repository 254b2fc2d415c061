// Settings of this process: read from the environment once, changed later through the control words.
#ifndef COMMINSIGHT_SETTINGS_H
#define COMMINSIGHT_SETTINGS_H
#include <cstdint>

#include "host.h"

namespace ci {

struct Settings {
  int64_t safe_window_ns;     // COMMINSIGHT_SAFE_WINDOW_MS, 2000
  int64_t overdue_limit_ns;   // COMMINSIGHT_OVERDUE_S, 60
  int64_t min_size_bytes;     // COMMINSIGHT_MIN_SIZE_BYTES, 0
  uint32_t event_mask;        // COMMINSIGHT_EVENT_MASK, all: bit n records Op n
  uint32_t enabled;           // recording on
  uint32_t profiler_mask;     // COMMINSIGHT_NCCL_MASK, light: event types to ask NCCL for
  uint32_t nccl_budget_ppm;   // COMMINSIGHT_NCCL_BUDGET_PERCENT, 2: share of one core; 0: no guard
  int64_t flush_ns;           // COMMINSIGHT_FLUSH_MS, 200
  int64_t segment_bytes;      // COMMINSIGHT_SEGMENT_MB, 64
  int64_t spool_cap_bytes;    // COMMINSIGHT_SPOOL_CAP_MB, 2048
  char box_dir[kPathBytes];   // COMMINSIGHT_BOX_DIR, /dev/shm/comminsight-<uid>
  char fallback_dir[kPathBytes];  // COMMINSIGHT_BOX_FALLBACK, <spool>/boxes
  char spool_dir[kPathBytes];     // COMMINSIGHT_SPOOL, /tmp/comminsight-<uid>/spool
  char disable_file[kPathBytes];  // COMMINSIGHT_DISABLE_FILE, /run/comminsight.disable
  char fifo[kPathBytes];          // COMMINSIGHT_FIFO, none
  bool allow_network_spool;       // COMMINSIGHT_ALLOW_NETWORK_SPOOL
};

void read_settings(Settings* out);

int64_t clamp_safe_window_ns(int64_t value);    // 10 ms to 10 min
int64_t clamp_overdue_limit_ns(int64_t value);  // 50 ms to 1 day
int64_t clamp_min_size_bytes(int64_t value);    // 0 to 1 TiB

}  // namespace ci
#endif
