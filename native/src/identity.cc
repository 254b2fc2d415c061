#include "identity.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "atomics.h"
#include "text.h"
#include "wire.h"

namespace ci {
namespace {

constexpr int kExtraCapacity = 32;
constexpr size_t kValueBytes = 192;
constexpr size_t kOwnValueBytes = kPathBytes;
// A run id takes at most so much, beside some 2.5 KiB of layouts and facts; versions are given later.
constexpr size_t kRunIdBytes = 3072;
constexpr size_t kVersionsBytes = 1024;
constexpr size_t kTailBytes = 128;  // the least that stands behind the environment

struct Extra {
  char key[48];
  char value[kValueBytes];
};
Extra extras[kExtraCapacity];
int n_extras = 0;
uint32_t version = 0;
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

// A name that ends in '*' stands for every variable with this beginning.
constexpr const char* kAllowed[] = {
    "RANK",         "WORLD_SIZE",   "LOCAL_RANK", "GROUP_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "TORCHELASTIC_*",
    "SLURM_PROCID", "SLURM_JOB_ID", "NCCL_*",     "GLOO_*",     "TORCH_NCCL_*",     "COMMINSIGHT_*",
};
constexpr const char* kSecret[] = {"TOKEN", "SECRET", "PASSW", "CREDENTIAL", "KEY", "AUTH"};

bool is_allowed(const char* name, size_t bytes) {
  for (const char* pattern : kAllowed) {
    const size_t n = strlen(pattern);
    if (pattern[n - 1] == '*' ? bytes >= n - 1 && memcmp(name, pattern, n - 1) == 0
                              : bytes == n && memcmp(name, pattern, n) == 0)
      return true;
  }
  return false;
}

bool looks_secret(const char* name, const char* value) {
  for (const char* word : kSecret)
    if (strcasestr(name, word) != nullptr) return true;
  const char* authority = strstr(value, "://");  // user:password@host
  return authority != nullptr && strchr(authority, '@') != nullptr;
}

const char* extra_of(const char* prefix, const char* field) {
  const size_t n = strlen(prefix);
  for (int i = 0; i < n_extras; i++)
    if (strncmp(extras[i].key, prefix, n) == 0 && strcmp(extras[i].key + n, field) == 0) return extras[i].value;
  return nullptr;
}

void string_field(Text& text, const char* name, const char* value, size_t most_bytes = kValueBytes) {
  if (const char* extra = extra_of("identity.", name)) value = extra;
  text.raw(",").quoted(name).raw(":");
  const size_t before = text.size();
  text.quoted(value, most_bytes);
  if (!text.full() && text.size() - before <= most_bytes + 2) return;
  text.rewind(before);  // full of characters to escape
  text.quoted(value, kValueBytes);
}

void number_field(Text& text, const char* name, int64_t value) {
  if (const char* extra = extra_of("identity.", name)) {
    char* end = nullptr;
    const int64_t given = strtoll(extra, &end, 10);
    if (end != extra && *end == 0) value = given;
  }
  text.raw(",").quoted(name).raw(":").number(value);
}

void run_id(char* out, size_t capacity) {
  Text text(out, capacity);
  if (const char* given = env("COMMINSIGHT_RUN_ID")) {
    text.raw(given);
    return;
  }
  const char* elastic = env("TORCHELASTIC_RUN_ID");
  if (elastic != nullptr && strcmp(elastic, "none") != 0) {  // "none" is torchrun's word for "not given"
    text.raw(elastic);
    if (const char* restarts = env("TORCHELASTIC_RESTART_COUNT")) text.raw(".").raw(restarts);
    return;
  }
  if (const char* slurm = env("SLURM_JOB_ID")) text.raw(slurm);
}

void identity_object(Text& text, const IdentityInput& input) {
  const char* const rank[] = {"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", nullptr};
  const char* const local[] = {"LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", nullptr};
  const char* const world[] = {"WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", nullptr};
  const char* const restarts[] = {"TORCHELASTIC_RESTART_COUNT", nullptr};
  char run[kRunIdBytes + 1];
  run_id(run, sizeof run);
  text.raw("\"identity\":{\"session_id\":").quoted(input.facts->session_id);
  string_field(text, "run_id", run, kRunIdBytes);
  string_field(text, "host", input.facts->host);
  text.raw(",\"boot_id\":").quoted(input.facts->boot_id).raw(",\"pid\":").number(input.facts->pid);
  text.raw(",\"pid_start_ticks\":").number(input.facts->start_ticks);
  number_field(text, "global_rank", env_integer(rank, -1));
  number_field(text, "local_rank", env_integer(local, -1));
  number_field(text, "world_size", env_integer(world, -1));
  number_field(text, "restart_count", env_integer(restarts, -1));
  text.raw(",\"created_mono_ns\":").number(input.created_mono_ns);
  text.raw(",\"created_real_ns\":").number(input.created_real_ns).raw("}");
}

void versions_object(Text& text) {
  text.raw("\"versions\":{\"comminsight\":\"" COMMINSIGHT_VERSION "\"");
  for (int i = 0; i < n_extras; i++)
    if (strncmp(extras[i].key, "versions.", 9) == 0)
      text.raw(",").quoted(extras[i].key + 9).raw(":").quoted(extras[i].value, kValueBytes);
  text.raw("}");
}

// Everything in front of the environment's object.
void head_objects(Text& text, const IdentityInput& input) {
  text.raw("{\"layout\":").raw(CI_RECORD_LAYOUT_JSON).raw(",\"comm_layout\":").raw(CI_COMM_LAYOUT_JSON).raw(",");
  identity_object(text, input);
  text.raw(",\"settings\":{\"safe_window_ns\":").number(input.safe_window_ns);
  text.raw(",\"overdue_limit_ns\":").number(input.overdue_limit_ns);
  text.raw(",\"min_size_bytes\":").number(input.min_size_bytes);
  text.raw(",\"event_mask\":").number(input.event_mask);
  text.raw(",\"profiler_mask\":").number(input.profiler_mask).raw("},\"environment\":");
}

// What a box is recognised by comes first, then our settings, then what others set.
enum Importance { kNamesRun, kOurs, kOthers };

Importance importance_of(const char* name) {
  if (strcmp(name, "COMMINSIGHT_SPOOL") == 0 || strcmp(name, "COMMINSIGHT_RUN_ID") == 0) return kNamesRun;
  return strncmp(name, "COMMINSIGHT_", 12) == 0 ? kOurs : kOthers;
}

struct Variable {
  char name[96];
  const char* value;
};

// False when it is none that may be told.
bool read_variable(const char* entry, Variable* out) {
  const char* equals = strchr(entry, '=');
  if (equals == nullptr || equals - entry >= static_cast<ptrdiff_t>(sizeof out->name)) return false;
  const auto bytes = static_cast<size_t>(equals - entry);
  memcpy(out->name, entry, bytes);
  out->name[bytes] = 0;
  out->value = equals + 1;
  return is_allowed(out->name, bytes) && !looks_secret(out->name, out->value);
}

void add_variables(Text& text, Importance importance, Environment* out) {
  for (char** entry = environ; entry != nullptr && *entry != nullptr; entry++) {
    Variable variable;
    if (!read_variable(*entry, &variable) || importance_of(variable.name) != importance) continue;
    const size_t before = text.size();
    text.raw(before > 1 ? "," : "").quoted(variable.name).raw(":");
    text.quoted(variable.value, importance == kOthers ? kValueBytes : kOwnValueBytes);
    const bool is_cut = importance != kOthers && strlen(variable.value) > kOwnValueBytes;
    if (text.full() || is_cut) {
      text.rewind(before);
      out->n_dropped++;
    } else {
      out->n_kept++;
    }
  }
}

// The environment as far as `room_bytes` go: all that was kept at the start, or else what names the run. The
// number of variables left out.
int32_t environment_object(Text& text, const Environment& environment, size_t room_bytes) {
  if (strlen(environment.json) <= room_bytes) {
    text.raw(environment.json);
    return environment.n_dropped;
  }
  if (environment.run_bytes >= room_bytes) {
    text.raw("{}");
    return environment.n_dropped + environment.n_kept;
  }
  text.raw(environment.json, environment.run_bytes).raw("}");
  return environment.n_dropped + environment.n_kept - environment.n_run;
}

}  // namespace

bool identity_set(const char* key, const char* value) {
  if (key == nullptr || value == nullptr) return false;
  if (strncmp(key, "identity.", 9) != 0 && strncmp(key, "versions.", 9) != 0) return false;
  if (strcmp(key, "versions.comminsight") == 0 || strlen(key) >= sizeof extras[0].key) return false;
  pthread_mutex_lock(&lock);
  int i = 0;
  while (i < n_extras && strcmp(extras[i].key, key) != 0) i++;
  const bool fits = i < kExtraCapacity;
  if (fits) {
    copy_field(extras[i].key, key);
    copy_field(extras[i].value, value);
    if (i == n_extras) n_extras++;
    add(version, 1);
  }
  pthread_mutex_unlock(&lock);
  return fits;
}

uint32_t identity_version() { return load_acquire(version); }

void identity_after_fork() { lock = PTHREAD_MUTEX_INITIALIZER; }

void identity_environment(const IdentityInput& input, Environment* out) {
  const char* given = env("COMMINSIGHT_RUN_ID");
  if (given != nullptr && strlen(given) > kRunIdBytes) log_line("COMMINSIGHT_RUN_ID is too long, it is cut");
  pthread_mutex_lock(&lock);
  Text head(out->json, sizeof out->json);
  head_objects(head, input);
  pthread_mutex_unlock(&lock);
  const size_t rest = head.size() + kVersionsBytes + kTailBytes;
  Text text(out->json, rest < sizeof out->json ? sizeof out->json - rest : 2);
  out->n_run = out->n_kept = out->n_dropped = 0;
  text.raw("{");
  add_variables(text, kNamesRun, out);
  out->run_bytes = text.size();
  out->n_run = out->n_kept;
  add_variables(text, kOurs, out);
  add_variables(text, kOthers, out);
  const size_t end = text.size();
  out->json[end] = '}';
  out->json[end + 1] = 0;
  if (out->n_dropped != 0)
    log_line("%d variables of the environment are not in the identity: no room", out->n_dropped);
}

size_t identity_render(const IdentityInput& input, char* out) {
  pthread_mutex_lock(&lock);
  Text head(out, kIdentityBytes);
  head_objects(head, input);
  const size_t room = kIdentityBytes - kTailBytes - head.size();
  const int32_t n_dropped = environment_object(head, *input.environment, room);
  head.raw(",");
  if (n_dropped != 0) head.raw("\"environment_dropped\":").number(n_dropped).raw(",");
  Text tail(out + head.size(), kIdentityBytes - head.size());
  versions_object(tail);
  tail.raw("}");
  if (tail.full()) {  // 32 long version strings: rather none than half an object
    tail.rewind(0);
    tail.raw("\"versions\":{\"comminsight\":\"" COMMINSIGHT_VERSION "\"}}");
  }
  pthread_mutex_unlock(&lock);
  return head.size() + tail.size();
}

}  // namespace ci
