// The identity JSON of docs/formats.md. It is rendered when the recorder starts and again whenever
// ci_identity or a control word changes it; the drain thread carries the news into box and segment.
#ifndef COMMINSIGHT_IDENTITY_H
#define COMMINSIGHT_IDENTITY_H
#include <cstddef>
#include <cstdint>

#include "host.h"

namespace ci {

constexpr size_t kIdentityBytes = 8192;  // half of the box's JSON area: two copies take turns

// Remembers "identity.<field>" or "versions.<name>"; later values replace earlier ones. False when the
// key is neither, or the table of 32 is full. Safe before the recorder exists and from any thread.
bool identity_set(const char* key, const char* value);
// Grows with every identity_set.
uint32_t identity_version();
// After a fork the lock may be held by a thread that is not there.
void identity_after_fork();

// Allow-listed variables, without what looks like a secret.
struct Environment {
  char json[kIdentityBytes];  // an object
  size_t run_bytes;           // of its beginning: without the closing brace, what names the run alone
  int32_t n_run;              // variables in there
  int32_t n_kept;
  int32_t n_dropped;          // for want of room
};

struct IdentityInput {
  const ProcessFacts* facts;
  int64_t created_mono_ns;
  int64_t created_real_ns;
  const Environment* environment;
  int64_t safe_window_ns;  // settings in force
  int64_t overdue_limit_ns;
  int64_t min_size_bytes;
  uint32_t event_mask;
  uint32_t profiler_mask;
};
// Reads `environ`: once, at start. Fills `out` with what fits beside the rest of `input`: COMMINSIGHT_SPOOL
// and COMMINSIGHT_RUN_ID first, then the other variables of ours, then those of others; values of ours whole.
void identity_environment(const IdentityInput& input, Environment* out);
// Writes the whole object into kIdentityBytes; returns its bytes.
size_t identity_render(const IdentityInput& input, char* out);

}  // namespace ci
#endif
