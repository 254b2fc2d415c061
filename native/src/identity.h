// The identity JSON of docs/formats.md. It is rendered when the recorder starts and again whenever
// ci_identity or a control word changes it; the drain thread carries the news into box and segment.
#ifndef COMMINSIGHT_IDENTITY_H
#define COMMINSIGHT_IDENTITY_H
#include <cstddef>
#include <cstdint>

#include "host.h"
#include "settings.h"

namespace ci {

constexpr size_t kIdentityBytes = 8192;  // half of the box's JSON area: two copies take turns

// Remembers "identity.<field>" or "versions.<name>"; later values replace earlier ones. False when the
// key is neither, or the table of 32 is full. Safe before the recorder exists and from any thread.
bool identity_set(const char* key, const char* value);
// Grows with every identity_set.
uint32_t identity_version();
// After a fork the lock may be held by a thread that is not there.
void identity_after_fork();

struct IdentityInput {
  const ProcessFacts* facts;
  int64_t created_mono_ns;
  int64_t created_real_ns;
  const char* environment_json;  // of identity_environment
  Settings in_force;             // the four settings named in docs/formats.md
};
// Allow-listed variables as a JSON object, without what looks like a secret. Reads `environ`: once, at start.
void identity_environment(char* out, size_t capacity);
// Writes the whole object; returns its bytes.
size_t identity_render(const IdentityInput& input, char* out, size_t capacity);

}  // namespace ci
#endif
