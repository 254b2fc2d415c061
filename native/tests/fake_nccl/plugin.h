// The plugin as one NCCL release sees it: resolved, opened, called through the version's own table or a shim.
#ifndef FAKE_NCCL_PLUGIN_H
#define FAKE_NCCL_PLUGIN_H
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "nccl/abi.h"
#include "release.h"

namespace fake {

// What some release says about an event; each version's descriptor takes the fields it has.
struct Event {
  uint64_t type = 0;
  void* parent = nullptr;
  int rank = 0;
  uint64_t seq = 0;
  const char* func = nullptr;
  const char* datatype = nullptr;
  size_t count = 0;
  int root = 0;
  int peer = 0;
  uint8_t n_channels = 0;
  const char* algo = nullptr;
  const char* proto = nullptr;
  void* parent_group = nullptr;
  const char* kernel_variant = nullptr;
  bool is_symmetric = false;
  uint64_t user_tag = 0;
  void* stream = nullptr;
  bool is_captured = false;
  int depth = 0;
  uint8_t channel = 0;
  uint64_t gpu_ns = 0;
  uint8_t phase = 0;
  const char* phase_name = nullptr;
  int pid = 0;
  int n_steps = 0;
  int chunk_bytes = 0;
  bool is_send = false;
  int step = 0;
  int64_t net_id = 0;
  void* net_data = nullptr;
  uint32_t ce_seq = 0;
};

constexpr int kEventTypes = 17;  // the last: types nobody knows
const char* event_name(int bit);

struct Calls {
  std::atomic<int64_t> started[kEventTypes] = {};
  std::atomic<int64_t> states{0}, stops{0};
  std::atomic<int64_t> unwritten{0}, nonzero{0}, init_errors{0};
};

// What one load tried and found; for --probe.
struct Attempt {
  std::string name;
  std::string path;
  std::string error;
};

class Plugin {
 public:
  Plugin(const Release& release, bool is_poisoning) : release_(release), is_poisoning_(is_poisoning) {}

  // Counts one communicator more, and loads at the first. False when there is no plugin: nothing is called then.
  bool acquire();
  // One communicator less; closes the library at the last.
  void release();

  ci::nccl::Result init(void** context, const char* name, uint64_t hash, int n_nodes, int n_ranks, int rank);
  // Writes *handle if the plugin does; the shim's habits included.
  void start(void* context, void** handle, const Event& event);
  // Without the check for NULL that NCCL makes in most places.
  void stop(void* handle);
  void state(void* handle, int32_t state, const ci::nccl::StateArgs& args);
  void group_state(void* handle, int32_t state);
  void finalize(void* context);

  int32_t mask() const { return __atomic_load_n(&mask_, __ATOMIC_RELAXED); }
  void set_mask(int32_t mask) { __atomic_store_n(&mask_, mask, __ATOMIC_RELAXED); }
  bool is_loaded() const { return version_ != 0; }
  int version() const { return version_; }
  bool is_shimmed() const { return version_ < release_.newest; }
  const Release& nccl() const { return release_; }
  Calls& calls() { return calls_; }
  const std::vector<Attempt>& attempts() const { return attempts_; }
  const std::vector<std::string>& symbols() const { return symbols_; }
  const char* plugin_name() const;
  // A function that the library exports besides the tables; nullptr when it has none of that name.
  void* exported(const char* name) const;

 private:
  bool load();
  bool find_table(void* library);
  bool is_dropped(const Event& event, void** handle) const;

  Release release_;
  bool is_poisoning_;
  std::mutex mutex_;
  int n_users_ = 0;
  bool has_failed_ = false;
  bool is_off_ = false;  // 2.27 after a failing init
  bool is_usable_ = false;  // a shim fills its functions in after the first init that succeeds
  void* library_ = nullptr;
  void* table_ = nullptr;
  int version_ = 0;
  int32_t mask_ = 0;
  Calls calls_;
  std::vector<Attempt> attempts_;
  std::vector<std::string> symbols_;
};

// What a handle variable holds before a start while poisoning.
inline void* poison() { return reinterpret_cast<void*>(uintptr_t{0xDEADBEEFDEADBEE8}); }
int64_t mono_ns();

}  // namespace fake
#endif
